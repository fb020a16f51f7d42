//! Conversations and turns, with a team's own login.

use std::time::Duration;

use serde_json::json;
use slipway_database::{Fault, Generation, NewMessage, Role};

use crate::{Database, assistant, talk, user};

#[tokio::test]
async fn what_was_said_is_read_back_as_it_was_said() {
    let store = Database::migrated().await.tenant("a", "ag_1").await;
    store.begin_turn("conv_1", "  A title\nin two lines ", user("hello \0 world").with_trace("tr_1")).await.unwrap();
    let parts = json!({"calls": [{"name": "x", "arguments": "{\"a\":\"\\u0000\"}"}], "nul": "\0", "big": 1.5e300});
    let messages = vec![
        assistant("").with_parts(parts.clone()).with_trace("tr_1"),
        NewMessage::new(Role::Tool, "21 °C"),
        assistant("It is 21 °C. 👍"),
    ];
    let ids: Vec<_> = messages.iter().map(|message| message.id.clone()).collect();
    store.finish_turn("conv_1", messages).await.unwrap();

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

#[tokio::test]
async fn one_turn_at_a_time_over_all_replicas() {
    let database = Database::migrated().await;
    let (one, two) = (database.tenant("a", "ag_1").await, database.tenant("a", "ag_1").await);
    one.begin_turn("conv_1", "t", user("first")).await.unwrap();
    assert_eq!(two.begin_turn("conv_1", "t", user("second")).await, Err(Fault::Busy));
    assert_eq!(one.begin_turn("conv_1", "t", user("second")).await, Err(Fault::Busy));
    one.progress("conv_1", "so fa").await.unwrap();
    let Some(Generation::Generating { partial, .. }) = two.generation("conv_1").await.unwrap() else { panic!("it is generating") };
    assert_eq!(partial, "so fa");
    assert_eq!(two.progress("conv_1", "mine").await, Err(Fault::Busy));
    assert_eq!(two.finish_turn("conv_1", vec![assistant("mine")]).await, Err(Fault::Busy));
    one.finish_turn("conv_1", vec![assistant("so far")]).await.unwrap();
    assert_eq!(two.generation("conv_1").await.unwrap(), Some(Generation::Idle));
    two.begin_turn("conv_1", "t", user("second")).await.unwrap();
    two.abandon_turn("conv_1", Some(assistant("half"))).await.unwrap();
    let said: Vec<_> = one.history("conv_1", 10).await.unwrap().into_iter().map(|m| (m.content, m.interrupted)).collect();
    assert_eq!(said, [("first".into(), false), ("so far".into(), false), ("second".into(), false), ("half".into(), true)]);
}

#[tokio::test]
async fn of_twenty_that_begin_at_once_one_does() {
    let database = Database::migrated().await;
    let stores = [database.tenant("a", "ag_1").await, database.tenant("a", "ag_1").await, database.tenant("a", "ag_1").await];
    let tries = (0..20).map(|n| stores[n % 3].begin_turn("conv_1", "t", user(&format!("{n}"))));
    let outcomes = futures::future::join_all(tries).await;
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1, "{outcomes:?}");
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Ok(()) | Err(Fault::Busy))), "{outcomes:?}");
    assert_eq!(stores[0].conversation("conv_1").await.unwrap().unwrap().0.message_count, 1);
}

