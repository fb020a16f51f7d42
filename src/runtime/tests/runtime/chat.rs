//! What a caller of the agent's port sees, asked of the real binary over a socket.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use crate::support::{Runtime, events, request};
use serde_json::{Value, json};

#[test]
fn a_chat_is_answered_with_ids_and_usage() {
    let runtime = Runtime::start();
    let (head, body) = runtime.post("/chat", r#"{"message": "hello there"}"#);
    assert!(head.starts_with("http/1.1 200"), "{head}");
    let answer: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(answer["output"], "Echo: hello there");
    assert_eq!(answer["usage"], json!({"input_tokens": 2, "output_tokens": 3}));
    for (field, prefix) in [("conversation_id", "conv_"), ("trace_id", "tr_")] {
        let id = answer[field].as_str().unwrap();
        assert_eq!(id.strip_prefix(prefix).map(str::len), Some(26), "{id}");
    }
    let (_, body) = runtime.post("/chat", r#"{"input": "again", "conversation_id": "conv_mine"}"#);
    assert_eq!(serde_json::from_str::<Value>(&body).unwrap()["conversation_id"], "conv_mine");
}

#[test]
fn a_stream_is_fragments_and_then_the_whole() {
    let runtime = Runtime::start();
    let (head, body) = runtime.post("/chat/stream", r#"{"message": "one two\nthree", "conversation_id": "c1"}"#);
    assert!(head.contains("content-type: text/event-stream"), "{head}");
    let mut events = events(&body);
    let done = events.pop().unwrap();
    assert_eq!(done["type"], "done");
    assert_eq!(done["content"], "Echo: one two\nthree");
    assert_eq!(done["conversation_id"], "c1");
    assert_eq!(done["usage"], json!({"input_tokens": 3, "output_tokens": 4}));
    assert!(events.iter().all(|event| event["type"] == "token"), "{events:?}");
    let text: String = events.iter().map(|event| event["content"].as_str().unwrap()).collect();
    assert_eq!(text, "Echo: one two\nthree");
}

#[test]
fn what_is_wrong_with_a_request_is_said() {
    let runtime = Runtime::start();
    let json = "content-type: application/json\r\n";
    let long = format!(r#"{{"message": "{}"}}"#, "x".repeat(2 << 20));
    for (line, headers, body, status, reason, words) in [
        ("POST /chat", json, "{\n\"message\" 1}", 400, "Bad Request", "line 2 column 11"),
        ("POST /chat", json, r#"{"mesage": "a"}"#, 400, "Bad Request", "unknown field `mesage`"),
        ("POST /chat/stream", json, "{}", 400, "Bad Request", "`message` is missing"),
        ("POST /chat", "", r#"{"message": "a"}"#, 415, "Unsupported Media Type", "application/json"),
        ("POST /chat", json, &long, 413, "Payload Too Large", "1048576 bytes"),
        ("POST /nothing", json, "{}", 404, "Not Found", "docs/runtime-contract.md"),
        ("GET /chat", "", "", 405, "Method Not Allowed", "POST"),
    ] {
        let (head, body) = runtime.send(line, headers, body);
        assert!(head.starts_with(&format!("http/1.1 {status}")), "{line}: {head}");
        let error: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(error["error"], reason);
        assert_eq!(error["path"], line.split(' ').nth(1).unwrap());
        assert!(error["message"].as_str().unwrap().contains(words), "{line}: {body}");
        assert_eq!(head.contains("\r\nallow: post"), status == 405, "{head}");
    }
}

#[test]
fn a_long_message_is_counted_while_others_are_answered() {
    let runtime = Runtime::with(&[("RUNTIME_MODEL_ID", "stub-script"), ("RUNTIME_GUARDS", r#"[{"name": "max-tokens", "limit": 1000}]"#)]);
    let body = json!({"message": "some words ".repeat(60_000)}).to_string();
    // How many probes were answered while it was counted, the time of the longest, and of all.
    let counted = || {
        let (mut probes, mut longest) = (0, Duration::ZERO);
        let took = std::thread::scope(|scope| {
            let began = Instant::now();
            let refused = scope.spawn(|| runtime.post("/chat", &body));
            while !refused.is_finished() {
                let asked = Instant::now();
                assert!(runtime.send("GET /healthz", "", "").0.starts_with("http/1.1 200"));
                (probes, longest) = (probes + 1, longest.max(asked.elapsed()));
            }
            let (head, body) = refused.join().unwrap();
            assert!(head.starts_with("http/1.1 400") && body.contains("max-tokens"), "{head}{body}");
            began.elapsed()
        });
        (probes, longest, took)
    };
    // Where others were held up by it, they would be each time; a busy machine holds them up now and then.
    let all = [(); 5].map(|()| counted());
    let free = all.iter().filter(|(probes, longest, took)| *probes > 5 && *longest < *took / 2).count();
    assert!(free >= 3, "probes, the longest, and all: {all:?}");
}

#[test]
fn a_refused_message_is_not_said_to_be_saved() {
    let runtime = Runtime::with(&[("RUNTIME_GUARDS", r#"["secrets-scanner"]"#)]);
    let refused = json!({"message": concat!("deploy with AKIA", "Z7QX3K5M2N4P6R8T")});
    let (answer, events) = (runtime.chat(&refused), runtime.stream(&refused));
    for answer in [&answer, events.last().unwrap()] {
        assert_eq!((&answer["stop_reason"], &answer["saved"]), (&json!("guard"), &json!(false)), "{answer}");
    }
    // The id that it was given is free to go on with.
    let id = answer["conversation_id"].as_str().unwrap();
    assert!(runtime.send(&format!("GET /conversations/{id}"), "", "").0.starts_with("http/1.1 404"));
    let next = runtime.chat(&json!({"message": "deploy", "conversation_id": id}));
    assert_eq!((&next["conversation_id"], next.get("saved")), (&answer["conversation_id"], None), "{next}");
}

#[test]
fn probes_answer_and_requests_are_counted() {
    let runtime = Runtime::start();
    for path in ["/healthz", "/readyz"] {
        let (head, body) = runtime.send(&format!("GET {path}"), "x-request-id: probe-1\r\n", "");
        assert!(head.starts_with("http/1.1 200") && head.contains("x-request-id: probe-1"), "{head}");
        assert_eq!(body, "ok\n");
    }
    let (head, body) = runtime.send("HEAD /healthz", "", "");
    assert!(head.starts_with("http/1.1 200") && body.is_empty(), "{head}{body}");
    runtime.post("/chat", "{}");
    let (_, metrics) = runtime.send("GET /metrics", "", "");
    for (route, status, count) in [("/healthz", 200, 2), ("/readyz", 200, 1), ("/chat", 400, 1)] {
        let line = format!(r#"slipway_runtime_requests_total{{route="{route}",status="{status}"}} {count}"#);
        assert!(metrics.contains(&line), "{line} is not in\n{metrics}");
    }
}

#[test]
fn sigterm_lets_a_live_stream_finish_and_takes_no_more() {
    let mut runtime = Runtime::start();
    let mut stream = runtime.connect();
    // More than the sockets' buffers hold, so that the answer waits for its reader.
    let message = "a ".repeat(250_000);
    let body = json!({"message": message}).to_string();
    stream.write_all(request("POST /chat/stream", "content-type: application/json\r\n", &body).as_bytes()).unwrap();
    let mut first = [0; 1024];
    stream.read_exact(&mut first).unwrap();
    runtime.terminate();
    while std::net::TcpStream::connect(stream.peer_addr().unwrap()).is_ok() {
        std::thread::yield_now();
    }
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    let done = events(&rest.replace("\r\n", "\n")).pop();
    assert_eq!(done.unwrap()["content"], format!("Echo: {message}"));
    assert_eq!(runtime.wait().code(), Some(0));
}
