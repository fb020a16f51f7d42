//! `/metrics`: requests by route and status, how long their answers take, what uploads hold, and the build.

use std::fmt;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use slipway_http::request_metrics::{RequestMetrics, Watch};

const SECONDS: [f64; 11] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0];

pub(crate) struct Metrics {
    registry: Registry,
    requests: RequestMetrics,
    /// The time to turn a query into a vector.
    pub(crate) embedding_seconds: Histogram,
    /// Uploads under way.
    pub(crate) uploads: Gauge,
    /// Bytes of uploads that were stored.
    pub(crate) uploaded_bytes: Counter<u64, AtomicU64>,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let (uploads, uploaded_bytes) = (Gauge::default(), Counter::default());
        let embedding_seconds = Histogram::new(SECONDS);
        let mut registry = Registry::with_prefix("slipway_worker");
        let requests = RequestMetrics::register(&mut registry, &SECONDS);
        registry.register("embedding_seconds", "Time to turn a query into a vector", embedding_seconds.clone());
        registry.register("uploads", "Uploads under way", uploads.clone());
        registry.register("uploaded_bytes", "Bytes of uploads that were stored", uploaded_bytes.clone());
        registry.register("build", "Which build this is", Info::new([("version", env!("CARGO_PKG_VERSION"))]));
        Self { registry, requests, embedding_seconds, uploads, uploaded_bytes }
    }

    /// Starts the clock for one request; it is counted however it ends.
    pub(crate) fn watch(&self, route: &'static str) -> Watch<'_> {
        self.requests.watch(route)
    }

    pub(crate) fn text(&self) -> Result<String, fmt::Error> {
        let mut out = String::new();
        text::encode(&mut out, &self.registry)?;
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_dashboards_ask_for_is_on_the_page() {
        let metrics = Metrics::new();
        metrics.watch("/search").answered(200);
        slipway_peers::has_metrics("slipway_worker_", &metrics.text().unwrap());
    }
}
