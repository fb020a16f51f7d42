//! The schema, made and changed in steps that are never edited once released: expand, then contract.
//!
//! A step only adds (tables, columns with defaults, indexes); what an older runtime still reads or writes is
//! removed by a later release, when none is left. So a runtime works with any schema from [`MINIMUM`] on, and the
//! manager may migrate while agents run. Each step is one transaction, so that a kill leaves it undone, not half
//! done. `docs/database.md` says who migrates which database.

use std::fmt;

use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection, Executor, PgConnection, Row};

use crate::connection::{ask, settings};
use crate::steps::{self, Step};
use crate::{Fault, backfill, roles};

const STEPS: [Step; 16] = [
    Step { version: 1, name: "conversations", sql: include_str!("migrations/0001_conversations.sql") },
    Step { version: 2, name: "memories", sql: include_str!("migrations/0002_memories.sql") },
    Step { version: 3, name: "usage", sql: include_str!("migrations/0003_usage.sql") },
    Step { version: 4, name: "owners", sql: include_str!("migrations/0004_owners.sql") },
    Step { version: 5, name: "usage by run", sql: include_str!("migrations/0005_usage_by_run.sql") },
    Step { version: 6, name: "turns in one question", sql: include_str!("migrations/0006_turns.sql") },
    Step { version: 7, name: "lock timeout", sql: include_str!("migrations/0007_lock_timeout.sql") },
    Step { version: 8, name: "turns together", sql: include_str!("migrations/0008_turns_together.sql") },
    Step { version: 9, name: "evaluation results", sql: include_str!("migrations/0009_evaluation_results.sql") },
    Step { version: 10, name: "plans", sql: include_str!("migrations/0010_plans.sql") },
    Step { version: 11, name: "feedback", sql: include_str!("migrations/0011_feedback.sql") },
    Step { version: 12, name: "sampled scores", sql: include_str!("migrations/0012_sampled_scores.sql") },
    Step { version: 13, name: "feedback for MLflow", sql: include_str!("migrations/0013_feedback_delivery.sql") },
    Step { version: 14, name: "governance", sql: include_str!("migrations/0014_governance.sql") },
    Step { version: 15, name: "deliveries of alerts", sql: include_str!("migrations/0015_alert_deliveries.sql") },
    Step { version: 16, name: "traces of usage", sql: include_str!("migrations/0016_usage_traces.sql") },
];

/// The version that [`migrate`] leads to.
pub const LATEST: i32 = STEPS[STEPS.len() - 1].version;
/// The oldest schema that this runtime can work with.
pub const MINIMUM: i32 = 8;

/// What was there, what is there, and what had to be left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migrated {
    pub from: i32,
    pub to: i32,
    pub vectors: Vectors,
}

/// Whether memories can be searched by their vectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Vectors {
    Ready,
    /// Memories are searched in full text. Why, and what would change that.
    Missing(String),
}

impl fmt::Display for Vectors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready => f.write_str("memories are searched by vectors"),
            Self::Missing(why) => write!(f, "memories are searched in full text: {why}"),
        }
    }
}

/// Brings a database to [`LATEST`]. Any number of processes may do so at once; a newer schema is left as it is.
/// The login owns the schema `slipway`, or may create it.
pub async fn migrate(url: &str, password: Option<&str>, sslmode: Option<&str>) -> Result<Migrated, Fault> {
    migrate_with(settings(url, password, sslmode)?).await
}

pub(crate) async fn migrate_with(settings: PgConnectOptions) -> Result<Migrated, Fault> {
    migrate_to(settings, LATEST).await
}

/// Stops at an older version, for tests of what leads on from there.
#[doc(hidden)]
pub async fn migrate_up_to(url: &str, target: i32) -> Result<Migrated, Fault> {
    migrate_to(settings(url, None, None)?, target).await
}

async fn migrate_to(settings: PgConnectOptions, target: i32) -> Result<Migrated, Fault> {
    let mut connection = steps::connect(&settings).await?;
    let outcome = async {
        let migrated = migrate_through(&mut connection, target).await?;
        backfill::usage(&mut connection).await?;
        Ok(migrated)
    }
    .await;
    // A failed step's transaction ends with its connection.
    drop(connection.close().await);
    outcome
}

