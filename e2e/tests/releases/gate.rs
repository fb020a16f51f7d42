//! The evaluation gate on the cluster. A comparison of words judges here, which the state role of these tests lets pass: a score of 1
//! is reached by any answer, and one of 100 by none of the stub's.

use serde_json::{Value, json};
use slipway_e2e::platform::WithoutState;
use slipway_e2e::{Agent, Api, State, Team, condition, fresh, kubectl, poll, unwatched};

use super::{Ground, deploy, runs};

impl Ground {
    /// With a state role that lets a comparison of words pass a gate.
    #[track_caller]
    fn gated(test: &str) -> Self {
        let turn = unwatched();
        let without = WithoutState::begin();
        let team = Team::within(turn, &fresh(test), &json!({}));
        let folder = tempfile::tempdir().unwrap();
        let state = State::with(&team, folder.path(), &team.namespace, &[("SLIPWAY_ALLOW_HEURISTIC_GATE", "true")]);
        Self { state, _without: without, team, folder }
    }

    fn release(&self, name: &str, version: u64) -> Value {
        let list = self.team.kubectl(format!("get agentreleases --field-selector spec.agent={name}")).json();
        let found = list["items"].as_array().into_iter().flatten().find(|release| release["status"]["version"] == version);
        found.cloned().unwrap_or_default()
    }
}

fn gate(score: i32) -> Value {
    json!({"replicas": 1, "systemPrompt": "one", "governance": {"minQualityScore": score, "riskProfile": "low"}})
}

#[track_caller]
fn waits(agent: &Agent, version: u64) -> Value {
    agent.until(&format!("waiting with v{version}"), 60, |found| found["status"]["pendingRelease"] == version)
}

#[track_caller]
fn rejected(agent: &Agent, version: u64) -> Value {
    agent.until(&format!("without v{version}"), 180, |found| {
        let approved = condition(found, "Approved");
        found["status"]["pendingRelease"].is_null() && approved["reason"] == "ReleaseRejected"
    })
}

/// The UIDs of the pods of the stable track.
fn stable_pods(agent: &Agent) -> Vec<Value> {
    let pods = agent.pods();
    let stable = pods.iter().filter(|pod| pod["metadata"]["labels"]["agents.slipway.dev/track"] == "stable");
    let mut uids: Vec<Value> = stable.map(|pod| pod["metadata"]["uid"].clone()).collect();
    uids.sort_by_key(ToString::to_string);
    uids
}

#[test]
fn a_first_release_waits_alone_and_a_change_is_let_through_when_it_passes() {
    let ground = Ground::gated("gate-passes");
    let agent = ground.agent("helper", &gate(1));
    waits(&agent, 1);
    assert!(ground.team.kubectl("get deployment helper").run().code != Some(0), "nothing serves yet");
    runs(&agent, 1);
    agent.ready();
    let before = stable_pods(&agent);
    agent.patch(&json!({"systemPrompt": "two"}));
    waits(&agent, 2);
    assert_eq!(agent.get()["status"]["activeRelease"], 1);
    runs(&agent, 2);
    poll(60, || match ground.team.kubectl("get deployment helper-candidate").run().code {
        Some(0) => Err("the candidate is there still".to_owned()),
        _ => Ok(()),
    });
    agent.until("with new pods", 120, |found| condition(found, "Reconciling")["status"] == "False");
    assert_ne!(stable_pods(&agent), before);
    ground.shows("helper", &[(1, "archived"), (2, "active")]);
    let evaluation = ground.release("helper", 2)["status"]["evaluation"].clone();
    assert_eq!((&evaluation["passed"], &evaluation["provider"]), (&json!(true), &json!("heuristic")), "{evaluation}");
    assert!(ground.team.kubectl("describe agent helper").ok().contains("ReleaseApproved"));
}

