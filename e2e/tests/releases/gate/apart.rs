//! A release that waits where there is no node, so that it waits for good: real controllers count quotas, make and refuse pods, collect
//! garbage and empty namespaces. With pods that answer, `candidates` has the rest.

use serde_json::{Value, json};
use slipway_e2e::{condition, kubectl, poll};

use super::{Ground, gate, waits};

const CANDIDATE: &str = "helper-candidate";

/// The pods of the candidate.
#[track_caller]
fn pods(ground: &Ground) -> Vec<Value> {
    let list = ground.team.kubectl(format!("get pods -l app.kubernetes.io/name={CANDIDATE}")).json();
    list["items"].as_array().cloned().unwrap_or_default()
}

#[test]
fn a_full_quota_is_told_as_its_controller_tells_it_and_room_is_found() {
    let ground = Ground::gated("gate-full");
    ground.team.apply_spec(&json!({"quota": {"pods": 0}}));
    poll(120, || match ground.team.get("resourcequota/slipway") {
        quota if quota["status"]["hard"]["pods"] == "0" => Ok(()),
        quota => Err(format!("it should be in force: {quota}")),
    });
    let agent = ground.agent("helper", &gate(1));
    waits(&agent, 1);
    let message = |found: &Value| condition(found, "Ready")["message"].as_str().unwrap_or_default().to_owned();
    let found = agent.until("told of the quota", 120, |found| message(found).contains("exceeded quota: slipway"));
    let told = message(&found);
    for words in ["release v1 waits", "QuotaExceeded", "limited: pods=0", "raise the quota (spec.quota of the Team"] {
        assert!(told.contains(words), "{words:?} should be in {told:?}");
    }
    assert_eq!((condition(&found, "Ready")["reason"].as_str(), &found["status"]["pendingRelease"]), (Some("PendingEvaluation"), &json!(1)));
    assert!(pods(&ground).is_empty());
    ground.team.apply_spec(&json!({"quota": {"pods": 1}}));
    // Its controller tries less often the longer it could not.
    poll(300, || match pods(&ground).len() {
        1 => Ok(()),
        count => Err(format!("the candidate should have a pod, and has {count}")),
    });
    let found = agent.until("told of no quota", 120, |found| !message(found).contains("quota"));
    assert_eq!(found["status"]["pendingRelease"], 1, "it waits for its pod");
    assert!(ground.team.kubectl("get evaluationruns").json()["items"].as_array().is_some_and(Vec::is_empty), "nothing was evaluated");
}

#[test]
fn a_team_goes_while_a_release_waits() {
    let ground = Ground::gated("gate-gone");
    let agent = ground.agent("helper", &gate(1));
    waits(&agent, 1);
    poll(120, || if pods(&ground).len() == 1 { Ok(()) } else { Err("its candidate should have a pod".to_owned()) });
    let (slug, namespace) = (&ground.team.slug, &ground.team.namespace);
    // It goes once it has no agents, and this one is deleted while its release waits.
    kubectl(format!("delete team {slug} --wait=false")).ok();
    agent.kubectl("delete").arg("--timeout=60s").ok();
    kubectl(format!("wait namespace/{namespace} --for=delete --timeout=300s")).ok();
    kubectl(format!("wait team/{slug} --for=delete --timeout=120s")).ok();
}
