//! The end of agents and teams.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use slipway_database::{Category, Fault, NewMemory, Stranger, Tenants, UsageMinute, migrate};
use slipway_peers::Postgres;

use crate::{Database, Raw, home, talk};

/// Messages in ten conversations, memories, and usage, in these numbers.
fn fill(team: &str, agent: &str, rows: u32) -> String {
    format!(
        "insert into slipway.conversations select '{team}', '{agent}', 'conv_' || n, 't', now(), now(), {rows} / 10 from generate_series(0, 9) n;
         insert into slipway.messages select '{team}', '{agent}', 'conv_' || n % 10, n, 'msg_{agent}' || n, 'user', 'x', null, null, false, now()
         from generate_series(1, {rows}) n;
         insert into slipway.turns select '{team}', '{agent}', 'conv_1', 'h', '', now(), now();
         insert into slipway.memories (team, agent_id, id, content, category, source, digest, created_at, updated_at)
         select '{team}', '{agent}', 'mem_' || n, 'x', 'fact', 's', sha256(n::text::bytea), now(), now() from generate_series(1, {rows}) n;
         insert into slipway.memory_vectors select '{team}', '{agent}', 'mem_' || n, 'm', 2, '[1,0]' from generate_series(1, {rows}) n;
         insert into slipway.usage_minutes select '{team}', '{agent}', now() + n * interval '1 minute', 'p', 'm', 1, 1, 1, 1, 1, 1, 1, 1, 1, '{{}}'
         from generate_series(1, {rows}) n;
         insert into slipway.usage_by_run select '{team}', '{agent}', now() + n * interval '1 minute', 'stable', 'h', 'p', 'm',
         1, 1, 1, 1, 1, 1, 1, 1, 1, '{{}}' from generate_series(1, {rows}) n;
         insert into slipway.evaluation_results select '{team}', '{agent}', 'ev_1', n, '', '{{}}' from generate_series(1, {rows}) n;
         insert into slipway.sampled_scores select '{team}', '{agent}', now(), 'tr_' || n, 'safety', '', '', '', 1, 0 from generate_series(1, {rows}) n;
         insert into slipway.sampled_days select '{team}', '{agent}', now()::date, 1"
    )
}

const LEFT: &str = "
    select count(*)::text from (select team, agent_id from slipway.conversations union all select team, agent_id from slipway.messages
    union all select team, agent_id from slipway.turns union all select team, agent_id from slipway.memories
    union all select team, agent_id from slipway.memory_vectors union all select team, agent_id from slipway.usage_minutes
    union all select team, agent_id from slipway.usage_by_run union all select team, agent_id from slipway.evaluation_results
    union all select team, agent_id from slipway.sampled_scores union all select team, agent_id from slipway.sampled_days
    union all select team, agent_id from slipway.usage_spans) t";

fn names(strangers: Vec<Stranger>) -> Vec<String> {
    strangers.into_iter().map(|stranger| stranger.agent_id).collect()
}

#[tokio::test]
async fn an_agents_rows_go_and_no_others() {
    let database = Database::migrated().await;
    let mut admin = database.raw(&database.url).await;
    for (team, agent) in [("a", "ag_1"), ("a", "ag_2"), ("b", "ag_1")] {
        admin.ask(&fill(team, agent, 2_500)).await.unwrap();
    }
    let tenants = database.tenants();
    // Sums of usage, as many as there are spans of time in it.
    let sums = admin.one("select count(*)::text from slipway.usage_spans where team = 'a' and agent_id = 'ag_1'").await;
    let (all, own) = (admin.one(LEFT).await.parse::<u64>().unwrap(), 7 * 2_500 + 12 + sums.parse::<u64>().unwrap());
    assert_eq!(tenants.delete_agent("a", "ag_1").await.unwrap(), own);
    assert_eq!(tenants.delete_agent("a", "ag_1").await.unwrap(), 0);
    assert_eq!(admin.one(&format!("{LEFT} where team = 'a' and agent_id = 'ag_1'")).await, "0");
    assert_eq!(admin.one(LEFT).await, (all - own).to_string());
}

#[tokio::test]
async fn a_deletion_ends_when_its_agent_is_back() {
    let database = Database::migrated().await;
    let mut admin = database.raw(&database.url).await;
    admin.ask(&fill("a", "ag_1", 4_000)).await.unwrap();
    let (tenants, asked) = (database.tenants(), AtomicU64::new(0));
    let all = admin.one(LEFT).await.parse::<u64>().unwrap();
    let deleted = tenants.delete_agent_while("a", "ag_1", &|| asked.fetch_add(1, Ordering::Relaxed) < 3).await.unwrap();
    assert!((1..=3_000).contains(&deleted), "three batches at most: {deleted}");
    assert_eq!(admin.one(LEFT).await, (all - deleted).to_string());
    assert_eq!(tenants.delete_agent_while("a", "ag_1", &|| false).await.unwrap(), 0);
}

