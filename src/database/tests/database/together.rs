//! Turns of one agent that begin and end at the same time share trips and transactions, and nothing else.

use std::sync::Arc;

use futures::future::join_all;
use slipway_database::{Fault, LONGEST_MESSAGE, Role, Store, Turn, migrate};
use slipway_peers::Postgres;

use crate::{Database, assistant, options, talk, user};

const AT_ONCE: usize = 200;

#[tokio::test]
async fn each_of_many_turns_has_what_was_said_to_it_and_commits_are_few() {
    for database in Database::both_ways().await {
        let store = database.tenant("a", "ag_1").await;
        talk(&store, "conv_0", "first", "yes").await.unwrap();
        join_all((0..AT_ONCE).map(async |n| {
            let (turn, question) = (Turn::new(format!("conv_{n}")), format!("Question {n}"));
            let history = store.begin_turn(&turn, &question, user(&question), 10).await.unwrap();
            assert_eq!(history.last().unwrap().content, question);
            assert_eq!(history.len(), if n == 0 { 3 } else { 1 });
            let answers = (0..n % 3).map(|part| assistant(&format!("Answer {n}.{part}"))).collect();
            store.finish_turn(&turn, answers).await.unwrap();
        }))
        .await;
        for n in 1..AT_ONCE {
            let said: Vec<_> = store.history(&format!("conv_{n}"), 10).await.unwrap().into_iter().map(|m| (m.role, m.content)).collect();
            let answers = (0..n % 3).map(|part| (Role::Assistant, format!("Answer {n}.{part}")));
            assert_eq!(said, [(Role::User, format!("Question {n}"))].into_iter().chain(answers).collect::<Vec<_>>());
        }
        let wrote = "select count(distinct xmin::text)::text from slipway.messages";
        let transactions: usize = database.raw(&database.url).await.one(wrote).await.parse().unwrap();
        assert!(transactions < AT_ONCE / 2, "{transactions} for {AT_ONCE} turns");
    }
}

#[tokio::test]
async fn who_is_refused_or_held_up_is_alone_with_it() {
    for database in Database::both_ways().await {
        let store = database.tenant("a", "ag_1").await;
        let held = Turn::new("conv_busy");
        store.begin_turn(&held, "t", user("q"), 0).await.unwrap();
        talk(&store, "conv_locked", "q", "a").await.unwrap();
        let mut raw = database.raw(&database.url).await;
        raw.ask("begin; select from slipway.conversations where id = 'conv_locked' for update").await.unwrap();
        let ids = ["conv_1", "conv_busy", "conv_locked", "conv_9", "conv_9"];
        let outcomes = join_all(ids.map(|id| talk(&store, id, "q", "a"))).await;
        assert!(matches!(&outcomes[..], [Ok(()), Err(Fault::Busy), Err(Fault::Unavailable(_)), ..]), "{outcomes:?}");
        assert_eq!(
            outcomes[3..].iter().filter(|outcome| outcome.is_ok()).count(),
            1,
            "of two in one conversation one begins: {outcomes:?}"
        );
        raw.ask("commit").await.unwrap();
        talk(&store, "conv_locked", "q", "a").await.unwrap();
        assert_eq!(store.history("conv_locked", 10).await.unwrap().len(), 4);
    }
}

#[tokio::test]
async fn those_who_give_up_leave_the_others_their_answers() {
    let store = Arc::new(Database::migrated().await.tenant("a", "ag_1").await);
    talk(&store, "conv_0", "q", "a").await.unwrap();
    let turns: Vec<_> = (0..AT_ONCE)
        .map(|n| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { talk(&store, &format!("conv_{n}"), "q", "a").await })
        })
        .collect();
    tokio::task::yield_now().await;
    turns.iter().step_by(2).for_each(tokio::task::JoinHandle::abort);
    for turn in turns.into_iter().skip(1).step_by(2) {
        turn.await.unwrap().unwrap();
    }
    for n in (1..AT_ONCE).step_by(2) {
        assert_eq!(store.history(&format!("conv_{n}"), 10).await.unwrap().len(), 2, "conv_{n}");
    }
}

#[tokio::test]
async fn the_longest_messages_at_once_are_kept() {
    let store = Database::migrated().await.tenant("a", "ag_1").await;
    let long = "x".repeat(LONGEST_MESSAGE);
    let outcomes = join_all((0..6).map(|n| {
        let (store, long) = (&store, &long);
        async move { talk(store, &format!("conv_{n}"), "q", if n == 3 { long } else { "short" }).await }
    }))
    .await;
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    assert_eq!(store.history("conv_3", 1).await.unwrap()[0].content.len(), LONGEST_MESSAGE);
}

/// The server crashes: what was told to be kept is there, and what it has forgotten of a turn's beginning is told.
#[tokio::test]
async fn a_crash_of_the_server_loses_nothing_that_was_told() {
    for prepared_statements in [false, true] {
        let postgres = Postgres::durable();
        migrate(&postgres.url(), None, None).await.unwrap();
        let options = slipway_database::Options { prepared_statements, ..options(&postgres.url(), "a", "ag_1") };
        let store = Store::open(&options).unwrap();
        for round in 0..10 {
            let (kept, begun) = (format!("conv_kept_{round}"), format!("conv_begun_{round}"));
            talk(&store, &kept, "q", "a").await.unwrap();
            let (old, new) = (Turn::new(kept.clone()), Turn::new(begun.clone()));
            if round % 2 == 0 {
                store.begin_turn(&old, "t", user("again"), 0).await.unwrap();
                store.begin_turn(&new, "t", user("q"), 0).await.unwrap();
            }
            postgres.crash();
            assert!(store.history(&kept, 10).await.unwrap().len() >= 2, "round {round}");
            if round % 2 == 0 {
                for (turn, before) in [(&old, 2), (&new, 0)] {
                    let outcome = store.finish_turn(turn, vec![assistant("a")]).await;
                    let now = store.history(turn.conversation(), 10).await.unwrap().len();
                    match outcome {
                        Ok(()) => assert_eq!(now, before + 2, "an answer stands below its question"),
                        Err(Fault::Busy | Fault::Refused(_)) => assert_eq!(now, before, "what was not kept is told"),
                        Err(fault) => panic!("{fault}"),
                    }
                }
            }
        }
    }
}
