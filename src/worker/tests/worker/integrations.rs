//! Connections to integrations: who may ask for them, how many at once, and without a database.

use std::net::TcpListener;
use std::thread;
use std::time::SystemTime;

use serde_json::{Value, json};
use slipway_http::token::{CONTROL_LIFE, Signer};
use slipway_peers::{Prometheus, Receiver};

use crate::support::{BASE, Team, Worker, binary};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const TEST: &str = "POST /integrations/test";
const DELIVER: &str = "POST /integrations/deliver";

/// A worker without a database, and the manager's key for it.
struct Connecting {
    worker: Worker,
    manager: Signer,
}

fn signer() -> Signer {
    Signer::from_pkcs8(&Signer::generate().unwrap()).unwrap()
}

/// What is looked at by a Job alone: it is answered, and connects to nothing.
fn local() -> Vec<u8> {
    br#"{"type": "local", "config": {}}"#.to_vec()
}

impl Connecting {
    fn start(more: &[(&str, &str)]) -> Self {
        let manager = signer();
        let key = manager.public_key();
        let own = [("RUNTIME_CONTROL_PUBLIC_KEY", &*key), ("RUNTIME_EGRESS_ALLOW", "127.0.0.0/8")];
        let team = Team { id: "tk_a".to_owned(), url: String::new() };
        Self { worker: team.worker_with(&[&own[..], more].concat()), manager }
    }

    fn post(&self, line: &str, body: &[u8]) -> (u16, String) {
        self.worker.send(line, &bearer(&self.manager, "tk_a"), body)
    }

    fn ask(&self, line: &str, body: &Value) -> Value {
        let (status, answer) = self.post(line, body.to_string().as_bytes());
        assert_eq!(status, 200, "{answer}");
        serde_json::from_str(&answer).unwrap()
    }
}

fn bearer(signer: &Signer, team: &str) -> String {
    let token = signer.token(team, CONTROL_LIFE, SystemTime::now()).unwrap();
    format!("authorization: Bearer {token}\r\ncontent-type: application/json\r\n")
}

#[test]
fn only_the_managers_key_opens_them_and_each_token_once() {
    let rest = signer();
    let connecting = Connecting::start(&[("RUNTIME_ACCESS_PUBLIC_KEY", &rest.public_key())]);
    let (worker, manager) = (&connecting.worker, &connecting.manager);
    let as_rest = bearer(&rest, "tk_a").replace("authorization: Bearer ", "x-slipway-token: ");
    for line in [TEST, DELIVER] {
        for (headers, words) in [
            ("content-type: application/json\r\n".to_owned(), "a token of the platform is needed"),
            (as_rest.clone(), "a token of the platform is needed"),
            (bearer(&rest, "tk_a"), "not the platform's"),
            (bearer(manager, "tk_b"), "not for this process"),
        ] {
            let (status, answer) = worker.send(line, &headers, &local());
            assert!(status == 401 && answer.contains(words), "{line}, {words}: {status} {answer}");
        }
    }
    let once = bearer(manager, "tk_a");
    assert_eq!(worker.send(TEST, &once, &local()).0, 200);
    for line in [TEST, DELIVER] {
        let (status, answer) = worker.send(line, &once, &local());
        assert!(status == 401 && answer.contains("the token was used before"), "{line}: {answer}");
    }
    // The manager's key opens nothing of REST's.
    assert_eq!(connecting.post(&format!("GET /knowledge-bases/{BASE}/documents"), b"").0, 401);
    assert_eq!(connecting.post("GET /integrations/test", b"").0, 405);
}

#[test]
fn without_the_managers_key_there_is_nothing() {
    let worker = Team { id: "tk_a".to_owned(), url: String::new() }.worker();
    for line in [TEST, DELIVER] {
        assert_eq!(worker.send(line, &bearer(&signer(), "tk_a"), &local()).0, 404, "{line}");
    }
}

