//! An autoscaler sets how many pods an agent has, by its scale subresource: the operator follows, nobody puts anything
//! back, and no release is made of it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use slipway_e2e::{Agent, MetricsServer, Team, condition, fresh, kubectl, until};

/// Little enough for a few people to keep it busy, more than an agent takes that nobody talks to.
const CPU: &str = "10m";
const BUSY_PERCENT: u32 = 60;
const MOST: u64 = 3;

#[test]
fn an_autoscaler_is_followed_up_and_down_without_a_fight_and_without_a_release() {
    let team = Team::new("autoscaling");
    let _metrics = MetricsServer::start();
    let agent = team.agent(&fresh("busy"), &json!({"storage": "memory", "resources": {"requests": {"cpu": CPU, "memory": "64Mi"}}}));
    agent.ready();
    assert_eq!(releases(&agent), 1);
    let prompt = agent.get()["spec"].clone();
    autoscaler(&team, &agent.name);
    measures(&team);

    let enough = AtomicBool::new(false);
    let up = thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| talk(&agent, &enough));
        }
        // Dropped when this fails too, so that those who talk end.
        let _hush = Hush(&enough);
        steps(&agent, "more pods that are ready", |deployment| deployment["status"]["readyReplicas"].as_u64() >= Some(2))
    });
    assert!(up.is_sorted() && up.first() == Some(&1), "nobody should take away what the autoscaler gives: {up:?}");
    let down = steps(&agent, "one pod again", |deployment| deployment["status"]["replicas"] == 1 && deployment["spec"]["replicas"] == 1);
    // What was measured while people talked may still bring pods.
    let (rise, fall) = down.split_at(down.iter().enumerate().max_by_key(|(_, pods)| **pods).map_or(0, |(at, _)| at));
    assert!(rise.is_sorted() && fall.is_sorted_by(|a, b| a >= b), "nobody should give back what the autoscaler takes away: {down:?}");

    agent.ready();
    let mut spec = agent.get()["spec"].clone();
    spec["replicas"] = prompt["replicas"].clone();
    assert_eq!(spec, prompt, "nothing else of the spec was touched");
    assert_eq!(releases(&agent), 1, "how many pods an agent has is no matter of releases");
    let uid = agent.get()["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    let repairs = kubectl(format!("get events -n {} --field-selector reason=Repaired,involvedObject.uid={uid}", team.namespace)).json();
    assert_eq!(repairs["items"], json!([]));
}

/// Waits until the team's autoscaler has something to measure by.
#[track_caller]
pub(crate) fn measures(team: &Team) {
    until(&format!("horizontalpodautoscalers -n {}", team.namespace), 120, |all| {
        let measures = all.iter().any(|it| condition(it, "ScalingActive")["status"] == "True");
        if measures { Ok(()) } else { Err("the autoscaler should have something to measure by".to_owned()) }
    });
}

/// Ends those who talk when it is dropped.
pub(crate) struct Hush<'a>(pub &'a AtomicBool);

impl Drop for Hush<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn talk(agent: &Agent, enough: &AtomicBool) {
    let call = agent.chat_call("Are you busy?");
    while !enough.load(Ordering::Relaxed) {
        // Pods that come and go are another test's matter.
        drop(call.try_send());
        thread::sleep(Duration::from_millis(5));
    }
}

#[track_caller]
fn autoscaler(team: &Team, agent: &str) {
    let within =
        |seconds: u32| json!({"stabilizationWindowSeconds": seconds, "policies": [{"type": "Pods", "value": MOST, "periodSeconds": 15}]});
    team.apply(&json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": agent},
        "spec": {
            "scaleTargetRef": {"apiVersion": "agents.slipway.dev/v1", "kind": "Agent", "name": agent},
            "minReplicas": 1, "maxReplicas": MOST, "behavior": {"scaleUp": within(0), "scaleDown": within(20)},
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": BUSY_PERCENT}}}],
        },
    }));
}

/// How many pods the agent's Deployment was to have, one after the other, until it is as wanted.
#[track_caller]
fn steps(agent: &Agent, what: &str, want: impl Fn(&Value) -> bool) -> Vec<u64> {
    let mut steps = Vec::new();
    let query = format!("deployments -n {} --field-selector metadata.name={}", agent.team.namespace, agent.name);
    until(&query, 240, |deployments| {
        let deployment = deployments.first().ok_or("there is no Deployment")?;
        let replicas = deployment["spec"]["replicas"].as_u64().unwrap_or_default();
        if steps.last() != Some(&replicas) {
            steps.push(replicas);
        }
        if want(deployment) { Ok(()) } else { Err(format!("{} should have {what}: {steps:?}", agent.name)) }
    });
    steps
}

/// How many releases an agent has, which has one at least.
#[track_caller]
fn releases(agent: &Agent) -> usize {
    until(&format!("agentreleases -n {}", agent.team.namespace), 60, |releases| {
        let count = releases.iter().filter(|release| release["spec"]["agent"] == agent.name.as_str()).count();
        if count > 0 { Ok(count) } else { Err(format!("{} should have a release", agent.name)) }
    })
}
