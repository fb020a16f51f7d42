//! One team's login against another team's knowledge, and what a platform needs to have knowledge bases at all.

use slipway_database::Fault;
use slipway_database::knowledge::{Begun, KnowledgeAdmin, KnowledgeReader, Report, SearchQuery};
use slipway_database::{Ensured, Tenants};

use crate::knowledge::{Platform, begin, chunk, hash, meta, open, spec};
use crate::{Database, Raw, SERVER, home, passwords};

const SECRET: &str = "planted-secret-of-b";

/// Team a has `kb_own`, team b `kb_docs` with a secret in all that it has.
async fn two_teams() -> Platform {
    let platform = Platform::start().await;
    for (team, kb) in [("a", "kb_own"), ("b", "kb_docs"), ("b", "kb_own")] {
        let said = if team == "b" { SECRET } else { "own words" };
        let base = platform.base(team, kb).await;
        base.fix_model(if team == "b" { "model-of-b" } else { "mini" }, 2).await.unwrap();
        let ingestion = begin(&base, "one", said).await;
        ingestion.put_document(&meta(said, said), vec![chunk(0, said, Some(vec![1.0, 0.5]))]).await.unwrap();
        assert!(ingestion.begin_attempt(said, &[7; 32], false).await.unwrap());
        let mut report = Report::default();
        report.failed(said, said);
        ingestion.report(&report).await.unwrap();
        ingestion.settle(1).await.unwrap();
        let upload = base.begin_upload(said, said).await.unwrap();
        base.put_part(&upload, 0, said.as_bytes()).await.unwrap();
        base.finish_upload(&upload, 1, said.len() as u64).await.unwrap();
    }
    platform
}

/// All that a team has, as one text.
async fn rows_of(admin: &mut Raw, team: &str) -> String {
    let mut all = String::new();
    let bases = admin.ask(&format!("select uid, chunks::text from slipway.bases where team = '{team}' order by uid")).await.unwrap();
    for base in bases {
        let (uid, chunks) = (base[0].clone().unwrap(), base[1].clone().unwrap());
        for table in ["documents", "ingestions", "drafts", "attempts", "uploads", "upload_parts", "frequencies"] {
            all += &admin
                .one(&format!("select coalesce(string_agg(t::text, ';' order by t::text), '') from slipway.{table} t where base = '{uid}'"))
                .await;
        }
        all += &admin.one(&format!("select coalesce(string_agg(t::text, ';' order by t::text), '') from slipway.{chunks} t")).await;
        all += &admin.one(&format!("select t::text from slipway.bases t where uid = '{uid}'")).await;
    }
    all + &admin.one(&format!("select string_agg(t::text, ';') from slipway.tenants t where team = '{team}'")).await
}

