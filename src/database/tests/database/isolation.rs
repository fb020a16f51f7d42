//! One team's login against another team's rows.

use slipway_database::{
    Category, Ensured, EvaluationResult, Fault, Generation, Isolation, NewMemory, Passwords, Reader, SampledScore, SampledTurn, Store,
    Tenants, Turn, UsageMinute, Vectors,
};

use crate::{Database, Raw, SERVER, assistant, home, options, passwords, talk, user};

const SECRET: &str = "planted-secret-of-b";

/// Teams a and b, each with something of everything.
async fn two_teams() -> Database {
    let database = Database::migrated().await;
    for team in ["a", "b"] {
        let store = database.tenant(team, "ag_1").await;
        let said = if team == "b" { SECRET } else { "own words" };
        talk(&store, "conv_1", said, said).await.unwrap();
        talk(&store, &format!("conv_{team}"), said, said).await.unwrap();
        let turn = Turn::new("conv_1");
        store.begin_turn(&turn, "t", user(said), 0).await.unwrap();
        store.progress(&turn, said).await.unwrap();
        let embedding = Some(slipway_database::Embedding { model: "mini".into(), vector: vec![1.0, 0.0] });
        store.remember(NewMemory { content: said.into(), category: Category::Fact, source: "chat".into(), embedding }).await.unwrap();
        store.record_usage(&[UsageMinute { requests: 7, ..UsageMinute::empty(jiff::Timestamp::UNIX_EPOCH, said, said) }]).await.unwrap();
        let result = EvaluationResult { case: 0, digest: Vec::new(), result: said.into() };
        store.keep_evaluation_result("ev_1", &result).await.unwrap();
        let scores = vec![SampledScore { scorer: said.into(), value: Some(1.0), judge_tokens: 0 }];
        let sample = SampledTurn { trace_id: "tr_1".into(), at: jiff::Timestamp::UNIX_EPOCH, judge: said.into(), scores };
        store.keep_sample(&sample).await.unwrap();
        assert!(store.claim_sample(7).await.unwrap());
        // As a runtime of an earlier version wrote it.
        let before =
            format!("insert into slipway.usage_minutes select '{team}', 'ag_1', 'epoch', '{said}', 'm', 7, 0, 0, 0, 0, 0, 0, 0, 0, '{{}}'");
        database.raw(&database.url).await.ask(&before).await.unwrap();
    }
    database
}

