//! The names of database roles, and what the group of all teams may do.
//!
//! Roles belong to the whole server and everybody may list them, so a name says neither the team nor the
//! database: it is a hash of both. `slipway.tenants` has the team to each.

use sha2::{Digest, Sha256};
use sqlx::{Executor, PgConnection, Row};

use crate::Fault;
use crate::connection::ask;

/// What the logins of teams have in common, rights above all. One grant to it, instead of one to each of a
/// thousand, since a table's list of rights has to fit into a page.
pub(crate) fn group(database: &str) -> String {
    format!("slipway_teams_{}", digest(&[database]))
}

/// The login of one Team: another Team of that name has another.
pub(crate) fn team(database: &str, team: &str, uid: &str) -> String {
    format!("slipway_team_{}", digest(&[database, team, uid]))
}

/// What managers that knew nothing of UIDs called it.
pub(crate) fn team_before(database: &str, team: &str) -> String {
    format!("slipway_team_{}", digest(&[database, team]))
}

fn digest(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.len().to_be_bytes());
        hash.update(part);
    }
    hex::encode(hash.finalize())[..20].to_owned()
}

/// The name of the database that a connection is to.
pub(crate) async fn database(connection: &mut PgConnection) -> Result<String, Fault> {
    let row = ask("SELECT current_database()::text AS name").fetch_one(connection).await?;
    Ok(row.try_get("name")?)
}

pub(crate) async fn exists(connection: &mut PgConnection, role: &str) -> Result<bool, Fault> {
    let row = ask("SELECT to_regrole(quote_ident($1)) IS NOT NULL AS there").bind(role).fetch_one(connection).await?;
    Ok(row.try_get("there")?)
}

/// Gives the group what it may do with tables that have come since. Nothing while there is no group.
pub(crate) async fn grant_to_teams(connection: &mut PgConnection) -> Result<(), Fault> {
    let group = group(&database(connection).await?);
    if exists(connection, &group).await? { grant(connection, &group).await } else { Ok(()) }
}

/// Rows of the tables with a team in them, which row-level security narrows down; the schema's version; nothing of
/// `tenants`, nor of what an agent must not write itself: feedback, readiness, alerts and their messages. Sums of usage are read, and
/// written by triggers alone. No TRUNCATE, which row-level security does not hold, no REFERENCES, no TRIGGER.
pub(crate) async fn grant(connection: &mut PgConnection, group: &str) -> Result<(), Fault> {
    let grant = format!(
        "DO $$
         DECLARE
             t record;
         BEGIN
             IF NOT has_schema_privilege('{group}', 'slipway', 'USAGE') THEN
                 GRANT USAGE ON SCHEMA slipway TO {group};
             END IF;
             IF NOT has_table_privilege('{group}', 'slipway.migrations', 'SELECT') THEN
                 GRANT SELECT ON slipway.migrations TO {group};
             END IF;
             IF NOT has_function_privilege('{group}', 'slipway.team()', 'EXECUTE') THEN
                 GRANT EXECUTE ON FUNCTION slipway.team() TO {group};
             END IF;
             -- A manager of an older version, which takes them for tables that a team may write, may have given them.
             FOR t IN SELECT c.oid, c.relname FROM pg_class c
                      WHERE c.relnamespace = 'slipway'::regnamespace
                        AND c.relname IN ('owners', 'feedback', 'feedback_cases', 'readiness_hours', 'alerts', 'alert_deliveries')
             LOOP
                 IF has_table_privilege('{group}', t.oid, 'SELECT') OR has_table_privilege('{group}', t.oid, 'UPDATE') THEN
                     EXECUTE format('REVOKE ALL ON slipway.%I FROM {group}', t.relname);
                 END IF;
             END LOOP;
             FOR t IN SELECT c.oid, c.relname FROM pg_class c
                      WHERE c.relnamespace = 'slipway'::regnamespace AND c.relname IN ('usage_spans', 'usage_backfill')
             LOOP
                 IF has_table_privilege('{group}', t.oid, 'INSERT') OR has_table_privilege('{group}', t.oid, 'UPDATE')
                    OR has_table_privilege('{group}', t.oid, 'DELETE') THEN
                     EXECUTE format('REVOKE INSERT, UPDATE, DELETE ON slipway.%I FROM {group}', t.relname);
                 END IF;
                 IF NOT has_table_privilege('{group}', t.oid, 'SELECT') THEN
                     EXECUTE format('GRANT SELECT ON slipway.%I TO {group}', t.relname);
                 END IF;
             END LOOP;
             FOR t IN SELECT c.oid, c.relname FROM pg_class c
                      WHERE c.relnamespace = 'slipway'::regnamespace AND c.relkind = 'r' AND c.relforcerowsecurity
                        AND c.relname NOT IN ('owners', 'feedback', 'feedback_cases', 'readiness_hours', 'alerts',
                                              'alert_deliveries', 'usage_spans', 'usage_backfill')
             LOOP
                 IF NOT (has_table_privilege('{group}', t.oid, 'SELECT') AND has_table_privilege('{group}', t.oid, 'INSERT')
                         AND has_table_privilege('{group}', t.oid, 'UPDATE') AND has_table_privilege('{group}', t.oid, 'DELETE')) THEN
                     EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON slipway.%I TO {group}', t.relname);
                 END IF;
             END LOOP;
         END $$"
    );
    connection.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(grant))).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_tells_nothing_and_fits() {
        for slug in ["default", &"x".repeat(63), "secret-project"] {
            let role = team("slipway", slug, "a-uid");
            assert!(role.len() <= 63 && !role.contains(slug), "{role}");
            assert!(role.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'), "no quoting needed: {role}");
        }
    }

    #[test]
    fn two_databases_of_one_server_have_different_roles() {
        assert_ne!(team("one", "default", "u"), team("two", "default", "u"));
        assert_ne!(team("one", "default", "u"), team("one", "default", "v"));
        assert_ne!(team_before("ab", "c"), team_before("a", "bc"));
        assert_ne!(group("one"), group("two"));
    }
}
