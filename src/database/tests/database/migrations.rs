//! The schema's history, walked from everywhere.

use std::time::Duration;

use slipway_database::knowledge::{DocumentMeta, Ending, Filter, ModelUse, Removal, Report, SearchQuery};
use slipway_database::{Fault, LATEST, MINIMUM, Options, Store, migrate, migrate_up_to};
use slipway_peers::Postgres;

use crate::knowledge::{Platform, begin, chunk, found, listed, meta};
use crate::{Database, Raw, SERVER, options, talk};

#[tokio::test]
async fn a_second_migration_changes_nothing() {
    let database = Database::empty();
    let first = migrate(&database.url, None, None).await.unwrap();
    assert_eq!((first.from, first.to), (0, LATEST));
    let second = migrate(&database.url, None, None).await.unwrap();
    assert_eq!((second.from, second.to, &second.vectors), (LATEST, LATEST, &first.vectors));
}

#[tokio::test]
async fn four_migrate_at_once_and_each_step_is_taken_once() {
    let database = Database::empty();
    let outcomes = futures::future::join_all((0..4).map(|_| {
        let url = database.url.clone();
        tokio::spawn(async move { migrate(&url, None, None).await })
    }))
    .await;
    for outcome in outcomes {
        assert_eq!(outcome.unwrap().unwrap().to, LATEST);
    }
    let mut admin = database.raw(&database.url).await;
    assert_eq!(
        admin.one("select string_agg(version::text, ',' order by version) from slipway.migrations").await,
        "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16"
    );
}

#[tokio::test]
async fn from_each_version_on_rows_survive() {
    for version in 1..LATEST {
        let database = Database::empty();
        assert_eq!(migrate_up_to(&database.url, version).await.unwrap().to, version);
        let mut admin = database.raw(&database.url).await;
        admin.one("insert into slipway.conversations values ('a', 'ag_1', 'conv_1', 'old', now(), now(), 1)").await;
        admin
            .one("insert into slipway.messages values ('a', 'ag_1', 'conv_1', 1, 'msg_1', 'user', 'old words', null, null, false, now())")
            .await;
        let store = database.store("a", "ag_1");
        match store.history("conv_1", 10).await {
            Ok(messages) => assert!(version >= MINIMUM && messages.len() == 1, "{version}"),
            Err(fault) => {
                let told = matches!(&fault, Fault::Unavailable(words) if words.contains("the manager migrates it"));
                assert!(version < MINIMUM && told, "{version}: {fault}");
            }
        }
        let migrated = migrate(&database.url, None, None).await.unwrap();
        assert_eq!((migrated.from, migrated.to), (version, LATEST));
        assert_eq!(store.history("conv_1", 10).await.unwrap()[0].content, "old words", "the same store, without a restart");
        talk(&store, "conv_1", "new", "words").await.unwrap();
        assert_eq!(store.memory_count().await.unwrap(), 0);
        let unguarded = "select string_agg(relname, ',') from pg_class where relnamespace = 'slipway'::regnamespace and relkind = 'r'
                         and relname not in ('tenants', 'migrations', 'owners') and not (relrowsecurity and relforcerowsecurity)";
        assert_eq!(admin.one(unguarded).await, "");
    }
}

