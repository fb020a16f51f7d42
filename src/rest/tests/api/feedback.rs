//! Marks for answers, in a real PostgreSQL.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};
use slipway_database::{NewMessage, Options, PodRun, Role, Store, Turn, migrate};
use slipway_mlflow::{Mlflow, trace_id};
use slipway_peers::{Postgres, Server};
use slipway_rest::{Authentication, PlatformSettings, RestSettings};

use crate::{Api, ApiAnswer, settings};

const ADA: [(&str, &str); 2] = [("authorization", "Bearer ada@example.com"), ("x-team", "a")];

async fn with(postgres: &Postgres, authentication: Authentication) -> Api {
    let platform = PlatformSettings::new(None, Some(&postgres.url()));
    Api::start(RestSettings { platform, ..settings() }, authentication).await
}

/// A turn with that trace, in a conversation of its own.
async fn talk(postgres: &Postgres, agent: &str, trace: &str, text: &str) {
    talk_of(postgres, "tk_a", agent, trace, text).await;
}

async fn talk_of(postgres: &Postgres, team: &str, agent: &str, trace: &str, text: &str) {
    let (url, team, agent_id) = (postgres.url(), team.to_owned(), agent.to_owned());
    let (password, sslmode, run) = (None, None, PodRun::default());
    let options = Options { url, password, sslmode, team, agent_id, migrate: false, prepared_statements: false, run };
    let store = Store::open(&options).unwrap();
    let turn = Turn::new(format!("conv_{trace}"));
    store.begin_turn(&turn, text, NewMessage::new(Role::User, text).with_trace(trace), 0).await.unwrap();
    store.finish_turn(&turn, vec![NewMessage::new(Role::Assistant, "yes").with_trace(trace)]).await.unwrap();
}

async fn mark(api: &Api, body: Value) -> ApiAnswer {
    api.call(Method::POST, "/feedback", &ADA, Some(body)).await
}

fn says(answer: &ApiAnswer) -> (u16, &str) {
    (answer.status.as_u16(), answer.body["message"].as_str().unwrap_or_default())
}

#[tokio::test]
async fn an_answer_is_marked_and_a_bad_one_becomes_a_case() {
    let postgres = Postgres::start();
    migrate(&postgres.url(), None, None).await.unwrap();
    let api = with(&postgres, Authentication::Off).await;
    let id = api.agent("Helper", &[]).await.body["data"]["id"].as_str().unwrap().to_owned();
    talk(&postgres, &id, "tr_1", "What is tea?").await;

    let bad = json!({"agent_id": "helper", "trace_id": "tr_1", "name": "helpful", "value": 2, "source": "human", "comment": "vague"});
    let recorded = |value: f64, appended: bool| json!({"status": "recorded", "trace_id": "tr_1", "name": "helpful", "value": value, "proxied": false, "dataset_appended": appended});
    let first = mark(&api, bad.clone()).await;
    assert_eq!((first.status.as_u16(), &first.body), (200, &recorded(2.0, true)));
    let again =
        mark(&api, json!({"agent_id": id, "trace_id": "tr_1", "name": "helpful", "value": 0.6, "conversation_id": "conv_tr_1"})).await;
    assert_eq!((again.status.as_u16(), &again.body), (200, &recorded(0.6, false)));
    let rows = "SELECT value, scale, negative, user_id LIKE 'user_%' FROM slipway.feedback";
    assert_eq!(postgres.psql(rows).trim(), "0.6|1|f|t");
    assert_eq!(postgres.psql("SELECT input FROM slipway.feedback_cases").trim(), "What is tea?");

    for (change, status, words) in [
        (json!({"trace_id": "tr_2"}), 404, "no stored answer"),
        (json!({"trace_id": null}), 400, "trace_id"),
        (json!({"agent_id": "nobody"}), 404, "there is no agent nobody"),
        (json!({"agent_id": null}), 400, "expected a string"),
        (json!({"value": 6}), 400, "value: must be from 0 to 5"),
        (json!({"input": "planted"}), 400, "unknown field `input`"),
    ] {
        let mut body = bad.clone();
        body.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let answer = mark(&api, body).await;
        let (got, message) = says(&answer);
        assert!(got == status && message.contains(words), "{change}: {got} {message}");
    }
    postgres.stop();
    let away = mark(&api, bad.clone()).await;
    assert_eq!((says(&away).0, away.headers["retry-after"].to_str().unwrap()), (503, "2"), "{}", away.body);
    postgres.restart();
    assert_eq!(mark(&api, bad).await.status, 200);
}

