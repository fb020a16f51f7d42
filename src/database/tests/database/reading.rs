//! REST's door: one agent's rows, to read and nothing else.

use std::time::{Duration, Instant};

use slipway_database::{Category, Fault, NewMemory, Reader};
use slipway_peers::Postgres;

use crate::{Database, Raw, SERVER, talk};

fn memory(content: &str) -> NewMemory {
    NewMemory { content: content.to_owned(), category: Category::Fact, source: "test".to_owned(), embedding: None }
}

#[tokio::test]
async fn what_is_read_is_one_agents_and_what_its_own_store_reads() {
    let database = Database::migrated().await;
    let reader = Reader::open(&database.url, None, None).unwrap();
    for (team, agent) in [("tk_a", "ag_1"), ("tk_a", "ag_2"), ("tk_b", "ag_1")] {
        let store = database.store(team, agent);
        for at in 0..3 {
            talk(&store, &format!("conv_{at}"), &format!("{team} {agent} {at}"), "yes").await.unwrap();
        }
        store.remember(memory(&format!("what {team} {agent} knows"))).await.unwrap();
    }
    for (team, agent) in [("tk_a", "ag_1"), ("tk_a", "ag_2"), ("tk_b", "ag_1"), ("tk_b", "ag_2")] {
        let (store, records) = (database.store(team, agent), reader.of(team, agent, "uid").unwrap());
        let first = records.conversations(2, None, None).await.unwrap();
        assert_eq!(first, store.conversations(2, None, None).await.unwrap());
        let next = records.conversations(2, first.next_cursor.as_deref(), Some(agent)).await.unwrap();
        assert_eq!(next, store.conversations(2, first.next_cursor.as_deref(), Some(agent)).await.unwrap());
        assert_eq!(records.conversation("conv_1").await.unwrap(), store.conversation("conv_1").await.unwrap());
        assert_eq!(records.memories(10, None).await.unwrap(), store.memories(10, None).await.unwrap());
        let lacks = (team, agent) == ("tk_b", "ag_2");
        assert_eq!((first.items.is_empty(), records.conversation("conv_1").await.unwrap().is_none()), (lacks, lacks), "{team} {agent}");
    }
}

#[tokio::test]
async fn it_opens_at_most_two_connections_and_only_when_asked() {
    let database = Database::migrated().await;
    let reader = Reader::open(&database.url, None, None).unwrap();
    let count = format!("SELECT count(*) FROM pg_stat_activity WHERE datname = '{}' AND backend_type = 'client backend'", database.name);
    // Who migrated leaves.
    let began = Instant::now();
    while SERVER.psql(&count).trim() != "0" {
        assert!(began.elapsed() < Duration::from_secs(10), "there are connections before anything is asked");
    }
    let records: Vec<_> = (0..8).map(|at| reader.of("tk_a", &format!("ag_{at}"), "uid").unwrap()).collect();
    let asked = records.iter().map(|records| records.conversations(10, None, None));
    for page in futures::future::join_all(asked).await {
        assert!(page.unwrap().items.is_empty());
    }
    let held: u32 = SERVER.psql(&count).trim().parse().unwrap();
    assert!((1..=2).contains(&held), "{held} connections for eight agents");
}

#[tokio::test]
async fn a_database_that_is_away_is_told_at_once_and_found_again() {
    let postgres = Postgres::start();
    let url = postgres.url();
    let records = Reader::open(&url, None, None).unwrap().of("tk_a", "ag_1", "uid").unwrap();
    let unmade = records.conversations(10, None, None).await.unwrap_err();
    assert!(matches!(&unmade, Fault::Unavailable(why) if why.contains("the manager makes it")), "{unmade:?}");
    slipway_database::migrate(&url, None, None).await.unwrap();
    assert_eq!(records.conversations(10, None, None).await.unwrap().items, []);
    postgres.stop();
    let begun = std::time::Instant::now();
    assert!(records.memories(10, None).await.unwrap_err().is_passing());
    assert!(begun.elapsed().as_secs() < 5, "{:?}", begun.elapsed());
    postgres.restart();
    assert_eq!(records.memories(10, None).await.unwrap().items, []);
}

