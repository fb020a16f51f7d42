//! The sibling database: made if it is missing, then its extension and its schema, in steps that only add.

use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row};

use super::teams;
use crate::connection::ask;
use crate::steps::{self, Step};
use crate::{Fault, roles};

const STEPS: [Step; 19] = [
    Step { version: 1, name: "knowledge bases", sql: include_str!("../migrations/knowledge/0001_bases.sql") },
    Step { version: 2, name: "ingestions", sql: include_str!("../migrations/knowledge/0002_ingestions.sql") },
    Step { version: 3, name: "documents", sql: include_str!("../migrations/knowledge/0003_documents.sql") },
    Step { version: 4, name: "search", sql: include_str!("../migrations/knowledge/0004_search.sql") },
    Step { version: 5, name: "uploads", sql: include_str!("../migrations/knowledge/0005_uploads.sql") },
    Step { version: 6, name: "doubtful removals", sql: include_str!("../migrations/knowledge/0006_removals.sql") },
    Step { version: 7, name: "names of documents", sql: include_str!("../migrations/knowledge/0007_names.sql") },
    Step { version: 8, name: "vectors of another model", sql: include_str!("../migrations/knowledge/0008_models.sql") },
    Step { version: 9, name: "quotas", sql: include_str!("../migrations/knowledge/0009_quotas.sql") },
    Step { version: 10, name: "chosen models", sql: include_str!("../migrations/knowledge/0010_chosen_models.sql") },
    Step { version: 11, name: "lists of changes", sql: include_str!("../migrations/knowledge/0011_changes.sql") },
    Step { version: 12, name: "ranks of words", sql: include_str!("../migrations/knowledge/0012_ranks.sql") },
    Step { version: 13, name: "plans of searches", sql: include_str!("../migrations/knowledge/0013_plans.sql") },
    Step { version: 14, name: "notes of documents", sql: include_str!("../migrations/knowledge/0014_notes.sql") },
    Step { version: 15, name: "attempts at documents", sql: include_str!("../migrations/knowledge/0015_attempts.sql") },
    Step { version: 16, name: "recall of indexes", sql: include_str!("../migrations/knowledge/0016_recall.sql") },
    Step { version: 17, name: "thresholds of searches", sql: include_str!("../migrations/knowledge/0017_thresholds.sql") },
    Step { version: 18, name: "plans that last", sql: include_str!("../migrations/knowledge/0018_plans_that_last.sql") },
    Step { version: 19, name: "contents of sources", sql: include_str!("../migrations/knowledge/0019_contents_of_sources.sql") },
];

pub(super) const LATEST: i32 = STEPS[STEPS.len() - 1].version;

/// What was there and what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnowledgeMigrated {
    pub created_database: bool,
    pub from: i32,
    pub to: i32,
}

/// The name of the database that knowledge bases are in, beside the platform's.
pub fn sibling(database: &str) -> Result<String, Fault> {
    let name = format!("{database}_knowledge");
    // A longer one PostgreSQL would cut without a word.
    if name.len() > 63 {
        return Err(Fault::Refused(format!("the database's name is too long: {name} would have more than 63 bytes")));
    }
    Ok(name)
}

/// Brings the sibling of `platform`, which `settings` name, to a version.
pub(super) async fn migrate_to(
    target: i32,
    platform: &PgConnectOptions,
    settings: &PgConnectOptions,
    group: &str,
) -> Result<KnowledgeMigrated, Fault> {
    let name = settings.get_database().unwrap_or_default();
    let created_database = create(platform, name).await?;
    let mut connection = steps::connect(settings).await?;
    let outcome = migrate_through(target, &mut connection, name, group).await;
    // A failed step's transaction ends with its connection.
    drop(connection.close().await);
    let taken = outcome?;
    Ok(KnowledgeMigrated { created_database, from: taken.from, to: taken.to })
}

async fn migrate_through(target: i32, connection: &mut PgConnection, name: &str, group: &str) -> Result<steps::Taken, Fault> {
    close(connection, name).await?;
    steps::make_room(connection).await?;
    steps::begin(connection).await?;
    extension(connection, name).await?;
    connection.execute("COMMIT").await?;
    let taken = steps::take(connection, &STEPS, target, |connection| Box::pin(teams::close_functions(connection))).await?;
    teams::close_functions(connection).await?;
    if roles::exists(connection, group).await? {
        teams::grant(connection, group).await?;
    }
    connection.execute("COMMIT").await?;
    Ok(taken)
}

