//! An agent that is deleted while a release of it is evaluated: nothing in the cluster is left of it, and Git has its end. On a cluster with
//! the controllers of namespaces `releases/gate/apart.rs` has a Team that goes.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use slipway_e2e::fault::{Ground, Home, Trial};
use slipway_e2e::{git, poll};

use super::{AGENT, APPS, CANDIDATE, OURS, SLOW, Scene};

/// What an agent and its evaluation may have.
const KINDS: [(&str, &str); 14] = [
    (OURS, "agents"),
    (OURS, "agentreleases"),
    (OURS, "evaluationruns"),
    (APPS, "deployments"),
    ("apis/batch/v1", "jobs"),
    ("api/v1", "pods"),
    ("api/v1", "services"),
    ("api/v1", "configmaps"),
    ("api/v1", "secrets"),
    ("api/v1", "serviceaccounts"),
    ("apis/rbac.authorization.k8s.io/v1", "roles"),
    ("apis/rbac.authorization.k8s.io/v1", "rolebindings"),
    ("apis/networking.k8s.io/v1", "networkpolicies"),
    ("apis/policy/v1", "poddisruptionbudgets"),
];
/// The account that every namespace has, which comes with the first pod.
const DEFAULT: &str = "serviceaccounts/default";

/// All that there is, by kind and name.
fn names(home: &Home) -> BTreeSet<String> {
    let of_kind = |(group, kind): (&str, &str)| {
        let name = |object: &Value| format!("{kind}/{}", object["metadata"]["name"].as_str().unwrap_or_default());
        home.list(group, kind).iter().map(name).collect::<Vec<_>>()
    };
    KINDS.into_iter().flat_map(of_kind).filter(|name| name != DEFAULT).collect()
}

#[test]
fn nothing_is_left_of_an_agent_that_goes_while_it_is_evaluated() {
    let ground = Ground::without_pods("abandoned");
    let mut scene = Scene::new(&ground, false);
    scene.trial.home.dataset("slow", &json!([{"input": SLOW, "expectedOutput": "Paris is the capital of France"}]));
    scene.trial.until("a team that is whole", Trial::is_silent);
    let before = names(&scene.trial.home);
    let governance = json!({"minQualityScore": 1, "riskProfile": "low", "evalDataset": "slow"});
    scene.begins(&json!({"modelId": "stub-script", "governance": governance}));
    scene.trial.home.change(AGENT, &json!({"systemPrompt": "second"}));
    scene.trial.until("a run that is under way", |trial| {
        trial.home.list(OURS, "evaluationruns").iter().any(|run| run["status"]["phase"] == "Running")
    });
    let during = names(&scene.trial.home);
    for part in [format!("deployments/{CANDIDATE}"), format!("services/{CANDIDATE}"), format!("configmaps/{CANDIDATE}-config")] {
        assert!(during.contains(&part), "{part} should be among {during:#?}");
    }
    scene.trial.home.delete("agents", AGENT);
    scene.trial.until("the end of all that it had", |trial| names(&trial.home) == before);
    scene.trial.rests(AGENT, "", "its end");
    assert_eq!(names(&scene.trial.home), before);
    assert!(scene.node.pods().is_empty(), "these run still: {:?}", scene.node.pods());
    let repository = scene.history.path().join(format!("{}.git", scene.trial.home.namespace));
    poll(60, || {
        let output = git(&repository, &["show", &format!("main:agents/{AGENT}/current.yaml")]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if text.contains("status: deleted") { Ok(()) } else { Err(format!("Git should have its end: {output:?}")) }
    });
}
