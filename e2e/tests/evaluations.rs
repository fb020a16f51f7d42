//! Evaluations with kubectl: a Dataset and an EvaluationRun for an agent that runs, and what its status says.

mod interrupted;
pub(crate) mod own_image;

use serde_json::{Value, json};
use slipway_e2e::{Agent, Team, condition, until};
use slipway_peers::skip;

/// Two cases that the stub, which says what it is asked, answers as expected.
pub(crate) fn dataset(team: &Team, name: &str, cases: &Value) {
    team.apply(&json!({"apiVersion": "agents.slipway.dev/v1", "kind": "Dataset", "metadata": {"name": name}, "spec": {"cases": cases}}));
}

fn two() -> Value {
    json!([
        {"input": "Paris is the capital of France", "expectedOutput": "Echo: Paris is the capital of France"},
        {"input": "Water boils at 100 degrees", "expectedOutput": "Echo: Water boils at 100 degrees"},
    ])
}

/// An EvaluationRun, applied.
pub(crate) fn run(team: &Team, name: &str, agent: &str, spec: &Value) {
    let mut whole =
        json!({"apiVersion": "agents.slipway.dev/v1", "kind": "EvaluationRun", "metadata": {"name": name}, "spec": {"agent": agent}});
    whole["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    team.apply(&whole);
}

/// Waits until a run is as wanted.
#[track_caller]
pub(crate) fn run_until(team: &Team, name: &str, what: &str, seconds: u64, want: impl Fn(&Value) -> bool) -> Value {
    until(&format!("evaluationruns -n {} --field-selector metadata.name={name}", team.namespace), seconds, |runs| {
        match runs.iter().find(|run| want(run)) {
            Some(run) => Ok(run.clone()),
            None => Err(format!("run {name} should be {what}: {:#}", runs.first().map(|run| run["status"].clone()).unwrap_or_default())),
        }
    })
}

#[track_caller]
fn ended(team: &Team, name: &str, seconds: u64) -> Value {
    run_until(team, name, "at its end", seconds, |run| {
        ["Completed", "Failed", "Cancelled"].iter().any(|phase| run["status"]["phase"] == *phase)
    })
}

fn helper(team: &Team) -> Agent<'_> {
    let agent = team.agent("helper", &json!({"governance": {"riskProfile": "low"}}));
    agent.ready();
    agent
}

#[test]
fn a_run_is_scored_and_shown_in_columns() {
    let team = Team::new("evaluated");
    let _agent = helper(&team);
    dataset(&team, "golden", &two());
    run(&team, "first", "helper", &json!({"dataset": "golden"}));
    let found = ended(&team, "first", 60);
    let status = &found["status"];
    assert_eq!((&status["phase"], &status["provider"]), (&json!("Completed"), &json!("heuristic")), "{status:#}");
    assert_eq!(
        (&status["totalCases"], &status["finishedCases"], &status["dataset"]),
        (&json!(2), &json!(2), &json!("golden")),
        "{status:#}"
    );
    assert!(status["score"].as_f64().is_some_and(|score| (0.0..=100.0).contains(&score)), "{status:#}");
    assert_eq!((&status["threshold"], &status["riskProfile"], &status["attempt"]), (&json!(60), &json!("low"), &json!(1)), "{status:#}");
    assert_eq!(
        (condition(&found, "Ready")["status"].as_str(), condition(&found, "Reconciling")["status"].as_str()),
        (Some("True"), Some("False"))
    );
    assert_eq!(condition(&found, "Stalled")["status"], "False");
    let verdict = status["verdict"].as_str().unwrap();
    assert!(verdict.starts_with(if status["passed"] == true { "PASSED (avg=" } else { "FAILED (avg=" }), "{verdict}");
    let table = team.kubectl("get evaluationruns first").ok();
    for column in ["AGENT", "DATASET", "SCORE", "VERDICT", "AGE", "helper", "golden"] {
        assert!(table.contains(column), "{column} should be in {table}");
    }
    let told = team.kubectl("describe evaluationrun first").ok();
    assert!(told.contains("EvaluationStarted") && told.contains("EvaluationCompleted"), "{told}");
}

