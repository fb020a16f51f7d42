//! Usage from before step 14 of the schema, summed up into `usage_spans`: one agent after the other, each in a transaction of its own, while
//! runtimes go on writing. Whatever cuts it off loses one agent's work; the next migration goes on.

use sqlx::{Executor, PgConnection, Row};

use crate::Fault;
use crate::connection::ask;

/// Of one agent, while its runtimes write.
const MAX_ATTEMPTS: u32 = 20;
/// What is written after the snapshot, and what was not seen in it, is told by the server as a failure to serialise.
const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ; SET LOCAL statement_timeout = '60s'; SET LOCAL lock_timeout = '10s'; SET LOCAL search_path = pg_catalog";

/// Sums up what is owed. Several processes may do so at once.
pub(crate) async fn usage(connection: &mut PgConnection) -> Result<(), Fault> {
    const OWED: &str =
        "SELECT EXISTS (SELECT 1 FROM pg_class WHERE relnamespace = 'slipway'::regnamespace AND relname = 'usage_backfill') AS there";
    if !ask(OWED).fetch_one(&mut *connection).await?.try_get::<bool, _>("there")? {
        return Ok(());
    }
    let (mut agents, mut attempts) = (0_u64, 0);
    loop {
        match next(connection).await {
            Ok(true) => (agents, attempts) = (agents + 1, 0),
            Ok(false) => break,
            Err(error) if attempts < MAX_ATTEMPTS && is_conflict(&error) => {
                attempts += 1;
                connection.execute("ROLLBACK").await?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    if agents > 0 {
        tracing::info!(agents, "usage from before the upgrade has been summed up");
    }
    Ok(())
}

/// Whether there was one.
async fn next(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    const NEXT: &str = "SELECT team, agent_id FROM slipway.usage_backfill ORDER BY team, agent_id LIMIT 1 FOR UPDATE SKIP LOCKED";
    connection.execute(sqlx::raw_sql(BEGIN)).await?;
    let found = ask(NEXT).fetch_optional(&mut *connection).await?;
    if let Some(row) = &found {
        let (team, agent): (String, String) = (row.try_get("team")?, row.try_get("agent_id")?);
        ask("SELECT slipway.sum_usage($1, $2)").bind(team).bind(agent).execute(&mut *connection).await?;
    }
    connection.execute("COMMIT").await?;
    Ok(found.is_some())
}

fn is_conflict(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
    matches!(code.as_deref(), Some("40001" | "40P01" | "55P03"))
}
