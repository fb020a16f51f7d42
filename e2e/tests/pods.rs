//! What keeps pods from running is told in the words of kubelet, scheduler and quota.

use serde_json::{Value, json};
use slipway_e2e::{Team, condition};

fn ready_reason(agent: &Value) -> &str {
    condition(agent, "Ready")["reason"].as_str().unwrap_or_default()
}

#[test]
fn an_image_that_cannot_be_pulled() {
    let team = Team::new("image");
    // Nothing listens there, so that the answer comes at once and from no registry.
    let agent = team.agent("hello", &json!({"image": "127.0.0.1:1/no/such:1"}));
    agent.until("told of the image", 30, |agent| matches!(ready_reason(agent), "ErrImagePull" | "ImagePullBackOff"));
    let message = agent.stalled(&["ImagePullBackOff"], 60);
    assert!(message.contains("127.0.0.1:1/no/such:1"), "{message}");
    assert_eq!(agent.get()["status"]["phase"], "Failed");

    agent.patch(&json!({"image": null}));
    agent.ready();
}

#[test]
fn an_image_that_nobody_put_on_the_node() {
    let team = Team::new("never");
    let agent = team.agent("hello", &json!({"image": "no-such-image:1"}));
    agent.stalled(&["ErrImageNeverPull"], 30);
}

/// A bad change does not take away what works: the old pod serves until the new one is ready.
#[test]
fn a_bad_image_leaves_the_old_pod_serving() {
    let team = Team::new("badroll");
    let agent = team.agent("hello", &json!({}));
    agent.ready();
    agent.patch(&json!({"image": "127.0.0.1:1/no/such:1"}));
    agent.stalled(&["ImagePullBackOff"], 60);
    let seen = agent.get();
    assert_eq!((&seen["status"]["phase"], &condition(&seen, "Available")["status"]), (&json!("Running"), &json!("True")), "{seen:#}");
    assert!(agent.chat("still there?").contains("still there?"));
}

#[test]
fn a_crash_loop_tells_the_last_exit() {
    let team = Team::new("crash");
    // The runtime refuses a tool whose program is not in its image, with exit code 2.
    team.tool("absent", &json!({"type": "cli", "binary": "/no/such/program", "allowedCommands": ["--version"]}));
    let agent = team.agent("hello", &json!({"tools": ["absent"]}));
    let message = agent.stalled(&["CrashLoopBackOff"], 60);
    assert!(message.contains("code 2"), "{message}");
    assert!(message.contains("tool absent: binary: '/no/such/program' is not there"), "the runtime's own words belong here: {message}");
    let seen = agent.get();
    assert_eq!(seen["status"]["phase"], "Failed");
    assert!(seen["status"]["firstDeployedAt"].is_null(), "{seen:#}");

    agent.patch(&json!({"tools": null}));
    agent.ready();
}

#[test]
fn a_quota_that_is_used_up() {
    let team = Team::with("quota", &json!({"quota": {"pods": 1}}));
    let agent = team.agent("hello", &json!({}));
    agent.ready();
    // Who has no pod fails.
    let other = team.agent("other", &json!({}));
    let message = other.stalled(&["QuotaExceeded"], 30);
    assert!(message.contains("exceeded quota"), "{message}");
    assert_eq!(other.get()["status"]["phase"], "Failed");
    other.kubectl("delete").ok();
    // Who serves goes on, whatever there is no room for: one more pod, or the first of other pods.
    for change in [json!({"replicas": 2}), json!({"replicas": 1, "systemPrompt": "other"})] {
        agent.patch(&change);
        let seen = agent.until("told of the quota", 30, |agent| ready_reason(agent) == "QuotaExceeded");
        let said = ["Ready", "Reconciling", "Stalled", "Available"].map(|kind| condition(&seen, kind)["status"].clone());
        assert_eq!(
            (&seen["status"]["phase"], said),
            (&json!("Running"), ["True", "True", "False", "True"].map(|it| json!(it))),
            "{seen:#}"
        );
    }

    team.apply_spec(&json!({"quota": {"pods": 4}}));
    team.kubectl("wait resourcequota/slipway --for=jsonpath={.spec.hard.pods}=4 --timeout=10s").ok();
    // The ReplicaSet's controller tries again in its own time; another wish is granted now.
    agent.patch(&json!({"systemPrompt": "granted"}));
    agent.ready();
}

/// No status of a pod says why it has no sandbox. Kubelet's Events do.
#[test]
fn a_sandbox_that_cannot_start() {
    let team = Team::new("sandbox");
    let agent = team.agent("hello", &json!({"resources": {"limits": {"memory": "2Mi"}}}));
    let message = agent.stalled(&["FailedCreatePodSandBox", "CreateContainerError", "RunContainerError", "CrashLoopBackOff"], 120);
    assert!(!message.is_empty(), "kubelet's words belong here");
    assert_eq!(agent.get()["status"]["phase"], "Failed");
    agent.patch(&json!({"resources": null}));
    agent.ready();
}

#[test]
fn pods_that_fit_no_node() {
    let team = Team::new("unschedulable");
    let agent = team.agent("hello", &json!({"podTemplate": {"nodeSelector": {"example.com/no-such": "node"}}}));
    let seen = agent.until("told by the scheduler", 30, |agent| ready_reason(agent) == "Unschedulable");
    let message = condition(&seen, "Ready")["message"].as_str().unwrap();
    assert!(message.contains("node"), "{message}");
    // A node may still come.
    assert_eq!(seen["status"]["phase"], "Pending");
    agent.patch(&json!({"podTemplate": null}));
    agent.ready();
}
