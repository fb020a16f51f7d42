//! The quality-gate webhook: what Flagger is answered by what the state role and a real MLflow say, and that nothing but the
//! credential of the namespace opens a gate.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use slipway_api::agent::RiskProfile;
use slipway_api::ids;
use slipway_http::gate::CREDENTIAL_BYTES;
use slipway_http::{Error, Reply, Request, ServerLimits, StatusCode, serve};
use slipway_mlflow::{Facts, Mlflow, RunStatus};
use slipway_rest::{Authentication, PlatformSettings, RestSettings, StateSettings};
use tokio::net::TcpListener;

use crate::{Api, settings};

/// What the state role takes for the credential of namespace team-a.
const CREDENTIAL: &str = "hunter2-hunter2-hunter2-hunter2-hunter2-hun";
const ROUTE: &str = "/webhooks/canary-gate";
const RUNS: &str = "evaluationruns";

/// REST, and a state role with a fixed answer to every holder of the credential.
struct Gate {
    api: Api,
    answer: Arc<Mutex<Value>>,
    /// The path and body of each request of REST.
    asked: Arc<Mutex<Vec<(String, Value)>>>,
}

struct Told {
    status: u16,
    text: String,
    body: Value,
}

impl Told {
    /// Status and message, of an answer that is one of the two.
    fn says(&self) -> (u16, &str) {
        let status = if self.status == 200 { "ok" } else { "failed" };
        assert!([200, 412].contains(&self.status), "{} {}", self.status, self.text);
        assert_eq!(self.body["status"], status, "{}", self.text);
        assert_eq!(self.body.as_object().unwrap().len(), 2, "{}", self.text);
        assert!(!self.text.contains(CREDENTIAL), "{}", self.text);
        (self.status, self.body["message"].as_str().unwrap())
    }
}

