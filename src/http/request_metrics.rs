//! What `/metrics` says of a server's requests: how many, by route and status, and the time to the first byte of their answers.

use std::time::Instant;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

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

/// The upper bounds of a histogram's buckets, in seconds.
#[derive(Clone)]
struct Buckets(&'static [f64]);

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new(self.0.iter().copied())
    }
}

pub struct RequestMetrics {
    requests: Family<Answered, Counter>,
    seconds: Family<Route, Histogram, Buckets>,
}

impl RequestMetrics {
    pub fn register(registry: &mut Registry, buckets: &'static [f64]) -> Self {
        let (requests, seconds) = (Family::default(), Family::new_with_constructor(Buckets(buckets)));
        registry.register("requests", "Requests answered, by route and status", requests.clone());
        registry.register("request_seconds", "Time from a request's head to the first byte of its answer", seconds.clone());
        Self { requests, seconds }
    }

    /// Starts the clock for one request; it is counted however it ends.
    pub fn watch(&self, route: &'static str) -> Watch<'_> {
        Watch { metrics: self, route, started: Instant::now(), status: None }
    }
}

#[must_use = "a request is counted as left by its client when this is dropped"]
pub struct Watch<'a> {
    metrics: &'a RequestMetrics,
    route: &'static str,
    started: Instant,
    status: Option<u16>,
}

impl Watch<'_> {
    pub fn answered(mut self, status: u16) {
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