#[expect(clippy::too_many_lines, reason = "a list of attempts")]
#[tokio::test]
async fn one_team_finds_nothing_of_anothers_knowledge() {
    let platform = two_teams().await;
    let mut admin = platform.raw().await;
    let before = rows_of(&mut admin, "b").await;
    assert!(before.matches(SECRET).count() > 10, "{before}");
    let (a, b) = (platform.team("a").await, platform.team("b").await);
    let chunks = admin.one("select chunks::text from slipway.bases where team = 'b' and kb_id = 'kb_docs'").await;
    let document = admin.one("select id from slipway.documents where base = 'uid-of-b-kb_docs-1'").await;
    let upload = admin.one("select id from slipway.uploads where base = 'uid-of-b-kb_docs-1'").await;
    let holder = admin.one("select holder from slipway.ingestions where base = 'uid-of-b-kb_docs-1'").await;
    let revision = admin.one("select revision::text from slipway.documents where base = 'uid-of-b-kb_docs-1'").await;
    let owned_by = admin.one("select current_user::text").await;
    let mut raw = Raw::connect(&platform.url_of(&a)).await;
    let mut attempts: Vec<String> = Vec::new();
    for table in [
        &chunks,
        "bases",
        "documents",
        "drafts",
        "attempts",
        "ingestions",
        "uploads",
        "upload_parts",
        "tenants",
        "teams",
        "frequencies",
        "contents",
        "places",
        "builds",
        "migrations",
    ] {
        for attempt in [
            "select t::text from slipway.TABLE t",
            "table slipway.TABLE",
            "select count(*) from slipway.TABLE",
            "copy slipway.TABLE to stdout",
            "select query_to_xml('select * from slipway.TABLE', true, false, '')::text",
            "select table_to_xml('slipway.TABLE', true, false, '')::text",
            "explain analyze select * from slipway.TABLE",
            "insert into slipway.TABLE default values",
            "delete from slipway.TABLE",
            "truncate slipway.TABLE",
            "lock table slipway.TABLE in access share mode",
            "alter table slipway.TABLE disable trigger all",
            "drop table slipway.TABLE",
            "create index on slipway.TABLE ((1))",
            "create view pg_temp.v as select * from slipway.TABLE; table pg_temp.v",
            "comment on table slipway.TABLE is 'x'",
            "grant select on slipway.TABLE to public",
            "analyze slipway.TABLE; select s::text from pg_stats s where tablename = 'TABLE'",
            "select attname::text, most_common_vals::text, histogram_bounds::text from pg_stats where tablename = 'TABLE'",
            "select * from pg_statistic",
            "prepare p as select * from slipway.TABLE; execute p",
            "declare c cursor with hold for select * from slipway.TABLE",
            "select pg_relation_filepath('slipway.TABLE'), pg_read_file(pg_relation_filepath('slipway.TABLE'))",
        ] {
            attempts.push(attempt.replace("TABLE", table));
        }
    }
    for function in [
        "search('kb_docs', 'planted', null, 10, null, null, null, null)",
        "search('kb_docs', '', '[1,0.5]', 10, null, null, null, null)",
        "search('kb_own', 'planted', '[1,0.5]', 10, null, null, null, null)",
        &format!("search('kb_own', 'planted', '[1,0.5]', 10, null, array['{SECRET}'], null, null)"),
        &format!("search('kb_own', 'planted', '[1,0.5]', 10, null, null, null, array['{document}'])"),
        "search('kb_own'' or true --', 'planted', null, 10, null, null, null, null)",
        "search('uid-of-b-kb_docs-1', 'planted', null, 10, null, null, null, null)",
        "search('%', 'planted', null, 10, null, null, null, null)",
        "search(null, 'planted', null, 10, null, null, null, null)",
        "list_documents('kb_docs', null, 10)",
        "list_documents('kb_own', 'zzz', 10)",
        "count_documents('kb_docs')",
        "base('kb_docs')",
        "fix_model('kb_docs', 'x', 2)",
        "replace_model('kb_docs', 'x', 2)",
        &format!("use_model('kb_docs', 'one', '{holder}', 'x', 2, 9)"),
        &format!("use_model('kb_own', 'one', '{holder}', 'x', 2, 9)"),
        "unembedded('kb_docs', null, null, 10)",
        &format!("add_vectors('kb_own', 'one', '{holder}', 'model-of-b', array['{revision}'], '{{0}}', array['[0.5,1]'::slipway.halfvec])"),
        &format!("all_embedded('kb_docs', 'one', '{holder}', 'model-of-b')"),
        "begin_ingestion('kb_docs', 'x', 'x', 'x')",
        &format!("report_ingestion('kb_docs', 'one', '{holder}', '{{}}', true)"),
        &format!("report_ingestion('kb_own', 'one', '{holder}', '{{}}', true)"),
        &format!("begin_attempt('kb_docs', 'one', '{holder}', '{SECRET}', '\\x{}', true)", "07".repeat(32)),
        &format!("begin_attempt('kb_own', 'one', '{holder}', '{SECRET}', '\\x{}', true)", "07".repeat(32)),
        &format!("list_attempts('kb_docs', 'one', '{holder}')"),
        &format!("list_attempts('kb_own', 'one', '{holder}')"),
        &format!("withdraw_attempts('kb_docs', '{holder}')"),
        &format!("withdraw_attempts('kb_own', '{holder}')"),
        &format!("begin_draft('kb_docs', 'one', '{holder}')"),
        &format!("begin_draft('kb_own', 'one', '{holder}')"),
        &format!(
            "add_chunks('kb_own', 'one', '{holder}', '{revision}', '{{9}}', '{{1}}', '{{1}}', '{{1}}', '{{1}}', '{{x}}', '{{x}}', '{{x}}', null)"
        ),
        &format!("publish('kb_own', 'one', '{holder}', '{revision}', 'doc_1', '{{}}', null)"),
        &format!("changed('kb_own', 'one', '{holder}', '{{{SECRET}}}', '{{x}}')"),
        &format!("mark_seen('kb_docs', 'one', '{holder}', '{{{SECRET}}}', '{{x}}')"),
        &format!("changed('kb_own', 'one', '{holder}', '{{{SECRET}}}', '{{x}}', '{{x}}', '{{x}}')"),
        &format!("mark_seen('kb_docs', 'one', '{holder}', '{{{SECRET}}}', '{{x}}', '{{x}}', '{{x}}')"),
        &format!("remove_unseen('kb_docs', 'one', '{holder}')"),
        &format!("remove_unseen('kb_docs', 'one', '{holder}', true)"),
        &format!("remove_gone('kb_own', 'one', '{holder}', array['{SECRET}'])"),
        &format!("find_place('kb_own', 'one', '{holder}', '\\x00')"),
        &format!("begin_traversal('kb_own', 'one', '{holder}')"),
        &format!("keep_place('kb_own', 'one', '{holder}', '\\x00', 'x')"),
        &format!("adopt_documents('kb_own', 'one', '{holder}', '{SECRET}')"),
        &format!("remove_documents('kb_docs', null, null, array['{document}'])"),
        &format!("remove_documents('kb_own', null, null, array['{document}'])"),
        &format!("remove_documents('kb_own', '{SECRET}', null, null)"),
        "sweep('kb_docs', 100)",
        "build('kb_docs', 1)",
        &format!("discard_drafts('kb_docs', '{holder}')"),
        &format!("vectors_of('kb_own', array['\\x{}'::bytea])", hex(&hash(SECRET))),
        &format!("vectors_of('kb_docs', array['\\x{}'::bytea])", hex(&hash(SECRET))),
        &format!("find_upload('kb_docs', '{upload}')"),
        &format!("find_upload('kb_own', '{upload}')"),
        &format!("read_part('kb_docs', '{upload}', 0)"),
        &format!("read_part('kb_own', '{upload}', 0)"),
        &format!("put_part('kb_own', '{upload}', 0, 'x')"),
        &format!("finish_upload('kb_own', '{upload}', 1, 19)"),
        &format!("remove_upload('kb_own', '{upload}')"),
        // Functions that are not for logins.
        "own_base('kb_docs')",
        &format!("held('uid-of-b-kb_docs-1', 'one', '{holder}')"),
        "make_chunks('chunks_x')",
        "make_found('chunks_x')",
        "make_nearest('chunks_x', 2)",
        &format!("{chunks}_nearest('uid-of-b-kb_docs-1', null, null, null, '[1,0]'::slipway.halfvec, 9)"),
        &format!(
            "{chunks}_found((select array_agg('{revision}'::uuid)), array[0], array[1.0], array[1], array[1], array['x'], array['x'], array['x'],
             array['x'], array['x'], null)"
        ),
        "expire_uploads()",
        "check_room('b', 1, 1)",
    ] {
        for before in [
            "",
            "set slipway.team = 'b';",
            "begin; set local slipway.team = 'b';",
            "set search_path = pg_temp, slipway, public;",
            // Plans of what functions ask are shown to everybody who wants to see them; none must show a row of others.
            "set client_min_messages = log; set debug_print_plan = on;",
            "set plan_cache_mode = force_generic_plan; set enable_indexscan = off; set hnsw.ef_search = 1;",
        ] {
            attempts.push(format!("{before} select t::text from slipway.{function} t"));
        }
    }
    for attempt in [
        format!("set role {}", b.user),
        format!("set role {owned_by}"),
        format!("set session authorization {}", b.user),
        format!("grant {} to {}", b.user, a.user),
        "create function slipway.team() returns text language sql as $$ select 'b' $$".into(),
        "create or replace function slipway.team() returns text language sql as $$ select 'b' $$".into(),
        "create function slipway.mine() returns text language sql as $$ select 'b' $$".into(),
        "alter function slipway.team() rename to other".into(),
        "create function pg_temp.team() returns text language sql as $$ select 'b' $$; select slipway.search('kb_docs', 'x', null, 1, null, null, null, null)::text".into(),
        "create temporary table tenants as select 'b' as team".into(),
        "create schema mine".into(),
        "create table public.tenants (team text)".into(),
        "create operator public.<=> (function = pg_catalog.float8pl, leftarg = float8, rightarg = float8)".into(),
        "create operator slipway.@@ (function = pg_catalog.float8pl, leftarg = float8, rightarg = float8)".into(),
        "create cast (text as slipway.halfvec) with inout".into(),
        "create text search configuration pg_temp.english (copy = simple)".into(),
        "alter extension vector update".into(),
        "drop extension vector cascade".into(),
        "create extension dblink".into(),
        "alter database current set slipway.team = 'b'".into(),
        format!("alter role {} set slipway.team = 'b'", b.user),
        "load 'auto_explain'".into(),
        "select query from pg_stat_activity where query like '%planted%' and usename <> session_user".into(),
        "select pg_logical_emit_message(true, 'x', 'y')".into(),
        "select pg_terminate_backend(pid) from pg_stat_activity where usename <> session_user".into(),
        "create publication p for all tables".into(),
        "create event trigger t on ddl_command_end execute function slipway.team()".into(),
        "select pg_advisory_lock(n) from generate_series(1, 1000) n".into(),
        "select prosrc from pg_proc where prosrc like '%planted%'".into(),
        "select lo_get(oid)::text from pg_largeobject_metadata".into(),
        "select chunks::text from slipway.bases for update".into(),
        "merge into slipway.tenants using (select 1) s on false when not matched then insert (team, role, uid) values ('x', session_user, 'y')".into(),
        "update slipway.tenants set team = 'b' where role = session_user".into(),
        "do $$ begin perform set_config('slipway.team', 'b', false); end $$; select slipway.count_documents('kb_docs')::text".into(),
    ] {
        attempts.push(attempt);
    }
    let mut refused = 0;
    for attempt in &attempts {
        match raw.ask(attempt).await {
            Ok(rows) => {
                let said = format!("{rows:?}");
                assert!(!said.contains("planted") && !said.contains("model-of-b"), "{attempt}: {said}");
            }
            Err(error) => {
                assert!(!error.contains("planted"), "{attempt}: {error}");
                refused += 1;
            }
        }
        raw.ask("rollback; reset all").await.unwrap();
    }
    assert!(attempts.len() > 400 && refused > 300, "{refused} of {} were refused", attempts.len());
    assert_eq!(rows_of(&mut admin, "b").await, before, "and nothing of it has changed");
    // What was tried with locks held does not keep b out.
    let own = open(&platform.url_of(&b), "b", "kb_docs");
    assert_eq!(own.search(&SearchQuery { text: "planted".into(), top_k: 3, ..Default::default() }).await.unwrap().len(), 1);
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