async fn migrate_through(connection: &mut PgConnection, target: i32) -> Result<Migrated, Fault> {
    steps::make_room(connection).await?;
    let taken = steps::take(connection, &STEPS, target, |connection| Box::pin(settle(connection))).await?;
    let vectors = if taken.to >= 2 { vectors(connection).await? } else { Vectors::Missing("the schema has no memories yet".to_owned()) };
    settle(connection).await?;
    roles::grant_to_teams(connection).await?;
    connection.execute("COMMIT").await?;
    Ok(Migrated { from: taken.from, to: taken.to, vectors })
}

/// What holds for every table with a team's rows: row-level security, for its owner too, and no statistics.
/// EXPLAIN shows estimates made from the rows of all teams; without statistics it has none to show.
async fn settle(connection: &mut PgConnection) -> Result<(), Fault> {
    const SETTLE: &str = "
        DO $$
        DECLARE
            t record;
            columns text;
        BEGIN
            FOR t IN SELECT c.oid, c.relname, c.relrowsecurity AND c.relforcerowsecurity AS secured FROM pg_class c
                     WHERE c.relnamespace = 'slipway'::regnamespace AND c.relkind = 'r' AND c.relname NOT IN ('tenants', 'migrations', 'owners')
            LOOP
                IF NOT t.secured THEN
                    EXECUTE format('ALTER TABLE slipway.%I ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', t.relname);
                    EXECUTE format('CREATE POLICY platform ON slipway.%I TO CURRENT_USER USING (true) WITH CHECK (true)', t.relname);
                    EXECUTE format('CREATE POLICY tenant ON slipway.%I USING (team = (SELECT slipway.team()))'
                                || ' WITH CHECK (team = (SELECT slipway.team()))', t.relname);
                END IF;
                SELECT string_agg(format('ALTER COLUMN %I SET STATISTICS 0', a.attname), ', ') INTO columns
                FROM pg_attribute a
                WHERE a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attstattarget IS DISTINCT FROM 0;
                IF columns IS NOT NULL THEN
                    EXECUTE format('ALTER TABLE slipway.%I ', t.relname) || columns;
                END IF;
            END LOOP;
        END $$";
    connection.execute(sqlx::raw_sql(SETTLE)).await?;
    Ok(())
}

/// The table of vectors, if the extension is there or can be had.
async fn vectors(connection: &mut PgConnection) -> Result<Vectors, Fault> {
    const FOUND: &str = "
        SELECT (SELECT quote_ident(n.nspname) FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
                WHERE e.extname = 'vector') AS home,
               EXISTS (SELECT 1 FROM pg_available_extensions WHERE name = 'vector') AS available,
               CASE WHEN to_regnamespace('public') IS NULL THEN 'slipway' ELSE 'public' END AS future_home";
    let row = ask(FOUND).fetch_one(&mut *connection).await?;
    let home: Option<String> = row.try_get("home")?;
    let home = match home {
        Some(home) => home,
        None if !row.try_get("available")? => {
            return Ok(Vectors::Missing("the server has no pgvector; once it is installed, the next migration uses it".to_owned()));
        }
        None => {
            let home: String = row.try_get("future_home")?;
            connection.execute("SAVEPOINT extension").await?;
            let create = sqlx::AssertSqlSafe(format!("CREATE EXTENSION vector SCHEMA {home}"));
            if let Err(error) = connection.execute(sqlx::raw_sql(create)).await {
                let fault = Fault::from(error);
                if fault.is_passing() {
                    return Err(fault);
                }
                connection.execute("ROLLBACK TO SAVEPOINT extension").await?;
                return Ok(Vectors::Missing(
                    "this login may not create the extension vector; once an administrator has (CREATE EXTENSION vector), the next migration uses it"
                        .to_owned(),
                ));
            }
            home
        }
    };
    let table = include_str!("migrations/vectors.sql").replace("VECTORS", &home);
    connection.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(table))).await?;
    Ok(Vectors::Ready)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_count_up_from_one() {
        let versions: Vec<_> = STEPS.iter().map(|step| step.version).collect();
        assert_eq!(versions, (1..=LATEST).collect::<Vec<_>>());
        const { assert!(MINIMUM <= LATEST) };
    }
}
