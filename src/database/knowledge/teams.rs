//! What logins of teams may do: connect, and call the functions that are named here.

use sqlx::{AssertSqlSafe, Executor, PgConnection};

use crate::Fault;

/// The functions that logins call, some of them in former versions only (`replace_model`). All others, and all tables, are the owner's.
const FUNCTIONS: [&str; 38] = [
    "team",
    "base",
    "fix_model",
    "replace_model",
    "use_model",
    "unembedded",
    "add_vectors",
    "all_embedded",
    "begin_ingestion",
    "report_ingestion",
    "begin_attempt",
    "list_attempts",
    "withdraw_attempts",
    "begin_draft",
    "add_chunks",
    "publish",
    "sweep",
    "discard_drafts",
    "changed",
    "mark_seen",
    "remove_unseen",
    "remove_gone",
    "begin_traversal",
    "find_place",
    "keep_place",
    "adopt_documents",
    "remove_documents",
    "vectors_of",
    "list_documents",
    "count_documents",
    "build",
    "search",
    "begin_upload",
    "put_part",
    "finish_upload",
    "find_upload",
    "read_part",
    "remove_upload",
];

/// Takes the right to call our functions from everybody, who has it from their creation.
pub(super) async fn close_functions(connection: &mut PgConnection) -> Result<(), Fault> {
    const CLOSE: &str = "
        DO $$
        DECLARE
            f record;
        BEGIN
            FOR f IN SELECT p.oid::regprocedure AS name FROM pg_proc p
                     WHERE p.pronamespace = 'slipway'::regnamespace AND has_function_privilege('public', p.oid, 'EXECUTE')
                       AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e')
            LOOP
                EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', f.name);
            END LOOP;
        END $$";
    connection.execute(sqlx::raw_sql(CLOSE)).await?;
    Ok(())
}

/// Gives the group of all teams what it lacks. One at a time: changes of rights do not wait for each other, they fail.
pub(super) async fn grant(connection: &mut PgConnection, group: &str) -> Result<(), Fault> {
    let names = FUNCTIONS.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ");
    let grant = format!(
        "LOCK TABLE slipway.tenants IN SHARE ROW EXCLUSIVE MODE;
         DO $$
         DECLARE
             f record;
         BEGIN
             IF NOT has_database_privilege('{group}', current_database(), 'CONNECT') THEN
                 EXECUTE format('GRANT CONNECT ON DATABASE %I TO {group}', current_database());
             END IF;
             IF NOT has_schema_privilege('{group}', 'slipway', 'USAGE') THEN
                 GRANT USAGE ON SCHEMA slipway TO {group};
             END IF;
             FOR f IN SELECT p.oid::regprocedure AS name FROM pg_proc p
                      WHERE p.pronamespace = 'slipway'::regnamespace AND p.proname IN ({names}) AND NOT has_function_privilege('{group}', p.oid, 'EXECUTE')
             LOOP
                 EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO {group}', f.name);
             END LOOP;
         END $$"
    );
    connection.execute(sqlx::raw_sql(AssertSqlSafe(grant))).await?;
    Ok(())
}
