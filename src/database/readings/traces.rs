//! Traces in which the errors and the attempts at prompt injection of many agents can be seen, as evidence of alerts.

use jiff::Timestamp;
use sqlx::Row;
use sqlx::postgres::PgRow;

use super::{AgentKey, Readings, check, place};
use crate::Fault;
use crate::types::start_of_minute;

/// Of how many agents one statement is; the function in the database says how many rows that is.
const STATEMENT_AGENTS: usize = 250;

/// The newest traces of one agent, five of each at most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentTraces {
    /// The agent's place among those that were asked for.
    pub agent: usize,
    /// Of requests that failed.
    pub failed: Vec<String>,
    pub injections: Vec<String>,
}

impl Readings<'_> {
    /// The newest traces from the minute of `since` on. Agents without usage are left out.
    pub async fn traces(&self, agents: &[AgentKey], since: Timestamp) -> Result<Vec<AgentTraces>, Fault> {
        const FOUND: &str = "SELECT * FROM slipway.traces_since($1, $2, $3, 'epoch'::timestamptz + $4 * interval '1 second')";
        check(agents)?;
        let (mut all, mut before) = (Vec::new(), 0);
        for part in agents.chunks(STATEMENT_AGENTS) {
            let found = self.read(part, |keys| keys.ask(FOUND).bind(start_of_minute(since).as_second()), traces).await?;
            all.extend(found.into_iter().map(|row| AgentTraces { agent: row.agent + before, ..row }));
            before += part.len();
        }
        Ok(all)
    }
}

fn traces(row: &PgRow) -> Result<AgentTraces, Fault> {
    Ok(AgentTraces { agent: place(row)?, failed: row.try_get("failed")?, injections: row.try_get("injections")? })
}
