//! The metrics of controllers and of clients of the API server.

use std::sync::{Arc, PoisonError, RwLock};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByController {
    pub controller: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByCategory {
    pub controller: &'static str,
    pub category: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByRequest {
    pub verb: &'static str,
    pub resource: String,
}

/// The process's metrics. Clones share them. Other crates register theirs here.
#[derive(Clone)]
pub struct Metrics {
    pub reconciles: Family<ByController, Counter>,
    pub durations: Family<ByController, Histogram>,
    pub errors: Family<ByCategory, Counter>,
    pub queue_depth: Family<ByController, Gauge>,
    pub repairs: Family<ByController, Counter>,
    pub requests: Family<ByRequest, Counter>,
    registry: Arc<RwLock<Registry>>,
}

impl Default for Metrics {
    fn default() -> Self {
        let durations: fn() -> Histogram = || Histogram::new([0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0]);
        let metrics = Self {
            reconciles: Family::default(),
            durations: Family::new_with_constructor(durations),
            errors: Family::default(),
            queue_depth: Family::default(),
            repairs: Family::default(),
            requests: Family::default(),
            registry: Arc::new(RwLock::new(Registry::with_prefix("slipway"))),
        };
        metrics.register("reconciles", "Reconciles that were run", metrics.reconciles.clone());
        metrics.register("reconcile_duration_seconds", "How long a reconcile took", metrics.durations.clone());
        metrics.register("reconcile_errors", "Reconciles that failed, by cause", metrics.errors.clone());
        metrics.register("queue_depth", "Objects that wait to be reconciled", metrics.queue_depth.clone());
        metrics.register("repairs", "Objects that somebody had changed and that were put back", metrics.repairs.clone());
        metrics.register("api_requests", "Requests sent to the API server", metrics.requests.clone());
        metrics
    }
}

impl Metrics {
    pub fn register(&self, name: &str, help: &str, metric: impl Metric) {
        self.registry.write().unwrap_or_else(PoisonError::into_inner).register(name, help, metric);
    }

    /// All metrics in the Prometheus text format.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let registry = self.registry.read().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = prometheus_client::encoding::text::encode(&mut text, &registry) {
            tracing::error!(%error, "metrics could not be written");
        }
        text
    }

    /// Counts a request to the API server.
    pub fn request(&self, method: &str, path: &str, query: Option<&str>) {
        let (resource, named) = resource(path);
        let watching = query.is_some_and(|query| query.split('&').any(|pair| pair == "watch=true" || pair == "watch=1"));
        let verb = match method {
            "GET" if watching => "WATCH",
            "GET" if named => "GET",
            "GET" => "LIST",
            "POST" => "POST",
            "PUT" => "PUT",
            "PATCH" => "PATCH",
            "DELETE" => "DELETE",
            _ => "OTHER",
        };
        self.requests.get_or_create(&ByRequest { verb, resource }).inc();
    }
}

/// The resource and subresource in a path of the Kubernetes API, and whether the path names one object.
fn resource(path: &str) -> (String, bool) {
    let mut steps = path.split('/').filter(|step| !step.is_empty());
    let skip = match steps.next() {
        Some("api") => 1,
        Some("apis") => 2,
        _ => return ("other".to_owned(), false),
    };
    let rest: Vec<&str> = steps.skip(skip).collect();
    let rest = match rest.as_slice() {
        ["namespaces", _, inner @ ..] if !inner.is_empty() && inner[0] != "finalize" => inner,
        all => all,
    };
    match rest {
        [] => ("discovery".to_owned(), false),
        [resource] => ((*resource).to_owned(), false),
        [resource, _] => ((*resource).to_owned(), true),
        [resource, _, sub, ..] => (format!("{resource}/{sub}"), true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_the_api() {
        let cases = [
            ("/api/v1/namespaces/team-a/configmaps/x", ("configmaps", true)),
            ("/api/v1/namespaces/team-a", ("namespaces", true)),
            ("/apis/apps/v1/deployments", ("deployments", false)),
            ("/apis/agents.slipway.dev/v1/namespaces/team-a/agents/x/status", ("agents/status", true)),
            ("/apis/agents.slipway.dev/v1", ("discovery", false)),
            ("/version", ("other", false)),
        ];
        for (path, (name, named)) in cases {
            assert_eq!(resource(path), (name.to_owned(), named), "{path}");
        }
    }
}
