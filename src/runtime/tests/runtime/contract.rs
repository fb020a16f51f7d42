//! What docs/runtime-contract.md asks of every agent, asked of our runtime and of the smallest one in
//! another language.

use std::process::Command;

use serde_json::{Value, json};
use slipway_peers::{Server, free_port};

use crate::support::{Runtime, events, exchange};

type Ask<'a> = &'a dyn Fn(&str, &str) -> (String, String);

/// What every agent owes its callers.
fn keeps_the_contract(ask: Ask) {
    assert!(ask("GET /healthz", "").0.starts_with("http/1."), "an answer to probes");
    assert!(ask("GET /healthz", "").0.contains(" 200 "), "readiness is a 200");
    for field in ["message", "input"] {
        let (head, body) = ask("POST /chat", &json!({field: "abc", "conversation_id": "conv_mine"}).to_string());
        assert!(head.contains(" 200 "), "{head}{body}");
        let answer: Value = serde_json::from_str(&body).unwrap();
        assert!(!answer["output"].as_str().unwrap().is_empty());
        assert_eq!(answer["conversation_id"], "conv_mine");
        assert!(answer["trace_id"].is_string() && answer["usage"]["input_tokens"].is_u64() && answer["usage"]["output_tokens"].is_u64());
    }
    let (_, body) = ask("POST /chat", r#"{"message": "abc"}"#);
    assert!(serde_json::from_str::<Value>(&body).unwrap()["conversation_id"].as_str().unwrap().starts_with("conv_"));

    let (head, body) = ask("POST /chat/stream", r#"{"message": "abc def"}"#);
    assert!(head.contains("content-type: text/event-stream"), "{head}");
    let mut events = events(&body);
    let done = events.pop().unwrap();
    assert_eq!(done["type"], "done");
    let text: String = events.iter().filter(|event| event["type"] == "token").map(|event| event["content"].as_str().unwrap()).collect();
    assert_eq!(text, done["content"]);

    for (line, body, status) in [("POST /chat", "{", 400), ("POST /chat", "{}", 400), ("GET /nothing", "", 404)] {
        let (head, body) = ask(line, body);
        assert!(head.contains(&format!(" {status} ")), "{line}: {head}");
        let error: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(error["path"], line.split(' ').nth(1).unwrap());
        assert!(error["error"].is_string() && error["message"].is_string(), "{error}");
    }
}

const JSON: &str = "content-type: application/json\r\n";

#[test]
fn our_runtime_keeps_the_contract() {
    let runtime = Runtime::start();
    keeps_the_contract(&|line, body| runtime.send(line, JSON, body));
}

/// The program of a scaffold, as it lies among the templates, with a stub for a model.
#[test]
fn a_scaffolds_program_keeps_the_contract() {
    let templates = slipway_peers::repository().join("src/scaffold/templates");
    let port = free_port();
    let mut command = Command::new("python3");
    command.arg(templates.join("custom/agent.py")).env("PYTHONPATH", templates.join("common"));
    command.env("PYTHONDONTWRITEBYTECODE", "1").env("RUNTIME_PORT", port.to_string());
    let _server = Server::start(command, &format!("http://127.0.0.1:{port}/healthz"));
    keeps_the_contract(&|line, body| exchange(std::net::TcpStream::connect(("127.0.0.1", port)).unwrap(), line, JSON, body));
}

#[test]
fn the_smallest_agent_in_another_language_keeps_the_contract() {
    let script = slipway_peers::repository().join("docs/custom-agent.py");
    let port = free_port();
    let mut command = Command::new("python3");
    command.arg(script).env("RUNTIME_PORT", port.to_string());
    let _server = Server::start(command, &format!("http://127.0.0.1:{port}/healthz"));
    keeps_the_contract(&|line, body| exchange(std::net::TcpStream::connect(("127.0.0.1", port)).unwrap(), line, JSON, body));
}
