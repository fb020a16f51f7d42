//! Guards at work: on what comes in, on what goes out, and on how much.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use serde_json::json;

use crate::support::{Runtime, model};

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

/// A skill is the one thing that a tool reads here that no guard has seen before.
fn skilled(text: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("SKILL.md"), text).unwrap();
    let skills = json!([{"name": "contacts", "description": "Whom to ask.", "path": folder.path()}]).to_string();
    (folder, skills)
}

#[test]
fn nobody_hears_of_a_tools_result_before_the_guards() {
    let (_folder, skills) = skilled("For green tea ask ada.lovelace@example.org");
    let runtime = Runtime::with(&[
        ("RUNTIME_GUARDS", r#"["pii-detection"]"#),
        ("RUNTIME_MODEL_ID", "stub-script"),
        ("RUNTIME_STRATEGY", "agent-react"),
        ("RUNTIME_SKILLS", &skills),
    ]);
    let events = runtime.stream(&json!({"message": "call load_skill {\"name\": \"contacts\"}\n\ntext {results}"}));
    let end = events.iter().find(|event| event["type"] == "tool_end").unwrap();
    assert!(end["content"].as_str().unwrap().contains("[EMAIL]"), "{end}");
    assert!(!json!(events).to_string().contains("lovelace@"), "{events:?}");
}

/// In two halves, so that scanners of this repository pass by.
const KEY: &str = concat!("AKIA", "Z7QX3K5M2N4P6R8T");
const MEMORY: &str = r#"[{"name": "memory", "type": "builtin", "category": "general", "timeout": 5}]"#;

#[test]
fn nothing_is_remembered_that_the_guards_have_not_seen() {
    let runtime = Runtime::with(&[
        ("RUNTIME_GUARDS", r#"["pii-detection", "secrets-scanner"]"#),
        ("RUNTIME_MODEL_ID", "stub-script"),
        ("RUNTIME_STRATEGY", "agent-react"),
        ("RUNTIME_TOOLS", MEMORY),
    ]);
    let (_, body) = runtime.post("/memory", r#"{"content": "Ada is ada.lovelace@example.org"}"#);
    assert!(body.contains("Ada is [EMAIL]"), "{body}");
    for (field, note) in [("content", json!({"content": format!("deploy with {KEY}")})), ("source", json!({"content": "x", "source": KEY}))]
    {
        let (head, body) = runtime.post("/memory", &note.to_string());
        assert!(head.starts_with("http/1.1 400") && body.contains(&format!("`{field}` was refused by secrets-scanner")), "{head}{body}");
        assert!(!body.contains(KEY), "{body}");
    }
    // Escaped in the message, so that the address is the model's and not the caller's.
    let script = "call remember {\"content\": \"Bob is bob\\u0040example.org\"}\n\ntext {results}";
    let events = runtime.stream(&json!({"message": script}));
    assert_eq!(events.last().unwrap()["content"], "Remembered.");
    let kept = runtime.get("/memory").to_string();
    assert!(!kept.contains("@example") && !kept.contains(KEY), "{kept}");
    // Two notes, and once in the call.
    assert_eq!(runtime.metric(r#"guard_actions_total{guard="pii-detection",action="mask",kind="email"}"#), Some(3.0));
}

/// A collector of spans, and what it was sent, as it came over the wire.
fn collector() -> (String, Arc<Mutex<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let got = Arc::new(Mutex::new(String::new()));
    let kept = Arc::clone(&got);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map(Result::unwrap) {
            let (mut request, mut bytes) = (String::new(), [0; 4096]);
            let whole = |request: &str| {
                let (head, body) = request.split_once("\r\n\r\n")?;
                let length = head.to_lowercase().split_once("content-length: ")?.1.lines().next()?.parse().ok()?;
                Some(body.chars().count() >= length)
            };
            // A character a byte: spans are no UTF-8, what was said in them is ASCII here.
            while whole(&request) != Some(true) {
                let count = stream.read(&mut bytes).unwrap();
                request.extend(bytes[..count].iter().copied().map(char::from));
            }
            kept.lock().unwrap().push_str(&request);
            stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n").unwrap();
        }
    });
    (url, got)
}

#[test]
fn spans_hold_what_the_guards_let_through_and_nothing_of_what_they_blocked() {
    let model =
        model((8, 1), &[("", "Ask ada.lovelace@example.org about it."), ("herbs", "There is thyme, and then there is catnip for all.")]);
    let (_folder, skills) = skilled("How to ask.");
    let (url, got) = collector();
    let own = [("RUNTIME_MODEL_ID", "stub-script"), ("RUNTIME_STRATEGY", "agent-react"), ("RUNTIME_SKILLS", &skills)];
    let base = format!("{}/v1", model.url());
    let other = [("RUNTIME_MODEL_TYPE", "openai"), ("RUNTIME_MODEL_ID", "gpt-4o"), ("OPENAI_BASE_URL", &base), ("OPENAI_API_KEY", "none")];
    // Escaped in the message, so that the address is the model's and not the caller's.
    let call = "call load_skill {\"name\": \"ada.lovelace\\u0040example.org\"}\n\ntext That was it";
    for (variables, messages) in [(&own[..], &[call][..]), (&other[..], &["Whom do I ask?", "Tell me of herbs."][..])] {
        let guards = r#"["pii-detection", {"name": "blocked-topics", "topics": [{"name": "cats", "words": ["catnip"]}]}]"#;
        let telemetry = [
            ("RUNTIME_GUARDS", guards),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &*url),
            ("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true"),
        ];
        let mut runtime = Runtime::with(&[variables, &telemetry].concat());
        for message in messages {
            let events = json!(runtime.stream(&json!({"message": message}))).to_string();
            assert!(!events.contains("lovelace@") && !events.contains("catnip"), "{events}");
        }
        runtime.terminate();
        assert_eq!(runtime.wait().code(), Some(0));
    }
    let spans = got.lock().unwrap();
    for told in [r#"{"name":"[EMAIL]"}"#, "Ask [EMAIL] about it.", "Tell me of herbs.", "That was it"] {
        assert!(spans.contains(told), "{told} is not in the spans:\n{spans}");
    }
    for secret in ["lovelace@", "catnip", "thyme"] {
        assert!(!spans.contains(secret), "{secret} is in the spans:\n{spans}");
    }
}

#[test]
fn a_call_that_would_tell_a_tool_a_secret_is_withheld() {
    let (_folder, skills) = skilled("How to ask.");
    let runtime = Runtime::with(&[
        ("RUNTIME_GUARDS", r#"["secrets-scanner"]"#),
        ("RUNTIME_MODEL_ID", "stub-script"),
        ("RUNTIME_STRATEGY", "agent-react"),
        ("RUNTIME_SKILLS", &skills),
    ]);
    let call = format!("call load_skill {{\"name\": \"{}\"}}\n\ntext {{results}}", KEY.replace("AKIA", "\\u0041KIA"));
    let events = runtime.stream(&json!({"message": call}));
    let done = events.last().unwrap();
    assert!(done["content"].as_str().unwrap().starts_with("The call was withheld: refused by secrets-scanner"), "{events:?}");
    assert!(events.iter().all(|event| event["type"] != "tool_start"), "{events:?}");
    assert!(!json!(events).to_string().contains(KEY), "{events:?}");
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
