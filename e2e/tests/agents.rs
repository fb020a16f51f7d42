//! An Agent's life: it becomes ready and answers, is scaled, changed, suspended and deleted.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use slipway_e2e::{Agent, Team, condition};

#[test]
fn it_becomes_ready_and_answers() {
    let team = Team::new("answers");
    let agent = team.agent("hello", &json!({"systemPrompt": "You are friendly."}));
    let seen = agent.ready();

    let status = &seen["status"];
    assert_eq!(status["phase"], "Running");
    assert_eq!(status["replicas"], 1);
    assert_eq!(status["endpoint"], format!("http://hello.{}.svc.cluster.local:8000", team.namespace));
    let id = hex::encode(Sha256::digest(format!("{}/hello", team.namespace)));
    assert_eq!(status["id"], format!("ag_{}", &id[..20]));
    assert!(status["firstDeployedAt"].is_string(), "{status:#}");
    for (kind, expected) in [("Ready", "True"), ("Available", "True"), ("Reconciling", "False"), ("Stalled", "False")] {
        assert_eq!(condition(&seen, kind)["status"], expected, "{kind} in {status:#}");
    }
    assert_eq!(condition(&seen, "Available")["reason"], "DeploymentReady");
    assert_eq!(pods_of_selector(&agent, &seen), 1, "pods that status.selector selects");

    assert!(agent.chat("ping 4711").contains("ping 4711"));
    let whole = agent.post("/chat", &json!({"input": "ping"}));
    assert_eq!((whole.status, &whole.json()["stop_reason"]), (200, &json!("end_turn")), "{whole:?}");
    assert_eq!(agent.post("/chat", &json!({})).status, 400);
}

#[test]
fn it_answers_in_pieces() {
    let team = Team::new("streams");
    let agent = team.agent("hello", &json!({}));
    agent.ready();
    let reply = agent.post("/chat/stream", &json!({"message": "one two three"}));
    let events: Vec<Value> =
        reply.body.lines().filter_map(|line| line.strip_prefix("data: ")).map(|text| serde_json::from_str(text).unwrap()).collect();
    let told: String = events.iter().filter(|event| event["type"] == "token").filter_map(|event| event["content"].as_str()).collect();
    let last = events.last().unwrap();
    assert_eq!((&last["type"], &last["content"]), (&json!("done"), &json!(told)), "{reply:?}");
    assert!(told.contains("one two three"), "{reply:?}");
}

#[test]
fn it_is_scaled() {
    let team = Team::new("scaled");
    let agent = team.agent("hello", &json!({"storage": "memory"}));
    let first = agent.ready();
    let names = |agent: &Agent| agent.pods().iter().map(|pod| pod["metadata"]["name"].clone()).collect::<Vec<_>>();
    let before = names(&agent);

    agent.kubectl("scale").arg("--replicas=2").ok();
    // It serves all the while, and says that more is under way.
    let seen = agent.until("ready with 2 pods", 60, |agent| {
        assert_eq!((&agent["status"]["phase"], &condition(agent, "Ready")["status"]), (&json!("Running"), &json!("True")), "{agent:#}");
        agent["status"]["replicas"] == 2 && condition(agent, "Reconciling")["status"] == "False"
    });
    assert_eq!(agent.deployment()["spec"]["replicas"], 2);
    assert_eq!(pods_of_selector(&agent, &seen), 2);
    assert!(names(&agent).contains(&before[0]), "scaling should leave the first pod alone: {before:?}, then {:?}", names(&agent));
    // Without a database, each pod remembers for itself.
    assert_eq!(condition(&seen, "StorageShared")["status"], "False", "{seen:#}");

    agent.kubectl("scale").arg("--replicas=0").ok();
    let seen =
        agent.until("ready without pods", 60, |agent| agent["status"]["replicas"] == 0 && condition(agent, "Ready")["status"] == "True");
    assert_eq!(agent.deployment()["spec"]["replicas"], 0);
    assert_eq!(seen["status"]["firstDeployedAt"], first["status"]["firstDeployedAt"]);
    let refusal = agent.kubectl("scale").arg("--replicas=11").refused();
    assert!(refusal.contains("spec.replicas"), "{refusal}");
}