#[tokio::test]
async fn a_dead_turns_answer_is_kept_by_whoever_comes_next() {
    let database = Database::migrated().await;
    let (dead, next) = (database.tenant("a", "ag_1").await, database.tenant("a", "ag_1").await);
    dead.begin_turn("conv_1", "t", user("first")).await.unwrap();
    dead.progress("conv_1", "half an ans").await.unwrap();
    database.raw(&database.url).await.one("update slipway.turns set lease_until = now() - interval '1 s'").await;
    assert_eq!(next.generation("conv_1").await.unwrap(), Some(Generation::Idle));
    next.begin_turn("conv_1", "t", user("second")).await.unwrap();
    // It was not dead but slow: it is told, and its late answer does not stand where another was begun.
    assert_eq!(dead.progress("conv_1", "half an answer").await, Err(Fault::Busy));
    assert_eq!(dead.finish_turn("conv_1", vec![assistant("a whole answer")]).await, Err(Fault::Busy));
    next.finish_turn("conv_1", vec![assistant("done")]).await.unwrap();
    let said: Vec<_> = next.history("conv_1", 10).await.unwrap().into_iter().map(|m| (m.content, m.interrupted)).collect();
    assert_eq!(said, [("first".into(), false), ("half an ans".into(), true), ("second".into(), false), ("done".into(), false)]);
}

#[tokio::test]
async fn a_slow_turn_that_nobody_replaced_still_finishes() {
    let database = Database::migrated().await;
    let slow = database.tenant("a", "ag_1").await;
    slow.begin_turn("conv_1", "t", user("first")).await.unwrap();
    database.raw(&database.url).await.one("update slipway.turns set lease_until = now() - interval '1 s'").await;
    slow.finish_turn("conv_1", vec![assistant("at last")]).await.unwrap();
    assert_eq!(slow.history("conv_1", 10).await.unwrap().len(), 2);
}

#[tokio::test]
async fn whatever_is_repeated_after_a_lost_answer_counts_once() {
    let store = Database::migrated().await.tenant("a", "ag_1").await;
    let (question, answer) = (user("q"), assistant("a"));
    for _ in 0..2 {
        store.begin_turn("conv_1", "t", question.clone()).await.unwrap();
    }
    for _ in 0..2 {
        store.finish_turn("conv_1", vec![answer.clone()]).await.unwrap();
    }
    assert_eq!(store.history("conv_1", 10).await.unwrap().len(), 2);
}

#[tokio::test]
async fn an_answer_to_a_deleted_conversation_does_not_bring_it_back() {
    let store = Database::migrated().await.tenant("a", "ag_1").await;
    store.begin_turn("conv_1", "t", user("q")).await.unwrap();
    store.delete_conversation("conv_1").await.unwrap();
    assert_eq!(store.progress("conv_1", "x").await, Err(Fault::Busy));
    assert!(matches!(store.finish_turn("conv_1", vec![assistant("a")]).await, Err(Fault::Refused(_))));
    assert_eq!(store.conversation("conv_1").await.unwrap(), None);
}

#[tokio::test]
async fn a_very_long_conversation_gives_its_newest_part() {
    let database = Database::migrated().await;
    let store = database.tenant("a", "ag_1").await;
    talk(&store, "conv_1", "q", "a").await.unwrap();
    for _ in 0..3 {
        let more = (0..1_000).map(|n| assistant(&n.to_string())).collect();
        store.begin_turn("conv_1", "t", user("more")).await.unwrap();
        store.finish_turn("conv_1", more).await.unwrap();
    }
    let (summary, messages) = store.conversation("conv_1").await.unwrap().unwrap();
    assert_eq!((summary.message_count, messages.len()), (3_005, 2_000));
    assert_eq!(messages.last().unwrap().content, "999");
    let big = "x".repeat(3 * 1024 * 1024);
    for _ in 0..4 {
        talk(&store, "conv_2", "q", &big).await.unwrap();
    }
    assert_eq!(store.conversation("conv_2").await.unwrap().unwrap().1.len(), 4, "two questions with two answers of 3 MiB fit into 8 MiB");
    assert!(matches!(store.begin_turn("conv_2", "", user(&"x".repeat(4 * 1024 * 1024 + 1))).await, Err(Fault::Refused(_))));
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
    assert_eq!(most, 2);
    let mut watch = database.raw(&database.url).await;
    let deadline = tokio::time::Instant::now() + Duration::from_secs(90);
    while watch.one(&open).await != "0" {
        assert!(tokio::time::Instant::now() < deadline, "idle connections are still open after 90 s");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    store.ping().await.unwrap();
}