#[test]
fn a_run_that_is_cancelled_ends() {
    let team = Team::new("eval-cancel");
    let agent = team.agent("helper", &json!({"modelId": "stub-script"}));
    agent.ready();
    let slow: Vec<Value> = (0..40).map(|at| json!({"input": format!("sleep 2000\ntext {at}")})).collect();
    dataset(&team, "slow", &json!(slow));
    run(&team, "first", "helper", &json!({"dataset": "slow"}));
    run_until(&team, "first", "running", 30, |run| run["status"]["phase"] == "Running");
    team.kubectl("patch evaluationrun first --type=merge -p").arg(json!({"spec": {"cancel": true}})).ok();
    let found = ended(&team, "first", 20);
    assert_eq!((&found["status"]["phase"], &found["status"]["score"]), (&json!("Cancelled"), &Value::Null), "{found:#}");
    // The pod is free for another one.
    dataset(&team, "golden", &json!([{"input": "text hello"}]));
    run(&team, "second", "helper", &json!({"dataset": "golden"}));
    assert_eq!(ended(&team, "second", 30)["status"]["phase"], "Completed");
}

#[test]
fn what_cannot_be_evaluated_says_why() {
    let team = Team::new("eval-faults");
    let _agent = helper(&team);
    run(&team, "unknown", "helper", &json!({"dataset": "none"}));
    let waits = run_until(&team, "unknown", "waiting", 20, |run| condition(run, "Reconciling")["reason"] == "DatasetNotFound");
    assert_eq!(waits["status"]["phase"], "Pending");
    dataset(&team, "none", &two());
    assert_eq!(ended(&team, "unknown", 60)["status"]["phase"], "Completed", "it was waited for");

    team.agent("stopped", &json!({"suspend": true})).until("suspended", 20, |agent| condition(agent, "Ready")["reason"] == "Suspended");
    run(&team, "stopped", "stopped", &json!({"dataset": "none"}));
    let found = ended(&team, "stopped", 20);
    assert_eq!(condition(&found, "Stalled")["reason"], "AgentStopped");
    assert!(condition(&found, "Stalled")["message"].as_str().unwrap().contains("start it"), "{found:#}");

    team.agent("other", &json!({"suspend": true}));
    let spec = json!({"agent": "other", "cases": [{"input": "a"}]});
    team.apply(&json!({"apiVersion": "agents.slipway.dev/v1", "kind": "Dataset", "metadata": {"name": "others"}, "spec": spec}));
    run(&team, "others", "helper", &json!({"dataset": "others"}));
    assert_eq!(condition(&ended(&team, "others", 20), "Stalled")["reason"], "DatasetOfAnotherAgent");
}

#[test]
fn an_agent_without_a_dataset_gets_five_questions() {
    let team = Team::new("eval-seed");
    let _agent = helper(&team);
    run(&team, "first", "helper", &json!({}));
    let found = ended(&team, "first", 60);
    assert_eq!((&found["status"]["dataset"], &found["status"]["totalCases"]), (&json!("helper-seed"), &json!(5)), "{found:#}");
    let seed = team.get("dataset/helper-seed");
    assert_eq!((&seed["spec"]["agent"], seed["spec"]["cases"].as_array().map(Vec::len)), (&json!("helper"), Some(5)));
    // It is the team's, and used as the team changes it.
    team.kubectl("patch dataset helper-seed --type=merge -p").arg(json!({"spec": {"cases": [{"input": "one"}]}})).ok();
    run(&team, "second", "helper", &json!({}));
    assert_eq!(ended(&team, "second", 60)["status"]["totalCases"], 1);
}

#[test]
fn a_run_is_deleted_when_its_time_is_over() {
    let team = Team::new("eval-ttl");
    let _agent = helper(&team);
    dataset(&team, "golden", &two());
    run(&team, "brief", "helper", &json!({"dataset": "golden", "ttlSecondsAfterFinished": 1}));
    team.kubectl("wait evaluationrun/brief --for=delete --timeout=60s").ok();
}

/// Where a database keeps the results, each case is there once.
#[track_caller]
pub(crate) fn has_each_case_once(status: &Value, total: u64) {
    assert_eq!((&status["totalCases"], &status["finishedCases"]), (&json!(total), &json!(total)), "{status:#}");
}

#[track_caller]
pub(crate) fn needs_database() -> bool {
    if slipway_e2e::platform::has_database() {
        return true;
    }
    skip("there is no database");
    false
}