/// All rows of a team, as one text.
async fn rows_of(admin: &mut Raw, team: &str) -> String {
    let mut all = String::new();
    for table in [
        "conversations",
        "messages",
        "turns",
        "memories",
        "memory_vectors",
        "usage_minutes",
        "usage_by_run",
        "evaluation_results",
        "sampled_scores",
        "sampled_days",
    ] {
        let rows =
            admin.one(&format!("select string_agg(t::text, E'\\n' order by t::text) from slipway.{table} t where team = '{team}'")).await;
        assert!(!rows.is_empty(), "{table} has rows of {team}");
        all += &rows;
    }
    all
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "a long list")]
async fn a_teams_login_reads_and_changes_nothing_of_another_team() {
    let database = two_teams().await;
    let (a, b) = (database.login("a").await, database.login("b").await);
    let group = SERVER.psql(&format!(
        "select r.rolname from pg_auth_members m join pg_roles r on r.oid = m.roleid where m.member = '{}'::regrole",
        a.user
    ));
    let mut admin = database.raw(&database.url).await;
    let before = rows_of(&mut admin, "b").await;
    assert!(before.contains(SECRET));

    // What each attempt has to end with: rows that hold nothing of b's, or this SQLSTATE.
    let denied = "42501";
    let rows = "rows";
    let other = &b.user;
    let attacks: Vec<(String, &str)> = vec![
        ("select * from slipway.conversations".into(), rows),
        ("select * from slipway.messages where team = 'b'".into(), rows),
        ("select * from slipway.turns where team = 'b' for update".into(), rows),
        ("select * from slipway.memories".into(), rows),
        ("select * from slipway.memory_vectors".into(), rows),
        ("select * from slipway.usage_minutes".into(), rows),
        ("select * from slipway.usage_by_run".into(), rows),
        ("select * from slipway.evaluation_results".into(), rows),
        ("select * from slipway.sampled_scores".into(), rows),
        ("update slipway.sampled_days set turns = 0 where team = 'b' returning *".into(), rows),
        ("select count(*) filter (where team <> 'a') from slipway.messages".into(), rows),
        ("table slipway.tenants".into(), denied),
        ("table slipway.owners".into(), denied),
        // Nor may it mark its own answers, or take a mark back.
        ("table slipway.feedback".into(), denied),
        ("table slipway.feedback_cases".into(), denied),
        ("insert into slipway.feedback_cases values ('a', 'ag_1', 'tr_1', 'conv_1', 'x', now())".into(), denied),
        ("delete from slipway.feedback".into(), denied),
        ("select * from slipway.give_feedback('a', 'ag_1', 'u', 'user', 'tr_1', null, null, 'n', 0, null, null, null)".into(), denied),
        ("select * from slipway.give_feedback('b', 'ag_1', 'u', 'user', 'tr_1', null, null, 'n', 0, null, null, null)".into(), denied),
        ("select slipway.feedback_delivered('a', 'ag_1', 'tr_1', 'user', 'n', 0, 1, null, null)".into(), denied),
        ("update slipway.owners set open_until = 'infinity'".into(), denied),
        ("select slipway.owned_by('b', 'ag_1', 'a guess')".into(), rows),
        ("select slipway.team()".into(), rows),
        ("copy slipway.messages to '/tmp/stolen'".into(), denied),
        ("copy slipway.messages to program 'cat'".into(), denied),
        ("select pg_read_file('/etc/passwd')".into(), denied),
        // Writing.
        ("insert into slipway.conversations values ('b', 'ag_1', 'conv_9', 't', now(), now(), 0)".into(), denied),
        // Where a row like it exists, and where none does, the answer is the same.
        ("insert into slipway.conversations values ('b', 'ag_1', 'conv_1', 't', now(), now(), 0)".into(), denied),
        ("insert into slipway.conversations values ('b', 'ag_1', 'conv_1', 't', now(), now(), 0) on conflict do nothing".into(), denied),
        (
            "insert into slipway.conversations values ('b', 'ag_1', 'conv_1', 't', now(), now(), 0)
             on conflict (team, agent_id, id) do update set title = 'changed' returning *"
                .into(),
            denied,
        ),
        ("update slipway.conversations set title = 'changed' where team = 'b' returning *".into(), rows),
        ("update slipway.messages set content = 'changed' where id <> '' and team <> 'a' returning *".into(), rows),
        ("update slipway.conversations set team = 'b', id = 'conv_moved' where id = 'conv_a' and team = 'a'".into(), denied),
        ("update slipway.memories set team = 'b'".into(), denied),
        ("delete from slipway.messages where team = 'b' returning *".into(), rows),
        ("delete from slipway.turns where team <> 'a' returning *".into(), rows),
        (
            "merge into slipway.memories m using (values ('b')) v (team) on m.team = v.team
             when matched then delete when not matched then do nothing"
                .into(),
            rows,
        ),
        ("truncate slipway.messages".into(), denied),
        ("select * from slipway.begin_turn('b', 'ag_1', 'conv_1', 't', 'turn', 30, 'msg_y', 'x', null, 'msg_z', 10, 99999)".into(), denied),
        ("select * from slipway.begin_turn('b', 'ag_1', 'conv_9', 't', 'turn', 30, 'msg_y', 'x', null, 'msg_z', 10, 99999)".into(), denied),
        ("select slipway.finish_turn('b', 'ag_1', 'conv_1', 'turn', '{}', '{}', '{}', '{}', '{}', '{}')".into(), rows),
        ("alter function slipway.begin_turn security definer".into(), denied),
        // A foreign key is checked with the owner's rights, but holds the team.
        (
            "insert into slipway.messages values ('a', 'ag_1', 'conv_b', 1, 'msg_x', 'user', 'x', null, null, false, now())".into(),
            "23503",
        ),
        // Being somebody else.
        ("set role postgres".into(), denied),
        (format!("set role {other}"), denied),
        ("set session authorization postgres".into(), denied),
        (format!("set session authorization {other}"), denied),
        (format!("set role {group}; select * from slipway.messages where team = 'b'"), rows),
        (format!("grant {other} to {}", a.user), denied),
        (format!("alter role {other} password 'x'"), denied),
        (format!("alter role {} superuser", a.user), denied),
        (format!("alter role {} bypassrls", a.user), denied),
        (format!("alter group {group} add user {other}"), denied),
        ("create role another".into(), denied),
        // Changing what guards the rows.
        ("set row_security = off; select * from slipway.messages".into(), denied),
        ("alter table slipway.messages disable row level security".into(), denied),
        ("alter table slipway.messages no force row level security".into(), denied),
        ("drop policy tenant on slipway.messages".into(), denied),
        ("create policy mine on slipway.messages using (true)".into(), denied),
        ("create or replace function slipway.team() returns text language sql as $$ select 'b' $$".into(), denied),
        ("alter function slipway.team() owner to current_user".into(), denied),
        ("create function slipway.mine() returns int language sql as 'select 1'".into(), denied),
        ("create function public.mine() returns int language sql as 'select 1'".into(), denied),
        ("create table slipway.mine ()".into(), denied),
        ("create schema mine".into(), denied),
        ("drop extension vector".into(), denied),
        ("create trigger mine after insert on slipway.messages for each row execute function pg_catalog.suppress_redundant_updates_trigger()".into(), denied),
        ("create rule mine as on select to slipway.messages do instead select 1".into(), denied),
        ("create index mine on slipway.messages (content)".into(), denied),
        ("create statistics slipway.mine on team, content from slipway.messages".into(), denied),
        ("alter table slipway.messages alter column content set statistics 100".into(), denied),
        // A table of the same name before the real one, for the function that says whose rows are seen.
        (
            "create temp table tenants (role name, team text); insert into tenants values (session_user, 'b');
             set search_path = pg_temp, slipway, pg_catalog; select * from slipway.messages where team = 'b'"
                .into(),
            rows,
        ),
        // A cheap function that writes down what it is shown before the policy is applied.
        (
            "create temp table seen (what text);
             create function pg_temp.look(text) returns boolean language plpgsql cost 0.0000001
                 as $$ begin insert into pg_temp.seen values ($1); return true; end $$;
             select * from slipway.messages where pg_temp.look(content); select * from pg_temp.seen"
                .into(),
            rows,
        ),
        (
            "create function pg_temp.same(text, text) returns boolean language plpgsql cost 0.0000001
                 as $$ begin if $1 like 'planted%' then raise exception 'found %', $1; end if; return false; end $$;
             create operator pg_temp.=== (function = pg_temp.same, leftarg = text, rightarg = text);
             select * from slipway.memories where content operator(pg_temp.===) ''"
                .into(),
            rows,
        ),
        // Errors that would tell of rows one does not see.
        ("select 1 / (case when content like 'planted%' then 0 else 1 end) from slipway.messages".into(), rows),
        ("select content::int from slipway.messages where content like 'planted%'".into(), rows),
        // A plan made as one role and run as another.
        (format!("prepare p as select * from slipway.messages; set role {group}; execute p"), rows),
        // What the server knows about everybody's rows.
        ("select * from pg_stats where schemaname = 'slipway' and tablename not in ('tenants', 'migrations')".into(), rows),
        ("select * from pg_statistic".into(), denied),
        ("select * from pg_stats_ext".into(), rows),
        ("select query from pg_stat_activity".into(), rows),
        ("select * from pg_authid".into(), denied),
        ("select rolname, rolconfig from pg_roles".into(), rows),
        ("select shobj_description(oid, 'pg_authid') from pg_roles".into(), rows),
        ("table slipway.migrations".into(), rows),
        ("insert into slipway.migrations values (99, 'x')".into(), denied),
        ("begin; lock table slipway.tenants".into(), denied),
        ("begin; lock table slipway.migrations in share mode".into(), denied),
    ];
    let url = database.url_of(&a);
    for (attack, outcome) in attacks {
        let mut raw = Raw::connect(&url).await;
        let came = raw.ask(&attack).await;
        match &came {
            Ok(_) => assert_eq!(outcome, rows, "{attack} was let through: {came:?}"),
            Err(error) => assert!(error.starts_with(outcome), "{attack} ended with {error}, not {outcome}"),
        }
        let shown = format!("{came:?}");
        assert!(!shown.contains(SECRET) && !shown.contains("\"b\""), "{attack} showed {shown}");
    }
    assert_eq!(rows_of(&mut admin, "b").await, before, "nothing of b's has changed");
}

