//! A candidate that does not answer in time.

use serde_json::json;
use slipway_e2e::condition;

use super::{Ground, gate, rejected, runs, stable_pods, waits};
use crate::evaluations::dataset;

#[test]
fn a_candidate_that_hangs_is_rejected_and_touches_no_pod() {
    let ground = Ground::gated("gate-hangs");
    ground.team.secret("agent-env", &json!({"RUNTIME_TURN_SECONDS": "2"}));
    // What serves repeats this at once. The candidate takes it for a script, by which it is silent for a minute.
    let case = json!({"input": "sleep 60000\ntext late"});
    dataset(&ground.team, "slow", &json!([case, case]));
    let mut spec = gate(1);
    spec["governance"]["evalDataset"] = json!("slow");
    let agent = ground.agent("helper", &spec);
    runs(&agent, 1);
    agent.ready();
    let before = stable_pods(&agent);
    agent.patch(&json!({"modelId": "stub-script"}));
    waits(&agent, 2);
    rejected(&agent, 2);
    let release = ground.release("helper", 2);
    let why = condition(&release, "Ready")["message"].as_str().unwrap_or_default();
    let words = "the evaluation ended without a verdict, and is not repeated: the agent gave no answer to 2 of 2 cases";
    assert!(why.contains(words) && why.contains("the time for its answer ran out"), "{why}");
    assert_eq!(release["status"]["evaluation"]["attempt"], 1, "{release:#}");
    let now = agent.until("set back", 90, |found| found["spec"]["modelId"] != "stub-script");
    assert_eq!((stable_pods(&agent), &now["status"]["activeRelease"]), (before, &json!(1)));
}
