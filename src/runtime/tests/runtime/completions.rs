//! `/v1/chat/completions`, by hand and with the official client.

use std::io::Write;

use serde_json::{Value, json};

use crate::support::{Runtime, events};

#[test]
fn a_completion_is_whole_or_in_chunks() {
    let runtime = Runtime::start();
    let ask = json!({"model": "any", "messages": [{"role": "user", "content": "hello there"}]});
    let (head, body) = runtime.post("/v1/chat/completions", &ask.to_string());
    assert!(head.starts_with("http/1.1 200"), "{head}{body}");
    let answer: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(answer["choices"][0]["message"]["content"], "Echo: hello there");
    assert_eq!(answer["usage"]["total_tokens"], 5);

    let mut ask = ask;
    ask["stream"] = true.into();
    ask["stream_options"] = json!({"include_usage": true});
    let (_, body) = runtime.post("/v1/chat/completions", &ask.to_string());
    assert!(body.contains("data: [DONE]"), "{body}");
    let chunks = events(&body);
    let text: String = chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(text, "Echo: hello there");
    assert_eq!(chunks.last().unwrap()["usage"]["prompt_tokens"], 2);
    // The caller keeps the conversation; the agent keeps nothing.
    assert_eq!(runtime.get("/conversations")["data"], json!([]));

    let (head, body) = runtime.post("/v1/chat/completions", r#"{"messages": []}"#);
    let error: Value = serde_json::from_str(&body).unwrap();
    assert!(head.starts_with("http/1.1 400") && error["error"]["type"] == "invalid_request_error", "{head}{body}");
}

#[test]
fn a_stream_says_why_it_ended_early() {
    let tools = r#"[{"name": "datetime", "type": "builtin", "category": "general", "timeout": 5}]"#;
    let more = [("RUNTIME_MODEL_ID", "stub-script"), ("RUNTIME_STRATEGY", "agent-react"), ("RUNTIME_TOOLS", tools)];
    for (budget, script, expected) in [
        ("RUNTIME_TURN_SECONDS", "sleep 5000\ntext late", "The time for this answer ran out."),
        ("RUNTIME_TURN_SECONDS", "text in time\nsleep 5000\ntext late", "in time"),
        ("RUNTIME_TURN_TOKENS", "call datetime {}\n\ntext late", "The tokens for this answer ran out."),
    ] {
        let runtime = Runtime::with(&[&more[..], &[(budget, "1")]].concat());
        let ask = json!({"messages": [{"role": "user", "content": script}], "stream": true});
        let (_, body) = runtime.post("/v1/chat/completions", &ask.to_string());
        let chunks = events(&body);
        let text: String = chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
        assert_eq!(text, expected, "{body}");
        assert_eq!(chunks.last().unwrap()["choices"][0]["finish_reason"], "length", "{body}");
        assert!(body.contains("data: [DONE]"), "{body}");
    }
}

/// What somebody with the official client would write.
const SCRIPT: &str = r#"
import sys
from openai import BadRequestError, OpenAI
client = OpenAI(base_url=sys.argv[1] + "/v1", api_key="none", max_retries=0)
assert [model.id for model in client.models.list()] == ["agent"]
messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "one two"}]
whole = client.chat.completions.create(model="agent", messages=messages)
assert whole.choices[0].message.content == "Echo: one two", whole
assert whole.choices[0].finish_reason == "stop" and whole.usage.total_tokens == 5, whole
chunks = list(client.chat.completions.create(model="agent", messages=messages, stream=True, stream_options={"include_usage": True}))
text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
assert text == "Echo: one two", text
assert chunks[-1].usage.completion_tokens == 3 and chunks[-2].choices[0].finish_reason == "stop", chunks
try:
    client.chat.completions.create(model="agent", messages=messages, n=2)
    raise SystemExit("n=2 was taken")
except BadRequestError as error:
    assert "`n`" in error.body["message"], error.body
print("as expected")
"#;

#[test]
fn the_official_client_gets_what_it_expects() {
    let runtime = Runtime::start();
    let mut script = tempfile::NamedTempFile::new().unwrap();
    script.write_all(SCRIPT.as_bytes()).unwrap();
    let out = slipway_peers::python(script.path(), &[&runtime.url()], &[]);
    let words = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && String::from_utf8_lossy(&out.stdout).contains("as expected"), "{words}");
}