/// Whether this made it. Of two that make it at once the second finds it made.
async fn create(platform: &PgConnectOptions, name: &str) -> Result<bool, Fault> {
    let mut connection = steps::connect(platform).await?;
    let there =
        ask("SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_database WHERE datname = $1::text) AS there").bind(name).fetch_one(&mut connection);
    if there.await?.try_get("there")? {
        return Ok(false);
    }
    let create = AssertSqlSafe(format!("CREATE DATABASE {}", quoted(name)));
    let made = connection.execute(sqlx::raw_sql(create)).await;
    drop(connection.close().await);
    let Err(error) = made else { return Ok(true) };
    match error.as_database_error().and_then(sqlx::error::DatabaseError::code).as_deref() {
        Some("42P04" | "23505") => Ok(false),
        Some("42501") => Err(Fault::Refused(format!(
            "this login may not create the database of knowledge bases; an administrator runs: CREATE DATABASE {} OWNER {}",
            quoted(name),
            quoted(platform.get_username())
        ))),
        // Somebody is connected to the template.
        Some("55006") => Err(Fault::Unavailable("the server's template database is in use".to_owned())),
        _ => Err(error.into()),
    }
}

/// Nobody connects whom we do not let in. No temporary tables either.
async fn close(connection: &mut PgConnection, name: &str) -> Result<(), Fault> {
    const OPEN: &str = "SELECT has_database_privilege('public', current_database(), 'CONNECT')
                            OR has_database_privilege('public', current_database(), 'TEMPORARY') AS open";
    if !ask(OPEN).fetch_one(&mut *connection).await?.try_get("open")? {
        return Ok(());
    }
    let refused = || {
        let name = quoted(name);
        Fault::Refused(format!(
            "the database {name} is open to every login and is not ours; an administrator runs: REVOKE ALL ON DATABASE {name} FROM PUBLIC"
        ))
    };
    let revoke = AssertSqlSafe(format!("REVOKE ALL ON DATABASE {} FROM PUBLIC", quoted(name)));
    if let Err(error) = connection.execute(sqlx::raw_sql(revoke)).await {
        return match error.as_database_error().and_then(sqlx::error::DatabaseError::code).as_deref() {
            Some("42501") => Err(refused()),
            // Another manager does the same.
            Some("XX000") => Err(Fault::Unavailable("another process changes the rights of the database".to_owned())),
            _ => Err(error.into()),
        };
    }
    // What one may not revoke is only warned about.
    if ask(OPEN).fetch_one(&mut *connection).await?.try_get("open")? { Err(refused()) } else { Ok(()) }
}

/// In our schema, so that what names its types and operators finds them where nobody else can create any.
async fn extension(connection: &mut PgConnection, name: &str) -> Result<(), Fault> {
    const FOUND: &str = "
        SELECT (SELECT n.nspname::text FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'vector') AS home,
               (SELECT e.extversion FROM pg_extension e WHERE e.extname = 'vector') AS version,
               EXISTS (SELECT 1 FROM pg_available_extensions WHERE name = 'vector') AS available";
    let row = ask(FOUND).fetch_one(&mut *connection).await?;
    let home: Option<String> = row.try_get("home")?;
    let statement = match home.as_deref() {
        Some("slipway") => return recent(row.try_get("version")?),
        Some(_) => "ALTER EXTENSION vector SET SCHEMA slipway",
        None if row.try_get("available")? => "CREATE EXTENSION vector SCHEMA slipway",
        None => {
            return Err(Fault::Refused(
                "the server has no pgvector, without which there are no knowledge bases; once it is installed, the next migration uses it"
                    .to_owned(),
            ));
        }
    };
    let Err(error) = connection.execute(statement).await else { return Ok(()) };
    let fault = Fault::from(error);
    if fault.is_passing() {
        return Err(fault);
    }
    Err(Fault::Refused(format!("this login may not do what an administrator runs in the database {}: {statement}", quoted(name))))
}

/// Iterative scans came with 0.8.
pub(super) fn recent(version: &str) -> Result<(), Fault> {
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0_u32));
    let version_is_recent = (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) >= (0, 8);
    if version_is_recent {
        Ok(())
    } else {
        Err(Fault::Refused(format!(
            "knowledge bases need pgvector 0.8 or later, and this is {version}; an administrator runs: ALTER EXTENSION vector UPDATE"
        )))
    }
}

pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_count_up_from_one() {
        let versions: Vec<_> = STEPS.iter().map(|step| step.version).collect();
        assert_eq!(versions, (1..=LATEST).collect::<Vec<_>>());
    }

    #[test]
    fn a_name_that_would_be_cut_is_refused() {
        assert_eq!(sibling("slipway").unwrap(), "slipway_knowledge");
        assert!(sibling(&"x".repeat(53)).is_ok());
        assert!(matches!(sibling(&"x".repeat(54)), Err(Fault::Refused(_))));
    }

    #[test]
    fn a_pgvector_without_iterative_scans_is_refused() {
        for (version, enough) in [("0.7.4", false), ("0.8.0", true), ("0.10.1", true), ("1.0", true), ("x", false)] {
            assert_eq!(recent(version).is_ok(), enough, "{version}");
        }
    }
}
