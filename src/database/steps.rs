//! The engine of migrations: takes a list of steps, each in one transaction. Several processes may do so at once.
//!
//! `migrate` has the steps of the platform's database, `knowledge::migrate` those of its sibling.

use std::pin::Pin;
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Executor, PgConnection, Row};

use crate::Fault;
use crate::connection::ask;

pub(crate) struct Step {
    pub(crate) version: i32,
    pub(crate) name: &'static str,
    pub(crate) sql: &'static str,
}

/// The version that was found and the one that was reached.
pub(crate) struct Taken {
    pub(crate) from: i32,
    pub(crate) to: i32,
}

/// What holds for all tables and is made so at the end of each step, within its transaction.
pub(crate) type Settle = for<'a> fn(&'a mut PgConnection) -> Pin<Box<dyn Future<Output = Result<(), Fault>> + Send + 'a>>;

const CONNECT: Duration = Duration::from_secs(10);
/// Until one table that somebody else is reading can be changed. Short: the next reader queues up behind it.
const LOCK: &str = "SET LOCAL lock_timeout = '5s'";
const BEGIN: &str = "BEGIN; SET LOCAL statement_timeout = '10min'; SET LOCAL lock_timeout = '60s'; SET LOCAL search_path = pg_catalog";

pub(crate) async fn connect(settings: &PgConnectOptions) -> Result<PgConnection, Fault> {
    let connecting = tokio::time::timeout(CONNECT, settings.connect()).await;
    Ok(connecting.map_err(|_| Fault::Unavailable(format!("no connection within {} s", CONNECT.as_secs())))??)
}

/// Takes the steps that are missing up to a version. Ends within a transaction that holds the migration lock.
pub(crate) async fn take(connection: &mut PgConnection, steps: &[Step], target: i32, settle: Settle) -> Result<Taken, Fault> {
    let from = begin(connection).await?;
    let mut version = from;
    for step in steps.iter().filter(|step| step.version <= target) {
        if step.version > version {
            tracing::info!(version = step.version, name = step.name, "changing the schema");
            connection.execute(sqlx::raw_sql(step.sql)).await?;
            ask("INSERT INTO slipway.migrations (version, name) VALUES ($1, $2)")
                .bind(step.version)
                .bind(step.name)
                .execute(&mut *connection)
                .await?;
            settle(connection).await?;
            connection.execute("COMMIT").await?;
            version = begin(connection).await?.max(step.version);
        }
    }
    Ok(Taken { from, to: version })
}

/// The schema and the table of its versions. Who finds them missing queues up by an advisory lock, for want of
/// anything else to lock; from then on the table itself is locked, since an advisory lock could be taken, and
/// kept, by any team's login.
pub(crate) async fn make_room(connection: &mut PgConnection) -> Result<(), Fault> {
    // Not by to_regclass: waiting for an advisory lock does not bring up to date what that looks into.
    const THERE: &str = "
        SELECT EXISTS (SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                       WHERE n.nspname = 'slipway' AND c.relname = 'migrations') AS there,
               EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = 'slipway') AS schema_there";
    const TABLE: &str = "
        CREATE TABLE slipway.migrations (
            version integer PRIMARY KEY,
            name text NOT NULL,
            applied_at timestamptz NOT NULL DEFAULT now())";
    let look = |row: sqlx::postgres::PgRow| Ok::<(bool, bool), Fault>((row.try_get("there")?, row.try_get("schema_there")?));
    if look(ask(THERE).fetch_one(&mut *connection).await?)?.0 {
        return Ok(());
    }
    connection.execute(sqlx::raw_sql(BEGIN)).await?;
    // The letters of "slipway", as a number.
    connection.execute("SELECT pg_advisory_xact_lock(32488822435963257)").await?;
    let (there, schema_there) = look(ask(THERE).fetch_one(&mut *connection).await?)?;
    if !schema_there {
        connection.execute("CREATE SCHEMA slipway").await.map_err(schema_refused)?;
    }
    if !there {
        connection.execute(TABLE).await?;
    }
    connection.execute("COMMIT").await?;
    Ok(())
}

fn schema_refused(error: sqlx::Error) -> Fault {
    let may_not = error.as_database_error().and_then(sqlx::error::DatabaseError::code).is_some_and(|code| code == "42501");
    if !may_not {
        return error.into();
    }
    Fault::Refused(
        "this login may not create the schema slipway; let it create schemas in this database, or create one that it owns".to_owned(),
    )
}

/// A transaction that holds the migration lock, and the version found in it.
pub(crate) async fn begin(connection: &mut PgConnection) -> Result<i32, Fault> {
    connection.execute(sqlx::raw_sql(BEGIN)).await?;
    // Reading goes on.
    connection.execute("LOCK TABLE slipway.migrations IN EXCLUSIVE MODE").await?;
    connection.execute(LOCK).await?;
    let row = ask("SELECT coalesce(max(version), 0) AS version FROM slipway.migrations").fetch_one(connection).await?;
    Ok(row.try_get("version")?)
}