#[test]
fn a_change_that_fails_touches_no_pod_and_the_spec_goes_back() {
    let ground = Ground::gated("gate-fails");
    let agent = ground.agent("helper", &gate(1));
    runs(&agent, 1);
    agent.ready();
    let before = stable_pods(&agent);
    agent.patch(&json!({"systemPrompt": "two", "governance": {"minQualityScore": 100}}));
    waits(&agent, 2);
    assert_eq!(stable_pods(&agent), before);
    rejected(&agent, 2);
    let now = agent.until("set back", 30, |found| found["spec"]["systemPrompt"] == "one");
    assert_eq!((&now["spec"]["governance"]["minQualityScore"], &now["status"]["activeRelease"]), (&json!(1), &json!(1)));
    assert_eq!(stable_pods(&agent), before, "the pods that serve were never touched");
    let release = ground.release("helper", 2);
    assert_eq!(release["status"]["phase"], "rejected");
    assert!(condition(&release, "Ready")["message"].as_str().unwrap_or_default().starts_with("[REJECTED: "), "{release}");
    // The same once more is no new release.
    agent.patch(&json!({"systemPrompt": "two", "governance": {"minQualityScore": 100}}));
    agent.until("set back again", 30, |found| found["spec"]["systemPrompt"] == "one");
    ground.stays("helper", 2);
    deploy(&agent, 2);
    poll(30, || {
        let told = ground.team.kubectl("describe agent helper").ok();
        if told.contains("release 2 is not deployed: the release was rejected") { Ok(()) } else { Err(told) }
    });
}

#[test]
fn a_run_that_somebody_made_decides_nothing() {
    let ground = Ground::gated("gate-lies");
    let agent = ground.agent("helper", &gate(1));
    runs(&agent, 1);
    // Its candidate finds no room, so that no true run begins.
    agent.patch(&json!({"systemPrompt": "two", "resources": {"requests": {"memory": "900Ti"}, "limits": {"memory": "900Ti"}}}));
    waits(&agent, 2);
    let release = ground.release("helper", 2);
    let name = release["metadata"]["name"].as_str().unwrap();
    let run = json!({
        "apiVersion": "agents.slipway.dev/v1", "kind": "EvaluationRun", "metadata": {"name": "ev-mine"},
        "spec": {"agent": "helper", "release": name, "minQualityScore": 1, "riskProfile": "low"},
    });
    // A policy may refuse it; one that is made changes nothing.
    if ground.team.kubectl("apply -f -").input(run).run().code == Some(0) {
        poll(120, || {
            let run = ground.team.get("evaluationrun/ev-mine");
            let phase = run["status"]["phase"].as_str().unwrap_or_default().to_owned();
            if ["Completed", "Failed"].contains(&phase.as_str()) { Ok(()) } else { Err(format!("it is {phase}")) }
        });
    }
    std::thread::sleep(std::time::Duration::from_secs(4));
    let now = agent.get();
    assert_eq!((&now["status"]["activeRelease"], &now["status"]["pendingRelease"]), (&json!(1), &json!(2)));
}

#[test]
fn asking_for_less_takes_a_right_of_its_own() {
    let ground = Ground::gated("gate-lowered");
    let agent = ground.agent("helper", &gate(50));
    let namespace = &ground.team.namespace;
    let bind = |role: &str, user: &str| {
        kubectl(format!("-n {namespace} create rolebinding {user} --clusterrole=slipway-{role} --user={user}")).ok();
    };
    bind("developer", "gate-dev");
    bind("admin", "gate-admin");
    let patch = |user: &str, spec: &Value| {
        kubectl(format!("-n {namespace} patch agent helper --type=merge --as={user} -p")).arg(json!({"spec": spec}))
    };
    let less = json!({"governance": {"minQualityScore": 49}});
    let said = patch("gate-dev", &less).refused();
    assert!(said.contains("governance.minQualityScore") && said.contains("agents/governance"), "{said}");
    patch("gate-dev", &json!({"governance": {"minQualityScore": 60}})).ok();
    let said = patch("gate-dev", &json!({"governance": null})).refused();
    assert!(said.contains("agents/governance"), "{said}");
    // REST asks as well, for it writes as itself.
    let api = Api::start(&[]);
    let developer = ground.team.token("developer");
    let path = "/agents/helper/config";
    let less = json!({"governance": {"min_quality_score": 10}});
    let refused = api.call("PATCH", path).token(&developer).json(&less).expect(403);
    assert!(refused.to_string().contains("min_quality_score"), "{refused}");
    let admin = ground.team.token("admin");
    api.call("PATCH", path).token(&admin).json(&less).expect(200);
    patch("gate-admin", &json!({"governance": {"minQualityScore": 0}})).ok();
    assert_eq!(agent.get()["spec"]["governance"]["minQualityScore"], 0);
}
