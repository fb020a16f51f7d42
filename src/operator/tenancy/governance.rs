//! What the manager reads and writes about all agents at once, or why it cannot.

use jiff::Timestamp;
use slipway_database::{
    AgentKey, AgentTraces, AgentUsage, AgentViolations, Alert, Fault, KeptAlert, PolicyConversations, RaisedAlert, ReadinessSample,
    Retention, RunViolations,
};

use super::Tenancy;

/// Of 10,000 alerts each.
const MAX_ALERT_PAGES: usize = 6;

impl Tenancy {
    pub(crate) async fn record_readiness(&self, samples: &[ReadinessSample]) -> Result<(), String> {
        self.answers()?;
        self.tenants.record_readiness(samples).await.map_err(|fault| self.noted(&fault))
    }

    pub(crate) async fn usage(&self, agents: &[AgentKey], since: Timestamp) -> Result<Vec<AgentUsage>, String> {
        self.answers()?;
        self.tenants.readings().usage(agents, since).await.map_err(|fault| self.noted(&fault))
    }

    pub(crate) async fn usage_by_run(&self, agents: &[AgentKey], since: Timestamp) -> Result<Vec<AgentUsage>, String> {
        self.answers()?;
        self.tenants.readings().usage_by_run(agents, since).await.map_err(|fault| self.noted(&fault))
    }

    pub(crate) async fn traces(&self, agents: &[AgentKey], since: Timestamp) -> Result<Vec<AgentTraces>, String> {
        self.answers()?;
        self.tenants.readings().traces(agents, since).await.map_err(|fault| self.noted(&fault))
    }

    pub(crate) async fn violations(&self, agents: &[AgentKey], since: Timestamp) -> Result<Vec<AgentViolations>, String> {
        self.answers()?;
        self.tenants.readings().violations(agents, since).await.map_err(|fault| self.noted(&fault))
    }

    pub(crate) async fn violations_by_run(
        &self,
        agents: &[AgentKey],
        policies: &[String],
        since: Timestamp,
    ) -> Result<Vec<RunViolations>, String> {
        self.answers()?;
        self.tenants.readings().violations_by_run(agents, policies, since).await.map_err(|fault| self.noted(&fault))
    }

    pub(crate) async fn violating_conversations(
        &self,
        agent: &AgentKey,
        run_hash: &str,
        policies: &[String],
        since: Timestamp,
    ) -> Result<Vec<PolicyConversations>, String> {
        self.answers()?;
        self.tenants.readings().violating_conversations(agent, run_hash, policies, since).await.map_err(|fault| self.noted(&fault))
    }

    /// All that are open, as far as there are pages of them.
    pub(crate) async fn open_alerts(&self) -> Result<Vec<Alert>, String> {
        self.answers()?;
        let mut all: Vec<Alert> = Vec::new();
        for _ in 0..MAX_ALERT_PAGES {
            let last = all.last().map_or(String::new(), |alert| alert.id.clone());
            let page = self.tenants.open_alerts_after(&last).await.map_err(|fault| self.noted(&fault))?;
            if page.is_empty() {
                break;
            }
            all.extend(page);
        }
        Ok(all)
    }

    pub(crate) async fn raise_alerts(&self, alerts: &[RaisedAlert]) -> Result<Vec<KeptAlert>, String> {
        self.answers()?;
        self.tenants.raise_alerts(alerts).await.map_err(|fault| self.noted(&fault))
    }

    pub(crate) async fn resolve_alerts(&self, ids: &[String]) -> Result<u64, String> {
        self.answers()?;
        self.tenants.resolve_alerts(ids).await.map_err(|fault| self.noted(&fault))
    }

    /// Deletes usage, violations, readiness and alerts after their time.
    pub(super) async fn prune(&self, retention: &Retention) -> Result<(), Fault> {
        let old = self.tenants.delete_old_governance(retention).await?;
        if old > 0 {
            tracing::info!(rows = old, "old usage, violations, readiness and alerts were deleted");
        }
        Ok(())
    }
}
