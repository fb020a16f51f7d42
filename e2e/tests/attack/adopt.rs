//! An administrator of one team wants the conversations of an Agent that was there before, which only a platform admin
//! may hand over.

use serde_json::{Value, json};
use slipway_e2e::Kubectl;
use slipway_e2e::attack::Installation;

const ADOPT: &str = "agents.slipway.dev/adopt";

fn agent(namespace: &str, name: &str, adopts: &Value) -> Value {
    let annotations = if adopts.is_null() { json!({}) } else { json!({ADOPT: adopts}) };
    let metadata = json!({"name": name, "namespace": namespace, "annotations": annotations});
    json!({"apiVersion": "agents.slipway.dev/v1", "kind": "Agent", "metadata": metadata, "spec": {"name": "H", "framework": "custom"}})
}

#[track_caller]
fn refused(attempt: &Kubectl) {
    let why = attempt.refused();
    assert!(why.contains("update agents/adopt"), "{why}");
}

#[test]
fn a_teams_admin_hands_no_rows_over() {
    let slipway = Installation::shared();
    let namespace = slipway.team("adopting");
    // All that a namespace can give, and Slipway's role for admins of teams.
    slipway.member("adopting-admin", "slipway-admin", &namespace);
    let admin = slipway.member("adopting-admin", "cluster-admin", &namespace);
    let by = |line: &str| slipway.kubectl_with(&admin.token, line);
    refused(&by("create -f -").input(agent(&namespace, "made", &json!("an-earlier-uid"))));
    slipway.apply(&agent(&namespace, "there", &Value::Null));
    refused(&by(&format!("-n {namespace} annotate agent there {ADOPT}=an-earlier-uid")));
    let left = slipway.kubectl(format!("get agents -n {namespace} -o json")).json();
    let names: Vec<_> =
        left["items"].as_array().unwrap().iter().map(|item| (&item["metadata"]["name"], &item["metadata"]["annotations"][ADOPT])).collect();
    assert_eq!(names, [(&json!("there"), &Value::Null)]);
}

#[test]
fn a_platform_admin_hands_rows_over_and_others_may_keep_the_note() {
    let slipway = Installation::shared();
    let namespace = slipway.team("adopted");
    let admin = slipway.platform_admin("adopt-platform-admin");
    slipway.apply(&agent(&namespace, "there", &Value::Null));
    slipway.kubectl_with(&admin.token, format!("-n {namespace} annotate agent there {ADOPT}=an-earlier-uid")).ok();
    slipway.kubectl_with(&admin.token, format!("annotate team adopted {ADOPT}=an-earlier-uid")).ok();
    let developer = slipway.member("adopted-developer", "slipway-developer", &namespace);
    let by = |line: String| slipway.kubectl_with(&developer.token, line);
    by(format!("-n {namespace} patch agent there --type=merge -p {}", r#"{"spec":{"description":"d"}}"#)).ok();
    refused(&by(format!("-n {namespace} annotate --overwrite agent there {ADOPT}=another")));
    by(format!("-n {namespace} annotate agent there {ADOPT}-")).ok();
}
