//! An evaluator before agents that are other processes: the smallest one, which is not ours, and our own.

use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::signature::KeyPair;
use serde_json::{Value, json};
use slipway_peers::{Postgres, Server, free_port};

use crate::control::{key, token};
use crate::evaluation::{Platform, request, score};
use crate::support::{Runtime, eventually, exchange, guarded_model, sessions_end, within};

struct Evaluator(Runtime);

impl Evaluator {
    fn start(variables: &[(&str, &str)]) -> Self {
        let public = STANDARD.encode(key(7).public_key());
        let own = [
            ("RUNTIME_CONTROL_PUBLIC_KEY", public.as_str()),
            ("RUNTIME_AGENT_ID", "ag_mine"),
            ("RUNTIME_TEAM", "red"),
            ("RUNTIME_EVALUATOR", "true"),
            ("RUNTIME_EVALUATED_MODEL", "openai:gpt-4o"),
        ];
        Self(Runtime::with(&[&own, variables].concat()))
    }

    fn ask_as(&self, audience: &str, line: &str, body: &Value) -> (u16, Value) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let claims = json!({"aud": audience, "iat": now.as_secs(), "exp": now.as_secs() + 50, "jti": now.as_nanos().to_string()});
        let headers = format!("content-type: application/json\r\n{}", token(&key(7), &json!({"alg": "EdDSA", "typ": "JWT"}), &claims));
        let stream = TcpStream::connect(self.0.control_address()).unwrap();
        let (head, answer) = exchange(stream, line, &headers, &if body.is_null() { String::new() } else { body.to_string() });
        (head[9..12].parse().unwrap(), serde_json::from_str(&answer).unwrap_or(Value::Null))
    }

    fn ask(&self, line: &str, body: &Value) -> (u16, Value) {
        self.ask_as("ag_mine/evaluator", line, body)
    }

    fn begin(&self, body: &Value) -> (u16, Value) {
        self.ask("POST /control/evaluate", body)
    }

    fn run(&self, body: &Value) -> Value {
        let (status, accepted) = self.begin(body);
        assert_eq!(status, 202, "{accepted}");
        let line = format!("GET /control/evaluations/{}", body["run_id"].as_str().unwrap());
        let ended = || Some(self.ask(&line, &Value::Null).1).filter(|report| report["status"] != "running");
        within(Duration::from_mins(2), "the end of a run", ended)
    }
}

/// A run of these cases of the agent at a URL.
fn of(url: &str, number: u32, scorers: &Value, cases: &Value) -> Value {
    let mut body = request(number, scorers, cases);
    body["target"] = json!(url);
    body
}

/// The agent of docs/custom-agent.py, which answers with what it heard, backwards.
fn smallest() -> (Server, String) {
    let port = free_port();
    let mut command = Command::new("python3");
    command.arg(slipway_peers::repository().join("docs/custom-agent.py")).env("RUNTIME_PORT", port.to_string());
    (Server::start(command, &format!("http://127.0.0.1:{port}/healthz")), format!("http://127.0.0.1:{port}"))
}

#[test]
fn the_smallest_agent_in_another_language_is_evaluated() {
    let (_agent, url) = smallest();
    let evaluator = Evaluator::start(&[]);
    let cases = json!([
        {"input": "abc", "expected_output": "cba"},
        {"input": "two words", "expected_output": "something else"},
        {"input": "rebmun-drac 1111 1111 1111 1114", "expected_output": "x"},
    ]);
    let report = evaluator.run(&of(&url, 1, &json!(["correctness", "tool_call_correctness", "retrieval_relevance"]), &cases));
    assert_eq!((&report["status"], &report["finished"]), (&json!("completed"), &json!(3)), "{report}");
    assert_eq!((&report["results"][0]["output"], &score(&report, 0, "correctness")["value"]), (&json!("cba"), &json!(1.0)), "{report}");
    assert!(score(&report, 1, "correctness")["value"].as_f64().is_some_and(|value| value < 1.0), "{report}");
    for scorer in ["tool_call_correctness", "retrieval_relevance"] {
        let found = score(&report, 0, scorer);
        assert_eq!((&found["state"], &found["value"]), (&json!("not_run"), &Value::Null), "nobody knows: {found}");
        assert!(found["reason"].as_str().unwrap().starts_with("the agent's image does not tell"), "{found}");
    }
    // What it says of itself, and what that costs by the model that it is said to have.
    let result = &report["results"][1];
    assert!(result["trace_id"].as_str().unwrap().starts_with("tr_") && result["agent_tokens"] == 4, "{result}");
    assert!(result["cost_usd"].as_f64().is_some_and(|cost| cost > 0.0), "{result}");
}

#[test]
fn a_judge_of_an_evaluator_knows_no_integration() {
    const VERDICT: &str = r#"{"verdict": "yes", "reason": "It is to the point."}"#;
    let ((integration, asked_there), (secrets, asked)) = (guarded_model(VERDICT), guarded_model(VERDICT));
    let evaluator = Evaluator::start(&[
        ("RUNTIME_MODEL_TYPE", "openai"),
        ("RUNTIME_MODEL_ID", "main"),
        ("RUNTIME_MODEL_BASE_URL", &integration),
        ("RUNTIME_MODEL_API_KEY", "sk-own"),
        ("OPENAI_BASE_URL", &secrets),
        ("OPENAI_API_KEY", "sk-other"),
    ]);
    let (_agent, url) = smallest();
    let mut body = of(&url, 1, &json!(["relevance_to_query"]), &json!([{"input": "abc"}]));
    body["judge_model"] = json!("openai:/gpt-4o");
    let report = evaluator.run(&body);
    assert_eq!(score(&report, 0, "relevance_to_query")["value"], 1.0, "{report}");
    assert_eq!(asked.try_iter().collect::<Vec<_>>(), [("bearer sk-other".to_owned(), "gpt-4o".to_owned())]);
    assert_eq!(asked_there.try_iter().count(), 0);
}

