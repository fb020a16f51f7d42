//! The metrics of REST. Labels use routes, not paths, so that callers cannot create label values.

use std::fmt::{Error as FormatError, Write};
use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use slipway_http::{Method, StatusCode};

/// The route label of unknown paths.
const NO_ROUTE: &str = "none";
/// Statuses that are counted individually: rights, limits and conflicts.
const REFUSALS: [StatusCode; 4] = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN, StatusCode::CONFLICT, StatusCode::TOO_MANY_REQUESTS];

/// 2 for 200 to 299.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Class(u16);

impl EncodeLabelValue for Class {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), FormatError> {
        write!(encoder, "{}xx", self.0)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByClass {
    method: &'static str,
    route: &'static str,
    status: Class,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByStatus {
    method: &'static str,
    route: &'static str,
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByOutcome {
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByFramework {
    framework: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByTrack {
    track: &'static str,
}

/// The counters, shared by clones.
#[derive(Clone)]
pub(crate) struct Metrics {
    answers: Family<ByClass, Counter>,
    refusals: Family<ByStatus, Counter>,
    deliveries: Family<ByOutcome, Counter>,
    fallbacks: Family<ByTrack, Counter>,
    gates: Family<ByOutcome, Counter>,
    scaffolds: Family<ByFramework, Counter>,
    /// Running calls to agents, streams included.
    pub relays: Gauge<i64, AtomicI64>,
    /// Running event streams.
    pub listeners: Gauge<i64, AtomicI64>,
    registry: Arc<Registry>,
}

impl Default for Metrics {
    fn default() -> Self {
        let (answers, refusals, fallbacks) = (Family::default(), Family::default(), Family::<ByTrack, Counter>::default());
        let (deliveries, gates): (Family<_, _>, Family<_, _>) = (Family::default(), Family::default());
        let scaffolds = Family::<ByFramework, Counter>::default();
        let (relays, listeners): (Gauge<_, _>, Gauge<_, _>) = (Gauge::default(), Gauge::default());
        let mut registry = Registry::with_prefix("slipway_rest");
        registry.register("answers", "Calls that were answered, or whose answer has begun", answers.clone());
        registry.register("refusals", "Calls that were refused: for want of a token or a role, in conflict, or too many", refusals.clone());
        registry.register(
            "feedback_deliveries",
            "Marks that were sent to MLflow while their callers waited, by outcome",
            deliveries.clone(),
        );
        registry.register(
            "canary_fallbacks",
            "Calls that went to an agent's own Service because that of the track they were for could not be used",
            fallbacks.clone(),
        );
        registry.register("canary_gates", "Questions of quality gates that were answered, by outcome", gates.clone());
        registry.register("scaffolds", "Projects that were made, by framework", scaffolds.clone());
        registry.register("relays_in_flight", "Calls to agents that are under way, streams included", relays.clone());
        registry.register("listeners", "Open streams of events", listeners.clone());
        Self { answers, refusals, deliveries, fallbacks, gates, scaffolds, relays, listeners, registry: Arc::new(registry) }
    }
}

impl Metrics {
    /// Counts a reply. `route` is a path of the route table.
    pub(crate) fn count(&self, method: &Method, route: Option<&'static str>, status: StatusCode) {
        let (method, route) = (word(method), route.unwrap_or(NO_ROUTE));
        self.answers.get_or_create(&ByClass { method, route, status: Class(status.as_u16() / 100) }).inc();
        if REFUSALS.contains(&status) {
            self.refusals.get_or_create(&ByStatus { method, route, status: status.as_u16() }).inc();
        }
    }

    /// Counts a mark for MLflow: `delivered`, `no_trace` or `failed`.
    pub(crate) fn delivery(&self, outcome: &'static str) {
        self.deliveries.get_or_create(&ByOutcome { outcome }).inc();
    }

    /// Counts a call whose track could not be reached.
    pub(crate) fn fallback(&self, track: &'static str) {
        self.fallbacks.get_or_create(&ByTrack { track }).inc();
    }

    /// Counts the answer to a quality gate: `passed`, `failed`, `noted`, `no_score`, `default_approved`, `default_refused`, `refused`,
    /// `not_valid` or `unverified`.
    pub(crate) fn gate(&self, outcome: &'static str) {
        self.gates.get_or_create(&ByOutcome { outcome }).inc();
    }

    /// Counts a project.
    pub(crate) fn scaffold(&self, framework: &'static str) {
        self.scaffolds.get_or_create(&ByFramework { framework }).inc();
    }

    /// The metrics in the text format of Prometheus, without `# EOF`.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        if let Err(error) = text::encode(&mut text, &self.registry) {
            tracing::error!(%error, "metrics could not be written");
        }
        text.trim_end().trim_end_matches("# EOF").to_owned()
    }
}

/// Unknown methods share one label, because callers can make them up.
fn word(method: &Method) -> &'static str {
    let known = [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS];
    let words = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
    known.iter().zip(words).find(|(known, _)| *known == method).map_or("OTHER", |(_, word)| word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_counted_by_route_and_class_and_refusals_by_status() {
        let metrics = Metrics::default();
        let route = Some("/agents/{id}");
        for (method, route, status) in [
            (Method::GET, route, 200),
            (Method::GET, route, 201),
            (Method::GET, route, 403),
            (Method::GET, route, 404),
            (Method::PATCH, route, 409),
            (Method::GET, None, 404),
            (Method::from_bytes(b"PROPFIND").unwrap(), None, 405),
            (Method::from_bytes(b"MADE-UP").unwrap(), None, 405),
        ] {
            metrics.count(&method, route, StatusCode::from_u16(status).unwrap());
        }
        metrics.relays.inc();
        metrics.delivery("failed");
        metrics.fallback("canary");
        metrics.gate("default_approved");
        metrics.scaffold("adk");
        let text = metrics.text();
        for line in [
            r#"slipway_rest_answers_total{method="GET",route="/agents/{id}",status="2xx"} 2"#,
            r#"slipway_rest_answers_total{method="GET",route="/agents/{id}",status="4xx"} 2"#,
            r#"slipway_rest_answers_total{method="GET",route="none",status="4xx"} 1"#,
            r#"slipway_rest_answers_total{method="OTHER",route="none",status="4xx"} 2"#,
            r#"slipway_rest_refusals_total{method="GET",route="/agents/{id}",status="403"} 1"#,
            r#"slipway_rest_refusals_total{method="PATCH",route="/agents/{id}",status="409"} 1"#,
            r#"slipway_rest_canary_fallbacks_total{track="canary"} 1"#,
            r#"slipway_rest_canary_gates_total{outcome="default_approved"} 1"#,
            r#"slipway_rest_scaffolds_total{framework="adk"} 1"#,
            "slipway_rest_relays_in_flight 1",
            "slipway_rest_listeners 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert_eq!(text.matches("slipway_rest_refusals_total{").count(), 2, "a 404 is none: {text}");
        assert!(!text.contains("EOF"), "{text}");
        slipway_peers::has_metrics("slipway_rest_", &text);
    }
}