#[tokio::test]
async fn documents_of_a_former_schema_are_found_after_the_upgrade() {
    for version in 9..19 {
        let keeps_notes = version >= 14;
        let platform = Platform::without_sibling().await;
        assert_eq!(platform.admin.migrate_up_to(version).await.unwrap().to, version);
        let base = platform.base("a", "kb_docs").await;
        base.fix_model("mini", 2).await.unwrap();
        let former = begin(&base, "one", "s3").await;
        let chunks = vec![chunk(0, "apples are red", Some(vec![1.0, 0.0])), chunk(1, "pears are green", Some(vec![0.0, 1.0]))];
        // A worker of this version on a database of a former one: notes are lost before step 14, and nothing else.
        let noted = |key: &str| DocumentMeta { notes: vec!["page 2 cannot be read".into()], ..meta(key, "1") };
        let id = former.put_document(&noted("a.txt"), chunks).await.unwrap();
        assert_eq!(base.documents(10, None).await.unwrap().items[0].notes.is_empty(), !keeps_notes, "{version}");
        former.put_document(&meta("b.txt", "1"), vec![chunk(0, "plums are blue", None)]).await.unwrap();
        // With an index of vectors, which is there and searched after the upgrade.
        former.settle(1).await.unwrap();
        assert!(former.end(&Report::default(), Ending::Succeeded).await.unwrap());
        let other = begin(&base, "other", "drive").await;
        other.put_document(&meta("z.txt", "1"), vec![chunk(0, "apples of another source", Some(vec![1.0, 0.0]))]).await.unwrap();
        assert!(other.end(&Report::default(), Ending::Succeeded).await.unwrap());

        let migrated = platform.admin.migrate().await.unwrap();
        assert_eq!((migrated.created_database, migrated.from, migrated.to), (false, version, 19));
        // By the same door, without a restart.
        let noted_documents = base.documents(10, None).await.unwrap().items.iter().filter(|document| !document.notes.is_empty()).count();
        assert_eq!(noted_documents, usize::from(keeps_notes), "{version}");
        assert_eq!(found(&base, "plums").await, ["plums are blue"], "{version}");
        let filter = Filter { sources: vec!["s3".into()], ..Filter::default() };
        let query = SearchQuery { text: "apples".into(), vector: Some(vec![1.0, 0.0]), top_k: 1, filter, ..SearchQuery::default() };
        let hit = base.search(&query).await.unwrap().remove(0);
        assert_eq!((hit.content.as_str(), hit.document_id, hit.key.as_str()), ("apples are red", id, "a.txt"), "{version}");
        assert!(hit.vector_rank.is_some() && hit.text_rank.is_some(), "{version}");

        // The next ingestion knows them by their source: it reads nothing again, and removes what is gone.
        let next = begin(&base, "two", "s3").await;
        assert!(matches!(next.use_model("mini", 2, 1).await.unwrap(), ModelUse::Kept), "{version}");
        assert_eq!(next.place(&[1; 32]).await.unwrap(), None, "{version}");
        next.begin_traversal().await.unwrap();
        assert!(next.changed(&[listed("a.txt", "1")]).await.unwrap().is_empty(), "{version}");
        assert!(next.unfinished().await.unwrap().is_empty(), "{version}");
        assert!(next.begin_attempt("a.txt", &[7; 32], false).await.unwrap(), "{version}");
        assert_eq!(next.remove_unseen(false).await.unwrap(), Removal::Removed(1), "{version}");
        assert!(found(&base, "plums").await.is_empty(), "{version}");
        let counts = base.counts().await.unwrap();
        assert_eq!((counts.ready, counts.chunks), (2, 3), "{version}");
        assert_eq!(base.remove_source("drive").await.unwrap(), 1, "{version}");
        next.put_document(&noted("a.txt"), vec![chunk(0, "apples are red", None)]).await.unwrap();
        assert_eq!(base.documents(10, None).await.unwrap().items[0].notes, ["page 2 cannot be read"], "{version}");
        assert!(next.unfinished().await.unwrap().is_empty(), "{version}: it has come to an end");
    }
}

