//! Cases that feedback has appended, in a real PostgreSQL.

use slipway_database::{Feedback, Marked, NewMessage, Options, PodRun, Reader, Role, Store, Turn};

use super::*;

fn store(postgres: &Postgres) -> Store {
    let (url, team, agent_id) = (postgres.url(), ids::team("a"), ids::agent("team-a", "helper"));
    let (password, sslmode, run) = (None, None, PodRun::default());
    Store::open(&Options { url, password, sslmode, team, agent_id, migrate: false, prepared_statements: false, run }).unwrap()
}

/// A question whose answer was marked badly, in a conversation of the trace's name.
async fn disliked(postgres: &Postgres, trace: &str, question: &str) {
    let (store, turn) = (store(postgres), Turn::new(trace));
    store.begin_turn(&turn, question, NewMessage::new(Role::User, question).with_trace(trace), 0).await.unwrap();
    store.finish_turn(&turn, vec![NewMessage::new(Role::Assistant, "yes").with_trace(trace)]).await.unwrap();
    let mark = Feedback { user: "user_1".into(), trace: Some(trace.into()), name: "helpful".into(), ..Feedback::default() };
    let records = Reader::open(&postgres.url(), None, None).unwrap().of(&ids::team("a"), &ids::agent("team-a", "helper"), "a").unwrap();
    let trace = trace.to_owned();
    assert_eq!(records.give_feedback(&mark).await, Ok(Marked::Recorded { trace, appended: true }));
}

fn inputs(pod: &FakePod) -> Vec<Vec<String>> {
    let input = |case: &Value| case["input"].as_str().unwrap().to_owned();
    let cases = |request: &Value| request["dataset"]["cases"].as_array().unwrap().iter().map(input).collect();
    pod.requests.lock().unwrap().iter().map(cases).collect()
}

#[tokio::test]
async fn a_run_has_what_feedback_appended_before_it_began() {
    let postgres = Postgres::start();
    let pod = FakePod::open("127.77.19.9").await;
    let mut home = Home::within("127.77.19.9", &json!({}), Some(tenancy(&postgres).await));
    disliked(&postgres, "tr_1", "what?").await;
    disliked(&postgres, "tr_2", "why?").await;
    home.reconcile().await;
    assert_eq!(inputs(&pod), [["one", "two", "what?", "why?"]]);
    let metadata = pod.requests.lock().unwrap()[0]["dataset"]["cases"][2]["metadata"].clone();
    assert_eq!(metadata, json!({"source": "negative_feedback", "trace_id": "tr_1"}));
    let status = home.status();
    assert_eq!((&status["totalCases"], &status["feedbackCases"]), (&json!(4), &json!(2)), "{status:#}");
    let without = Home::new("127.77.19.9", &json!({}));
    without.reconcile().await;
    assert_eq!(status["datasetDigest"], without.status()["datasetDigest"], "it is the dataset's alone");

    // A later mark changes nothing, also when another manager sends the run once more.
    disliked(&postgres, "tr_3", "how?").await;
    pod.restart();
    home.take_over();
    home.reconcile().await;
    assert_eq!(inputs(&pod).last().unwrap(), &["one", "two", "what?", "why?"]);
    // Results count though a question is gone, and though the database is away.
    assert!(store(&postgres).delete_conversation("tr_1").await.unwrap());
    postgres.stop();
    let results: Vec<_> = (0..4).map(|case| result(case, "scored", Some(if case == 2 { 0.5 } else { 1.0 }))).collect();
    pod.say(ID, report(ID, "completed", &results));
    home.take_over();
    home.reconcile().await;
    let status = home.status();
    assert_eq!(
        (&status["phase"], &status["finishedCases"], &status["feedbackCases"]),
        (&json!("Completed"), &json!(4), &json!(2)),
        "{status:#}"
    );
    let worst = &status["worstCases"][0];
    assert_eq!((&worst["case"], &worst["source"]), (&json!(2), &json!("negative_feedback")), "{worst}");
}

#[tokio::test]
async fn a_run_without_feedback_and_one_for_a_release_have_the_datasets_cases_alone() {
    let postgres = Postgres::start();
    let pod = FakePod::open("127.77.19.10").await;
    tenancy(&postgres).await;
    disliked(&postgres, "tr_1", "what?").await;
    for (spec, agent) in [
        (json!({"excludeFeedback": true}), json!({})),
        (json!({"release": "helper-v1"}), json!({})),
        (json!({}), json!({"storage": "memory"})),
    ] {
        pod.restart();
        let home = Home::within("127.77.19.10", &spec, Some(tenancy(&postgres).await));
        home.agent(&agent);
        home.pod("127.77.19.10", "h1");
        home.reconcile().await;
        assert_eq!(inputs(&pod).last().unwrap(), &["one", "two"], "{spec} {agent}");
        assert_eq!(home.status()["feedbackCases"], 0, "{spec} {agent}");
        let asked = pod.requests.lock().unwrap().last().unwrap()["begins_anew"] == true;
        let is_trusted = spec["release"].is_null() && spec["excludeFeedback"].is_null();
        assert_eq!(asked, !is_trusted, "{spec}: what lies in the database decides nothing");
    }
}

#[tokio::test]
async fn a_run_waits_for_feedback_that_cannot_be_read() {
    let postgres = Postgres::start();
    let pod = FakePod::open("127.77.19.11").await;
    let home = Home::within("127.77.19.11", &json!({}), Some(tenancy(&postgres).await));
    postgres.stop();
    home.reconcile().await;
    assert_eq!((&home.status()["phase"], home.reason().as_str(), pod.asked("post")), (&json!("Pending"), "FeedbackUnavailable", 0));
}

#[tokio::test]
async fn a_run_that_was_begun_unnoticed_keeps_the_number_of_its_cases() {
    let postgres = Postgres::start();
    let pod = FakePod::open("127.77.19.12").await;
    let home = Home::within("127.77.19.12", &json!({}), Some(tenancy(&postgres).await));
    disliked(&postgres, "tr_1", "what?").await;
    let results: Vec<_> = (0..2).map(|case| result(case, "scored", Some(1.0))).collect();
    pod.say(ID, report(ID, "completed", &results));
    home.reconcile().await;
    assert_eq!((&home.status()["totalCases"], &home.status()["feedbackCases"]), (&json!(2), &json!(0)));
    home.reconcile().await;
    assert_eq!((&home.status()["phase"], &home.status()["finishedCases"]), (&json!("Completed"), &json!(2)), "{:#}", home.status());
}
