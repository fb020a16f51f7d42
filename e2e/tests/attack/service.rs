//! A developer who also may write Services in the team's namespace bends one of an agent's name to somebody else. Where the
//! Service leads, a listener stands.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{fs, thread};

use serde_json::{Value, json};
use slipway_e2e::attack::{Installation, Person};
use slipway_e2e::{Api, poll};

/// The server to which the bent Service leads: it keeps what it is sent.
struct Victim {
    address: SocketAddr,
    heard: Arc<Mutex<Vec<String>>>,
}

impl Victim {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap_or_else(|e| panic!("no port: {e}"));
        let address = listener.local_addr().unwrap_or_else(|e| panic!("no address: {e}"));
        let heard: Arc<Mutex<Vec<String>>> = Arc::default();
        let keeps = heard.clone();
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let mut bytes = [0; 8192];
                let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
                let count = stream.read(&mut bytes).unwrap_or_default();
                keeps.lock().unwrap_or_else(PoisonError::into_inner).push(String::from_utf8_lossy(&bytes[..count]).into_owned());
                let answer = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        Self { address, heard }
    }

    fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// All ways to what an agent says and knows.
const WAYS: [(&str, &str); 8] = [
    ("POST", "/chat"),
    ("POST", "/chat/stream"),
    ("GET", "/conversations"),
    ("GET", "/conversations/conv_1"),
    ("GET", "/memory"),
    ("POST", "/memory/search"),
    ("GET", "/suggestions"),
    ("DELETE", "/memory/mem_1"),
];

fn ask(rest: &Api, person: &Person, team: &str, agent: &str, (method, path): (&str, &str)) -> (u16, String) {
    let call = rest.call(method, &format!("/agents/{agent}{path}")).header("X-Team", team).token(&person.token);
    let call = if method == "POST" { call.json(&json!({"message": "hello", "query": "keys"})) } else { call };
    let reply = call.send();
    (reply.status, reply.json()["message"].as_str().unwrap_or_default().to_owned())
}

/// Waits until REST has heard of an agent. Before, it answers that there is none, and looks at no Service.
fn heard_of(rest: &Api, person: &Person, team: &str, agent: &str) {
    poll(30, || match ask(rest, person, team, agent, WAYS[0]) {
        (404, message) => Err(message),
        _ => Ok(()),
    });
}

fn agent(name: &str, namespace: &str) -> Value {
    json!({
        "apiVersion": "agents.slipway.dev/v1", "kind": "Agent", "metadata": {"name": name, "namespace": namespace},
        "spec": {"name": name, "framework": "custom", "storage": "memory"},
    })
}

fn service(name: &str, namespace: &str, owner: Option<&str>, spec: &Value) -> Value {
    let owners =
        owner.map(|uid| json!([{"apiVersion": "agents.slipway.dev/v1", "kind": "Agent", "name": name, "uid": uid, "controller": true}]));
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name, "namespace": namespace, "ownerReferences": owners.unwrap_or_else(|| json!([]))}, "spec": spec,
    })
}

#[test]
fn a_bent_service_leads_nowhere() {
    let slipway = Installation::shared();
    let namespace = slipway.team("bent");
    let mallory = slipway.member("bent-mallory", "slipway-developer", &namespace);
    let victim = Victim::new();
    let rest = slipway.rest(&[("SLIPWAY_AGENT_ADDRESS", &format!("http://{}", victim.address))]);
    let ports = json!([{"port": 8000}]);
    for (name, spec) in [
        ("external", json!({"type": "ExternalName", "externalName": "billing.team-other.svc.cluster.local"})),
        ("by-hand", json!({"type": "ClusterIP", "ports": ports})),
    ] {
        slipway.apply(&service(name, &namespace, None, &spec));
        slipway.apply(&agent(name, &namespace));
        poll(30, || {
            let found = slipway.kubectl(format!("get agent {name} -n {namespace}")).json();
            if found.to_string().contains("NameTaken") { Ok(()) } else { Err(format!("the name should be taken: {}", found["status"])) }
        });
        heard_of(&rest, &mallory, "bent", name);
        for way in WAYS {
            let (status, message) = ask(&rest, &mallory, "bent", name, way);
            assert!(status == 502 && message.contains("does not belong to this Agent"), "{name} {way:?}: {status} {message}");
        }
    }
    assert_eq!(victim.heard(), [""; 0], "nothing may be sent there");
}

