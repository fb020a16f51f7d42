//! Conversations and turns, with a team's own login.

use std::time::Duration;

use serde_json::json;
use slipway_database::{Fault, Generation, LONGEST_MESSAGE, MOST_LISTED, NewMessage, Role, Store, Turn};

use crate::{Database, assistant, talk, user};

#[tokio::test]
async fn what_was_said_is_read_back_as_it_was_said() {
    for database in Database::both_ways().await {
        let store = database.tenant("a", "ag_1").await;
        let turn = Turn::new("conv_1");
        store.begin_turn(&turn, "  A title\nin two lines ", user("hello \0 world").with_trace("tr_1"), 0).await.unwrap();
        let parts = json!({"calls": [{"name": "x", "arguments": "{\"a\":\"\\u0000\"}"}], "nul": "\0", "big": 1.5e300});
        let messages = vec![
            assistant("").with_parts(parts.clone()).with_trace("tr_1"),
            NewMessage::new(Role::Tool, "21 °C"),
            assistant("It is 21 °C. 👍"),
        ];
        let ids: Vec<_> = messages.iter().map(|message| message.id.clone()).collect();
        store.finish_turn(&turn, messages).await.unwrap();

        let (summary, stored) = store.conversation("conv_1").await.unwrap().unwrap();
        assert_eq!((summary.title.as_str(), summary.message_count), ("A title in two lines", 4));
        assert!(summary.updated_at >= summary.created_at);
        let seen: Vec<_> = stored.iter().map(|m| (m.role, m.content.as_str(), m.interrupted)).collect();
        assert_eq!(
            seen,
            [
                (Role::User, "hello \u{fffd} world", false),
                (Role::Assistant, "", false),
                (Role::Tool, "21 °C", false),
                (Role::Assistant, "It is 21 °C. 👍", false)
            ]
        );
        assert_eq!(stored[1].parts, Some(parts));
        assert_eq!((stored[0].trace_id.as_deref(), stored[2].trace_id.as_deref()), (Some("tr_1"), None));
        assert_eq!(stored[1..].iter().map(|m| m.id.clone()).collect::<Vec<_>>(), ids);
        let last: Vec<_> = store.history("conv_1", 2).await.unwrap().into_iter().map(|m| m.content).collect();
        assert_eq!(last, ["21 °C", "It is 21 °C. 👍"]);
    }
}

