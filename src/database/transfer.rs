//! Rows of one key given another, in batches, each a transaction of its own. What the new key has already stays as it
//! is, and the row that would take its place is dropped.

use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Row};

use crate::connection::{Work, ask, in_long_time};
use crate::{Fault, Tenants};

/// Conversations and memories come with what refers to them.
const FEW: i64 = 100;
const MANY: i64 = 1_000;
/// What others refer to, and who refers to it by which column. Answers that are being made are dropped.
const FAMILIES: [(&str, &[&str], &str); 2] =
    [("conversations", &["messages", "feedback", "feedback_cases"], "conversation_id"), ("memories", &["memory_vectors"], "memory_id")];
/// Minutes of usage are summed up under the new key as they come there; what is older comes with the sums. Readiness, alerts and
/// messages about these belong to a UID, and budgets to pods that have ended: they are dropped.
const ALONE: [&str; 8] = [
    "usage_minutes",
    "usage_by_run",
    "usage_spans",
    "policy_violations",
    "violation_hours",
    "evaluation_results",
    "sampled_scores",
    "sampled_days",
];

/// Team and agent id.
type Key<'a> = (&'a str, &'a str);

impl Tenants {
    /// Returns how many rows there were to move, without those that refer to others.
    pub(crate) async fn transfer(&self, from: Key<'_>, to: Key<'_>) -> Result<u64, Fault> {
        let mut moved = 0;
        for family in FAMILIES {
            while let batch @ 1.. = in_long_time(self.family(family, from, to)).await? {
                moved += batch;
            }
        }
        for table in ALONE {
            while let batch @ 1.. = in_long_time(self.alone(table, from, to)).await? {
                moved += batch;
            }
        }
        Ok(moved)
    }

    async fn family(&self, (parent, children, column): (&str, &[&str], &str), from: Key<'_>, to: Key<'_>) -> Result<u64, Fault> {
        let mut work = self.door.begin_long().await?;
        let chosen = AssertSqlSafe(format!("SELECT id FROM slipway.{parent} WHERE team = $1 AND agent_id = $2 LIMIT $3 FOR UPDATE"));
        let chosen = ids(&ask(chosen).bind(from.0).bind(from.1).bind(FEW).fetch_all(&mut *work).await?)?;
        if let Some(columns) = columns(&mut work, parent).await? {
            let copy = AssertSqlSafe(format!(
                "INSERT INTO slipway.{parent} (team, agent_id, {columns})
                 SELECT $3, $4, {columns} FROM slipway.{parent} WHERE team = $1 AND agent_id = $2 AND id = ANY ($5)
                 ON CONFLICT DO NOTHING RETURNING id"
            ));
            let copied = ids(&ask(copy).bind(from.0).bind(from.1).bind(to.0).bind(to.1).bind(&chosen).fetch_all(&mut *work).await?)?;
            for child in children {
                let Some(columns) = self::columns(&mut work, child).await? else { continue };
                let copy = AssertSqlSafe(format!(
                    "INSERT INTO slipway.{child} (team, agent_id, {columns})
                     SELECT $3, $4, {columns} FROM slipway.{child} WHERE team = $1 AND agent_id = $2 AND {column} = ANY ($5)
                     ON CONFLICT DO NOTHING"
                ));
                ask(copy).bind(from.0).bind(from.1).bind(to.0).bind(to.1).bind(&copied).execute(&mut *work).await?;
            }
        }
        let delete = AssertSqlSafe(format!("DELETE FROM slipway.{parent} WHERE team = $1 AND agent_id = $2 AND id = ANY ($3)"));
        ask(delete).bind(from.0).bind(from.1).bind(&chosen).execute(&mut *work).await?;
        work.commit().await?;
        Ok(chosen.len() as u64)
    }

    async fn alone(&self, table: &str, from: Key<'_>, to: Key<'_>) -> Result<u64, Fault> {
        let mut work = self.door.begin_long().await?;
        let mut moved = 0;
        if let Some(columns) = columns(&mut work, table).await? {
            let step = AssertSqlSafe(format!(
                "WITH gone AS (DELETE FROM slipway.{table} WHERE ctid = ANY (ARRAY(
                     SELECT ctid FROM slipway.{table} WHERE team = $1 AND agent_id = $2 LIMIT $5)) RETURNING {columns}),
                 come AS (INSERT INTO slipway.{table} (team, agent_id, {columns}) SELECT $3, $4, {columns} FROM gone ON CONFLICT DO NOTHING)
                 SELECT count(*) AS moved FROM gone"
            ));
            let row = ask(step).bind(from.0).bind(from.1).bind(to.0).bind(to.1).bind(MANY).fetch_one(&mut *work).await?;
            moved = row.try_get::<i64, _>("moved")?.unsigned_abs();
        }
        work.commit().await?;
        Ok(moved)
    }
}

fn ids(rows: &[PgRow]) -> Result<Vec<String>, Fault> {
    rows.iter().map(|row| Ok(row.try_get("id")?)).collect()
}

/// The columns of a table beside its key's first two, without those that are computed; none when there is no such table.
async fn columns(work: &mut Work, table: &str) -> Result<Option<String>, Fault> {
    const COLUMNS: &str = "
        SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) AS columns FROM pg_attribute
        WHERE attrelid = to_regclass('slipway.' || $1) AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
          AND attname NOT IN ('team', 'agent_id')";
    Ok(ask(COLUMNS).bind(table).fetch_one(&mut **work).await?.try_get("columns")?)
}