#[tokio::test]
async fn whose_rows_there_are_is_told_of_one_team_by_every_kind_of_row() {
    let database = Database::migrated().await;
    let mut admin = database.raw(&database.url).await;
    admin.ask(&fill("a", "ag_1", 50)).await.unwrap();
    admin.ask(&fill("b", "ag_of_another", 50)).await.unwrap();
    for (agent, store) in ["ag_talk", "ag_memory", "ag_usage"].map(|agent| (agent, database.store("a", agent))) {
        match agent {
            "ag_talk" => talk(&store, "conv_1", "q", "a").await.unwrap(),
            "ag_memory" => {
                let memory = NewMemory { content: "x".into(), category: Category::Fact, source: "s".into(), embedding: None };
                store.remember(memory).await.unwrap();
            }
            _ => {
                let usage = UsageMinute { requests: 1, ..UsageMinute::empty(jiff::Timestamp::UNIX_EPOCH, "p", "m") };
                store.record_usage(&[usage]).await.unwrap();
            }
        }
    }
    // Nothing that a runtime could have written, and nothing that a deletion would take.
    admin.ask("insert into slipway.conversations values ('a', 'x''; drop', 'c', 't', now(), now(), 0)").await.unwrap();
    let tenants = database.tenants();
    let beside = async |known: &[&str]| {
        let known: Vec<String> = known.iter().map(ToString::to_string).collect();
        names(tenants.strangers(&home("a"), &known).await.unwrap())
    };
    assert_eq!(beside(&[]).await, ["ag_1", "ag_memory", "ag_talk", "ag_usage"]);
    assert_eq!(beside(&["ag_1", "ag_talk", "ag_elsewhere"]).await, ["ag_memory", "ag_usage"]);
    assert_eq!(beside(&["ag_1", "ag_memory", "ag_talk", "ag_usage"]).await, [""; 0]);
    assert!(tenants.strangers(&home("nobody"), &[]).await.unwrap().is_empty());
    // What is left of a deletion that was cut off anywhere is found.
    for table in ["turns", "messages"] {
        admin.ask(&format!("delete from slipway.{table}")).await.unwrap();
        assert!(beside(&[]).await.contains(&"ag_1".to_owned()), "with nothing left in {table}");
    }
}

#[tokio::test]
async fn strangers_are_told_a_thousand_at_a_time() {
    let database = Database::migrated().await;
    let fill = "insert into slipway.usage_by_run select 'a', 'ag_' || n, now(), 'stable', 'h', 'p', 'm', 1, 1, 1, 1, 1, 1, 1, 1, 1, '{}' from generate_series(1, 1500) n";
    database.raw(&database.url).await.ask(fill).await.unwrap();
    let tenants = database.tenants();
    let first = names(tenants.strangers(&home("a"), &[]).await.unwrap());
    assert_eq!(first.len(), 1_000);
    assert_eq!(tenants.strangers(&home("a"), &first).await.unwrap().len(), 500);
}

/// Prints what docs/database.md tells; run it alone, with `--ignored --nocapture`.
#[tokio::test]
#[ignore = "a measurement"]
async fn finding_strangers_does_not_depend_on_the_number_of_rows() {
    let database = Database::migrated().await;
    let mut admin = database.raw(&database.url).await;
    let tenants = database.tenants();
    for rows in [1_000, 1_000_000] {
        let fill = format!(
            "insert into slipway.usage_minutes select 'a', 'ag_' || lpad((n % 100)::text, 3, '0'), now() + n * interval '1 minute', 'p{rows}', 'm',
             1, 1, 1, 1, 1, 1, 1, 1, 1, '{{}}' from generate_series(1, {rows}) n"
        );
        admin.ask(&fill).await.unwrap();
        let mut taken = Vec::new();
        for _ in 0..20 {
            let begun = std::time::Instant::now();
            assert_eq!(tenants.strangers(&home("a"), &[]).await.unwrap().len(), 100);
            taken.push(begun.elapsed());
        }
        taken.sort();
        println!("{rows} rows of 100 agents: median {:?}, slowest {:?}", taken[10], taken[19]);
    }
}

