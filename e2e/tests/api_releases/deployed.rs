//! From an agent's creation to its first release, in the order of the specification.

use jiff::Timestamp;
use serde_json::{Value, json};
use slipway_e2e::{Agent, Team, fresh};

use super::Ground;

fn time(value: &Value) -> Timestamp {
    value.as_str().unwrap_or_default().parse().unwrap_or_else(|e| panic!("{value} is no time: {e}"))
}

#[test]
fn a_deployment_goes_step_by_step() {
    let team = Team::new(&fresh("api-deployed"));
    let ground = Ground::open(&team);
    let agent = Agent { team: &team, name: fresh("helper") };
    let on = |method: &str, path: &str| ground.api.call(method, &format!("/agents/{}{path}", agent.name));

    // The record alone: nothing runs, and nothing is released.
    let body = json!({"name": agent.name, "framework": "custom", "storage": "memory"});
    let made = ground.api.call("POST", "/agents").json(&body).expect(201)["data"].clone();
    assert_eq!(made["status"], "created", "{made}");
    let rests = agent.until("suspended", 30, |found| found["status"]["phase"] == "Terminated");
    assert!(rests["status"]["firstDeployedAt"].is_null() && agent.pods().is_empty(), "{rests:#}");
    assert_eq!(agent.deployment()["spec"]["replicas"], 0);
    assert_eq!(on("GET", "/releases").expect(200)["data"], json!([]));

    // The operator makes pods of it.
    assert_eq!(on("POST", "/deploy").expect(200)["action"], "deployed");
    let deployment = agent.deployment_until("a pod", 20, |deployment| deployment["spec"]["replicas"] == 1);
    for child in [&deployment, &agent.config(), &agent.service()] {
        assert_eq!(child["metadata"]["ownerReferences"][0]["uid"], rests["metadata"]["uid"], "{child:#}");
    }
    agent.ready();
    assert!(agent.chat("ping 4711").contains("ping 4711"));

    // The release names what the pods run, which is known once they were started.
    ground.runs(&agent.name, 1);
    let release = on("GET", "/releases/1").expect(200)["data"].clone();
    let (metadata, image) = (&release["metadata"], release["resolved"]["image"].as_str().unwrap_or_default());
    assert_eq!((&metadata["status"], &metadata["previous"]), (&json!("active"), &json!(0)), "{release:#}");
    assert_eq!(release["deployment"]["namespace"], team.namespace.as_str());
    assert!(image.starts_with("sha256:"), "{release:#}");
    let started = time(&agent.pods()[0]["status"]["startTime"]);
    assert!(time(&metadata["timestamp"]) >= started, "pods from {started}, and {metadata:#}");
    assert_eq!(on("GET", "").expect(200)["data"]["status"], "deployed");
}
