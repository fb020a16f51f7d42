//! Runs whose manager or pod is killed in the middle.

use serde_json::{Value, json};
use slipway_e2e::{Team, alone, kubectl, platform};

use super::{dataset, ended, has_each_case_once, needs_database, run, run_until};

const CASES: u64 = 24;

fn begun(team: &Team) {
    let agent = team.agent("helper", &json!({"modelId": "stub-script", "storage": "postgresql"}));
    agent.ready();
    let slow: Vec<Value> = (0..CASES).map(|at| json!({"input": format!("sleep 1000\ntext {at}")})).collect();
    dataset(team, "slow", &json!(slow));
    run(team, "first", "helper", &json!({"dataset": "slow", "scorers": ["safety", "relevance_to_query"], "minQualityScore": 1}));
    run_until(team, "first", "in the middle", 40, |run| run["status"]["finishedCases"].as_u64().is_some_and(|cases| cases > 0));
}

#[test]
fn a_run_outlives_the_manager() {
    let team = Team::within(alone(), "eval-manager", &json!({}));
    if !needs_database() {
        return;
    }
    begun(&team);
    kubectl(format!("delete pod {} -n {} --grace-period=0 --force", platform::leader(), platform::NAMESPACE)).ok();
    let found = ended(&team, "first", 120);
    assert_eq!((&found["status"]["phase"], &found["status"]["attempt"]), (&json!("Completed"), &json!(1)), "{found:#}");
    has_each_case_once(&found["status"], CASES);
}

#[test]
fn a_run_outlives_its_pod() {
    let team = Team::new("eval-pod");
    if !needs_database() {
        return;
    }
    begun(&team);
    team.kubectl("delete pod -l agents.slipway.dev/agent=helper --force --grace-period=0").ok();
    let found = ended(&team, "first", 120);
    assert_eq!(found["status"]["phase"], "Completed", "{found:#}");
    assert!(found["status"]["attempt"].as_u64().is_some_and(|attempt| attempt > 1), "{found:#}");
    has_each_case_once(&found["status"], CASES);
}
