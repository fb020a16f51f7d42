//! Whose rows there are, to find those that belong to nobody any more.

use sqlx::Row;

use crate::connection::{ask, in_long_time};
use crate::{Fault, Tenants, id};

/// Further ones are found once these are gone.
const MOST: i64 = 1_000;
/// The tables that the others refer to: where these have no row of an agent, none has.
const PARENTS: [&str; 3] = ["conversations", "memories", "usage_minutes"];

impl Tenants {
    /// The ids of agents that a team has rows of, beside the `known` ones; a thousand of them at most. Rows under what
    /// is no id were written by a team itself, past its runtimes; they are left out and go with the team.
    ///
    /// It steps from one agent to the next by each table's key, so that it costs as much as there are agents, however
    /// many rows they have.
    pub async fn agents_except(&self, team: &str, known: &[String]) -> Result<Vec<String>, Fault> {
        id::check("team", team)?;
        let steps = PARENTS.map(|table| {
            format!(
                "{table} (agent_id) AS (
                     (SELECT agent_id FROM slipway.{table} WHERE team = $1 ORDER BY agent_id LIMIT 1)
                     UNION ALL
                     SELECT (SELECT t.agent_id FROM slipway.{table} t WHERE t.team = $1 AND t.agent_id > last.agent_id
                             ORDER BY t.agent_id LIMIT 1)
                     FROM {table} last WHERE last.agent_id IS NOT NULL)"
            )
        });
        let all = PARENTS.map(|table| format!("SELECT agent_id FROM {table}"));
        let question = format!(
            "WITH RECURSIVE {} SELECT agent_id FROM ({}) found
             WHERE agent_id ~ '^[A-Za-z0-9_-]{{1,64}}$' AND agent_id <> ALL ($2) ORDER BY agent_id LIMIT $3",
            steps.join(", "),
            all.join(" UNION ")
        );
        in_long_time(async {
            let mut work = self.door.begin_long().await?;
            let rows = ask(sqlx::AssertSqlSafe(question)).bind(team).bind(known).bind(MOST).fetch_all(&mut *work).await?;
            work.commit().await?;
            rows.iter().map(|row| Ok(row.try_get("agent_id")?)).collect()
        })
        .await
    }
}
