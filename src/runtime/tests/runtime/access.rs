//! The agent's own port: what the platform passes on names the agent that it is for.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::signature::{Ed25519KeyPair, KeyPair};
use serde_json::json;

use crate::support::Runtime;

fn key() -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap()
}

fn agent(id: &str, access: &str) -> Runtime {
    let public = STANDARD.encode(key().public_key());
    Runtime::with(&[("RUNTIME_AGENT_ID", id), ("RUNTIME_ACCESS_PUBLIC_KEY", &public), ("RUNTIME_ACCESS", access)])
}

fn token(agent: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let parts = [json!({"alg": "EdDSA", "typ": "JWT"}), json!({"aud": agent, "iat": now, "exp": now + 60, "jti": "x"})];
    let signed = parts.map(|part| URL_SAFE_NO_PAD.encode(part.to_string())).join(".");
    format!("x-slipway-token: {signed}.{}\r\n", URL_SAFE_NO_PAD.encode(key().sign(signed.as_bytes())))
}

const JSON: &str = "content-type: application/json\r\n";
const HELLO: &str = r#"{"message": "hello", "conversation_id": "conv_1"}"#;
/// Everything that is told, kept or taken away.
const ALL: [&str; 15] = [
    "POST /chat",
    "POST /chat/stream",
    "POST /v1/chat/completions",
    "GET /v1/models",
    "GET /conversations",
    "GET /conversations/conv_1",
    "GET /conversations/conv_1/status",
    "DELETE /conversations/conv_1",
    "GET /memory",
    "POST /memory",
    "POST /memory/search",
    "GET /memory/status",
    "DELETE /memory/mem_1",
    "GET /suggestions",
    "GET /metrics",
];

fn status(runtime: &Runtime, line: &str, headers: &str) -> u16 {
    let (head, _) = runtime.send(line, &format!("{JSON}{headers}"), if line.starts_with("POST") { HELLO } else { "" });
    head.split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_request_meant_for_another_agent_reaches_nothing() {
    let runtime = agent("ag_mine", "");
    for line in ALL {
        assert_eq!(status(&runtime, line, &token("ag_other")), 421, "{line}");
    }
    assert_eq!(runtime.get("/conversations")["data"], json!([]), "nothing was said");
    assert_eq!([&token("ag_mine"), ""].map(|headers| status(&runtime, "POST /chat", headers)), [200, 200]);
}

#[test]
fn an_agent_for_the_platform_alone_answers_nobody_else() {
    let runtime = agent("ag_mine", "platform");
    for line in ALL {
        assert_eq!(status(&runtime, line, ""), 401, "{line}");
    }
    assert_eq!(status(&runtime, "GET /healthz", ""), 200, "the kubelet has no token");
    assert_eq!(status(&runtime, "GET /readyz", ""), 200);
    assert_eq!(status(&runtime, "POST /chat", &token("ag_mine")), 200);
    assert_eq!(status(&runtime, "GET /metrics", &token("ag_mine")), 200);
}