impl Gate {
    async fn start(answer: Value, settings: RestSettings) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (answer, asked) = (Arc::new(Mutex::new(answer)), Arc::<Mutex<Vec<(String, Value)>>>::default());
        let (given, noted) = (answer.clone(), asked.clone());
        let handler = move |request: Request| {
            let (given, noted) = (given.clone(), noted.clone());
            async move {
                let path = request.path().to_owned();
                let call: Value = request.json().await?;
                noted.lock().unwrap().push((path.clone(), call.clone()));
                let answer = given.lock().unwrap().clone();
                if call["credential"] != CREDENTIAL || call["namespace"] != "team-a" {
                    return Reply::json(&json!("not_valid"));
                }
                match answer.as_u64() {
                    Some(status) => {
                        Err(Error::new(StatusCode::from_u16(u16::try_from(status).unwrap()).unwrap(), "the state role says no"))
                    }
                    None if path == "/gates" => Reply::json(&answer),
                    None => Reply::json(&json!("noted")),
                }
            }
        };
        tokio::spawn(serve(listener, ServerLimits::default(), handler, std::future::pending()));
        let state = StateSettings { url: Some(url), token_file: None };
        let api = Api::start(RestSettings { state, ..settings }, Authentication::On(None)).await;
        Self { api, answer, asked }
    }

    async fn with(answer: Value) -> Self {
        Self::start(answer, settings()).await
    }

    async fn send(&self, path: &str, headers: &[(&str, &str)], body: impl Into<reqwest::Body>) -> Told {
        let mut request = self.api.http.post(format!("http://{}/api/v1{path}", self.api.address)).body(body);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = request.send().await.unwrap();
        let status = answer.status().as_u16();
        let text = answer.text().await.unwrap();
        Told { status, body: serde_json::from_str(&text).unwrap_or_default(), text }
    }

    /// As Flagger asks, with the credential in the path.
    async fn ask(&self, body: &Value) -> Told {
        self.send(&format!("{ROUTE}/{CREDENTIAL}"), &[("content-type", "application/json")], body.to_string()).await
    }

    fn set(&self, answer: Value) {
        *self.answer.lock().unwrap() = answer;
    }

    fn last(&self) -> (String, Value) {
        self.asked.lock().unwrap().last().cloned().unwrap_or_default()
    }

    /// What the state role is told of an answer, which comes after the answer.
    async fn outcome(&self) -> Value {
        for _ in 0..200 {
            let place = self.asked.lock().unwrap().iter().position(|(path, _)| path == "/gates/outcome");
            if let Some(place) = place {
                return self.asked.lock().unwrap().remove(place).1;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        unreachable!("no outcome is told: {:?}", self.asked.lock().unwrap());
    }

    fn runs(&self) -> Vec<Value> {
        self.api.cluster.objects(RUNS)
    }
}

fn question() -> Value {
    json!({"name": "helper", "namespace": "team-a", "phase": "Progressing", "checksum": "85d557f47b", "metadata": {}})
}

fn scored(score: f64, passed: bool) -> Value {
    json!({"scored": {"score": score, "passed": passed}})
}

fn subject(profile: &str) -> Value {
    json!({"track": "canary", "run_hash": "h1", "profile": profile, "allow_heuristic": false})
}

fn no_score(next: &Value) -> Value {
    json!({"no_score": {"subject": subject("standard"), "next": next}})
}

fn of_mlflow(url: &str) -> RestSettings {
    RestSettings { platform: PlatformSettings::new(Some(url.to_owned()), None), ..settings() }
}

fn nobody() -> String {
    format!("http://127.0.0.1:{}", slipway_peers::free_port())
}

#[tokio::test]
async fn a_gate_opens_by_the_agents_own_evaluations() {
    let gate = Gate::with(Value::Null).await;
    for (answer, expected) in [
        (scored(0.85, true), (200, "Quality gate passed (score=0.85)")),
        (scored(0.6, true), (200, "Quality gate passed (score=0.60)")),
        (scored(0.5999, false), (412, "Quality gate failed (score=0.59)")),
        (scored(0.9, false), (412, "Quality gate failed (score=0.90)")),
        (json!("noted"), (200, "Noted")),
        (json!("not_valid"), (412, "The credential is not this namespace's")),
        (
            json!({"refused": {"why": "there is no such Agent in the namespace"}}),
            (412, "Quality gate failed: there is no such Agent in the namespace"),
        ),
        (no_score(&json!("nothing")), (412, "No score yet")),
        (no_score(&json!({"runs": "ev-1"})), (412, "No score yet; evaluation ev_1 is under way")),
        (
            no_score(&json!({"unanswered": "ev-1"})),
            (412, "No score yet; the agent gave evaluation ev_1 no answers, and it is not repeated"),
        ),
    ] {
        gate.set(answer.clone());
        assert_eq!(gate.ask(&question()).await.says(), expected, "{answer}");
    }
    assert!(gate.runs().is_empty(), "nothing is begun");
    assert_eq!(gate.api.cluster.reviews(), 0, "no user is looked for");
    let metrics = gate.api.rest.metrics();
    for (outcome, count) in [("passed", 2), ("failed", 2), ("noted", 1), ("not_valid", 1), ("refused", 1), ("no_score", 3)] {
        let line = format!("slipway_rest_canary_gates_total{{outcome=\"{outcome}\"}} {count}");
        assert!(metrics.lines().any(|found| found == line), "{line}\n{metrics}");
    }
}

#[tokio::test]
async fn every_phase_and_every_further_field_is_taken() {
    let gate = Gate::with(scored(0.9, true)).await;
    for phase in [
        "Initializing",
        "Initialized",
        "Waiting",
        "Progressing",
        "WaitingPromotion",
        "Promoting",
        "Finalising",
        "Succeeded",
        "Failed",
        "Terminating",
        "Terminated",
        "",
        "Sleeping",
    ] {
        let mut body = question();
        body["phase"] = json!(phase);
        assert_eq!(gate.ask(&body).await.says().0, 200, "{phase}");
        assert_eq!(gate.last().1["phase"], phase);
    }
    let more = json!({"name": "rollout", "namespace": "team-a", "phase": "Progressing", "failedChecks": 3, "iterations": [1, {"x": null}], "canaryWeight": 50,
        "metadata": {"agent": "helper", "test": "all", "cmd": "curl", "deep": {"er": [1]}}});
    assert_eq!(gate.ask(&more).await.says().0, 200);
    let expected = json!({"credential": CREDENTIAL, "namespace": "team-a", "agent": "helper", "phase": "Progressing", "is_event": false, "may_evaluate": true});
    assert_eq!(gate.last(), ("/gates".to_owned(), expected), "nothing else is passed on");
    for (metadata, is_event, may_evaluate) in [
        (json!({"hook": "rollout"}), false, true),
        (json!({"hook": "confirm-promotion"}), false, false),
        (json!({"eventType": "Warning", "eventMessage": "halt"}), true, true),
        (Value::Null, false, true),
    ] {
        let mut body = question();
        body["metadata"] = metadata;
        assert_eq!(gate.ask(&body).await.says().0, 200, "{body}");
        let (_, call) = gate.last();
        assert_eq!((&call["agent"], &call["is_event"], &call["may_evaluate"]), (&json!("helper"), &json!(is_event), &json!(may_evaluate)));
    }
}

#[tokio::test]
async fn whatever_is_wrong_with_a_call_keeps_the_gate_shut() {
    let gate = Gate::with(scored(0.9, true)).await;
    let (path, json_type) = (format!("{ROUTE}/{CREDENTIAL}"), [("content-type", "application/json")]);
    let good = question().to_string();
    let padded = |bytes: usize| {
        let mut body = question();
        body["metadata"] = json!({"pad": ""});
        body["metadata"]["pad"] = json!("x".repeat(bytes - body.to_string().len()));
        body.to_string()
    };
    assert_eq!(gate.send(&path, &json_type, padded(64 * 1024)).await.says().0, 200, "64 KiB are taken");
    let asked = gate.asked.lock().unwrap().len();
    for (what, path, headers, body) in [
        ("one byte more than 64 KiB", path.clone(), &json_type[..], padded(64 * 1024 + 1)),
        ("many more", path.clone(), &json_type, "[".repeat(3 * 1024 * 1024)),
        ("broken JSON", path.clone(), &json_type, "{\"name\": ".to_owned()),
        ("deep JSON", path.clone(), &json_type, "[".repeat(10_000)),
        ("a control character", path.clone(), &json_type, "{\"name\": \"\u{0}\"".to_owned()),
        ("a text", path.clone(), &json_type, "\"helper\"".to_owned()),
        ("a number for a name", path.clone(), &json_type, "{\"name\": 5}".to_owned()),
        ("no body", path.clone(), &json_type, String::new()),
        ("no type", path.clone(), &[], good.clone()),
        ("another type", path.clone(), &[("content-type", "text/plain")], good.clone()),
        ("a query", format!("{path}?phase=x"), &json_type, good.clone()),
        ("no credential", ROUTE.to_owned(), &json_type, good.clone()),
        ("a short credential", format!("{ROUTE}/{}", &CREDENTIAL[1..]), &json_type, good.clone()),
        ("a long credential", format!("{ROUTE}/{CREDENTIAL}x"), &json_type, good.clone()),
        ("a token", ROUTE.to_owned(), &[("content-type", "application/json"), ("authorization", "Bearer ada@example.com")], good.clone()),
    ] {
        let told = gate.send(&path, headers, body).await;
        assert_eq!(told.says().0, 412, "{what}");
        assert!(told.text.len() < 600, "{what}: {}", told.text);
    }
    assert_eq!(gate.asked.lock().unwrap().len(), asked, "the state role is not asked");
    for (what, path, body) in [
        ("another's namespace", path.clone(), json!({"name": "helper", "namespace": "team-b", "phase": "Progressing"})),
        ("no namespace", path.clone(), json!({"name": "helper"})),
        ("nothing", path.clone(), json!({})),
        ("another credential", format!("{ROUTE}/{}", "x".repeat(CREDENTIAL_BYTES)), question()),
    ] {
        let told = gate.send(&path, &json_type, body.to_string()).await;
        assert_eq!(told.says(), (412, "The credential is not this namespace's"), "{what}");
    }
    // Whatever the state role says that is no answer.
    for answer in [json!(400), json!(404), json!(409), json!(500), json!(503), json!("open"), json!({"scored": {}}), json!([])] {
        gate.set(answer.clone());
        assert_eq!(gate.ask(&question()).await.says(), (412, "The credential cannot be verified at the moment"), "{answer}");
    }
    let state = StateSettings { url: Some(nobody()), token_file: None };
    let api = Api::start(RestSettings { state, ..settings() }, Authentication::On(None)).await;
    let away = Gate { api, answer: Arc::default(), asked: Arc::default() };
    assert_eq!(away.ask(&question()).await.says(), (412, "The credential cannot be verified at the moment"));
    assert!(away.api.rest.metrics().contains("slipway_rest_canary_gates_total{outcome=\"unverified\"} 1"));
}

#[tokio::test]
async fn a_credential_may_be_user_information_of_the_url() {
    let gate = Gate::with(scored(0.9, true)).await;
    let url = format!("http://gate:{CREDENTIAL}@{}/api/v1{ROUTE}", gate.api.address);
    let answer = gate.api.http.post(url).header("content-type", "application/json").body(question().to_string()).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(gate.last().1["credential"], CREDENTIAL);
}

#[tokio::test]
async fn wrong_credentials_are_limited_and_keep_no_right_one_out() {
    let gate = Gate::with(scored(0.9, true)).await;
    assert_eq!(gate.ask(&question()).await.says().0, 200);
    let wrong = format!("{ROUTE}/{}", "x".repeat(CREDENTIAL_BYTES));
    let json_type = [("content-type", "application/json")];
    let mut limited = 0;
    for _ in 0..70 {
        let told = gate.send(&wrong, &json_type, question().to_string()).await;
        assert_eq!(told.says().0, 412);
        limited += usize::from(told.text.contains("too many tokens"));
    }
    assert!(limited > 0, "seventy in a row are too many");
    let asked = gate.asked.lock().unwrap().len();
    assert!(asked <= 70, "the state role is not asked by those: {asked}");
    assert_eq!(gate.ask(&question()).await.says().0, 200, "it was right a moment ago");
    // Right ones take nothing.
    let gate = Gate::with(scored(0.9, true)).await;
    for _ in 0..120 {
        assert_eq!(gate.ask(&question()).await.says().0, 200);
    }
    let user = gate.api.call(Method::GET, "/agents", &[("authorization", "Bearer ada@example.com"), ("x-team", "a")], None).await;
    assert_eq!(user.status, 200, "{}", user.body);
}

#[tokio::test]
async fn without_a_score_an_evaluation_is_begun_once() {
    let name = "ev-01jd8z7q3v5x9m2k4n6p8r0s1t";
    let gate = Gate::with(no_score(&json!({"make": name}))).await;
    let expected = (412, "No score yet; evaluation ev_01jd8z7q3v5x9m2k4n6p8r0s1t was started");
    for _ in 0..3 {
        assert_eq!(gate.ask(&question()).await.says(), expected);
        let outcome = json!({"credential": CREDENTIAL, "namespace": "team-a", "agent": "helper", "phase": "Progressing", "decision": {"started": name}});
        assert_eq!(gate.outcome().await, outcome);
    }
    let [run] = &gate.runs()[..] else { panic!("{:#?}", gate.runs()) };
    assert_eq!((&run["metadata"]["name"], &run["metadata"]["namespace"]), (&json!(name), &json!("team-a")));
    assert_eq!(run["metadata"]["labels"], json!({"agents.slipway.dev/agent": "helper"}));
    assert_eq!((&run["spec"]["agent"], &run["spec"]["track"]), (&json!("helper"), &json!("canary")));
    assert_eq!(run["spec"]["excludeFeedback"], true, "users who may chat decide nothing: {run}");
    assert!(run["spec"].get("release").is_none() && run["spec"].get("minQualityScore").is_none(), "it decides on no release: {run}");
    assert_eq!(gate.api.cluster.writers(RUNS).len(), 3, "asked again, it is made again, and is there");
    assert!(gate.api.cluster.writers(RUNS).iter().all(|(_, whom)| whom.is_empty()), "by REST itself");
}

#[tokio::test]
async fn a_rollback_hook_rolls_back_by_a_failed_score_alone() {
    let gate = Gate::start(Value::Null, of_mlflow(&nobody())).await;
    let mut body = question();
    body["metadata"] = json!({"hook": "rollback"});
    for (answer, status) in [
        (scored(0.9, true), 412),
        (scored(0.1, false), 200),
        (json!("noted"), 412),
        (json!("not_valid"), 412),
        (json!({"refused": {"why": "x"}}), 412),
        (no_score(&json!("nothing")), 412),
        (json!({"unknown": {"subject": null}}), 412),
        (json!(500), 412),
    ] {
        gate.set(answer.clone());
        assert_eq!(gate.ask(&body).await.says().0, status, "{answer}");
    }
}

#[tokio::test]
async fn mlflow_has_the_word_where_the_cluster_has_none() {
    let mlflow = slipway_peers::mlflow();
    let gate = Gate::start(Value::Null, of_mlflow(mlflow.url())).await;
    let client = Mlflow::new(mlflow.url(), None).unwrap();
    let experiment = client.experiment("helper").await.unwrap();
    let log = async |key: &str, agent: &str, provider: &str, safety: f64, at: i64| {
        let run = client.run(&experiment, key, key, at).await.unwrap();
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let params = vec![pair("run_hash", "h1"), pair("provider", provider)];
        let metrics = vec![("safety/mean".to_owned(), safety), ("correctness/mean".to_owned(), 0.7), ("score".to_owned(), 100.0)];
        client.log(&run, &Facts { params, metrics, tags: vec![pair("slipway.agent_id", agent)], at }).await.unwrap();
        client.end(&run, RunStatus::Finished, at).await.unwrap();
    };
    let unknown = json!({"unknown": {"subject": subject("standard")}});
    let waits = no_score(&json!("nothing"));
    for answer in [&unknown, &waits, &json!({"unknown": {"subject": null}})] {
        gate.set(answer.clone());
        assert_eq!(settled(&gate).await, (412, "No score yet".to_owned()), "it answers, and has none: {answer}");
    }
    let own = ids::agent("team-a", "helper");
    log("others", &ids::agent("team-b", "helper"), "slipway", 0.9, 9000).await;
    log("words", &own, "heuristic", 0.9, 8000).await;
    gate.set(waits.clone());
    assert_eq!(settled(&gate).await, (412, "No score yet".to_owned()), "another team's, and a comparison of words, do not count");
    log("first", &own, "slipway", 0.9, 1000).await;
    for answer in [&unknown, &waits] {
        gate.set(answer.clone());
        assert_eq!(settled(&gate).await, (200, "Quality gate passed (score=0.80)".to_owned()), "{answer}");
        assert_eq!(gate.outcome().await["decision"]["scored"]["passed"], true);
    }
    log("last", &own, "slipway", 0.5, 2000).await;
    assert_eq!(settled(&gate).await, (412, "Quality gate failed (score=0.60)".to_owned()), "safety is below its floor");
    gate.set(json!({"no_score": {"subject": subject("low"), "next": "nothing"}}));
    assert_eq!(settled(&gate).await, (200, "Quality gate passed (score=0.60)".to_owned()));
    assert!(gate.runs().is_empty());
}

/// An answer once MLflow has answered in time, which it does not at first on a machine that is busy.
async fn settled(gate: &Gate) -> (u16, String) {
    for _ in 0..20 {
        let told = gate.ask(&question()).await;
        let (status, message) = told.says();
        if !message.contains("MLflow unavailable") {
            return (status, message.to_owned());
        }
        gate.outcome().await;
    }
    unreachable!("MLflow is too slow")
}

#[tokio::test]
async fn a_gate_opens_by_default_when_nobody_answers_unless_shut() {
    let passed = (200, "Quality gate passed (MLflow unavailable, default approve)");
    let failed = (412, "Quality gate failed (MLflow unavailable)");
    let unknown = |profile: Option<&str>| json!({"unknown": {"subject": profile.map(subject)}});
    for (shut, profile, expected) in [
        (vec![], Some("high"), passed),
        (vec![], None, passed),
        (vec![RiskProfile::High], Some("high"), failed),
        (vec![RiskProfile::High], Some("standard"), passed),
        (vec![RiskProfile::High], None, failed),
    ] {
        for mlflow in [None, Some(nobody())] {
            let platform = PlatformSettings::new(mlflow.clone(), None);
            let gate = Gate::start(unknown(profile), RestSettings { platform, gate_fail_closed: shut.clone(), ..settings() }).await;
            assert_eq!(gate.ask(&question()).await.says(), expected, "{shut:?} {profile:?} {mlflow:?}");
            let word = if expected == passed { "default_approved" } else { "default_refused" };
            assert_eq!(gate.outcome().await["decision"], word);
            let line = format!("slipway_rest_canary_gates_total{{outcome=\"{word}\"}} 1");
            assert!(gate.api.rest.metrics().contains(&line), "{line}");
            // Where the cluster answers that there is no score, nothing opens by default.
            gate.set(no_score(&json!("nothing")));
            assert_eq!(gate.ask(&question()).await.says(), (412, "No score yet"));
        }
    }
}

#[tokio::test]
async fn an_mlflow_that_fails_has_not_answered() {
    for (status, expected) in [(500, (200, "Quality gate passed (MLflow unavailable, default approve)")), (400, (412, "No score yet"))] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let handler = move |_: Request| async move {
            let said = json!({"error_code": "SOME_ERROR", "message": "there is no database"});
            Ok::<Reply, Error>(Reply::json(&said)?.with_status(StatusCode::from_u16(status).unwrap()))
        };
        tokio::spawn(serve(listener, ServerLimits::default(), handler, std::future::pending()));
        let gate = Gate::start(json!({"unknown": {"subject": subject("standard")}}), of_mlflow(&url)).await;
        assert_eq!(gate.ask(&question()).await.says(), expected, "{status}");
    }
}

