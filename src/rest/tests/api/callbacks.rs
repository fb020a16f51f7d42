//! Callbacks of runtimes: REST passes them on with their token, and tells nobody more than the state role says.

use std::sync::{Arc, Mutex};

use reqwest::Method;
use serde_json::{Value, json};
use slipway_http::{Error, Reply, Request, ServerLimits, StatusCode, serve};
use slipway_rest::{Authentication, RestSettings, StateSettings};
use tokio::net::TcpListener;

use crate::{Api, settings};

const RUN: &str = "/agents/ag_1/evaluations/ev_1/result";
const RELEASE: &str = "/agents/ag_1/releases/3/eval-result";

/// REST with a state role that knows two tokens, and what that was asked.
async fn with_state() -> (Api, Arc<Mutex<Vec<Value>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let asked: Arc<Mutex<Vec<Value>>> = Arc::default();
    let noted = asked.clone();
    let handler = move |request: Request| {
        let noted = noted.clone();
        async move {
            assert_eq!((request.method(), request.path()), (&slipway_http::Method::POST, "/callbacks"));
            let call: Value = request.json().await?;
            noted.lock().unwrap().push(call.clone());
            match call["token"].as_str() {
                Some("good") => Reply::json(&json!({"noted": {"status": "running"}})),
                Some("used") => Err(Error::new(StatusCode::CONFLICT, "the token was used before")),
                _ => Reply::json(&json!("not_valid")),
            }
        }
    };
    tokio::spawn(serve(listener, ServerLimits::default(), handler, std::future::pending()));
    let state = StateSettings { url: Some(url), token_file: None };
    (Api::start(RestSettings { state, ..settings() }, Authentication::On(None)).await, asked)
}

fn body() -> Value {
    json!({"run_id": "ev_1", "status": "completed", "scores": {"safety/mean": 1.0}, "passed": true, "verdict": "PASSED"})
}

async fn post(api: &Api, path: &str, token: &str, body: Value) -> (u16, String) {
    let answer = api.call(Method::POST, path, &[("authorization", &format!("Bearer {token}"))], Some(body)).await;
    (answer.status.as_u16(), answer.body["message"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn a_callback_is_passed_on_with_its_path_and_its_token_alone() {
    let (api, asked) = with_state().await;
    for path in [RUN, RELEASE] {
        let answer = api.call(Method::POST, path, &[("authorization", "Bearer good")], Some(body())).await;
        assert_eq!((answer.status.as_u16(), &answer.body["data"]), (200, &json!({"run_id": "ev_1", "status": "running"})));
        let passed_on = asked.lock().unwrap().pop().unwrap();
        assert_eq!(passed_on, json!({"path": format!("/api/v1{path}"), "token": "good", "body": body()}));
    }
    assert_eq!(post(&api, RUN, "used", body()).await, (409, "the token was used before".to_owned()));
    assert_eq!(api.cluster.reviews(), 0, "no user is looked for");
}

#[tokio::test]
async fn what_is_wrong_sounds_alike_whatever_there_is() {
    let (api, asked) = with_state().await;
    assert_eq!(
        api.call(
            Method::POST,
            "/agents",
            &[("authorization", "Bearer ada@example.com"), ("x-team", "a")],
            Some(json!({"name": "helper", "framework": "custom"}))
        )
        .await
        .status,
        201
    );
    let mut answers = Vec::new();
    for path in [RUN, RELEASE, "/agents/helper/evaluations/ev_1/result", "/agents/nobody/releases/latest/eval-result"] {
        for token in ["wrong", "ada@example.com"] {
            answers.push(post(&api, path, token, body()).await);
        }
    }
    answers.dedup();
    assert_eq!(answers, [(401, "the token is not valid for this callback, or no longer".to_owned())]);
    asked.lock().unwrap().clear();
    let without = api.call(Method::POST, RUN, &[], Some(body())).await;
    assert_eq!(without.status, 401, "{}", without.body);
    for (what, sent, status) in [
        ("a field too many", json!({"approve": true}), 400),
        ("no number", json!({"scores": {"safety/mean": "1"}}), 400),
        ("too long", json!({"verdict": "x".repeat(70_000)}), 413),
    ] {
        let mut body = body();
        body.as_object_mut().unwrap().extend(sent.as_object().unwrap().clone());
        assert_eq!(post(&api, RUN, "good", body).await.0, status, "{what}");
    }
    assert_eq!(asked.lock().unwrap().len(), 0, "the state role is not asked");
}

#[tokio::test]
async fn wrong_tokens_are_limited_and_keep_no_user_out() {
    let (api, _) = with_state().await;
    let mut statuses = Vec::new();
    for _ in 0..60 {
        statuses.push(post(&api, RUN, "wrong", body()).await.0);
    }
    assert!(statuses.contains(&401) && statuses.last() == Some(&429), "{statuses:?}");
    let user = api.call(Method::GET, "/agents", &[("authorization", "Bearer ada@example.com"), ("x-team", "a")], None).await;
    assert_eq!(user.status, 200, "{}", user.body);
    // One that is right gives back what it takes.
    let (api, _) = with_state().await;
    for _ in 0..120 {
        assert_eq!(post(&api, RUN, "good", body()).await.0, 200);
    }
}