/// With the doors that our own processes use.
#[tokio::test]
async fn a_door_of_another_team_opens_nothing() {
    let platform = two_teams().await;
    let a = platform.team("a").await;
    let base = open(&platform.url_of(&a), "b", "kb_docs");
    let no = |fault: Fault| assert!(matches!(&fault, Fault::Refused(words) if words.contains("no such knowledge base")), "{fault:?}");
    no(base.counts().await.unwrap_err());
    no(base.search(&SearchQuery { text: "planted".into(), top_k: 3, ..Default::default() }).await.unwrap_err());
    no(base.documents(10, None).await.unwrap_err());
    no(base.begin_ingestion("x", "x").await.unwrap_err());
    no(base.vectors_of(&[hash(SECRET)]).await.unwrap_err());
    // Its own base of the same name as one of b's is its own.
    let own = open(&platform.url_of(&a), "b", "kb_own");
    let hits = own
        .search(&SearchQuery { text: "planted words".into(), vector: Some(vec![1.0, 0.5]), top_k: 10, ..Default::default() })
        .await
        .unwrap();
    assert!(hits.len() == 1 && hits[0].content == "own words");
}

#[tokio::test]
async fn a_team_that_was_made_again_reaches_no_former_base() {
    let platform = two_teams().await;
    let former = platform.team("a").await;
    assert_eq!(open(&platform.url_of(&former), "a", "kb_own").counts().await.unwrap().ready, 1);
    // The login is admitted for another Team of the name.
    platform.admin.admit("a", "another-uid", &former.user).await.unwrap();
    assert!(matches!(open(&platform.url_of(&former), "a", "kb_own").counts().await, Err(Fault::Refused(_))));
    platform.admin.shut_out("a").await.unwrap();
    platform.admin.admit("a", &home("a").uid, &former.user).await.unwrap();
    assert_eq!(open(&platform.url_of(&former), "a", "kb_own").counts().await.unwrap().ready, 1);
}

