//! The end of what is too old: usage, violations, readiness, alerts and messages about these.

use sqlx::AssertSqlSafe;

use crate::connection::{ask, in_long_time};
use crate::{Fault, Tenants};

/// Sums by 10 minutes and by six hours: a week can be read that begins at any minute.
const SHORT_SPANS_DAYS: u32 = 8;
const BUDGETS_DAYS: u32 = 2;
/// Messages that wait are given up after a day. Those that are left wait for integrations that are gone or want none any more.
const WAITING_DAYS: u32 = 2;
/// Who has heard of an alert that is still open is to hear of its end.
const OLD_DELIVERY: &str = "t.created_at < $cutoff AND NOT EXISTS (
    SELECT FROM slipway.alerts a WHERE a.team = t.team AND a.agent_id = t.agent_id AND a.id = t.alert_id AND a.resolved_at IS NULL)";
/// The most rows of one statement.
const BATCH: i64 = 5_000;

/// For how many days each is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    pub usage_minutes: u32,
    /// Of the roll-up, and of readiness.
    pub usage_hours: u32,
    pub violations: u32,
    /// From when they were last seen; of messages about them, from when these were written.
    pub alerts: u32,
}

impl Default for Retention {
    fn default() -> Self {
        Self { usage_minutes: 32, usage_hours: 400, violations: 32, alerts: 90 }
    }
}

impl Tenants {
    /// Deletes in batches what is older, and returns how many rows there were.
    pub async fn delete_old_governance(&self, retention: &Retention) -> Result<u64, Fault> {
        let Retention { usage_minutes, usage_hours, violations, alerts } = *retention;
        let mut deleted = 0;
        for (table, old, days) in [
            ("usage_minutes", "t.minute < $cutoff", usage_minutes),
            ("usage_by_run", "t.minute < $cutoff", usage_minutes),
            ("usage_spans", "t.span = 10 AND t.start < $cutoff", SHORT_SPANS_DAYS),
            ("usage_spans", "t.span = 60 AND t.start < $cutoff", usage_hours),
            ("usage_spans", "t.span = 360 AND t.start < $cutoff", SHORT_SPANS_DAYS),
            ("readiness_hours", "t.hour < $cutoff", usage_hours),
            ("policy_violations", "t.minute < $cutoff", violations),
            ("violation_hours", "t.hour < $cutoff", violations),
            ("alert_deliveries", OLD_DELIVERY, alerts),
            ("alert_deliveries", "t.ended_at IS NULL AND t.created_at < $cutoff", WAITING_DAYS),
            ("alerts", "t.last_seen < $cutoff", alerts),
            ("budget_leases", "t.until < $cutoff", BUDGETS_DAYS),
        ] {
            deleted += self.delete_older(table, old, days).await?;
        }
        Ok(deleted)
    }

    /// From agent to agent by the key of the table, so that no index by age has to be kept up with each write. Whole hours go, so that
    /// sums are those of what is there.
    async fn delete_older(&self, table: &str, old: &str, days: u32) -> Result<u64, Fault> {
        let old = old.replace("$cutoff", "date_trunc('hour', now() - $1 * interval '1 day', 'UTC')");
        let delete = format!(
            "WITH RECURSIVE agents AS (
                 (SELECT team, agent_id FROM slipway.{table} ORDER BY team, agent_id LIMIT 1)
                 UNION ALL
                 SELECT next.* FROM agents, LATERAL (
                     SELECT t.team, t.agent_id FROM slipway.{table} t
                     WHERE (t.team, t.agent_id) > (agents.team, agents.agent_id) ORDER BY t.team, t.agent_id LIMIT 1) next)
             DELETE FROM slipway.{table} WHERE ctid = ANY (ARRAY(
                 SELECT old.ctid FROM agents, LATERAL (
                     SELECT t.ctid FROM slipway.{table} t
                     WHERE t.team = agents.team AND t.agent_id = agents.agent_id AND {old} LIMIT $2) old
                 LIMIT $2))"
        );
        let mut deleted = 0;
        loop {
            let batch = in_long_time(async {
                let mut work = self.door.begin_long().await?;
                let delete = ask(AssertSqlSafe(delete.clone())).bind(f64::from(days)).bind(BATCH);
                let batch = delete.execute(&mut *work).await?.rows_affected();
                work.commit().await?;
                Ok(batch)
            })
            .await?;
            deleted += batch;
            if batch < BATCH.unsigned_abs() {
                return Ok(deleted);
            }
        }
    }
}