#[test]
fn it_is_suspended_and_resumed() {
    let team = Team::new("suspended");
    let agent = team.agent("hello", &json!({"replicas": 2, "suspend": true}));
    let suspended = |agent: &Value| {
        let ready = condition(agent, "Ready");
        ready["status"] == "True" && ready["reason"] == "Suspended" && agent["status"]["phase"] == "Terminated"
    };
    let seen = agent.until("suspended from the beginning", 20, suspended);
    assert!(seen["status"]["firstDeployedAt"].is_null(), "never deployed: {seen:#}");
    assert_eq!(agent.deployment()["spec"]["replicas"], 0);

    agent.patch(&json!({"suspend": false}));
    agent.ready();
    assert_eq!(agent.deployment()["spec"]["replicas"], 2);

    agent.patch(&json!({"suspend": true}));
    let seen = agent.until("suspended", 60, suspended);
    assert_eq!((&seen["spec"]["replicas"], &seen["status"]["replicas"]), (&json!(2), &json!(0)));
    assert_eq!(condition(&seen, "Available")["status"], "False");
}

#[test]
fn a_change_reaches_the_pods() {
    let team = Team::new("changed");
    let agent = team.agent("hello", &json!({"systemPrompt": "one"}));
    agent.ready();
    let hash = "/spec/template/metadata/annotations/agents.slipway.dev~1config-hash";
    let before = agent.deployment().pointer(hash).cloned();
    let pod = agent.pods()[0]["metadata"]["name"].clone();

    agent.patch(&json!({"systemPrompt": "two"}));
    let rolling = agent.until("rolling", 30, |agent| condition(agent, "Reconciling")["status"] == "True");
    let said = ["Ready", "Available", "Stalled"].map(|kind| condition(&rolling, kind)["status"].clone());
    assert_eq!((&rolling["status"]["phase"], said), (&json!("Running"), ["True", "True", "False"].map(|it| json!(it))), "{rolling:#}");
    agent.deployment_until("another config-hash", 10, |deployment| deployment.pointer(hash).cloned() != before);
    assert_eq!(agent.config()["data"]["RUNTIME_SYSTEM_PROMPT"], "two");
    agent.ready();
    assert!(agent.pods().iter().any(|other| other["metadata"]["name"] != pod), "the pod should be another one");
    assert!(agent.chat("still there?").contains("still there?"));

    // The same content gives the same hash, so that a change and its undoing end where they began.
    agent.patch(&json!({"systemPrompt": "one"}));
    agent.deployment_until("the first config-hash", 10, |deployment| deployment.pointer(hash).cloned() == before);
}

#[test]
fn its_children_go_with_it() {
    let team = Team::with("deleted", &json!({"gcpServiceAccounts": ["hello@project.example"]}));
    let agent = team.agent("hello", &json!({"gcpServiceAccount": "hello@project.example"}));
    agent.ready();
    let children = "configmap/hello-config deployment/hello service/hello serviceaccount/hello";
    for child in children.split(' ') {
        let owners = team.get(child)["metadata"]["ownerReferences"].clone();
        assert_eq!(owners[0]["uid"], agent.get()["metadata"]["uid"], "{child}");
        assert_eq!((&owners[0]["controller"], &owners[0]["kind"]), (&json!(true), &json!("Agent")), "{child}");
    }
    agent.kubectl("delete").ok();
    team.kubectl(format!("wait {children} --for=delete --timeout=30s")).ok();
    team.kubectl("wait pods -l agents.slipway.dev/agent=hello --for=delete --timeout=45s").ok();
}

#[test]
fn the_longest_name_works() {
    let team = Team::new("longest");
    let name = format!("a{}z", "-b".repeat(25));
    assert_eq!(name.len(), 52);
    let agent = team.agent(&name, &json!({}));
    agent.ready();
    assert!(agent.chat("hello").contains("hello"));
}

fn pods_of_selector(agent: &Agent, seen: &Value) -> usize {
    let selector = seen["status"]["selector"].as_str().unwrap();
    let list = agent.team.kubectl(format!("get pods -l {selector}")).json();
    list["items"].as_array().unwrap().iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null()).count()
}
