//! Metrics of the operator beside those that every controller has.

use std::ops::Deref;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use slipway_api::CanaryStatus;
use slipway_api::integration::{IntegrationPhase, IntegrationType};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByOutcome {
    /// Of a run: `started`, `passed`, `not_passed`, `failed` or `cancelled`; of a delivery: `delivered` or `failed`,
    /// of a mark besides `no_trace` or `refused`; of an ingestion `started`, `completed`, `failed` or `cancelled`.
    pub outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct BySeverity {
    /// `warning` or `critical`.
    pub severity: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByDelivery {
    /// Of the integration: `webhook` or `slack`.
    pub r#type: &'static str,
    /// `delivered`, `retried`, `given_up` or, where there was no room, `dropped`.
    pub outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByPhase {
    /// As in `status.canary.phase`.
    pub phase: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByAgent {
    /// A scraper sets the label `namespace` to the manager's own namespace.
    pub agent_namespace: String,
    pub agent: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByIntegration {
    /// As the REST API spells it.
    pub r#type: &'static str,
    /// `connected`, `error` or `disconnected`.
    pub status: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByTest {
    /// As the REST API spells it.
    pub r#type: &'static str,
    /// `connected`, `error`, or `unavailable` where no worker could be asked.
    pub outcome: &'static str,
}

/// The operator's counters, and those that it shares with others of its process.
#[derive(Clone)]
pub struct Metrics {
    shared: slipway_cluster::Metrics,
    pub leader: Gauge,
    pub rollouts: Gauge,
    pub rollouts_waiting: Gauge,
    pub database_ready: Gauge,
    pub database_failures: Counter,
    pub evaluation_runs: Family<ByOutcome, Counter>,
    pub evaluation_durations: Histogram,
    pub evaluation_deliveries: Family<ByOutcome, Counter>,
    pub feedback_deliveries: Family<ByOutcome, Counter>,
    pub ingestions: Family<ByOutcome, Counter>,
    pub alerts: Family<BySeverity, Gauge>,
    pub alert_deliveries: Family<ByDelivery, Counter>,
    pub alert_deliveries_waiting: Gauge,
    /// In seconds, of the oldest message that waits.
    pub alert_delivery_age: Gauge,
    pub governance_passes: Histogram,
    pub canaries: Family<ByPhase, Gauge>,
    pub canary_transitions: Family<ByPhase, Counter>,
    /// Only of agents that have a canary.
    pub canary_weight: Family<ByAgent, Gauge>,
    pub integrations: Family<ByIntegration, Gauge>,
    pub integration_tests: Family<ByTest, Counter>,
    pub integration_test_durations: Histogram,
}

impl Metrics {
    pub fn new(shared: &slipway_cluster::Metrics) -> Self {
        let metrics = Self {
            shared: shared.clone(),
            leader: Gauge::default(),
            rollouts: Gauge::default(),
            rollouts_waiting: Gauge::default(),
            database_ready: Gauge::default(),
            database_failures: Counter::default(),
            evaluation_runs: Family::default(),
            evaluation_durations: Histogram::new([1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0]),
            evaluation_deliveries: Family::default(),
            feedback_deliveries: Family::default(),
            ingestions: Family::default(),
            alerts: Family::default(),
            alert_deliveries: Family::default(),
            alert_deliveries_waiting: Gauge::default(),
            alert_delivery_age: Gauge::default(),
            governance_passes: Histogram::new([0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0]),
            canaries: Family::default(),
            canary_transitions: Family::default(),
            canary_weight: Family::default(),
            integrations: Family::default(),
            integration_tests: Family::default(),
            integration_test_durations: Histogram::new([0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0]),
        };
        shared.register("leader", "1 while this process holds the lease", metrics.leader.clone());
        shared.register("rollouts", "Agents whose pods are being replaced because the platform changed", metrics.rollouts.clone());
        shared.register("rollouts_waiting", "Agents that keep their pods until others have theirs", metrics.rollouts_waiting.clone());
        shared.register(
            "database_ready",
            "1 while this process has brought the database's schema up to date",
            metrics.database_ready.clone(),
        );
        shared.register(
            "database_failures",
            "Attempts that failed to bring the database's schema up to date, or to delete the rows of agents that are gone",
            metrics.database_failures.clone(),
        );
        shared.register("evaluation_runs", "Evaluation runs that started or ended, by outcome", metrics.evaluation_runs.clone());
        shared.register(
            "evaluation_run_duration_seconds",
            "The time from the first case of an evaluation run to its end",
            metrics.evaluation_durations.clone(),
        );
        shared.register(
            "evaluation_deliveries",
            "Attempts to send the results of an evaluation run to MLflow, by outcome",
            metrics.evaluation_deliveries.clone(),
        );
        shared.register(
            "feedback_deliveries",
            "Marks that were sent to MLflow after their callers had gone, by outcome",
            metrics.feedback_deliveries.clone(),
        );
        shared.register("ingestions", "Ingestions that started or ended, by outcome", metrics.ingestions.clone());
        shared.register("alerts", "Alerts about agents that are open, by severity", metrics.alerts.clone());
        shared.register(
            "governance_pass_seconds",
            "The time that it took to look at all agents once: readiness, alerts, violations",
            metrics.governance_passes.clone(),
        );
        metrics.register_deliveries();
        metrics.register_canaries();
        metrics.register_integrations();
        metrics
    }

    fn register_deliveries(&self) {
        self.register("alert_deliveries", "Messages about alerts to integrations, by type and outcome", self.alert_deliveries.clone());
        self.register("alert_deliveries_waiting", "Messages about alerts that wait", self.alert_deliveries_waiting.clone());
        self.register(
            "alert_delivery_age_seconds",
            "For how long the oldest message about an alert that waits has done so",
            self.alert_delivery_age.clone(),
        );
    }

    fn register_canaries(&self) {
        self.register("canaries", "Canaries of agents, by phase", self.canaries.clone());
        self.register("canary_transitions", "Phases that canaries have entered", self.canary_transitions.clone());
        self.register("canary_weight", "The percentage of conversations that goes to an agent's canary", self.canary_weight.clone());
    }

    fn register_integrations(&self) {
        self.register("integrations", "Integrations, by type and by whether their server was reached", self.integrations.clone());
        self.register("integration_tests", "Tests of integrations, by type and outcome", self.integration_tests.clone());
        self.register(
            "integration_test_seconds",
            "The time from asking for a test of an integration to the answer, where there was one",
            self.integration_test_durations.clone(),
        );
    }

    /// Counts an integration as what it is now, and no more as what it was.
    pub(crate) fn integration_turned(
        &self,
        before: Option<(IntegrationType, IntegrationPhase)>,
        now: Option<(IntegrationType, IntegrationPhase)>,
    ) {
        let gauge = |(kind, phase): (IntegrationType, IntegrationPhase)| {
            let status = match phase {
                IntegrationPhase::Connected => "connected",
                IntegrationPhase::Error => "error",
                IntegrationPhase::Disconnected => "disconnected",
            };
            self.integrations.get_or_create_owned(&ByIntegration { r#type: kind.as_str(), status })
        };
        if before == now {
            return;
        }
        if let Some(before) = before {
            gauge(before).dec();
        }
        if let Some(now) = now {
            gauge(now).inc();
        }
    }

    /// Counts a test, and its time if that is known.
    pub(crate) fn integration_tested(&self, kind: IntegrationType, outcome: &'static str, time: Option<Duration>) {
        self.integration_tests.get_or_create(&ByTest { r#type: kind.as_str(), outcome }).inc();
        if let Some(time) = time {
            self.integration_test_durations.observe(time.as_secs_f64());
        }
    }

    /// Counts the phase that a canary has entered, if it has.
    pub(crate) fn canary_turned(&self, before: Option<&CanaryStatus>, now: Option<&CanaryStatus>) {
        if let Some(now) = now
            && before.is_none_or(|before| before.phase != now.phase)
        {
            self.canary_transitions.get_or_create(&ByPhase { phase: now.phase.as_str() }).inc();
        }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new(&slipway_cluster::Metrics::default())
    }
}

impl Deref for Metrics {
    type Target = slipway_cluster::Metrics;

    fn deref(&self) -> &slipway_cluster::Metrics {
        &self.shared
    }
}

#[cfg(test)]
mod tests {
    use slipway_api::canary::CanaryPhase;
    use slipway_cluster::metrics::{ByCategory, ByController};

    use super::*;

    #[test]
    fn what_rules_and_dashboards_ask_for_is_on_the_page() {
        let metrics = Metrics::default();
        let (by, outcome) = (ByController { controller: "agent" }, ByOutcome { outcome: "failed" });
        for family in [&metrics.evaluation_runs, &metrics.evaluation_deliveries, &metrics.feedback_deliveries, &metrics.ingestions] {
            family.get_or_create(&outcome).inc();
        }
        metrics.reconciles.get_or_create(&by).inc();
        metrics.repairs.get_or_create(&by).inc();
        metrics.durations.get_or_create(&by).observe(0.1);
        metrics.queue_depth.get_or_create(&by).set(1);
        metrics.errors.get_or_create(&ByCategory { controller: "agent", category: "api" }).inc();
        metrics.alerts.get_or_create(&BySeverity { severity: "critical" }).set(1);
        metrics.alert_deliveries.get_or_create(&ByDelivery { r#type: "slack", outcome: "delivered" }).inc();
        let phase = ByPhase { phase: "Serving" };
        metrics.canaries.get_or_create(&phase).set(1);
        metrics.canary_transitions.get_or_create(&phase).inc();
        let by = ByAgent { agent_namespace: "team-a".to_owned(), agent: "helper".to_owned() };
        metrics.canary_weight.get_or_create(&by).set(10);
        metrics.integration_turned(None, Some((IntegrationType::Mcp, IntegrationPhase::Error)));
        metrics.integration_tested(IntegrationType::Mcp, "error", None);
        metrics.request("GET", "/api/v1/pods", None);
        slipway_peers::has_metrics("slipway_", &metrics.text());
    }

    #[test]
    fn an_integration_is_counted_once() {
        let metrics = Metrics::default();
        let stands = |phase| Some((IntegrationType::S3, phase));
        let (untested, good, bad) =
            (stands(IntegrationPhase::Disconnected), stands(IntegrationPhase::Connected), stands(IntegrationPhase::Error));
        for step in [None, untested, good, good, bad, good].windows(2) {
            metrics.integration_turned(step[0], step[1]);
        }
        let page = metrics.text();
        for (status, count) in [("connected", 1), ("error", 0), ("disconnected", 0)] {
            let line = format!("slipway_integrations{{type=\"s3\",status=\"{status}\"}} {count}\n");
            assert!(page.contains(&line), "{line}{page}");
        }
    }

    #[test]
    fn a_phase_is_counted_when_it_is_entered() {
        let metrics = Metrics::default();
        let status = |phase| CanaryStatus { phase, ..CanaryStatus::default() };
        let (progressing, serving) = (status(CanaryPhase::Progressing), status(CanaryPhase::Serving));
        let heavier = CanaryStatus { weight: 50, ..serving.clone() };
        let steps = [None, Some(&progressing), Some(&progressing), Some(&serving), Some(&heavier), None, Some(&progressing)];
        for step in steps.windows(2) {
            metrics.canary_turned(step[0], step[1]);
        }
        let entered = |phase| metrics.canary_transitions.get_or_create(&ByPhase { phase }).get();
        assert_eq!((entered("Progressing"), entered("Serving"), entered("Draining")), (2, 1, 0));
    }
}
