//! Idempotency-Key, and servers that are killed.

use std::net::TcpStream;
use std::process::Command;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use slipway_e2e::{Api, Team};

#[test]
fn a_repeated_call_makes_nothing_again() {
    let team = Team::new("api-once");
    let apis = [Api::of(&team), Api::of(&team)];
    let body = json!({"name": "Helper", "framework": "custom", "model_type": "stub", "replicas": 2});
    let post = |api: &Api, key: &str, body: &Value| api.call("POST", "/agents").header("Idempotency-Key", key).json(body).send();
    let first = post(&apis[0], "key-1", &body);
    let made = team.get("agent/helper");
    // Fields in another order and the other spelling ask for the same.
    let reordered = json!({"replicas": 2, "modelType": "stub", "framework": "custom", "name": "Helper"});
    for (api, body) in [(&apis[0], &body), (&apis[1], &body), (&apis[1], &reordered)] {
        let again = post(api, "key-1", body);
        assert_eq!((first.status, again.status), (201, 201), "{again:?}");
        for field in ["id", "slug", "name", "config", "created_at"] {
            assert_eq!(again.json()["data"][field], first.json()["data"][field]);
        }
    }
    assert_eq!(team.get("agent/helper")["metadata"]["uid"], made["metadata"]["uid"]);
    for other in [
        json!({"name": "Helper", "framework": "adk", "model_type": "stub", "replicas": 2}),
        json!({"name": "Another", "framework": "custom", "model_type": "stub", "replicas": 2}),
    ] {
        let refused = post(&apis[1], "key-1", &other);
        assert_eq!(refused.status, 409, "{refused:?}");
        assert!(refused.body.contains("Idempotency-Key"), "{refused:?}");
    }
    assert_eq!(post(&apis[0], "key-2", &body).status, 409, "another key is another call");
    let longest = "k".repeat(255);
    for (key, status) in [("", 400), ("with space", 400), ("käse", 400), (&format!("{longest}k") as &str, 400), (&longest, 201)] {
        let named = json!({"name": format!("n{}", key.len()), "framework": "custom"});
        assert_eq!(post(&apis[0], key, &named).status, status, "{key:?}");
    }
    assert_eq!(team.kubectl("get agents -o name").ok().lines().count(), 2, "only two calls made something");
    let whole = team.get("agent/helper")["metadata"].to_string();
    assert!(!whole.contains("key-1"), "only hashes are kept: {whole}");
    // When it was deleted, a repeated call makes it anew.
    apis[0].call("DELETE", "/agents/helper").expect(200);
    assert_eq!(post(&apis[1], "key-1", &body).status, 201);
    assert_ne!(team.get("agent/helper")["metadata"]["uid"], made["metadata"]["uid"]);
}

#[test]
fn the_same_call_at_the_same_time_makes_one() {
    let team = Team::new("api-twice");
    let apis = [Api::of(&team), Api::of(&team)];
    for round in 0..5 {
        let body = json!({"name": format!("helper-{round}"), "framework": "custom"});
        let statuses: Vec<u16> = thread::scope(|scope| {
            let calls: Vec<_> = (0..6)
                .map(|at| {
                    let call = apis[at % 2].call("POST", "/agents").header("Idempotency-Key", format!("k{round}")).json(&body);
                    scope.spawn(move || call.send().status)
                })
                .collect();
            calls.into_iter().map(|call| call.join().unwrap()).collect()
        });
        assert_eq!(statuses, [201; 6], "round {round}");
    }
    assert_eq!(team.kubectl("get agents -o name").ok().lines().count(), 5);
}

/// Ends a server that this test has started, as a lost node would.
fn kill(api: Api) {
    let id = api.id().to_string();
    assert!(Command::new("kill").args(["-9", &id]).status().is_ok_and(|status| status.success()));
    drop(api);
}

/// Sends a call and does not wait for the answer.
fn throw(api: &Api, path: &str, method: &str, key: &str, body: &Value) -> TcpStream {
    use std::io::Write;
    let text = body.to_string();
    let mut stream = TcpStream::connect(api.url().trim_start_matches("http://")).unwrap();
    let head = format!("{method} /api/v1{path} HTTP/1.1\r\nHost: api\r\nContent-Type: application/json\r\nIdempotency-Key: {key}\r\n");
    write!(stream, "{head}Content-Length: {}\r\n\r\n{text}", text.len()).unwrap();
    stream
}

#[test]
fn a_server_that_is_killed_leaves_nothing_half_made() {
    let team = Team::new("api-killed");
    let survivor = Api::of(&team);
    // From before the write to after the answer.
    for (round, pause) in [0, 1, 2, 3, 4, 6, 9, 14].into_iter().enumerate() {
        let victim = Api::of(&team);
        let name = format!("helper-{round}");
        let body = json!({"name": name, "framework": "custom", "description": "whole", "skills": ["sk_a"]});
        let thrown = throw(&victim, "/agents", "POST", &name, &body);
        thread::sleep(Duration::from_millis(pause));
        kill(victim);
        drop(thrown);
        // Whatever there is, is whole.
        let found = team.get(&format!("agent/{name}"));
        assert!(found.is_null() || (found["spec"]["description"] == "whole" && found["spec"]["skills"] == json!(["sk_a"])), "{found}");
        let again = survivor.call("POST", "/agents").header("Idempotency-Key", name.as_str()).json(&body).send();
        assert_eq!(again.status, 201, "after {pause} ms: {again:?}");
        assert_eq!(team.get(&format!("agent/{name}"))["spec"]["description"], "whole");
        if !found.is_null() {
            assert_eq!(team.get(&format!("agent/{name}"))["metadata"]["uid"], found["metadata"]["uid"], "it was not made twice");
        }

        // A change is either made in whole or not at all, and a repeated one completes it.
        let victim = Api::of(&team);
        let change = json!({"description": "changed", "system_prompt": "changed", "skills": ["sk_b"]});
        let thrown = throw(&victim, &format!("/agents/{name}/config"), "PATCH", "x", &change);
        thread::sleep(Duration::from_millis(pause));
        kill(victim);
        drop(thrown);
        let spec = team.get(&format!("agent/{name}"))["spec"].clone();
        let parts = [spec["description"] == "changed", spec["systemPrompt"] == "changed", spec["skills"] == json!(["sk_b"])];
        assert!(parts == [true; 3] || parts == [false; 3], "half of a change: {spec}");
        survivor.call("PATCH", &format!("/agents/{name}/config")).json(&change).expect(200);
        assert_eq!(team.get(&format!("agent/{name}"))["spec"]["skills"], json!(["sk_b"]));
    }
    assert_eq!(team.kubectl("get agents -o name").ok().lines().count(), 8);
}