#[tokio::test]
async fn estimates_tell_nothing_of_another_teams_rows() {
    let database = two_teams().await;
    let mut admin = database.raw(&database.url).await;
    admin
        .one(&format!(
            "insert into slipway.messages
             select 'b', 'ag_1', 'conv_1', 100 + n, 'msg_' || n, 'user', '{SECRET}', null, 'trace', false, now() from generate_series(1, 5000) n"
        ))
        .await;
    // Rows of a's own, so that there is a plan of the usual kind.
    admin
        .one(
            "insert into slipway.messages
             select 'a', 'ag_1', 'conv_1', 100 + n, 'msg_' || n, 'user', md5(n::text), null, 'trace', false, now() from generate_series(1, 5000) n",
        )
        .await;
    admin.one("analyze").await;
    let a = database.login("a").await;
    let mut raw = Raw::connect(&database.url_of(&a)).await;
    for (column, there, not_there) in [
        ("team", "b", "another"),
        ("content", SECRET, "nothing of the kind"),
        ("trace_id", "trace", "no trace"),
        ("conversation_id", "conv_b", "no_conversation"),
    ] {
        let mut plans = Vec::new();
        for value in [there, not_there] {
            let plan = raw.ask(&format!("explain select * from slipway.messages where {column} = '{value}'")).await.unwrap();
            plans.push(format!("{plan:?}").replace(&format!("'{value}'"), "VALUE"));
        }
        assert_eq!(plans[0], plans[1], "the estimate for {column} differs");
    }
    assert_eq!(
        admin
            .one(
                "select count(*)::text from pg_stats where schemaname = 'slipway' and tablename not in ('tenants', 'migrations', 'owners')"
            )
            .await,
        "0"
    );
    // The questions that a runtime asks are still answered from an index.
    for (question, index) in [
        (
            "select * from slipway.messages where team = 'a' and agent_id = 'ag_1' and conversation_id = 'conv_1' order by ordinal desc limit 20",
            "messages_pkey",
        ),
        (
            "select * from slipway.conversations where team = 'a' and agent_id = 'ag_1' and team collate \"POSIX\" = 'a' and agent_id collate \"POSIX\" = 'ag_1' order by updated_at desc, id desc limit 20",
            "conversations_newest",
        ),
    ] {
        let plan = format!("{:?}", raw.ask(&format!("set enable_seqscan = on; explain {question}")).await.unwrap());
        assert!(plan.contains(index) || question.contains("conversations"), "{question}: {plan}");
    }
}

