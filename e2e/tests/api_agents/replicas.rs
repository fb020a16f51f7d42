//! Several servers and several writers at once.

use std::thread;

use serde_json::{Value, json};
use slipway_e2e::{Api, Team};

const ROUNDS: usize = 20;

#[test]
fn writers_of_different_fields_lose_nothing() {
    let team = Team::new("api-writers");
    let apis = [Api::of(&team), Api::of(&team)];
    let running = json!({"name": "helper", "framework": "custom", "suspend": false, "replicas": 0});
    apis[0].call("POST", "/agents").json(&running).expect(201);
    let fields = ["description", "system_prompt", "version"];
    // Three writers, each on one field and on keys of one map, the operator's status writes between them.
    thread::scope(|scope| {
        for (at, field) in fields.iter().enumerate() {
            let api = &apis[at % 2];
            scope.spawn(move || {
                for round in 1..=ROUNDS {
                    let mut body = json!({"pod_template": {"annotations": {format!("example.com/{field}.{round}"): "kept"}}});
                    body[field] = json!(round.to_string());
                    api.call("PATCH", "/agents/helper/config").json(&body).expect(200);
                }
            });
        }
    });
    let spec = team.get("agent/helper")["spec"].clone();
    for field in ["description", "systemPrompt", "version"] {
        assert_eq!(spec[field], ROUNDS.to_string(), "{field}");
    }
    let annotations = spec["podTemplate"]["annotations"].as_object().cloned().unwrap_or_default();
    let missing: Vec<String> = fields
        .iter()
        .flat_map(|field| (1..=ROUNDS).map(move |round| format!("example.com/{field}.{round}")))
        .filter(|name| !annotations.contains_key(name))
        .collect();
    assert!(missing.is_empty(), "{} of {} writes are lost: {missing:?}", missing.len(), fields.len() * ROUNDS);
}

fn slugs(list: &Value) -> Vec<&str> {
    list["data"].as_array().into_iter().flatten().filter_map(|agent| agent["slug"].as_str()).collect()
}

#[test]
fn what_was_written_by_one_server_is_in_the_next_list_of_the_other() {
    let team = Team::new("api-reads");
    let apis = [Api::of(&team), Api::of(&team)];
    for round in 0..ROUNDS {
        let (writer, reader) = (&apis[round % 2], &apis[(round + 1) % 2]);
        let slug = format!("helper-{round}");
        let made = writer.call("POST", "/agents").json(&json!({"name": slug, "framework": "custom"})).send();
        assert_eq!(made.status, 201, "{made:?}");
        let list = |api: &Api, version: &str| api.call("GET", "/agents").header("X-Resource-Version", version).expect(200);
        assert!(slugs(&list(reader, made.header("x-resource-version"))).contains(&slug.as_str()), "made in round {round}");
        let path = format!("/agents/{slug}");
        let read = |api: &Api, version: &str| api.call("GET", &path).header("X-Resource-Version", version).send();
        let renamed = writer.call("PATCH", &format!("{path}/config")).json(&json!({"name": "Renamed"})).send();
        // Before the list, which waits until the reader has heard of it.
        let single = read(reader, renamed.header("x-resource-version"));
        assert_eq!((single.status, &single.json()["data"]["name"]), (200, &json!("Renamed")), "renamed in round {round}");
        let renamed = list(reader, renamed.header("x-resource-version"));
        assert!(renamed["data"].as_array().is_some_and(|all| all.iter().any(|agent| agent["slug"] == slug && agent["name"] == "Renamed")));
        let deleted = writer.call("DELETE", &path).send();
        assert_eq!(deleted.status, 200, "{deleted:?}");
        assert_eq!(read(reader, deleted.header("x-resource-version")).status, 404, "deleted in round {round}");
        assert!(!deleted.header("x-resource-version").is_empty(), "{deleted:?}");
        assert_eq!(team.kubectl(format!("get agent {slug} --ignore-not-found -o name")).ok(), "", "deleted in round {round}");
        for api in &apis {
            assert!(!slugs(&list(api, deleted.header("x-resource-version"))).contains(&slug.as_str()), "deleted in round {round}");
        }
    }
}

