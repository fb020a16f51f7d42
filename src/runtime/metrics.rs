//! `/metrics`: requests by route and status, the time to the first byte of their answer, and the build.

use std::fmt;

use prometheus_client::encoding::text;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use slipway_http::request_metrics::{RequestMetrics, Watch};

use crate::telemetry::Telemetry;
use crate::telemetry::metrics::Meters;

const SECONDS: [f64; 11] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0];

pub(crate) struct Metrics {
    registry: Registry,
    requests: RequestMetrics,
    pub(crate) meters: Meters,
}

impl Metrics {
    pub(crate) fn new(telemetry: &Telemetry) -> Self {
        let mut registry = Registry::with_prefix("slipway_runtime");
        let requests = RequestMetrics::register(&mut registry, &SECONDS);
        registry.register("build", "Which build this is", Info::new([("version", env!("CARGO_PKG_VERSION"))]));
        telemetry.register(&mut registry);
        let meters = Meters::new(&mut registry);
        Self { registry, requests, meters }
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
    fn every_request_is_counted_however_it_ends() {
        let metrics = Metrics::new(&Telemetry::off());
        metrics.watch("/chat").answered(200);
        metrics.watch("/chat").answered(200);
        drop(metrics.watch("/chat"));
        let text = metrics.text().unwrap();
        for line in [
            r#"slipway_runtime_requests_total{route="/chat",status="200"} 2"#,
            r#"slipway_runtime_requests_total{route="/chat",status="499"} 1"#,
            r#"slipway_runtime_request_seconds_count{route="/chat"} 3"#,
            concat!(r#"slipway_runtime_build_info{version=""#, env!("CARGO_PKG_VERSION"), r#""} 1"#),
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