#[tokio::test]
async fn two_managers_make_the_sibling_at_once() {
    let database = Database::migrated().await;
    let admins: Vec<_> = (0..3).map(|_| KnowledgeAdmin::open(&database.url, None, None).unwrap()).collect();
    let made = futures::future::join_all(admins.iter().map(KnowledgeAdmin::migrate)).await;
    assert!(made.iter().any(Result::is_ok), "{made:?}");
    assert!(
        made.iter().all(|made| made.as_ref().is_ok_and(|made| made.to == 19) || made.as_ref().is_err_and(Fault::is_passing)),
        "{made:?}"
    );
    assert_eq!(admins[0].migrate().await.unwrap().from, 19);
    let mut raw = Raw::connect(&SERVER.url_of("postgres", "postgres", admins[0].database())).await;
    assert_eq!(
        raw.one("select string_agg(version::text, ',' order by version) from slipway.migrations").await,
        "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19"
    );
}

#[tokio::test]
async fn an_administrator_is_told_what_to_do() {
    let database = Database::migrated().await;
    let (name, role) = (format!("{}_knowledge", database.name), format!("platform_{}", database.name));
    SERVER.psql(&format!("create role {role} login createrole password 'platform-platform-platform'"));
    SERVER.psql(&format!("alter database {} owner to {role}", database.name));
    let url = SERVER.url_of(&role, "platform-platform-platform", &database.name);
    let admin = KnowledgeAdmin::open(&url, None, None).unwrap();
    let mut told = Vec::new();
    // Whatever it says is done until it is content.
    while let Err(fault) = admin.migrate().await {
        let Fault::Refused(words) = fault else { panic!("{fault:?}") };
        let statement = words.rsplit_once(": ").unwrap().1.to_owned();
        assert!(told.len() < 4 && !told.contains(&statement), "{told:?} {words}");
        let database = if statement.starts_with("CREATE DATABASE") { "postgres" } else { &name };
        Raw::connect(&SERVER.url_of("postgres", "postgres", database)).await.ask(&statement).await.unwrap();
        told.push(statement);
    }
    assert_eq!(told, [format!("CREATE DATABASE \"{name}\" OWNER \"{role}\""), "CREATE EXTENSION vector SCHEMA slipway".into()]);
    // The whole way with such a login, which is no superuser.
    let tenants = Tenants::open(&database.url, None, None).unwrap();
    let Ensured::Login(login) = tenants.ensure(&home("a"), &passwords("a")).await.unwrap() else { panic!("roles can be made") };
    admin.admit("a", &home("a").uid, &login.user).await.unwrap();
    admin.ensure_base(&spec("a", "kb_docs", 1)).await.unwrap();
    let base = open(&SERVER.url_of(&login.user, &login.password, &name), "a", "kb_docs");
    base.fix_model("mini", 2).await.unwrap();
    let ingestion = begin(&base, "one", "s3").await;
    ingestion.put_document(&meta("a", "1"), vec![chunk(0, "apples", Some(vec![1.0, 0.0]))]).await.unwrap();
    ingestion.settle(1).await.unwrap();
    assert_eq!(base.search(&SearchQuery { vector: Some(vec![1.0, 0.0]), top_k: 3, ..Default::default() }).await.unwrap().len(), 1);
    // Somebody else has no way in.
    SERVER.psql(&format!("create role stranger_{0} login password 'stranger'", database.name));
    assert!(Raw::try_connect(&SERVER.url_of(&format!("stranger_{}", database.name), "stranger", &name)).await.is_err());
}

