//! What is read of violations: of many agents at once, by rule; and by what ran, for rollbacks.

use jiff::Timestamp;
use sqlx::Row;
use sqlx::postgres::PgRow;

use super::{AgentKey, Readings, check, place};
use crate::conversation::time;
use crate::types::start_of_minute;
use crate::{Fault, Stage};

/// Of how many agents one statement is; the functions in the database say how many rows that is. The statements of a question follow one
/// another.
const STATEMENT_AGENTS: usize = 250;
const STATEMENT_AGENTS_BY_RUN: usize = 50;

/// Violations of one rule by one agent, on one track and release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentViolations {
    /// The agent's place among those that were asked for.
    pub agent: usize,
    pub track: String,
    pub run_hash: String,
    pub policy: String,
    pub rule: String,
    pub stage: Stage,
    pub blocked: bool,
    pub count: i64,
    pub last_minute: Timestamp,
    pub last_trace: Option<String>,
    /// There are more rows than are read of one agent, so that the counts are too low.
    pub partial: bool,
}

/// How often answers of one release, on the stable track, broke a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunViolations {
    /// The agent's place among those that were asked for.
    pub agent: usize,
    pub run_hash: String,
    pub policy: String,
    pub count: i64,
    /// There are more rows than are read of one agent, so that the counts of what ran earlier are too low.
    pub partial: bool,
}

/// In how many conversations answers of one release broke a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyConversations {
    pub policy: String,
    /// As far as they were told apart, so that it is a lower bound: 64 a minute and rule at most.
    pub conversations: i64,
}

impl Readings<'_> {
    /// Violations from the minute of `since` on: whole hours from the sums by hour, the hour in which `since` lies from minutes.
    pub async fn violations(&self, agents: &[AgentKey], since: Timestamp) -> Result<Vec<AgentViolations>, Fault> {
        const FOUND: &str = "SELECT * FROM slipway.violations_since($1, $2, $3, 'epoch'::timestamptz + $4 * interval '1 second')";
        check(agents)?;
        let (mut all, mut before) = (Vec::new(), 0);
        for part in agents.chunks(STATEMENT_AGENTS) {
            let found = self.read(part, |keys| keys.ask(FOUND).bind(start_of_minute(since).as_second()), violations).await?;
            all.extend(found.into_iter().map(|row| AgentViolations { agent: row.agent + before, ..row }));
            before += part.len();
        }
        Ok(all)
    }

    /// How often answers on the stable track broke these policies, by what ran, from the hour of `since` on.
    pub async fn violations_by_run(&self, agents: &[AgentKey], policies: &[String], since: Timestamp) -> Result<Vec<RunViolations>, Fault> {
        const FOUND: &str = "SELECT * FROM slipway.violations_by_run($1, $2, $3, $4, 'epoch'::timestamptz + $5 * interval '1 second')";
        check(agents)?;
        let (mut all, mut before) = (Vec::new(), 0);
        for part in agents.chunks(STATEMENT_AGENTS_BY_RUN) {
            let found = self.read(part, |keys| keys.ask(FOUND).bind(policies.to_vec()).bind(since.as_second()), by_run).await?;
            all.extend(found.into_iter().map(|row| RunViolations { agent: row.agent + before, ..row }));
            before += part.len();
        }
        Ok(all)
    }

    /// In how many conversations such answers of one release broke these policies.
    pub async fn violating_conversations(
        &self,
        agent: &AgentKey,
        run_hash: &str,
        policies: &[String],
        since: Timestamp,
    ) -> Result<Vec<PolicyConversations>, Fault> {
        const FOUND: &str =
            "SELECT * FROM slipway.violating_conversations($1, $2, $3, $4, $5, 'epoch'::timestamptz + $6 * interval '1 second')";
        let run_hash = run_hash.to_owned();
        let agents = std::slice::from_ref(agent);
        self.read(agents, |keys| keys.ask(FOUND).bind(run_hash.clone()).bind(policies.to_vec()).bind(since.as_second()), conversations)
            .await
    }
}

fn violations(row: &PgRow) -> Result<AgentViolations, Fault> {
    Ok(AgentViolations {
        agent: place(row)?,
        track: row.try_get("track")?,
        run_hash: row.try_get("run_hash")?,
        policy: row.try_get("policy")?,
        rule: row.try_get("rule")?,
        stage: Stage::read(row.try_get("stage")?)?,
        blocked: row.try_get("blocked")?,
        count: row.try_get("count")?,
        last_minute: time(row.try_get("last_minute")?)?,
        last_trace: row.try_get("last_trace")?,
        partial: row.try_get("partial")?,
    })
}

fn by_run(row: &PgRow) -> Result<RunViolations, Fault> {
    Ok(RunViolations {
        agent: place(row)?,
        run_hash: row.try_get("run_hash")?,
        policy: row.try_get("policy")?,
        count: row.try_get("count")?,
        partial: row.try_get("partial")?,
    })
}

fn conversations(row: &PgRow) -> Result<PolicyConversations, Fault> {
    Ok(PolicyConversations { policy: row.try_get("policy")?, conversations: row.try_get("conversations")? })
}
