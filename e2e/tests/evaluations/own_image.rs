//! Agents with an image of their own: a pod of the platform's evaluates them, as long as it takes. The image is the platform's program
//! under another name, which is all by which the platform tells them apart.

use serde_json::{Value, json};
use slipway_e2e::{Agent, Team, condition, poll};

use super::interrupted::kept;
use super::{dataset, ended, has_each_case_once, needs_database, run, run_until, two};

/// `hack/images` puts it on the node.
pub(crate) const OWN_IMAGE: &str = "slipway.dev/own-agent:1";
const CASES: u64 = 24;

#[track_caller]
fn own<'a>(team: &'a Team, more: &Value) -> Agent<'a> {
    let mut spec = json!({"image": OWN_IMAGE, "replicas": 1, "governance": {"riskProfile": "low"}});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let agent = team.agent("helper", &spec);
    agent.ready();
    agent
}

/// What there is of evaluators in the team: Jobs, and pods that stay.
#[track_caller]
fn evaluators(team: &Team) -> Vec<Value> {
    let list = team.kubectl("get jobs,pods -l app.kubernetes.io/component=evaluation").json();
    list["items"].as_array().cloned().unwrap_or_default()
}

#[track_caller]
fn has_no_evaluator(team: &Team) {
    poll(60, || match evaluators(team)[..] {
        [] => Ok(()),
        ref left => Err(format!("the evaluator should be gone: {left:#?}")),
    });
}

#[test]
fn an_image_of_ones_own_is_evaluated_by_a_pod_of_the_platforms() {
    let team = Team::new("eval-own-image");
    let agent = own(&team, &json!({"modelId": "stub-script"}));
    let slow: Vec<Value> = (0..4).map(|at| json!({"input": format!("sleep 3000\ntext {at}"), "expectedOutput": at.to_string()})).collect();
    dataset(&team, "slow", &json!(slow));
    run(&team, "first", "helper", &json!({"dataset": "slow", "scorers": ["correctness"]}));
    run_until(&team, "first", "running", 90, |run| run["status"]["phase"] == "Running");
    let found = evaluators(&team);
    let pod = found.iter().find(|found| found["kind"] == "Pod").unwrap_or_else(|| panic!("there should be a pod: {found:#?}"));
    assert!(pod["metadata"]["labels"]["agents.slipway.dev/agent"].is_null(), "no user is sent there: {pod:#}");
    assert_eq!(pod["spec"]["automountServiceAccountToken"], false);
    assert_eq!(agent.pods().len(), 1, "it is none of the agent's");
    let status = &ended(&team, "first", 90)["status"];
    assert_eq!(
        (&status["phase"], &status["provider"], &status["score"]),
        (&json!("Completed"), &json!("heuristic"), &json!(100)),
        "{status:#}"
    );
    has_each_case_once(status, 4);
    let hash = &agent.pods()[0]["metadata"]["annotations"]["agents.slipway.dev/run-hash"];
    assert_eq!(&status["runHash"], hash, "it says what was evaluated");
    assert!(status["usage"]["agentTokens"].as_i64().is_some_and(|tokens| tokens > 0), "{status:#}");
    has_no_evaluator(&team);
    assert_eq!(agent.chat("text still here"), "still here");
}

#[test]
fn what_an_image_does_not_tell_is_not_scored() {
    let team = Team::new("eval-untold");
    let _agent = own(&team, &json!({}));
    dataset(&team, "golden", &two());
    run(&team, "first", "helper", &json!({"dataset": "golden", "scorers": ["safety", "retrieval_groundedness"]}));
    let found = ended(&team, "first", 120);
    assert_eq!((&found["status"]["phase"], &found["status"]["score"]), (&json!("Failed"), &Value::Null), "{found:#}");
    let stalled = condition(&found, "Stalled");
    assert_eq!(stalled["reason"], "NotTold");
    assert!(stalled["message"].as_str().unwrap().contains("does not tell what it retrieved"), "{stalled:#}");
}

#[test]
fn a_run_outlives_its_evaluator_and_the_agents_pod() {
    let team = Team::new("eval-own-kills");
    if !needs_database() {
        return;
    }
    let _agent = own(&team, &json!({"modelId": "stub-script", "storage": "postgresql"}));
    let slow: Vec<Value> = (0..CASES).map(|at| json!({"input": format!("sleep 2000\ntext {at}")})).collect();
    dataset(&team, "slow", &json!(slow));
    run(&team, "first", "helper", &json!({"dataset": "slow", "scorers": ["safety", "relevance_to_query"], "minQualityScore": 1}));
    let mut before = Vec::new();
    for (finished, label) in [(4, "app.kubernetes.io/component=evaluation"), (12, "agents.slipway.dev/agent=helper")] {
        run_until(&team, "first", "in the middle", 120, |run| run["status"]["finishedCases"].as_u64() >= Some(finished));
        before.push(kept(&team));
        team.kubectl(format!("delete pod -l {label} --force --grace-period=0")).ok();
    }
    let found = ended(&team, "first", 240);
    assert_eq!(found["status"]["phase"], "Completed", "{found:#}");
    has_each_case_once(&found["status"], CASES);
    let errors = found["status"]["worstCases"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|case| case["reason"].as_str().unwrap().contains("no answer"));
    assert_eq!(errors.count(), 0, "no case was lost with a pod: {found:#}");
    let after = kept(&team);
    assert_eq!(after.len() as u64, CASES);
    for (place, when) in before.iter().flatten() {
        assert_eq!(after.get(place), Some(when), "case {place} is scored once");
    }
}

#[test]
fn a_run_that_is_cancelled_takes_its_evaluator_along() {
    let team = Team::new("eval-own-cancel");
    let agent = own(&team, &json!({"modelId": "stub-script"}));
    let slow: Vec<Value> = (0..40).map(|at| json!({"input": format!("sleep 2000\ntext {at}")})).collect();
    dataset(&team, "slow", &json!(slow));
    run(&team, "first", "helper", &json!({"dataset": "slow"}));
    run_until(&team, "first", "running", 90, |run| run["status"]["phase"] == "Running");
    // Another one of the track waits for it.
    run(&team, "second", "helper", &json!({"dataset": "slow"}));
    run_until(&team, "second", "waiting", 30, |run| condition(run, "Reconciling")["reason"] == "Busy");
    for name in ["second", "first"] {
        team.kubectl(format!("patch evaluationrun {name} --type=merge -p")).arg(json!({"spec": {"cancel": true}})).ok();
        assert_eq!(ended(&team, name, 30)["status"]["phase"], "Cancelled");
    }
    has_no_evaluator(&team);
    // What the agent runs changes under a run.
    run(&team, "third", "helper", &json!({"dataset": "slow"}));
    run_until(&team, "third", "running", 90, |run| run["status"]["phase"] == "Running");
    agent.patch(&json!({"systemPrompt": "another"}));
    assert_eq!(condition(&ended(&team, "third", 60), "Stalled")["reason"], "AgentChanged");
}