#[tokio::test]
async fn who_may_chat_with_one_agent_marks_that_agents_answers() {
    let postgres = Postgres::start();
    migrate(&postgres.url(), None, None).await.unwrap();
    let api = with(&postgres, Authentication::On(None)).await;
    for (name, trace) in [("Helper", "tr_1"), ("Other", "tr_2")] {
        let id = api.agent(name, &ADA).await.body["data"]["id"].as_str().unwrap().to_owned();
        talk(&postgres, &id, trace, "What is tea?").await;
    }
    let body = |agent: &str, trace: &str| json!({"agent_id": agent, "trace_id": trace, "name": "helpful", "value": 1});
    api.cluster.refuse_but_on(&[("create", "agents")], "helper");
    assert_eq!(mark(&api, body("helper", "tr_1")).await.status, 200);
    // Whatever is wrong with a call, without the right nothing else is told.
    for refused in [body("other", "tr_2"), body("nobody", "tr_1"), json!({"colour": 1})] {
        let answer = mark(&api, refused.clone()).await;
        let (status, message) = says(&answer);
        assert!(status == 403 && message.contains("may not create agents/chat"), "{refused}: {status} {message}");
    }
    // With it, what is wrong is told.
    assert_eq!(mark(&api, body("helper", "tr_2")).await.status, 404);
    assert_eq!(postgres.psql("SELECT count(*) FROM slipway.feedback").trim(), "1");
}

#[tokio::test]
async fn a_trace_of_another_team_is_not_found() {
    let postgres = Postgres::start();
    migrate(&postgres.url(), None, None).await.unwrap();
    let api = with(&postgres, Authentication::Off).await;
    let id = api.agent("Helper", &[]).await.body["data"]["id"].as_str().unwrap().to_owned();
    talk(&postgres, &id, "tr_1", "Ours?").await;
    talk_of(&postgres, "tk_b", &id, "tr_2", "Theirs?").await;
    let body = |trace: &str| json!({"agent_id": id, "trace_id": trace, "name": "helpful", "value": 0});
    let theirs = mark(&api, body("tr_2")).await;
    assert_eq!((says(&theirs).0, says(&mark(&api, body("tr_9")).await)), (404, says(&theirs)), "as if there were none: {}", theirs.body);
    assert_eq!(mark(&api, body("tr_1")).await.status, 200);
    assert_eq!(postgres.psql("SELECT input FROM slipway.feedback_cases").trim(), "Ours?");
}

#[tokio::test]
async fn without_a_stored_answer_the_reason_is_told() {
    let postgres = Postgres::start();
    migrate(&postgres.url(), None, None).await.unwrap();
    let (api, without) = (with(&postgres, Authentication::Off).await, Api::open().await);
    for (api, storage, words) in
        [(&api, json!({"storage": "memory"}), "storage is memory"), (&without, json!({}), "no connection to the database")]
    {
        let mut agent = json!({"name": "Helper", "framework": "custom"});
        agent.as_object_mut().unwrap().extend(storage.as_object().unwrap().clone());
        assert_eq!(api.call(Method::POST, "/agents", &[], Some(agent)).await.status, 201);
        let answer = mark(api, json!({"agent_id": "helper", "trace_id": "tr_1", "name": "helpful", "value": 1})).await;
        let (status, message) = says(&answer);
        assert!(status == 503 && message.contains(words), "{status} {message}");
    }
}

#[tokio::test]
async fn marks_of_one_caller_have_a_rate() {
    let postgres = Postgres::start();
    migrate(&postgres.url(), None, None).await.unwrap();
    let api = with(&postgres, Authentication::Off).await;
    let id = api.agent("Helper", &[]).await.body["data"]["id"].as_str().unwrap().to_owned();
    talk(&postgres, &id, "tr_1", "What is tea?").await;
    let body = json!({"agent_id": "helper", "trace_id": "tr_1", "name": "helpful", "value": 1});
    let mut statuses = Vec::new();
    let mut last = None;
    for _ in 0..80 {
        let answer = mark(&api, body.clone()).await;
        statuses.push(answer.status.as_u16());
        last = Some(answer);
        if statuses.last() == Some(&429) {
            break;
        }
    }
    assert!(statuses.len() > 30 && statuses.last() == Some(&429), "{statuses:?}");
    assert!(last.unwrap().headers.contains_key("retry-after"));
}