#[tokio::test]
async fn teams_may_use_tables_that_came_after_them() {
    let database = Database::migrated().await;
    let store = database.tenant("a", "ag_1").await;
    let mut admin = database.raw(&database.url).await;
    let groups = admin.one("select string_agg(rolname, ',') from pg_roles where rolname like 'slipway_teams_%'").await;
    admin.ask(&format!("revoke all on slipway.memories from {groups}")).await.unwrap();
    assert!(store.memory_count().await.is_err(), "as if the table had just come");
    migrate(&database.url, None, None).await.unwrap();
    assert_eq!(store.memory_count().await.unwrap(), 0);
    assert!(store.search_memories("x", None, 1).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_newer_schema_is_worked_with_and_left_alone() {
    let database = Database::migrated().await;
    let mut admin = database.raw(&database.url).await;
    admin.one("insert into slipway.migrations values (99, 'from the future')").await;
    assert_eq!(migrate(&database.url, None, None).await.unwrap().to, 99);
    talk(&database.store("a", "ag_1"), "conv_1", "q", "a").await.unwrap();
}

#[tokio::test]
async fn a_database_without_a_schema_is_not_available() {
    let database = Database::empty();
    let fault = database.store("a", "ag_1").ping().await.unwrap_err();
    assert!(matches!(&fault, Fault::Unavailable(words) if words.contains("the manager makes it")), "{fault}");
}

#[tokio::test]
async fn a_login_that_may_not_make_the_schema_is_told_what_it_needs() {
    let database = Database::empty();
    SERVER.psql(&format!("create role nobody_{} login password 'nobody-nobody-nobody'", database.name));
    let url = SERVER.url_of(&format!("nobody_{}", database.name), "nobody-nobody-nobody", &database.name);
    let fault = migrate(&url, None, None).await.unwrap_err();
    assert!(matches!(&fault, Fault::Refused(words) if words.contains("create schemas")), "{fault}");
}

#[tokio::test]
async fn a_runtime_told_to_migrates_its_own_database() {
    let database = Database::empty();
    let own = || Store::open(&Options { migrate: true, ..options(&database.url, "a", "ag_1") }).unwrap();
    let stores = [own(), own(), own()];
    let talks = (0..9).map(|n| {
        let store = &stores[n % 3];
        async move { talk(store, &format!("conv_{n}"), "q", "a").await }
    });
    let outcomes = futures::future::join_all(talks).await;
    // On a slow machine the first may be told to come again; nobody fails for good.
    for outcome in outcomes {
        assert!(matches!(outcome, Ok(()) | Err(Fault::Unavailable(_))), "{outcome:?}");
    }
    talk(&stores[0], "conv_10", "q", "a").await.unwrap();
}

#[tokio::test]
async fn a_migration_that_a_dead_server_ended_is_done_again() {
    let postgres = Postgres::start();
    // Every change of the schema takes a while.
    postgres.psql(
        "create function public.dawdle() returns event_trigger language plpgsql as 'begin perform pg_sleep(0.2); end';
         create event trigger slow on ddl_command_end execute function public.dawdle()",
    );
    for wait in [400, 1_500, 3_000] {
        let url = postgres.url();
        let migration = tokio::spawn(async move { migrate(&url, None, None).await });
        tokio::time::sleep(Duration::from_millis(wait)).await;
        postgres.stop();
        let fault = migration.await.unwrap().unwrap_err();
        assert!(matches!(fault, Fault::Unavailable(_)), "{fault:?}");
        postgres.restart();
        let mut admin = Raw::connect(&postgres.url()).await;
        if admin.one("select to_regclass('slipway.migrations')::text").await.is_empty() {
            continue;
        }
        // What is said to be done is done, and nothing else.
        let steps = admin.one("select coalesce(max(version), 0)::text from slipway.migrations").await;
        let memories = admin.one("select (to_regclass('slipway.memories') is not null)::text").await;
        assert_eq!(memories == "true", steps.parse::<i32>().unwrap() >= 2, "version {steps}");
    }
    postgres.psql("drop event trigger slow");
    assert_eq!(migrate(&postgres.url(), None, None).await.unwrap().to, LATEST);
    talk(&Store::open(&options(&postgres.url(), "a", "ag_1")).unwrap(), "conv_1", "q", "a").await.unwrap();
}

#[tokio::test]
async fn a_migration_does_not_wait_long_for_a_table_in_use() {
    let database = Database::empty();
    migrate_up_to(&database.url, 1).await.unwrap();
    let mut busy = database.raw(&database.url).await;
    // A table without the guards that the migration puts up, and in use.
    busy.ask(
        "drop policy platform on slipway.turns; drop policy tenant on slipway.turns;
         alter table slipway.turns disable row level security",
    )
    .await
    .unwrap();
    busy.ask("begin; select * from slipway.turns").await.unwrap();
    let start = std::time::Instant::now();
    let fault = migrate(&database.url, None, None).await.unwrap_err();
    assert!(matches!(&fault, Fault::Unavailable(words) if words.contains("lock")), "{fault}");
    assert!(start.elapsed() < Duration::from_secs(9), "{:?}", start.elapsed());
    busy.ask("commit").await.unwrap();
    migrate(&database.url, None, None).await.unwrap();
}
