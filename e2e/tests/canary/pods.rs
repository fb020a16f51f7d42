//! What becomes of a canary with its pods: an image that cannot be pulled, canaries in a row, an agent that is stopped or archived
//! meanwhile, and one that an autoscaler scales.
//!
//! Kubernetes gives up on pods after five minutes. All of it happens in one team within that time, each scene with an agent of its own.

use std::thread;

use serde_json::{Value, json};
use slipway_e2e::{Agent, MetricsServer, Team, condition, fresh, kubectl, long, poll, until};

use super::{ended, events, payload, serves, standing};
use crate::autoscaling::measures;
use crate::releases::gate::stable_pods;

/// Nothing listens there, so that the answer comes at once and from no registry.
const NO_IMAGE: &str = "127.0.0.1:1/no/such:1";

#[test]
fn canaries_come_and_go_with_their_pods() {
    let team = Team::within(long(), &fresh("canary-pods"), &json!({}));
    let team = &team;
    thread::scope(|scope| {
        for scene in [given_up, one_after_the_other, stopped, scaled] {
            scope.spawn(move || scene(team));
        }
    });
}

/// An agent that serves, of which nothing is remembered and of whose name there never was another.
#[track_caller]
fn agent<'a>(team: &'a Team, name: &str) -> Agent<'a> {
    let agent = team.agent(&fresh(name), &json!({"storage": "memory", "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}}}));
    agent.ready();
    agent
}

/// Waits until it is told that the canary has no image, and serves nobody.
#[track_caller]
fn has_no_image(agent: &Agent) {
    let found = agent.until("told of the canary's image", 90, |found| {
        let ready = condition(found, "CanaryReady");
        ready["status"] == "False" && ready["message"].as_str().is_some_and(|message| message.contains(NO_IMAGE))
    });
    assert_eq!(standing(&found)["weight"], 0, "{found:#}");
    assert_eq!(condition(&found, "Ready")["reason"], "DeploymentReady", "the stable track is none the worse for it: {found:#}");
}

/// With analysis such a canary ends by itself, once Kubernetes has given up.
fn given_up(team: &Team) {
    let agent = agent(team, "late");
    let before = stable_pods(&agent);
    agent.patch(&json!({"canary": {"enabled": true, "weight": 50, "image": NO_IMAGE, "analysis": {"promotion": "automatic"}}}));
    has_no_image(&agent);
    agent.until("without its canary", 420, |found| {
        let weight = standing(found)["weight"].as_i64().unwrap_or(0);
        assert_eq!(weight, 0, "a canary without pods serves nobody: {found:#}");
        found["spec"]["canary"].is_null()
    });
    let found = ended(&agent);
    assert!(found["spec"]["image"].is_null(), "{found:#}");
    let told = events(&agent, "AgentCanaryRolledBack");
    assert_eq!((told.len(), &told[0]["type"], &payload(&told[0])["by"]), (1, &json!("Warning"), &json!("analysis")), "{told:#?}");
    assert_eq!(stable_pods(&agent), before, "the pods that serve were never touched");
}

/// Without analysis it waits for somebody to mend it. What is another canary begins anew, and so does one after a rollback.
fn one_after_the_other(team: &Team) {
    let agent = agent(team, "next");
    agent.patch(&json!({"canary": {"enabled": true, "weight": 20, "image": NO_IMAGE}}));
    has_no_image(&agent);
    let first = agent.get();
    agent.patch(&json!({"canary": {"image": null, "systemPrompt": "second"}}));
    let second = serves(&agent, 20);
    assert_ne!(standing(&second)["content"], standing(&first)["content"]);
    agent.patch(&json!({"canary": null}));
    agent.until("at the end of its canary", 60, |found| standing(found).is_null() || standing(found)["phase"] == "Draining");
    agent.patch(&json!({"canary": {"enabled": true, "weight": 30, "systemPrompt": "third"}}));
    let third = serves(&agent, 30);
    assert_ne!(standing(&third)["startedAt"], standing(&second)["startedAt"], "it is another one");
    let told = ["AgentCanaryStarted", "AgentCanaryRolledBack", "AgentCanaryPromoted"].map(|reason| events(&agent, reason).len());
    assert_eq!(told, [3, 1, 0], "each beginning and each end is told once");
    assert_eq!(events(&agent, "AgentCanaryRolledBack")[0]["type"], "Normal", "that was what somebody wanted");
}

/// An agent that is stopped or put away has no canary that serves, and has it again afterwards.
fn stopped(team: &Team) {
    let agent = agent(team, "rests");
    agent.patch(&json!({"canary": {"enabled": true, "weight": 40, "systemPrompt": "second"}}));
    serves(&agent, 40);
    let rests = || {
        agent.until("stopped with its canary", 60, |found| {
            standing(found)["weight"] == 0 && condition(found, "CanaryReady")["reason"] == "AgentStopped"
        });
        poll(60, || match agent.pods().len() {
            0 => Ok(()),
            some => Err(format!("{} should have no pods of either track, and has {some}", agent.name)),
        });
    };
    agent.patch(&json!({"suspend": true}));
    rests();
    agent.patch(&json!({"suspend": false}));
    serves(&agent, 40);
    agent.kubectl("annotate").arg("agents.slipway.dev/archived=true").ok();
    rests();
    agent.kubectl("annotate").arg("agents.slipway.dev/archived-").ok();
    serves(&agent, 40);
    assert!(events(&agent, "AgentCanaryRolledBack").is_empty() && events(&agent, "AgentCanaryPromoted").is_empty());
}

/// An autoscaler gives an agent a second pod while it has a canary, which follows in its share, and a promotion takes nothing back.
fn scaled(team: &Team) {
    let _metrics = MetricsServer::start();
    let agent = agent(team, "busy");
    agent.patch(&json!({"canary": {"enabled": true, "weight": 60, "systemPrompt": "second"}}));
    let before = serves(&agent, 60);
    let replicas = |workload: &str, count: u64| {
        let query = format!("deployments -n {} --field-selector metadata.name={workload}", team.namespace);
        until(&query, 90, |deployments| {
            let ready = deployments.first().map(|found| found["status"]["readyReplicas"].clone()).unwrap_or_default();
            if ready == count { Ok(()) } else { Err(format!("{workload} should have {count} pods that are ready, and has {ready}")) }
        });
    };
    replicas(&format!("{}-canary", agent.name), 1);
    autoscaler(team, &agent.name);
    agent.until("scaled", 120, |found| found["spec"]["replicas"] == 2);
    replicas(&agent.name, 2);
    // 60 % of two pods, rounded up.
    replicas(&format!("{}-canary", agent.name), 2);
    let scaled = serves(&agent, 60);
    assert_eq!(standing(&scaled)["startedAt"], standing(&before)["startedAt"], "how many pods there are makes no other canary");
    measures(team);
    agent.kubectl("annotate").arg("agents.slipway.dev/canary-action=promote").ok();
    let promoted = ended(&agent);
    assert_eq!((&promoted["spec"]["systemPrompt"], &promoted["spec"]["replicas"]), (&json!("second"), &json!(2)), "{promoted:#}");
    let uid = promoted["metadata"]["uid"].as_str().unwrap_or_default();
    let repairs = kubectl(format!("get events -n {} --field-selector reason=Repaired,involvedObject.uid={uid}", team.namespace)).json();
    assert_eq!(repairs["items"], json!([]), "nobody takes back what another one gives");
}

/// It asks for two pods whatever it measures.
#[track_caller]
fn autoscaler(team: &Team, agent: &str) {
    let target = json!({"type": "Utilization", "averageUtilization": 80});
    let spec: Value = json!({
        "scaleTargetRef": {"apiVersion": "agents.slipway.dev/v1", "kind": "Agent", "name": agent},
        "minReplicas": 2, "maxReplicas": 2,
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
    });
    team.apply(&json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": agent}, "spec": spec}));
}