/// A span of a trace, as a pod of the agent sends it.
async fn span(mlflow: &Server, trace: &str, agent_id: &str) {
    let experiment = Mlflow::new(mlflow.url(), None).unwrap().experiment("helper").await.unwrap();
    let tag = json!({"key": "mlflow.traceTag.slipway.agent_id", "value": {"stringValue": agent_id}});
    let span = json!({"attributes": [tag], "traceId": trace_id(trace).unwrap().trim_start_matches("tr-"), "spanId": "00f067aa0ba902b7",
        "name": "invoke_agent", "kind": 1, "startTimeUnixNano": "1795625611000000000", "endTimeUnixNano": "1795625612000000000"});
    let body = json!({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).to_string();
    let request = reqwest::Client::new().post(format!("{}/v1/traces", mlflow.url())).header("content-type", "application/json");
    assert_eq!(request.header("x-mlflow-experiment-id", experiment).body(body).send().await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_mark_is_proxied_when_mlflow_has_taken_it_and_is_recorded_all_the_same() {
    const OWN: &str = "tr_01ARZ3NDEKTSV4RRFFQ69G5FAV";
    const OTHERS: &str = "tr_01ARZ3NDEKTSV4RRFFQ69G5FAW";
    let (postgres, mlflow) = (Postgres::start(), slipway_peers::mlflow());
    migrate(&postgres.url(), None, None).await.unwrap();
    let nobody = format!("http://127.0.0.1:{}", slipway_peers::free_port());
    let platform = PlatformSettings::new(Some(nobody), Some(&postgres.url()));
    let api = Api::start(RestSettings { platform, ..settings() }, Authentication::Off).await;
    let id = api.agent("Helper", &[]).await.body["data"]["id"].as_str().unwrap().to_owned();
    for trace in [OWN, OTHERS] {
        talk(&postgres, &id, trace, "What is tea?").await;
    }
    let proxied = async |trace: &str, value: f64, comment: &str| {
        let body = json!({"agent_id": "helper", "trace_id": trace, "name": "helpful", "value": value, "scale": 5, "comment": comment});
        let answer = mark(&api, body).await;
        assert_eq!((answer.status.as_u16(), &answer.body["value"]), (200, &json!(value)), "{}", answer.body);
        answer.body["proxied"].as_bool().unwrap()
    };
    let of_mlflow = |uri: &str| {
        let change = json!({"data": {"mlflow_uri": uri}});
        api.cluster.set("/api/v1/namespaces/slipway-system/configmaps/slipway-platform", change);
    };
    let due = || postgres.psql("SELECT string_agg(trace_id, ',' ORDER BY trace_id) FROM slipway.feedback WHERE due_at IS NOT NULL");
    assert!(!proxied(OWN, 1.0, "nobody listens").await);

    // One that says nothing does not keep the caller.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    of_mlflow(&format!("http://{}", silent.local_addr().unwrap()));
    let begun = Instant::now();
    assert!(!proxied(OWN, 1.0, "nobody answers").await);
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());

    // The first answer of MLflow comes late.
    span(&mlflow, OTHERS, "ag_of_another").await;
    of_mlflow(mlflow.url());
    assert!(!proxied(OWN, 1.0, "the trace is not there yet").await);
    assert!(!proxied(OTHERS, 1.0, "the trace is of another agent").await);
    assert_eq!(due().trim(), format!("{OWN},{OTHERS}"));
    span(&mlflow, OWN, &id).await;
    for (value, comment) in [(2.0, "vague"), (4.0, "better")] {
        let begun = Instant::now();
        // MLflow can be slow on a machine that is busy.
        while !proxied(OWN, value, comment).await {
            assert!(begun.elapsed() < Duration::from_secs(30), "{comment}");
        }
    }
    assert_eq!(due().trim(), OTHERS);

    let script = slipway_peers::repository().join("src/mlflow/tests/read.py");
    let output = slipway_peers::python(&script, &[mlflow.url(), "helper"], &[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let seen: Value = serde_json::from_slice(&output.stdout).unwrap();
    let [only] = seen["traces"][trace_id(OWN).unwrap()].as_array().unwrap().as_slice() else { panic!("{seen:#}") };
    let user = postgres.psql("SELECT DISTINCT user_id FROM slipway.feedback");
    assert_eq!((&only["name"], &only["value"], &only["rationale"]), (&json!("helpful"), &json!(4.0), &json!("better")));
    assert_eq!(only["source"], json!(["HUMAN", user.trim()]));
    assert_eq!(seen["traces"][trace_id(OTHERS).unwrap()], json!([]));
    let text = api.rest.metrics();
    assert!(text.contains("slipway_rest_feedback_deliveries_total{outcome=\"delivered\"} 2"), "{text}");
    assert!(text.contains("slipway_rest_feedback_deliveries_total{outcome=\"failed\"}"), "{text}");
}