#[tokio::test]
async fn an_extension_in_another_schema_is_moved() {
    let database = Database::migrated().await;
    SERVER.psql(&format!("create database {}_knowledge", database.name));
    let sibling = SERVER.url_of("postgres", "postgres", &format!("{}_knowledge", database.name));
    Raw::connect(&sibling).await.one("create extension vector").await;
    let admin = KnowledgeAdmin::open(&database.url, None, None).unwrap();
    let migrated = admin.migrate().await.unwrap();
    assert!(!migrated.created_database && migrated.to == 19);
}

/// The platform's login is everybody's: what keeps teams apart is that each process names its own.
#[tokio::test]
async fn with_a_shared_login_each_transaction_names_its_team() {
    let database = Database::migrated().await;
    let admin = KnowledgeAdmin::open(&database.url, None, None).unwrap();
    admin.migrate().await.unwrap();
    let url = SERVER.url_of("postgres", "postgres", admin.database());
    for team in ["a", "b"] {
        admin.ensure_base(&spec(team, "kb_docs", 1)).await.unwrap();
        let base = open(&url, team, "kb_docs");
        let Begun::Ingestion(ingestion) = base.begin_ingestion("one", "s3").await.unwrap() else { panic!("it begins") };
        ingestion.put_document(&meta("a", "1"), vec![chunk(0, &format!("words of {team}"), None)]).await.unwrap();
    }
    for team in ["a", "b"] {
        let hits = open(&url, team, "kb_docs").search(&SearchQuery { text: "words".into(), top_k: 3, ..Default::default() }).await.unwrap();
        assert!(hits.len() == 1 && hits[0].content == format!("words of {team}"));
    }
    assert!(open(&url, "c", "kb_docs").counts().await.is_err());
    let reader = KnowledgeReader::open(&database.url, None, None).unwrap();
    assert_eq!(reader.counts("a", "kb_docs", &spec("a", "kb_docs", 1).uid).await.unwrap().ready, 1);
    let mut raw = Raw::connect(&url).await;
    assert!(raw.ask("select * from slipway.count_documents('kb_docs')").await.is_err(), "without a team there is none");
}