#[tokio::test]
async fn conversations_are_listed_by_page_the_newest_first_and_searched() {
    let store = Database::migrated().await.tenant("a", "ag_1").await;
    for n in 0..7 {
        talk(&store, &format!("conv_{n}"), &format!("Question {n}"), if n == 3 { "100% GRÜN_e Wiese" } else { "yes" }).await.unwrap();
    }
    talk(&store, "conv_2", "again", "yes").await.unwrap();
    let mut seen = Vec::new();
    let mut cursor = None;
    loop {
        let page = store.conversations(3, cursor.as_deref(), None).await.unwrap();
        assert!(page.items.len() <= 3);
        seen.extend(page.items.into_iter().map(|summary| summary.id));
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(seen, ["conv_2", "conv_6", "conv_5", "conv_4", "conv_3", "conv_1", "conv_0"]);
    for (search, found) in [
        ("grün_E", &["conv_3"][..]),
        ("100%", &["conv_3"]),
        ("question 5", &["conv_5"]),
        ("%", &["conv_3"]),
        ("nowhere", &[]),
        ("AGAIN", &["conv_2"]),
    ] {
        let page = store.conversations(10, None, Some(search)).await.unwrap();
        assert_eq!(page.items.iter().map(|s| s.id.as_str()).collect::<Vec<_>>(), found, "{search}");
    }
    assert!(matches!(store.conversations(3, Some("nonsense"), None).await, Err(Fault::Refused(_))));
    for limit in [0, MOST_LISTED + 1] {
        let refused = [store.conversations(limit, None, None).await.err(), store.memories(limit, None).await.err()];
        for fault in refused {
            assert!(fault.as_ref().unwrap().to_string().contains("`limit` must be a number, 1 to 200"), "{limit}: {fault:?}");
        }
    }
}

#[tokio::test]
async fn a_conversation_is_renamed_and_deleted() {
    let store = Database::migrated().await.tenant("a", "ag_1").await;
    talk(&store, "conv_1", "q", "a").await.unwrap();
    assert!(store.set_title("conv_1", "Better").await.unwrap());
    assert_eq!(store.conversation("conv_1").await.unwrap().unwrap().0.title, "Better");
    assert!(!store.set_title("conv_2", "x").await.unwrap());
    assert!(store.delete_conversation("conv_1").await.unwrap());
    assert!(!store.delete_conversation("conv_1").await.unwrap());
    assert_eq!(store.conversation("conv_1").await.unwrap(), None);
    assert_eq!(store.generation("conv_1").await.unwrap(), None);
    assert!(store.history("conv_1", 10).await.unwrap().is_empty());
    for id in ["", "a'b", "a b", "ü"] {
        assert!(matches!(store.conversation(id).await, Err(Fault::Refused(_))), "{id}");
    }
}

/// Whatever holds a conversation is taken to be dead.
async fn let_the_lease_run_out(database: &Database) {
    database.raw(&database.url).await.one("update slipway.turns set lease_until = now() - interval '1 s'").await;
}

async fn said(store: &Store) -> Vec<(String, bool)> {
    store.history("conv_1", 10).await.unwrap().into_iter().map(|message| (message.content, message.interrupted)).collect()
}

#[tokio::test]
async fn one_turn_at_a_time_over_all_replicas() {
    for database in Database::both_ways().await {
        let (one, two) = (database.tenant("a", "ag_1").await, database.tenant("a", "ag_1").await);
        let (first, second) = (Turn::new("conv_1"), Turn::new("conv_1"));
        one.begin_turn(&first, "t", user("first"), 0).await.unwrap();
        assert_eq!(two.begin_turn(&second, "t", user("second"), 0).await, Err(Fault::Busy));
        assert_eq!(one.begin_turn(&second, "t", user("second"), 0).await, Err(Fault::Busy));
        one.progress(&first, "so fa").await.unwrap();
        let Some(Generation::Generating { partial, .. }) = two.generation("conv_1").await.unwrap() else { panic!("it is generating") };
        assert_eq!(partial, "so fa");
        for store in [&one, &two] {
            assert_eq!(store.progress(&second, "mine").await, Err(Fault::Busy));
            assert_eq!(store.finish_turn(&second, vec![assistant("mine")]).await, Err(Fault::Busy));
        }
        one.finish_turn(&first, vec![assistant("so far")]).await.unwrap();
        assert_eq!(two.generation("conv_1").await.unwrap(), Some(Generation::Idle));
        two.begin_turn(&second, "t", user("second"), 0).await.unwrap();
        two.finish_turn(&second, vec![assistant("half").interrupted()]).await.unwrap();
        assert_eq!(said(&one).await, [("first".into(), false), ("so far".into(), false), ("second".into(), false), ("half".into(), true)]);
    }
}

#[tokio::test]
async fn of_twenty_that_begin_at_once_one_does() {
    for database in Database::both_ways().await {
        let stores = [database.tenant("a", "ag_1").await, database.tenant("a", "ag_1").await, database.tenant("a", "ag_1").await];
        let tries = (0..20).map(|n| {
            let store = &stores[n % 3];
            async move { store.begin_turn(&Turn::new("conv_1"), "t", user(&format!("{n}")), 0).await }
        });
        let outcomes = futures::future::join_all(tries).await;
        assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1, "{outcomes:?}");
        // On a machine that is busy with other things some wait in vain for one of their store's two connections.
        assert!(outcomes.iter().all(|outcome| matches!(outcome, Ok(_) | Err(Fault::Busy | Fault::Unavailable(_)))), "{outcomes:?}");
        assert_eq!(stores[0].conversation("conv_1").await.unwrap().unwrap().0.message_count, 1);
    }
}