/// The login that docs/rest.md has an administrator make for REST: the statements of that page are run as they stand.
#[tokio::test]
async fn a_login_that_reads_conversations_is_enough_and_reads_nothing_else() {
    let page = std::fs::read_to_string(slipway_peers::repository().join("docs/rest.md")).unwrap();
    let statements = page.split("```sql\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let database = Database::migrated().await;
    talk(&database.store("tk_a", "ag_1"), "conv_1", "hello", "yes").await.unwrap();
    // Roles belong to the whole server, which other tests use as well.
    let role = format!("rest_{}", database.name);
    let statements = statements.replace("slipway_rest", &role).replace("'…'", "'a-password-of-rest'");
    Raw::connect(&database.url).await.ask(&statements).await.unwrap();

    let url = SERVER.url_of(&role, "a-password-of-rest", &database.name);
    let records = Reader::open(&url, None, None).unwrap().of("tk_a", "ag_1", "uid").unwrap();
    assert_eq!(records.conversations(10, None, Some("hello")).await.unwrap().items.len(), 1);
    assert_eq!(records.conversation("conv_1").await.unwrap().unwrap().1[0].content, "hello");
    assert_eq!(records.memories(10, None).await.unwrap().items, []);
    let mut raw = Raw::connect(&url).await;
    for forbidden in [
        "SELECT * FROM slipway.tenants",
        "SELECT * FROM slipway.usage_minutes",
        "SELECT * FROM slipway.usage_by_run",
        "SELECT * FROM slipway.evaluation_results",
        "UPDATE slipway.sampled_scores SET judge = 'x'",
        "SELECT * FROM slipway.policy_violations",
        "SELECT * FROM slipway.violation_hours",
        "SELECT * FROM slipway.alerts",
        "SELECT * FROM slipway.alert_deliveries",
        "SELECT * FROM slipway.budget_leases",
        "SELECT * FROM slipway.sampled_days",
        "SELECT * FROM slipway.memory_vectors",
        "SELECT * FROM slipway.feedback",
        "SELECT * FROM slipway.feedback_cases",
        "INSERT INTO slipway.feedback_cases VALUES ('tk_a', 'ag_1', 'tr_1', 'conv_1', 'x', now())",
        "DELETE FROM slipway.feedback",
        "UPDATE slipway.conversations SET title = 'x'",
        "DELETE FROM slipway.messages",
        "INSERT INTO slipway.migrations (version, name) VALUES (99, 'x')",
        "CREATE TABLE slipway.x (a int)",
        "CREATE ROLE anybody",
    ] {
        let refused = raw.ask(forbidden).await.unwrap_err();
        assert!(refused.starts_with("42501"), "{forbidden}: {refused}");
    }
    // A further migration leaves the login as it is.
    slipway_database::migrate(&database.url, None, None).await.unwrap();
    assert_eq!(records.conversations(10, None, None).await.unwrap().items.len(), 1);
}

/// The transaction itself lets nothing be written, whatever the login might: here by a function behind a view.
#[tokio::test]
async fn nothing_is_written_though_the_login_might() {
    const WRITES: &str = "
        CREATE TABLE public.noted (n int);
        CREATE FUNCTION public.note() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.noted VALUES (1); RETURN true; END $$;
        ALTER TABLE slipway.memories RENAME TO remembered;
        CREATE VIEW slipway.memories AS SELECT * FROM slipway.remembered WHERE public.note()";
    let database = Database::migrated().await;
    let store = database.store("tk_a", "ag_1");
    store.remember(memory("the sky is blue")).await.unwrap();
    let mut raw = Raw::connect(&database.url).await;
    raw.ask(WRITES).await.unwrap();
    let records = Reader::open(&database.url, None, None).unwrap().of("tk_a", "ag_1", "uid").unwrap();
    let refused = records.memories(10, None).await.unwrap_err();
    assert!(refused.to_string().contains("only lets read"), "{refused:?}");
    assert_eq!(raw.one("SELECT count(*) FROM public.noted").await, "0");
    assert_eq!(store.memories(10, None).await.unwrap().items.len(), 1, "a store may write");
    assert_eq!(raw.one("SELECT count(*) FROM public.noted").await, "1");
}
