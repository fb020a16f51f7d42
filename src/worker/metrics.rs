//! `/metrics`: requests by route and status, how long their answers take, what uploads hold, and the build.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const SECONDS: [f64; 11] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0];
/// Counted for a request whose client disconnected before the answer.
const CLIENT_LEFT: u16 = 499;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answered {
    route: &'static str,
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Route {
    route: &'static str,
}

type Seconds = Family<Route, Histogram, fn() -> Histogram>;

pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<Answered, Counter>,
    seconds: Seconds,
    /// The time to turn a query into a vector.
    pub(crate) embedding_seconds: Histogram,
    /// Uploads under way.
    pub(crate) uploads: Gauge,
    /// Bytes of uploads that were stored.
    pub(crate) uploaded_bytes: Counter<u64, AtomicU64>,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let (requests, uploads, uploaded_bytes) = (Family::default(), Gauge::default(), Counter::default());
        let seconds = Seconds::new_with_constructor(|| Histogram::new(SECONDS));
        let embedding_seconds = Histogram::new(SECONDS);
        let mut registry = Registry::with_prefix("slipway_worker");
        registry.register("requests", "Requests answered, by route and status", requests.clone());
        registry.register("request_seconds", "Time from a request's head to the first byte of its answer", seconds.clone());
        registry.register("embedding_seconds", "Time to turn a query into a vector", embedding_seconds.clone());
        registry.register("uploads", "Uploads under way", uploads.clone());
        registry.register("uploaded_bytes", "Bytes of uploads that were stored", uploaded_bytes.clone());
        registry.register("build", "Which build this is", Info::new([("version", env!("CARGO_PKG_VERSION"))]));
        Self { registry, requests, seconds, embedding_seconds, uploads, uploaded_bytes }
    }

    /// Starts the clock for one request; it is counted however it ends.
    pub(crate) fn watch(&self, route: &'static str) -> Watch<'_> {
        Watch { metrics: self, route, started: Instant::now(), status: None }
    }

    pub(crate) fn text(&self) -> Result<String, fmt::Error> {
        let mut out = String::new();
        text::encode(&mut out, &self.registry)?;
        Ok(out)
    }
}

pub(crate) struct Watch<'a> {
    metrics: &'a Metrics,
    route: &'static str,
    started: Instant,
    status: Option<u16>,
}

impl Watch<'_> {
    pub(crate) fn answered(mut self, status: u16) {
        self.status = Some(status);
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        let lost = if std::thread::panicking() { 500 } else { CLIENT_LEFT };
        let (route, status) = (self.route, self.status.unwrap_or(lost));
        self.metrics.requests.get_or_create(&Answered { route, status }).inc();
        self.metrics.seconds.get_or_create(&Route { route }).observe(self.started.elapsed().as_secs_f64());
    }
}