#[tokio::test]
async fn a_dead_turns_answer_is_kept_by_the_next_turn_of_the_same_process_too() {
    for (same_process, database) in [false, true].into_iter().zip(Database::both_ways().await) {
        let (one, other) = (database.tenant("a", "ag_1").await, database.tenant("a", "ag_1").await);
        let next = if same_process { &one } else { &other };
        let (late, newer) = (Turn::new("conv_1"), Turn::new("conv_1"));
        one.begin_turn(&late, "t", user("first"), 0).await.unwrap();
        one.progress(&late, "half an ans").await.unwrap();
        let_the_lease_run_out(&database).await;
        assert_eq!(next.generation("conv_1").await.unwrap(), Some(Generation::Idle));
        next.begin_turn(&newer, "t", user("second"), 0).await.unwrap();
        next.progress(&newer, "do").await.unwrap();
        // It was not dead but slow: it is told, and its late answer does not stand where another was begun.
        assert_eq!(one.progress(&late, "half an answer").await, Err(Fault::Busy), "{same_process}");
        assert_eq!(one.finish_turn(&late, vec![assistant("a whole answer")]).await, Err(Fault::Busy), "{same_process}");
        assert_eq!(one.finish_turn(&late, vec![assistant("half an answer").interrupted()]).await, Err(Fault::Busy));
        assert_eq!(one.begin_turn(&late, "t", user("third"), 0).await, Err(Fault::Busy));
        let Some(Generation::Generating { partial, .. }) = one.generation("conv_1").await.unwrap() else { panic!("it is generating") };
        assert_eq!(partial, "do");
        next.finish_turn(&newer, vec![assistant("done")]).await.unwrap();
        assert_eq!(
            said(next).await,
            [("first".into(), false), ("half an ans".into(), true), ("second".into(), false), ("done".into(), false)],
            "{same_process}"
        );
    }
}

#[tokio::test]
async fn a_slow_turn_that_nobody_replaced_goes_on_and_finishes() {
    for database in Database::both_ways().await {
        let slow = database.tenant("a", "ag_1").await;
        let (question, turn) = (user("first"), Turn::new("conv_1"));
        slow.begin_turn(&turn, "t", question.clone(), 0).await.unwrap();
        let_the_lease_run_out(&database).await;
        slow.progress(&turn, "at").await.unwrap();
        assert!(matches!(slow.generation("conv_1").await.unwrap(), Some(Generation::Generating { .. })), "its lease is renewed");
        let_the_lease_run_out(&database).await;
        slow.begin_turn(&turn, "t", question, 0).await.unwrap();
        assert!(matches!(slow.generation("conv_1").await.unwrap(), Some(Generation::Generating { .. })), "a late repeat is no other turn");
        let_the_lease_run_out(&database).await;
        slow.finish_turn(&turn, vec![assistant("at last")]).await.unwrap();
        assert_eq!(said(&slow).await, [("first".into(), false), ("at last".into(), false)]);
    }
}

#[tokio::test]
async fn whatever_is_repeated_after_a_lost_answer_counts_once() {
    for database in Database::both_ways().await {
        let store = database.tenant("a", "ag_1").await;
        let (question, answer, turn) = (user("q"), assistant("a"), Turn::new("conv_1"));
        for _ in 0..2 {
            store.begin_turn(&turn, "t", question.clone(), 0).await.unwrap();
        }
        for _ in 0..2 {
            store.finish_turn(&turn, vec![answer.clone()]).await.unwrap();
        }
        assert_eq!(store.history("conv_1", 10).await.unwrap().len(), 2);
    }
}

#[tokio::test]
async fn an_answer_to_a_deleted_conversation_neither_brings_it_back_nor_stands_in_a_new_one() {
    for database in Database::both_ways().await {
        let store = database.tenant("a", "ag_1").await;
        let (turn, newer) = (Turn::new("conv_1"), Turn::new("conv_1"));
        store.begin_turn(&turn, "t", user("q"), 0).await.unwrap();
        store.delete_conversation("conv_1").await.unwrap();
        assert_eq!(store.progress(&turn, "x").await, Err(Fault::Busy));
        assert!(matches!(store.finish_turn(&turn, vec![assistant("a")]).await, Err(Fault::Refused(_))));
        assert_eq!(store.conversation("conv_1").await.unwrap(), None);
        store.begin_turn(&newer, "t", user("another"), 0).await.unwrap();
        assert_eq!(store.progress(&turn, "x").await, Err(Fault::Busy));
        assert_eq!(store.finish_turn(&turn, vec![assistant("a")]).await, Err(Fault::Busy));
        store.finish_turn(&newer, vec![]).await.unwrap();
        assert_eq!(said(&store).await, [("another".into(), false)]);
    }
}

