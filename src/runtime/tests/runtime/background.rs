//! Work behind the scenes, with another party's model server: what was learned, titles, suggestions,
//! and what memory does to the next answer.

use serde_json::json;
use slipway_peers::{Postgres, mock_llm};

use crate::support::{Runtime, eventually};

/// Later rules win: the answer to a person, and those to what the runtime itself asks.
const MODEL: &str = r#"
rules:
  - path: "/v1/chat/completions"
    match: "@"
    response:
      status: 200
      content: '{"id": "1", "object": "chat.completion", "model": "m", "choices": [{"index": 0, "message": {"role": "assistant", "content": "Noted."}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 20, "completion_tokens": 2, "total_tokens": 22}}'
  - path: "/v1/chat/completions"
    match: "contains(body.messages[0].content, 'Ada prefers green tea')"
    response:
      status: 200
      content: '{"id": "1", "object": "chat.completion", "model": "m", "choices": [{"index": 0, "message": {"role": "assistant", "content": "Green tea, as ever."}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25}}'
  - path: "/v1/chat/completions"
    match: "contains(body.messages[0].content, 'You keep notes')"
    response:
      status: 200
      content: '{"id": "1", "object": "chat.completion", "model": "m", "choices": [{"index": 0, "message": {"role": "assistant", "content": "[{\"content\": \"Ada prefers green tea.\", \"category\": \"preference\"}, {\"content\": 1}]"}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 20, "completion_tokens": 2, "total_tokens": 22}}'
  - path: "/v1/chat/completions"
    match: "contains(body.messages[0].content, 'title of at most six words')"
    response:
      status: 200
      content: '{"id": "1", "object": "chat.completion", "model": "m", "choices": [{"index": 0, "message": {"role": "assistant", "content": "\"Tea habits\""}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 20, "completion_tokens": 2, "total_tokens": 22}}'
  - path: "/v1/chat/completions"
    match: "contains(body.messages[0].content, 'up to three short messages')"
    response:
      status: 200
      content: '{"id": "1", "object": "chat.completion", "model": "m", "choices": [{"index": 0, "message": {"role": "assistant", "content": "[\"Which tea?\", \"Why?\"]"}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 20, "completion_tokens": 2, "total_tokens": 22}}'
"#;

#[test]
fn a_turn_leaves_memories_a_title_and_suggestions() {
    let model = mock_llm(MODEL);
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
    let answer = runtime.chat(&json!({"message": "What should I brew for Ada this morning?"}));
    assert_eq!(answer["output"], "Green tea, as ever.", "{answer}");
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
    ]);
    for _ in 0..3 {
        runtime.chat(&json!({"message": "one two three"}));
    }
    runtime.terminate();
    assert_eq!(runtime.wait().code(), Some(0));
    let sums = "select sum(requests), sum(input_tokens), sum(output_tokens), count(distinct model) from slipway.usage_minutes";
    assert_eq!(postgres.psql(sums).trim(), "3|9|12|1");
}
