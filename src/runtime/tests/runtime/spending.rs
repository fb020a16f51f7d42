//! What turns cost: of those that are cut off, of work behind the scenes, of a process before this one.

use std::io::{Read, Write};

use serde_json::{Value, json};
use slipway_peers::Postgres;

use crate::support::{Runtime, eventually, model, request};

const TOKENS: &str = r#"tokens_total{provider="openai",model="gpt-4o",direction="#;
const STORY: &str = "Once upon a time there was a story that took very long to tell, because nobody was in a hurry.";

fn agent(model: &slipway_peers::Server, more: &[(&str, &str)]) -> Runtime {
    let base = format!("{}/v1", model.url());
    let mut variables = vec![
        ("RUNTIME_MODEL_TYPE", "openai"),
        ("RUNTIME_MODEL_ID", "gpt-4o"),
        ("RUNTIME_BACKGROUND_MODEL", "stub:stub-echo"),
        ("OPENAI_BASE_URL", &base),
        ("OPENAI_API_KEY", "none"),
    ];
    variables.extend(more);
    Runtime::with(&variables)
}

fn tokens(runtime: &Runtime, direction: &str) -> f64 {
    runtime.metric(&format!("{TOKENS}\"{direction}\"}}")).unwrap_or_default()
}

/// What is known of a call whose provider has not counted it.
fn is_counted(runtime: &Runtime, usage: &Value) {
    for direction in ["input", "output"] {
        let told = usage[format!("{direction}_tokens")].as_f64().unwrap();
        assert!((2.0..60.0).contains(&told), "{direction}: {usage}");
        assert!((tokens(runtime, direction) - told).abs() < 0.5, "{direction}: {} in the metrics, {usage}", tokens(runtime, direction));
    }
    assert!(runtime.metric(r#"cost_usd_total{provider="openai",model="gpt-4o"}"#).unwrap() > 0.0);
}

#[test]
fn a_turn_that_runs_out_of_time_is_counted_and_billed() {
    let model = model((4, 100), &[("", STORY)]);
    let runtime = agent(&model, &[("RUNTIME_TURN_SECONDS", "1"), ("RUNTIME_GUARDS", r#"[{"name": "spend-limit", "usd": 0.000001}]"#)]);
    let answer = runtime.chat(&json!({"message": "Tell me a story, please."}));
    assert_eq!(answer["stop_reason"], "time_budget", "{answer}");
    is_counted(&runtime, &answer["usage"]);
    assert_eq!(runtime.metric(r#"model_calls_total{provider="openai",model="gpt-4o",outcome="cancelled"}"#), Some(1.0));
    let (head, body) = runtime.post("/chat", r#"{"message": "Another one."}"#);
    assert!(head.starts_with("http/1.1 429") && body.contains("spend-limit"), "{head}{body}");
}

#[test]
fn a_turn_that_a_guard_ends_is_counted() {
    let told = format!("The key is {}, and that is {STORY}", concat!("AKIA", "Z7QX3K5M2N4P6R8T"));
    let model = model((4, 20), &[("", &told)]);
    let runtime = agent(&model, &[("RUNTIME_GUARDS", r#"["secrets-scanner"]"#)]);
    let answer = runtime.chat(&json!({"message": "What is the key?"}));
    assert_eq!(answer["stop_reason"], "guard", "{answer}");
    is_counted(&runtime, &answer["usage"]);
}

#[test]
fn a_turn_whose_client_goes_is_counted() {
    let model = model((4, 100), &[("", STORY)]);
    let runtime = agent(&model, &[]);
    let mut stream = runtime.connect();
    let body = json!({"message": "Tell me a story, please.", "cancel_on_disconnect": true}).to_string();
    stream.write_all(request("POST /chat/stream", "content-type: application/json\r\n", &body).as_bytes()).unwrap();
    stream.read_exact(&mut [0; 300]).unwrap();
    drop(stream);
    eventually("a count", || (tokens(&runtime, "input") > 0.0 && tokens(&runtime, "output") > 0.0).then_some(()));
    assert_eq!(runtime.metric(r#"turns_total{outcome="cancelled"}"#), Some(1.0));
}

#[test]
fn a_turn_that_breaks_on_the_way_is_counted_and_one_that_is_refused_is_not() {
    let runtime = Runtime::with(&[("RUNTIME_MODEL_ID", "stub-script")]);
    let tokens = |direction: &str| {
        runtime.metric(&format!(r#"tokens_total{{provider="stub",model="stub-script",direction="{direction}"}}"#)).unwrap()
    };
    runtime.post("/chat", r#"{"message": "fail overloaded"}"#);
    assert_eq!((tokens("input"), tokens("output")), (0.0, 0.0));
    runtime.post("/chat", r#"{"message": "text some words\nfail broken"}"#);
    assert!(tokens("input") > 0.0 && tokens("output") > 0.0);
}

#[test]
fn a_tool_that_is_cut_off_is_counted() {
    let nap = json!([{"name": "nap", "type": "cli", "category": "general", "binary": "/usr/bin/sleep", "allowedCommands": ["10"], "timeout": 20}]);
    let runtime =
        Runtime::with(&[("RUNTIME_MODEL_ID", "stub-script"), ("RUNTIME_STRATEGY", "agent-react"), ("RUNTIME_TOOLS", &nap.to_string())]);
    let mut stream = runtime.connect();
    let body = json!({"message": "call nap {}\n\ntext done", "cancel_on_disconnect": true}).to_string();
    stream.write_all(request("POST /chat/stream", "content-type: application/json\r\n", &body).as_bytes()).unwrap();
    let mut seen = String::new();
    while !seen.contains("tool_start") {
        let mut bytes = [0; 512];
        let count = stream.read(&mut bytes).unwrap();
        seen.push_str(&String::from_utf8_lossy(&bytes[..count]));
    }
    drop(stream);
    eventually("a count", || runtime.metric(r#"tool_calls_total{tool="nap",outcome="cancelled"}"#));
}

#[test]
fn a_restart_forgets_nothing_of_the_days_spending() {
    let (postgres, model) = (Postgres::start(), model((50, 5), &[("", STORY)]));
    let start = |agent_id: &str| {
        agent(
            &model,
            &[
                ("RUNTIME_STORAGE", "postgresql"),
                ("RUNTIME_DATABASE_URL", &postgres.url()),
                ("RUNTIME_DATABASE_MIGRATE", "true"),
                ("RUNTIME_AGENT_ID", agent_id),
                ("RUNTIME_GUARDS", r#"[{"name": "spend-limit", "usd": 0.0001}]"#),
            ],
        )
    };
    let mut first = start("ag_1");
    first.chat(&json!({"message": "Tell me a story, please."}));
    first.terminate();
    assert_eq!(first.wait().code(), Some(0));
    let again = start("ag_1");
    assert!(again.send("GET /readyz", "", "").0.starts_with("http/1.1 200"));
    let (head, body) = again.ask(&json!({"message": "Another one."}));
    assert!(head.starts_with("http/1.1 429") && body.contains("spend-limit"), "{head}{body}");
    // What one agent spent is not another's.
    start("ag_2").chat(&json!({"message": "Tell me a story, please."}));
}

#[test]
fn work_behind_the_scenes_counts_against_the_limit() {
    let model = model((50, 5), &[("", "[]")]);
    let runtime = agent(
        &model,
        &[
            ("RUNTIME_MODEL_TYPE", "stub"),
            ("RUNTIME_MODEL_ID", "stub-script"),
            ("RUNTIME_BACKGROUND_MODEL", "openai:gpt-4o"),
            ("RUNTIME_GUARDS", r#"[{"name": "spend-limit", "usd": 0.0001}]"#),
        ],
    );
    runtime.chat(&json!({"message": "text The stub costs nothing."}));
    eventually("a refusal", || runtime.post("/chat", r#"{"message": "text again"}"#).0.starts_with("http/1.1 429").then_some(()));
}