/// The maker of a Service says who owns it. The endpoints of one without a selector are made by hand.
#[test]
fn a_forged_owner_makes_no_service_an_agents() {
    let slipway = Installation::shared();
    let namespace = slipway.team("forged");
    let mallory = slipway.member("forged-mallory", "slipway-developer", &namespace);
    let victim = Victim::new();
    let rest = slipway.rest(&[("SLIPWAY_AGENT_ADDRESS", &format!("http://{}", victim.address))]);
    // What the operator makes of an agent that it stops at: there is nobody to take the Service back.
    let mut stalled = agent("helper", &namespace);
    stalled["spec"]["tools"] = json!(["missing"]);
    slipway.apply(&stalled);
    let uid = slipway.kubectl(format!("get agent helper -n {namespace}")).json()["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    slipway.apply(&service("helper", &namespace, Some(&uid), &json!({"type": "ClusterIP", "ports": [{"port": 8000}]})));
    heard_of(&rest, &mallory, "forged", "helper");
    for way in WAYS {
        let (status, message) = ask(&rest, &mallory, "forged", "helper", way);
        assert!(status == 502 && message.contains("Service helper is not as the operator makes it"), "{way:?}: {status} {message}");
    }
    assert_eq!(victim.heard(), [""; 0], "nothing may be sent there");
}

/// Endpoints that somebody adds by hand to the agent's own Service still lead anywhere. So a call says whom it is meant for, and
/// the runtime, which has a test of that, refuses what is meant for another agent.
#[test]
fn a_call_says_which_agent_it_is_meant_for() {
    let slipway = Installation::shared();
    let namespace = slipway.team("meant");
    let mallory = slipway.member("meant-mallory", "slipway-developer", &namespace);
    let victim = Victim::new();
    let secret = slipway.kubectl(format!("get secret slipway-relay -n {}", slipway_e2e::platform::NAMESPACE)).json();
    let key = secret["data"]["key"].as_str().unwrap_or_else(|| panic!("the operator should have made a key: {secret}"));
    let folder = tempfile::tempdir().unwrap_or_else(|e| panic!("no folder: {e}"));
    let file = folder.path().join("key");
    fs::write(&file, decoded(key)).unwrap_or_else(|e| panic!("no file: {e}"));
    let rest = slipway
        .rest(&[("SLIPWAY_AGENT_ADDRESS", &format!("http://{}", victim.address)), ("SLIPWAY_RELAY_KEY_FILE", &file.to_string_lossy())]);
    slipway.apply(&agent("helper", &namespace));
    poll(30, || match ask(&rest, &mallory, "meant", "helper", WAYS[0]) {
        (200, _) => Ok(()),
        other => Err(format!("the agent's own Service should be found: {other:?}")),
    });
    let before = victim.heard().len();
    // What a caller sends along is not believed.
    let call = rest.call("POST", "/agents/helper/chat").header("X-Team", "meant").header("X-Slipway-Token", "mine");
    call.token(&mallory.token).json(&json!({"message": "hello"})).expect(200);
    let heard = victim.heard().split_off(before);
    let id = slipway.kubectl(format!("get agent helper -n {namespace}")).json()["status"]["id"].clone();
    let tokens: Vec<&str> = heard.iter().flat_map(|head| head.lines()).filter_map(|line| line.strip_prefix("x-slipway-token: ")).collect();
    assert!(tokens.len() == 1 && tokens[0] != "mine", "{heard:?}");
    let claims = decoded(tokens[0].split('.').nth(1).unwrap_or_default());
    let claims: Value = serde_json::from_slice(&claims).unwrap_or_else(|e| panic!("claims, not {tokens:?}: {e}"));
    assert_eq!(claims["aud"], id);
}

/// Base 64, as Secrets have it.
fn decoded(text: &str) -> Vec<u8> {
    let value = |byte: u8| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' | b'-' => 62,
        _ => 63,
    };
    let digits: Vec<u32> = text.bytes().filter(|byte| *byte != b'=').map(|byte| u32::from(value(byte))).collect();
    digits
        .chunks(4)
        .flat_map(|four| {
            let number = four.iter().fold(0, |number, digit| number << 6 | digit) << (6 * (4 - four.len()));
            number.to_be_bytes()[1..four.len()].to_vec()
        })
        .collect()
}