#[tokio::test]
async fn a_deletion_that_was_cut_off_is_ended_by_the_next() {
    let database = Database::migrated().await;
    let mut admin = database.raw(&database.url).await;
    admin.ask(&fill("a", "ag_1", 4_000)).await.unwrap();
    let tenants = database.tenants();
    let mut left = admin.one(LEFT).await.parse::<u64>().unwrap();
    let mut cut_off = 0;
    // Logging in alone takes longer than the first.
    let mut patience = Duration::from_millis(2);
    while tokio::time::timeout(patience, tenants.delete_agent("a", "ag_1")).await.is_err() {
        cut_off += 1;
        patience *= 2;
        let now = admin.one(LEFT).await.parse::<u64>().unwrap();
        assert!(now <= left, "rows never come back");
        left = now;
    }
    assert!(cut_off > 0, "it was too fast to be cut off");
    assert_eq!(admin.one(LEFT).await, "0");
}

#[tokio::test]
async fn a_deletion_goes_on_after_the_server_has_died() {
    let postgres = Postgres::start();
    migrate(&postgres.url(), None, None).await.unwrap();
    Raw::connect(&postgres.url()).await.ask(&fill("a", "ag_1", 20_000)).await.unwrap();
    let tenants = Tenants::open(&postgres.url(), None, None).unwrap();
    let deleting = tokio::spawn(async move {
        let outcome = tenants.delete_agent("a", "ag_1").await;
        (tenants, outcome)
    });
    let mut admin = Raw::connect(&postgres.url()).await;
    let all: u64 = admin.one(LEFT).await.parse().unwrap();
    while admin.one(LEFT).await.parse::<u64>().unwrap() == all {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    postgres.stop();
    let (tenants, outcome) = deleting.await.unwrap();
    assert!(matches!(outcome, Err(Fault::Unavailable(_))), "{outcome:?}");
    postgres.restart();
    let mut admin = Raw::connect(&postgres.url()).await;
    let left: u64 = admin.one(LEFT).await.parse().unwrap();
    assert!((1..all).contains(&left), "{left} of {all}");
    assert_eq!(tenants.delete_agent("a", "ag_1").await.unwrap(), left);
    assert_eq!(admin.one(LEFT).await, "0");
}

#[tokio::test]
async fn a_team_goes_with_its_login_its_rows_and_its_role() {
    let database = Database::migrated().await;
    let (store, other) = (database.tenant("a", "ag_1").await, database.tenant("b", "ag_1").await);
    talk(&store, "conv_1", "q", "a").await.unwrap();
    talk(&other, "conv_1", "q", "a").await.unwrap();
    let login = database.login("a").await;
    let tenants = database.tenants();
    assert_eq!(tenants.remove("a").await.unwrap(), 3);
    // A connection that was open sees nothing and writes nothing any more.
    assert!(talk(&store, "conv_1", "q", "a").await.is_err());
    assert!(Raw::try_connect(&database.url_of(&login)).await.is_err());
    let mut admin = database.raw(&database.url).await;
    assert_eq!(admin.one(&format!("select count(*)::text from pg_roles where rolname = '{}'", login.user)).await, "0");
    assert_eq!(admin.one(&format!("{LEFT} where team = 'a'")).await, "0");
    assert_eq!(tenants.remove("a").await.unwrap(), 0);
    assert_eq!(other.history("conv_1", 10).await.unwrap().len(), 2);
    // A team of the same name later begins with nothing.
    let store = database.tenant("a", "ag_1").await;
    assert!(store.conversations(10, None, None).await.unwrap().items.is_empty());
}

#[tokio::test]
async fn an_agent_that_still_writes_does_not_hinder_its_deletion() {
    let database = Database::migrated().await;
    let store = database.tenant("a", "ag_1").await;
    let tenants = database.tenants();
    database.raw(&database.url).await.ask(&fill("a", "ag_1", 3_000)).await.unwrap();
    let writing = async {
        for n in 0.. {
            // It may be told that its conversation is gone; nothing may break.
            match talk(&store, &format!("late_{}", n % 5), "q", "a").await {
                Ok(()) | Err(Fault::Refused(_) | Fault::Unavailable(_) | Fault::Busy) => {}
                Err(fault) => panic!("{fault:?}"),
            }
        }
    };
    tokio::select! {
        () = writing => {}
        deleted = tenants.delete_agent("a", "ag_1") => assert!(deleted.unwrap() >= 12_000),
    }
    tenants.delete_agent("a", "ag_1").await.unwrap();
    assert!(store.conversations(10, None, None).await.unwrap().items.is_empty());
}