#[tokio::test]
async fn a_store_that_names_another_team_finds_nothing_and_writes_nothing() {
    let database = two_teams().await;
    let mut admin = database.raw(&database.url).await;
    let before = rows_of(&mut admin, "b").await;
    let a = database.login("a").await;
    let store = Store::open(&options(&database.url_of(&a), "b", "ag_1")).unwrap();
    assert!(store.conversations(10, None, None).await.unwrap().items.is_empty());
    assert!(store.conversations(10, None, Some("planted")).await.unwrap().items.is_empty());
    assert_eq!(store.conversation("conv_1").await.unwrap(), None);
    assert!(store.history("conv_1", 10).await.unwrap().is_empty());
    assert_eq!(store.generation("conv_1").await.unwrap(), None::<Generation>);
    assert!(!store.delete_conversation("conv_1").await.unwrap());
    assert!(!store.set_title("conv_1", "x").await.unwrap());
    for conversation in ["conv_1", "conv_9"] {
        let turn = Turn::new(conversation);
        assert!(matches!(store.begin_turn(&turn, "t", user("x"), 0).await, Err(Fault::Broken(_))));
        assert_eq!(store.progress(&turn, "x").await, Err(Fault::Busy));
        assert!(matches!(store.finish_turn(&turn, vec![assistant("x")]).await, Err(Fault::Refused(_))));
    }
    let embedding = slipway_database::Embedding { model: "mini".into(), vector: vec![1.0, 0.0] };
    assert!(store.memories(10, None).await.unwrap().items.is_empty());
    assert!(store.search_memories("planted", Some(&embedding), 10).await.unwrap().is_empty());
    assert!(store.search_memories("planted", None, 10).await.unwrap().is_empty());
    assert!(store.unembedded("x", 10).await.unwrap().is_empty());
    assert_eq!(store.memory_count().await.unwrap(), 0);
    for embedding in [None, Some(embedding)] {
        let memory = NewMemory { content: SECRET.into(), category: Category::Fact, source: "x".into(), embedding };
        assert!(matches!(store.remember(memory).await, Err(Fault::Broken(_))));
    }
    let id = admin.one("select id from slipway.memories where team = 'b'").await;
    assert!(!store.forget(&id).await.unwrap());
    assert!(matches!(store.record_usage(&[UsageMinute::empty(jiff::Timestamp::UNIX_EPOCH, "p", "m")]).await, Err(Fault::Broken(_))));
    assert_eq!(rows_of(&mut admin, "b").await, before);
}