#[tokio::test]
async fn a_turn_begins_with_the_newest_messages_and_what_is_to_be_answered() {
    for database in Database::both_ways().await {
        let store = database.tenant("a", "ag_1").await;
        talk(&store, "conv_1", "one", "two").await.unwrap();
        for (latest, expected) in [(2, &["two", "three"][..]), (200, &["one", "two", "three"]), (0, &[])] {
            let turn = Turn::new("conv_1");
            let begun = store.begin_turn(&turn, "t", user("three").with_trace("tr_3"), latest).await.unwrap();
            assert_eq!(begun.iter().map(|message| &*message.content).collect::<Vec<_>>(), expected);
            assert!(begun.last().is_none_or(|last| last.role == Role::User && last.trace_id.as_deref() == Some("tr_3")), "{begun:?}");
            store.delete_conversation("conv_1").await.unwrap();
            talk(&store, "conv_1", "one", "two").await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_very_long_conversation_gives_its_newest_part() {
    let database = Database::migrated().await;
    let store = database.tenant("a", "ag_1").await;
    talk(&store, "conv_1", "q", "a").await.unwrap();
    for _ in 0..3 {
        let more = (0..1_000).map(|n| assistant(&n.to_string())).collect();
        let turn = Turn::new("conv_1");
        store.begin_turn(&turn, "t", user("more"), 0).await.unwrap();
        store.finish_turn(&turn, more).await.unwrap();
    }
    let (summary, messages) = store.conversation("conv_1").await.unwrap().unwrap();
    assert_eq!((summary.message_count, messages.len()), (3_005, 2_000));
    assert_eq!(messages.last().unwrap().content, "999");
    let big = "x".repeat(3 * 1024 * 1024);
    for _ in 0..4 {
        talk(&store, "conv_2", "q", &big).await.unwrap();
    }
    assert_eq!(store.conversation("conv_2").await.unwrap().unwrap().1.len(), 4, "two questions with two answers of 3 MiB fit into 8 MiB");
    assert!(matches!(store.begin_turn(&Turn::new("conv_2"), "", user(&"x".repeat(LONGEST_MESSAGE + 1)), 0).await, Err(Fault::Refused(_))));
}

#[tokio::test]
async fn agents_of_one_team_have_their_own_conversations_of_the_same_id() {
    let database = Database::migrated().await;
    let (one, two) = (database.tenant("a", "ag_1").await, database.tenant("a", "ag_2").await);
    talk(&one, "conv_1", "q1", "a1").await.unwrap();
    assert_eq!(two.conversation("conv_1").await.unwrap(), None);
    talk(&two, "conv_1", "q2", "a2").await.unwrap();
    assert!(two.delete_conversation("conv_1").await.unwrap());
    assert_eq!(one.history("conv_1", 10).await.unwrap().len(), 2);
}

#[tokio::test]
async fn two_connections_are_the_most_and_they_close_when_idle() {
    let database = Database::migrated().await;
    let store = database.tenant("a", "ag_1").await;
    let mut watch = database.raw(&database.url).await;
    let login = database.login("a").await;
    let open = format!("select count(*)::text from pg_stat_activity where usename = '{}'", login.user);
    assert_eq!(watch.one(&open).await, "0", "nothing is connected before the first question");
    let questions = futures::future::join_all((0..50).map(|n| {
        let store = &store;
        async move { talk(store, &format!("conv_{n}"), "q", "a").await }
    }));
    let mut most = 0;
    let counting = async {
        loop {
            most = most.max(watch.one(&open).await.parse().unwrap());
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::select! {
        outcomes = questions => assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}"),
        () = counting => {}
    }
    // Whoever counts slowly finds both idle.
    let mut watch = database.raw(&database.url).await;
    most = most.max(watch.one(&open).await.parse().unwrap());
    assert_eq!(most, 2);
    let deadline = tokio::time::Instant::now() + Duration::from_secs(90);
    while watch.one(&open).await != "0" {
        assert!(tokio::time::Instant::now() < deadline, "idle connections are still open after 90 s");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    store.ping().await.unwrap();
}