#[test]
fn a_body_has_bounds_and_is_never_quoted() {
    let connecting = Connecting::start(&[]);
    let long = format!(r#"{{"type": "local", "config": "{}"}}"#, "x".repeat(256 * 1024));
    assert_eq!(connecting.post(TEST, long.as_bytes()).0, 413);
    for body in
        [r#"{"type": "hunter2", "config": {}}"#, r#"{"type": "mcp", "config": {}, "credentials": {"token": hunter2}}"#, r#"{"hunter2": 1}"#]
    {
        let (status, answer) = connecting.post(TEST, body.as_bytes());
        assert!(status == 400 && !answer.contains("hunter2"), "{body}: {status} {answer}");
    }
}

#[test]
fn sixteen_are_connected_to_at_once() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let connecting = Connecting::start(&[]);
    let slow = json!({"type": "prometheus", "config": {"url": format!("http://{}", silent.local_addr().unwrap())}});
    thread::scope(|scope| {
        let asked: Vec<_> = (0..16).map(|_| scope.spawn(|| connecting.ask(TEST, &slow))).collect();
        // Each of them is a connection that waits here.
        let waiting: Vec<_> = asked.iter().map(|_| silent.accept().unwrap()).collect();
        let once = bearer(&connecting.manager, "tk_a");
        let (status, answer) = connecting.worker.send(TEST, &once, &local());
        assert!(status == 429 && answer.contains("which is the most at once"), "{status} {answer}");
        for one in asked {
            assert_eq!(one.join().unwrap()["reason"], "TimedOut");
        }
        assert_eq!(connecting.worker.send(TEST, &once, &local()).0, 200, "the token that was sent away is good still");
        drop(waiting);
    });
}

#[test]
fn a_team_without_a_database_has_integrations_alone() {
    let connecting = Connecting::start(&[]);
    let (status, answer) = connecting.worker.search(&json!({"query": "filter"}));
    assert!(status == 503 && answer["message"].as_str().unwrap().contains("no database"), "{answer}");
    for line in [format!("GET /knowledge-bases/{BASE}/documents"), format!("DELETE /knowledge-bases/{BASE}/documents/d")] {
        assert_eq!(connecting.worker.send(&line, "", b"").0, 503, "{line}");
    }
    assert_eq!(connecting.worker.upload("x-filename: a.csv\r\n", b"a,b").0, 503);
    assert_eq!(connecting.worker.send("GET /readyz", "", b"").0, 200);

    let prometheus = Prometheus::start(&[], &[]);
    prometheus.until("vector(1)", |found| !found.is_empty());
    let reply = connecting.ask(TEST, &json!({"type": "prometheus", "config": {"url": prometheus.url()}}));
    assert!(reply["succeeded"] == true && reply["reason"] == "Connected" && reply["latency_ms"].is_number(), "{reply}");

    let receiver = Receiver::start(SECRET);
    let message = json!({
        "type": "webhook", "config": {"url": receiver.hook()}, "credentials": {"signing_secret": SECRET}, "message_id": "msg_1",
        "body": {"type": "alert.raised", "timestamp": "2026-03-01T10:00:00Z", "data": {}},
    });
    assert_eq!(connecting.ask(DELIVER, &message)["outcome"], "delivered");
    assert_eq!(receiver.got()[0]["headers"]["webhook-id"], "msg_1");
    let (_, metrics) = connecting.worker.send("GET /metrics", "", b"");
    assert!(metrics.contains(r#"slipway_worker_requests_total{route="/integrations/deliver",status="200"} 1"#), "{metrics}");
}

#[test]
fn a_job_looks_at_a_folder_and_says_what_came_of_it() {
    let probe = |variable: Option<&str>| {
        let mut command = binary("probe");
        command.env("RUNTIME_TEAM", "tk_a").envs(variable.map(|text| ("SLIPWAY_PROBE", text)));
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    // Nothing is mounted where a Job has the team's volume.
    let (code, said) = probe(Some(r#"{"type": "local", "config": {"path": "handbook"}}"#));
    assert!(code == Some(0) && said.contains(r#""reason":"NotFound""#), "{code:?} {said}");
    for (variable, words) in [(None, "SLIPWAY_PROBE is missing"), (Some("hunter2"), "SLIPWAY_PROBE cannot be read")] {
        let (code, said) = probe(variable);
        assert!(code == Some(2) && said.contains(words) && !said.contains("hunter2"), "{code:?} {said}");
    }
}