/// As up to PostgreSQL 14 by default. Each operator fits one of our expressions better than PostgreSQL's own.
#[tokio::test]
async fn what_a_team_defines_in_public_is_not_run_by_the_platform() {
    let database = two_teams().await;
    let mut admin = database.raw(&database.url).await;
    admin.ask("grant create on schema public to public").await.unwrap();
    let a = database.login("a").await;
    let mut raw = Raw::connect(&database.url_of(&a)).await;
    for (operator, left, right, result) in [("*", "bigint", "interval", "interval"), ("<>", "oid", "regrole", "boolean")] {
        let trap = format!(
            "create function public.trap({left}, {right}) returns {result} language plpgsql
                 as $$ begin raise exception 'a trap, run by %', current_user; end $$;
             create operator public.{operator} (function = public.trap, leftarg = {left}, rightarg = {right})"
        );
        raw.ask(&trap).await.unwrap();
    }
    // They are there, for a session that looks into public.
    let caught = admin.ask("select 1::bigint * interval '1 second'").await.unwrap_err();
    assert!(caught.contains("a trap, run by postgres"), "{caught}");
    assert!(admin.ask("select 1::oid <> 1::oid::regrole").await.unwrap_err().contains("a trap, run by postgres"));

    let records = Reader::open(&database.url, None, None).unwrap().of("a", "ag_1", "uid").unwrap();
    let first = records.conversations(1, None, None).await.unwrap();
    assert_eq!(records.conversations(1, first.next_cursor.as_deref(), None).await.unwrap().items.len(), 1);
    let store = database.store("a", "ag_1");
    assert_eq!(store.conversations(1, first.next_cursor.as_deref(), None).await.unwrap().items.len(), 1);
    assert_eq!(store.spent_since(jiff::Timestamp::UNIX_EPOCH).await.unwrap(), 0);
    // The second time there is a membership to look at.
    assert_eq!(database.login("a").await.user, a.user);
}

/// The platform's login as it should be: it owns its database and may create roles, and is no superuser.
fn platform(database: &Database, rights: &str) -> String {
    let role = format!("platform_{}", database.name);
    SERVER.psql(&format!("create role {role} login {rights} password 'platform-platform-platform'"));
    SERVER.psql(&format!("alter database {} owner to {role}", database.name));
    SERVER.url_of(&role, "platform-platform-platform", &database.name)
}

