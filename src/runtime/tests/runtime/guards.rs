//! Guards at work: on what comes in, on what goes out, and on how much.

use serde_json::json;

use crate::support::Runtime;

#[test]
fn personal_data_is_masked_before_it_is_kept() {
    let runtime = Runtime::with(&[("RUNTIME_GUARDS", r#"["pii-detection"]"#)]);
    let events = runtime.stream(&json!({"message": "Write to ada.lovelace@example.org please", "conversation_id": "conv_pii"}));
    let guard = events.iter().find(|event| event["type"] == "guard").unwrap();
    assert_eq!((&guard["guard"], &guard["action"], &guard["side"]), (&json!("pii-detection"), &json!("mask"), &json!("input")), "{guard}");
    let done = events.last().unwrap();
    assert_eq!(done["content"], "Echo: Write to [EMAIL] please");
    let kept = runtime.get("/conversations/conv_pii").to_string();
    assert!(!kept.contains("lovelace@"), "{kept}");
    let (_, metrics) = runtime.send("GET /metrics", "", "");
    assert!(metrics.contains("pii-detection") && !metrics.contains("lovelace"), "{metrics}");
}

#[test]
fn a_secret_is_refused_and_nothing_of_it_is_kept() {
    let runtime = Runtime::with(&[("RUNTIME_GUARDS", r#"["secrets-scanner"]"#)]);
    // In two halves, so that scanners of this repository pass by.
    let key = concat!("AKIA", "Z7QX3K5M2N4P6R8T");
    let answer = runtime.chat(&json!({"message": format!("deploy with {key}"), "conversation_id": "conv_secret"}));
    assert_eq!((&answer["stop_reason"], &answer["guards"][0]["guard"]), (&json!("guard"), &json!("secrets-scanner")), "{answer}");
    assert!(!answer.to_string().contains(key), "{answer}");
    let (head, _) = runtime.send("GET /conversations/conv_secret", "", "");
    assert!(head.starts_with("http/1.1 404"), "{head}");
}

#[test]
fn an_answer_is_cut_where_a_secret_begins() {
    let runtime = Runtime::with(&[("RUNTIME_GUARDS", r#"["secrets-scanner"]"#), ("RUNTIME_MODEL_ID", "stub-script")]);
    // The script puts the key together, so that it is the model's and not the caller's.
    let events = runtime.stream(&json!({"message": "text the key is AKIA\u{200d}Z7QX3K5M2N4P6R8T and more"}));
    let text = events.iter().filter(|event| event["type"] == "token").map(|event| event["content"].as_str().unwrap()).collect::<String>();
    assert!(!text.contains(concat!("AKIA", "Z7QX3K5M2N4P6R8T")), "{events:?}");
}

#[test]
fn requests_over_the_rate_are_told_when_to_come_back() {
    let runtime = Runtime::with(&[("RUNTIME_GUARDS", r#"[{"name": "rate-limit", "requests": 2}]"#)]);
    for _ in 0..2 {
        runtime.chat(&json!({"message": "hello"}));
    }
    let (head, body) = runtime.post("/chat", r#"{"message": "hello"}"#);
    assert!(head.starts_with("http/1.1 429") && head.contains("\r\nretry-after: "), "{head}{body}");
}

#[test]
fn a_message_full_of_findings_is_answered_like_any_other() {
    let runtime = Runtime::with(&[("RUNTIME_GUARDS", r#"["pii-detection", "secrets-scanner"]"#)]);
    let addresses: Vec<_> = (0..100).map(|number| format!("person{number}@example.org")).collect();
    let message = format!("{} {}", addresses.join(" "), concat!("AKIA", "Z7QX3K5M2N4P6R8T"));
    let events = runtime.stream(&json!({"message": message}));
    assert!(events.iter().filter(|event| event["type"] == "guard").count() > 64, "{}", events.len());
    assert_eq!(events.last().unwrap()["stop_reason"], "guard");
}

#[test]
fn nobody_hears_of_a_tools_result_before_the_guards() {
    let runtime = Runtime::with(&[
        ("RUNTIME_GUARDS", r#"["pii-detection"]"#),
        ("RUNTIME_MODEL_ID", "stub-script"),
        ("RUNTIME_STRATEGY", "agent-react"),
        ("RUNTIME_TOOLS", r#"[{"name": "memory", "type": "builtin", "category": "general", "timeout": 5}]"#),
    ]);
    runtime.post("/memory", r#"{"content": "The contact for green tea is ada.lovelace@example.org"}"#);
    let events = runtime.stream(&json!({"message": "call search_memory {\"query\": \"green tea contact\"}\n\ntext {results}"}));
    let end = events.iter().find(|event| event["type"] == "tool_end").unwrap();
    assert!(end["content"].as_str().unwrap().contains("[EMAIL]"), "{end}");
    assert!(!json!(events).to_string().contains("lovelace@"), "{events:?}");
}

#[test]
fn guards_see_all_that_a_completion_brings_along() {
    let runtime = Runtime::with(&[("RUNTIME_GUARDS", r#"["secrets-scanner"]"#)]);
    let key = concat!("AKIA", "Z7QX3K5M2N4P6R8T");
    let last = json!({"role": "user", "content": "go on"});
    for first in [json!({"role": "user", "content": key}), json!({"role": "system", "content": key})] {
        let (head, body) = runtime.post("/v1/chat/completions", &json!({"messages": [first, last]}).to_string());
        assert!(head.starts_with("http/1.1 200") && body.contains("content_filter") && !body.contains(key), "{head}{body}");
    }
}

#[test]
fn words_before_a_tools_call_are_not_held_back() {
    let runtime = Runtime::with(&[
        ("RUNTIME_GUARDS", r#"["pii-detection"]"#),
        ("RUNTIME_MODEL_ID", "stub-script"),
        ("RUNTIME_STRATEGY", "agent-react"),
        ("RUNTIME_TOOLS", r#"[{"name": "datetime", "type": "builtin", "category": "general", "timeout": 5}]"#),
    ]);
    let events = runtime.stream(&json!({"message": "text Let me check\ncall datetime {}\n\ntext Done"}));
    let before: String =
        events.iter().take_while(|event| event["type"] != "tool_start").filter_map(|event| event["content"].as_str()).collect();
    assert_eq!(before, "Let me check");
    assert_eq!(events.last().unwrap()["content"], "Let me check\n\nDone");
}