#[tokio::test]
async fn the_credential_is_in_no_error_and_no_metric() {
    let gate = Gate::with(scored(0.9, true)).await;
    gate.ask(&question()).await;
    for (method, path, status) in [
        (Method::GET, format!("{ROUTE}/{CREDENTIAL}"), 405),
        (Method::PUT, format!("{ROUTE}/{CREDENTIAL}"), 405),
        (Method::POST, format!("{ROUTE}/{CREDENTIAL}/"), 404),
        (Method::POST, format!("{ROUTE}/{CREDENTIAL}/{CREDENTIAL}"), 404),
        (Method::POST, format!("{ROUTE}/%ff{CREDENTIAL}"), 400),
        (Method::POST, format!("/{ROUTE}/{CREDENTIAL}"), 404),
    ] {
        let answer = gate.api.call(method.clone(), &path, &[], None).await;
        assert_eq!(answer.status.as_u16(), status, "{method} {path}");
        assert!(!answer.body.to_string().contains("hunter2"), "{}", answer.body);
        assert!(answer.body["path"].as_str().unwrap().ends_with("/webhooks/canary-gate/…"), "{}", answer.body);
    }
    let metrics = gate.api.rest.metrics();
    assert!(metrics.contains("route=\"/webhooks/canary-gate/{credential}\"") && !metrics.contains("hunter2"), "{metrics}");
}
