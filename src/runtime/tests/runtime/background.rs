//! Work behind the scenes, with another party's model server: what was learned, titles, suggestions,
//! and what memory does to the next answer.

use std::io::{Read, Write};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::json;
use slipway_peers::Postgres;

use crate::support::{Runtime, eventually, model, request};

const RULES: [(&str, &str); 5] = [
    ("", "Noted."),
    ("Ada prefers green tea", "Green tea, as ever."),
    ("You keep notes", r#"[{"content": "Ada prefers green tea.", "category": "preference"}, {"content": 1}]"#),
    ("title of at most six words", r#""Tea habits""#),
    ("up to three short messages", r#"["Which tea?", "Why?"]"#),
];

#[test]
fn a_turn_leaves_memories_a_title_and_suggestions() {
    let model = model((50, 5), &RULES);
    let base = format!("{}/v1", model.url());
    let folder = slipway_peers::minilm();
    let runtime = Runtime::with(&[
        ("RUNTIME_MODEL_TYPE", "openai"),
        ("RUNTIME_MODEL_ID", "main"),
        ("RUNTIME_BACKGROUND_MODEL", "openai:small"),
        ("OPENAI_BASE_URL", &base),
        ("OPENAI_API_KEY", "none"),
        ("RUNTIME_EMBEDDING_MODEL", "builtin:all-minilm-l6-v2"),
        ("RUNTIME_EMBEDDING_DIR", folder.to_str().unwrap()),
        ("RUNTIME_SUGGESTIONS_PROVIDER", "llm"),
    ]);
    let events = runtime.stream(&json!({"message": "I only drink green tea.", "conversation_id": "conv_tea"}));
    let kinds: Vec<_> = events.iter().rev().take(2).map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["done", "suggestions"], "{events:?}");
    assert_eq!(events[events.len() - 2]["suggestions"], json!(["Which tea?", "Why?"]));
    assert_eq!(runtime.get("/suggestions?conversation_id=conv_tea"), json!({"suggestions": ["Which tea?", "Why?"]}));

    let memory = eventually("a memory", || runtime.get("/memory")["data"].get(0).cloned());
    assert_eq!(
        (&memory["content"], &memory["category"], &memory["source"]),
        (&json!("Ada prefers green tea."), &json!("preference"), &json!("conv_tea"))
    );
    eventually("a title", || (runtime.get("/conversations/conv_tea")["title"] == "Tea habits").then_some(()));

    // Another conversation, other words: found by meaning, and told to the model.
    eventually("an answer with the memory in it, which may take longer to find than an answer waits", || {
        let answer = runtime.chat(&json!({"message": "What should I brew for Ada this morning?"}));
        (answer["output"] == "Green tea, as ever.").then_some(())
    });
    let unrelated = runtime.chat(&json!({"message": "How many bits has a byte?"}));
    assert_eq!(unrelated["output"], "Noted.", "{unrelated}");
    let (_, metrics) = runtime.send("GET /metrics", "", "");
    for line in [
        r#"slipway_runtime_memory_extractions_total{outcome="learned"}"#,
        r#"slipway_runtime_tokens_total{provider="openai",model="small",direction="output"}"#,
        r#"slipway_runtime_tokens_total{provider="openai",model="main",direction="input"}"#,
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
}

/// A scripted agent whose background model thinks up suggestions, with this number of milliseconds between two characters.
fn suggesting(pause: u32) -> (slipway_peers::Server, Runtime) {
    let model = model((1, pause), &RULES);
    let runtime = Runtime::with(&[
        ("RUNTIME_MODEL_ID", "stub-script"),
        ("RUNTIME_BACKGROUND_MODEL", "openai:small"),
        ("OPENAI_BASE_URL", &format!("{}/v1", model.url())),
        ("OPENAI_API_KEY", "none"),
        ("RUNTIME_SUGGESTIONS_PROVIDER", "llm"),
    ]);
    (model, runtime)
}

const SUGGESTIONS: &str = "/suggestions?conversation_id=conv_1";

#[test]
fn a_question_without_an_answer_suggests_nothing() {
    let (_model, runtime) = suggesting(1);
    runtime.chat(&json!({"message": "text well", "conversation_id": "conv_1"}));
    assert_eq!(runtime.get(SUGGESTIONS)["suggestions"], json!(["Which tea?", "Why?"]));
    // The conversation ends with what was said before it broke off, and what was suggested is of before that.
    let (head, _) = runtime.post("/chat", r#"{"message": "fail broken", "conversation_id": "conv_1"}"#);
    assert!(head.starts_with("http/1.1 502"), "{head}");
    assert_eq!(runtime.get(SUGGESTIONS)["suggestions"], json!([]));
    runtime.chat(&json!({"message": "text better", "conversation_id": "conv_1"}));
    assert_eq!(runtime.get(SUGGESTIONS)["suggestions"], json!(["Which tea?", "Why?"]));
    runtime.send("DELETE /conversations/conv_1", "", "");
    assert_eq!(runtime.get(SUGGESTIONS)["suggestions"], json!([]));
}

#[test]
fn nobody_waits_long_for_suggestions_and_who_left_not_at_all() {
    let (_model, runtime) = suggesting(1000);
    let used = || runtime.metric(r#"tokens_total{provider="openai",model="small",direction="input"}"#);
    let mut stream = runtime.connect();
    let body = json!({"message": "text well", "conversation_id": "conv_1"}).to_string();
    stream.write_all(request("POST /chat/stream", "content-type: application/json\r\n", &body).as_bytes()).unwrap();
    let mut seen = String::new();
    while !seen.contains("well") {
        let mut bytes = [0; 512];
        let count = stream.read(&mut bytes).unwrap();
        seen.push_str(&String::from_utf8_lossy(&bytes[..count]));
    }
    // The model is being asked: longer than a turn takes, shorter than the patience.
    sleep(Duration::from_millis(700));
    assert_eq!(used(), None);
    let left = Instant::now();
    drop(stream);
    eventually("an end of the question", used);
    assert!(left.elapsed() < Duration::from_millis(1800), "{:?}", left.elapsed());

    let asked = Instant::now();
    assert_eq!(runtime.get(SUGGESTIONS)["suggestions"], json!([]));
    assert!((2..6).contains(&asked.elapsed().as_secs()), "{:?}", asked.elapsed());
}

#[test]
fn a_whole_answer_does_not_wait_for_suggestions() {
    let (_model, runtime) = suggesting(1000);
    let asked = Instant::now();
    let answer = runtime.chat(&json!({"message": "text well", "conversation_id": "conv_1"}));
    assert_eq!(answer["output"], "well");
    assert!(asked.elapsed() < Duration::from_millis(1500), "{:?}", asked.elapsed());
}

#[test]
fn a_missing_key_is_said_with_what_to_do_about_it() {
    let runtime = Runtime::with(&[("RUNTIME_MODEL_TYPE", "anthropic"), ("RUNTIME_MODEL_ID", "claude-sonnet-4-5")]);
    let (head, body) = runtime.post("/chat", r#"{"message": "hello"}"#);
    assert!(head.starts_with("http/1.1 502") && body.contains("ANTHROPIC_API_KEY"), "{head}{body}");
    let events = runtime.stream(&json!({"message": "hello"}));
    assert_eq!(events.last().unwrap()["type"], "error");
}

#[test]
fn usage_is_written_by_the_minute_and_at_the_end() {
    let postgres = Postgres::start();
    let mut runtime = Runtime::with(&[
        ("RUNTIME_STORAGE", "postgresql"),
        ("RUNTIME_DATABASE_URL", &postgres.url()),
        ("RUNTIME_DATABASE_MIGRATE", "true"),
        ("RUNTIME_AGENT_ID", "ag_1"),
        ("RUNTIME_TRACK", "stable"),
        ("RUNTIME_RUN_HASH", "9f2c"),
    ]);
    for _ in 0..3 {
        runtime.chat(&json!({"message": "one two three"}));
    }
    runtime.terminate();
    assert_eq!(runtime.wait().code(), Some(0));
    let sums = "select sum(requests), sum(input_tokens), sum(output_tokens), count(distinct model), min(track), min(run_hash) from slipway.usage_by_run";
    assert_eq!(postgres.psql(sums).trim(), "3|9|12|1|stable|9f2c");
}