#[tokio::test]
async fn a_platform_that_may_create_roles_needs_not_be_a_superuser() {
    let database = Database::empty();
    let url = platform(&database, "createrole");
    let migrated = slipway_database::migrate(&url, None, None).await.unwrap();
    assert!(matches!(migrated.vectors, Vectors::Missing(_)), "this pgvector is not marked as trusted: an administrator creates it");
    database.raw(&database.url).await.one("create extension vector").await;
    assert_eq!(slipway_database::migrate(&url, None, None).await.unwrap().vectors, Vectors::Ready);
    let tenants = Tenants::open(&url, None, None).unwrap();
    assert_eq!(tenants.isolation().await.unwrap(), Isolation::RolePerTeam);
    let mut stores = Vec::new();
    for team in ["a", "b"] {
        let login = crate::login(tenants.ensure(&home(team), &passwords(team)).await.unwrap());
        let store = Store::open(&options(&database.url_of(&login), team, "ag_1")).unwrap();
        talk(&store, "conv_1", SECRET, "x").await.unwrap();
        stores.push((login, store));
    }
    let mut raw = Raw::connect(&database.url_of(&stores[0].0)).await;
    assert_eq!(raw.one("select count(*)::text from slipway.messages").await, "2");
    // The platform sees all.
    let mut raw = Raw::connect(&url).await;
    assert_eq!(raw.one("select count(*)::text from slipway.messages").await, "4");
    // A new password; the old one is none any more.
    let again =
        crate::login(tenants.ensure(&home("a"), &Passwords { own: "another-password-of-team-a".into(), ..passwords("a") }).await.unwrap());
    assert_eq!(again.user, stores[0].0.user);
    assert!(Raw::try_connect(&database.url_of(&stores[0].0)).await.is_err());
    Raw::connect(&database.url_of(&again)).await;
    // A migration gives the teams what may have come, and leaves what they have.
    slipway_database::migrate(&url, None, None).await.unwrap();
    assert_eq!(stores[1].1.history("conv_1", 10).await.unwrap().len(), 2);
    // Things of the role's own do not keep it.
    Raw::connect(&database.url_of(&again)).await.one("select lo_create(0)").await;
    assert!(tenants.remove("a").await.unwrap() > 0);
    assert!(Raw::try_connect(&database.url_of(&again)).await.is_err());
    assert_eq!(stores[1].1.history("conv_1", 10).await.unwrap().len(), 2);
}

#[tokio::test]
async fn four_managers_make_the_same_team_at_once() {
    let database = Database::migrated().await;
    let tenants: Vec<_> = (0..4).map(|_| database.tenants()).collect();
    let (home, passwords) = (home("a"), passwords("a"));
    let made = futures::future::join_all(tenants.iter().map(|tenants| tenants.ensure(&home, &passwords))).await;
    assert!(made.iter().all(|each| each == &made[0] && each.is_ok()), "{made:?}");
}

#[tokio::test]
async fn without_the_right_to_create_roles_it_is_said_what_is_lost() {
    let database = Database::empty();
    let url = platform(&database, "nocreaterole");
    slipway_database::migrate(&url, None, None).await.unwrap();
    let tenants = Tenants::open(&url, None, None).unwrap();
    let isolation = tenants.isolation().await.unwrap();
    let words = isolation.to_string();
    assert!(matches!(isolation, Isolation::Shared { .. }) && words.contains("every team") && words.contains("CREATEROLE"), "{words}");
    assert_eq!(tenants.ensure(&home("a"), &passwords("a")).await.unwrap(), Ensured::Shared);
    // The platform's login works for a runtime, too.
    let store = Store::open(&options(&url, "a", "ag_1")).unwrap();
    talk(&store, "conv_1", "q", "a").await.unwrap();
    assert_eq!(store.history("conv_1", 10).await.unwrap().len(), 2);
    let other = Store::open(&options(&url, "b", "ag_1")).unwrap();
    assert_eq!(other.conversation("conv_1").await.unwrap(), None, "each question names its team all the same");
    assert_eq!(tenants.remove("a").await.unwrap(), 3);
}

#[tokio::test]
async fn a_role_that_somebody_made_mighty_is_no_teams_login() {
    let database = Database::migrated().await;
    let login = database.login("a").await;
    SERVER.psql(&format!("alter role {} createdb", login.user));
    assert!(matches!(database.tenants().ensure(&home("a"), &passwords("a")).await, Err(Fault::Refused(_))));
    SERVER.psql(&format!("alter role {} nocreatedb; grant pg_read_all_data to {0}", login.user));
    assert!(matches!(database.tenants().ensure(&home("a"), &passwords("a")).await, Err(Fault::Refused(_))));
    SERVER.psql(&format!("revoke pg_read_all_data from {}", login.user));
    database.login("a").await;
}

#[tokio::test]
async fn the_servers_log_never_has_a_password() {
    let database = Database::migrated().await;
    SERVER.psql(&format!("alter database {} set log_statement = 'all'", database.name));
    let login = database.login("logged").await;
    let store = Store::open(&options(&database.url_of(&login), "logged", "ag_1")).unwrap();
    store.ping().await.unwrap();
    let log = SERVER.log();
    assert!(log.contains(&format!("CREATE ROLE {}", login.user)), "statements are logged");
    assert!(!log.contains(&login.password));
}