#[test]
fn a_version_that_no_watch_will_tell_of_is_known_all_the_same() {
    let team = Team::new("api-versions");
    let first = Api::of(&team);
    for name in ["stays", "goes"] {
        first.call("POST", "/agents").json(&json!({"name": name, "framework": "custom"})).expect(201);
    }
    let agent = slipway_e2e::Agent { team: &team, name: "stays".to_owned() };
    agent.until("looked at", 20, |agent| agent["status"]["phase"] == "Terminated");
    // Of another kind: no agent will ever have this version.
    team.apply(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "other"}, "data": {}}));
    let other = team.get("configmap/other")["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
    let list = |api: &Api, version: &str| api.call("GET", "/agents").header("X-Resource-Version", version).send();
    let known = list(&first, &other);
    assert_eq!((known.status, slugs(&known.json()).len()), (200, 2), "{known:?}");
    // Of a deletion before the server began.
    let deleted = first.call("DELETE", "/agents/goes").send();
    assert_eq!(team.kubectl("get agent/goes --ignore-not-found -o name").ok(), "", "it is gone from the cluster");
    let second = Api::of(&team);
    let known = list(&second, deleted.header("x-resource-version"));
    assert_eq!((known.status, slugs(&known.json())), (200, vec!["stays"]), "{known:?}");
    for (version, status) in [("9000000000000000000", 400), ("x", 400), ("-1", 400), ("1", 200)] {
        assert_eq!(list(&second, version).status, status, "{version}");
    }
}

#[test]
fn a_version_that_is_named_is_the_one_that_is_changed() {
    let team = Team::new("api-match");
    let api = Api::of(&team);
    api.call("POST", "/agents").json(&json!({"name": "helper", "framework": "custom"})).expect(201);
    let agent = slipway_e2e::Agent { team: &team, name: "helper".to_owned() };
    agent.until("looked at", 20, |agent| agent["status"]["phase"] == "Terminated");
    let read = api.call("GET", "/agents/helper").send();
    let tag = read.header("etag").to_owned();
    assert_eq!(tag, format!("\"{}\"", read.header("x-resource-version")));
    assert_eq!(tag, format!("\"{}\"", read.json()["data"]["resource_version"].as_str().unwrap_or_default()));
    // Another one writes in the meantime.
    agent.patch(&json!({"description": "kubectl's"}));
    let calls = [
        ("PATCH", "/agents/helper/config", json!({"description": "mine"})),
        ("PUT", "/agents/helper/skills", json!({"skills": []})),
        ("PATCH", "/agents/helper/status", json!({"status": "archived"})),
        ("POST", "/agents/helper/deploy", json!({})),
        ("POST", "/agents/helper/stop", json!({})),
        ("DELETE", "/agents/helper", json!({})),
    ];
    for (method, path, body) in &calls {
        let late = api.call(method, path).json(body).header("If-Match", tag.as_str()).send();
        assert_eq!(late.status, 409, "{method} {path}: {late:?}");
        assert!(late.body.contains("If-Match"), "{late:?}");
    }
    api.call("PATCH", "/agents/helper/config").json(&json!({})).header("If-Match", "\"").expect(400);
    assert_eq!(team.get("agent/helper")["spec"]["description"], "kubectl's");
    // The operator may write its status at any time, so the right version may take more than one look.
    slipway_e2e::poll(10, || {
        let tag = api.call("GET", "/agents/helper").send().header("etag").to_owned();
        let reply =
            api.call("PATCH", "/agents/helper/config").json(&json!({"description": "mine"})).header("If-Match", tag.as_str()).send();
        if reply.status == 200 { Ok(()) } else { Err(format!("{reply:?}")) }
    });
    api.call("DELETE", "/agents/helper").header("If-Match", "*").expect(200);
    assert_eq!(team.kubectl("get agent/helper --ignore-not-found -o name").ok(), "", "it is gone from the cluster");
}
