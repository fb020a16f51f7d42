//! What the manager reads and writes about all agents at once, or why it cannot.

use jiff::Timestamp;
use slipway_database::{AgentKey, AgentUsage, AgentViolations, Alert, Fault, KeptAlert, RaisedAlert, ReadinessSample, Retention};

use super::Tenancy;

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

    pub(crate) async fn violations(&self, agents: &[AgentKey], since: Timestamp) -> Result<Vec<AgentViolations>, String> {
        self.answers()?;
        self.tenants.readings().violations(agents, since).await.map_err(|fault| self.noted(&fault))
    }

    pub(crate) async fn open_alerts(&self) -> Result<Vec<Alert>, String> {
        self.answers()?;
        self.tenants.open_alerts().await.map_err(|fault| self.noted(&fault))
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