#[test]
fn our_own_runtime_is_scored_alike_from_within_and_from_another_pod() {
    let cases = json!([
        {"input": "What is the capital of France?", "expected_output": "Echo: What is the capital of France?"},
        {"input": "Water boils", "expected_output": "at 100 degrees", "context": "Physics </context> of water."},
        {"input": "third"},
    ]);
    let scorers = json!(["correctness", "safety", "relevance_to_query", "fluency"]);
    let within = Platform::agent(&[]);
    let own = within.run(&request(1, &scorers, &cases));
    let agent = Runtime::start();
    let found = Evaluator::start(&[]).run(&of(&agent.url(), 1, &scorers, &cases));
    for case in 0..3 {
        assert_eq!(
            (&found["results"][case]["output"], &found["results"][case]["scores"]),
            (&own["results"][case]["output"], &own["results"][case]["scores"]),
            "case {case}"
        );
    }
}

#[test]
fn an_evaluator_is_no_agent_and_an_agent_no_evaluator() {
    let (_agent, url) = smallest();
    let evaluator = Evaluator::start(&[]);
    let body = of(&url, 1, &json!(["safety"]), &json!([{"input": "abc"}]));
    assert_eq!(evaluator.ask_as("ag_mine", "POST /control/evaluate", &body).0, 401, "what the agent was sent does not open it");
    assert_eq!(evaluator.begin(&request(1, &json!(["safety"]), &json!([{"input": "abc"}]))).0, 400);
    assert_eq!(
        evaluator.begin(&of("http://helper:8000", 1, &json!(["safety"]), &json!([{"input": "abc"}]))).0,
        400,
        "it looks up no names"
    );
    for path in ["/chat", "/chat/stream", "/v1/chat/completions"] {
        let (head, _) = evaluator.0.post(path, r#"{"message": "hello"}"#);
        assert!(head.starts_with("http/1.1 404"), "{path}: {head}");
    }
    assert!(evaluator.0.send("GET /readyz", "", "").0.starts_with("http/1.1 200"));
    let line = "PUT /control/evaluations/ev_00000000000000000000000001";
    assert_eq!(evaluator.ask(line, &json!({"target": url})).0, 404, "there is no such run");
    assert_eq!(evaluator.run(&body)["status"], "completed");
    assert_eq!(evaluator.ask(line, &json!({"target": "http://169.254.169.254/latest"})).0, 400);
    assert_eq!(evaluator.ask(line, &json!({"target": url})).0, 200);
}

#[test]
fn a_run_goes_on_in_another_evaluator_and_at_another_pod() {
    let postgres = Postgres::start();
    let url = postgres.url();
    let variables = [("RUNTIME_STORAGE", "postgresql"), ("RUNTIME_DATABASE_URL", url.as_str())];
    // The tables are an agent's to make, or the operator's.
    let identity = [("RUNTIME_DATABASE_MIGRATE", "true"), ("RUNTIME_AGENT_ID", "ag_1"), ("RUNTIME_TEAM", "red")];
    let maker = Runtime::with(&[&variables[..], &identity].concat());
    maker.chat(&json!({"message": "hello"}));
    let has_tables = || postgres.psql("select to_regclass('slipway.evaluation_results') is not null").trim() == "t";
    eventually("the tables", || has_tables().then_some(()));
    drop(maker);
    let kept = || postgres.psql("select count(*) from slipway.evaluation_results").trim().parse::<u32>().unwrap_or_default();
    let pod = || Runtime::with(&[("RUNTIME_MODEL_ID", "stub-script")]);
    let cases: Value = (0..60).map(|case| json!({"input": format!("sleep 300\ntext number {case}")})).collect();
    let (first_pod, second_pod) = (pod(), pod());
    let first = Evaluator::start(&variables);
    let mut body = of(&first_pod.url(), 1, &json!(["safety"]), &cases);
    assert_eq!(first.begin(&body).0, 202);
    eventually("some results", || (kept() >= 10).then_some(()));
    drop(first);
    sessions_end(&postgres);
    let before = kept();
    assert!((10..60).contains(&before), "{before}");
    let when = "select md5(string_agg(place || created_at::text, ',' order by place)) from slipway.evaluation_results where place < 4";
    let written = postgres.psql(when);
    // The pod goes while the second one asks it, which learns where the other is.
    let second = Evaluator::start(&variables);
    assert_eq!(second.begin(&body).0, 202);
    eventually("further results", || (kept() > before).then_some(()));
    drop(first_pod);
    body["target"] = json!(second_pod.url());
    let line = format!("PUT /control/evaluations/{}", body["run_id"].as_str().unwrap());
    assert_eq!(second.ask(&line, &json!({"target": second_pod.url()})).0, 200);
    let report = second.run(&body);
    let results = report["results"].as_array().unwrap();
    assert_eq!((&report["status"], results.len()), (&json!("completed"), 60), "{report}");
    for (case, result) in results.iter().enumerate() {
        assert_eq!(result["output"], format!("number {case}"), "{result}");
    }
    assert_eq!((postgres.psql(when), kept()), (written, 60), "each case is scored once");
}
