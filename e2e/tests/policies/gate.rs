//! Threat: whom an evaluation gate holds lets a canary ask for less, and makes it the agent's by a promotion.

use serde_json::{Value, json};
use slipway_e2e::{Team, kubectl};

use super::{Grant, Try, judge};

/// A stopped agent with a gate, and a canary as given.
fn gated(team: &Team, name: &str, canary: &Value) {
    let governance = json!({"minQualityScore": 75, "riskProfile": "high", "evalDataset": "hard"});
    let spec = json!({"name": "Gated", "framework": "custom", "suspend": true, "judgeModel": "stub:/echo", "governance": governance, "canary": canary});
    let metadata = json!({"name": name, "namespace": team.namespace});
    kubectl("create -f -").input(json!({"apiVersion": "agents.slipway.dev/v1", "kind": "Agent", "metadata": metadata, "spec": spec})).ok();
}

#[test]
fn a_canary_that_asks_for_less_takes_the_right_to_lower_gates() {
    let team = Team::new("policy-gate");
    let canary = |overrides: Value| json!({"enabled": true, "weight": 10, "overrides": overrides});
    gated(&team, "plain", &canary(json!({"environment": "next"})));
    // What an administrator has let pass.
    gated(&team, "lowered", &canary(json!({"judgeModel": "stub:/other", "governance": {"minQualityScore": 10}})));
    let users = ["developer", "admin"].map(|role| format!("{}-{role}", team.slug));
    let [developer, admin] = &users;
    let _developer = Grant::bind("developer", "slipway-developer", developer, Some(&team.namespace));
    let _admin = Grant::bind("admin", "slipway-admin", admin, Some(&team.namespace));
    let patch = |name: &str, user: &str, canary: Value| {
        let change = json!({"spec": {"canary": canary}});
        format!("-n {} patch agent/{name} --type=merge --dry-run=server --as={user} -p {change}", team.namespace)
    };
    let with = |governance: Value| json!({"overrides": {"governance": governance}});
    let score: &[&str] = &["spec.canary.overrides.governance.minQualityScore: asks for less", "agents/governance"];
    let risk: &[&str] = &["spec.canary.overrides.governance.riskProfile: asks for less"];
    let dataset: &[&str] = &["spec.canary.overrides.governance.evalDataset: asks for less"];
    let judge_model: &[&str] = &["spec.canary.overrides.judgeModel: asks for less"];
    let tries = [
        (with(json!({})), score),
        (with(json!({"policies": ["default"]})), score),
        (with(json!({"minQualityScore": 74, "riskProfile": "high", "evalDataset": "hard"})), score),
        (with(json!({"minQualityScore": 75, "evalDataset": "hard"})), risk),
        (with(json!({"minQualityScore": 75, "riskProfile": "high"})), dataset),
        (with(json!({"minQualityScore": 75, "riskProfile": "high", "evalDataset": "easy"})), dataset),
        (json!({"overrides": {"judgeModel": "stub:/other"}}), judge_model),
        // One that does not run may be turned on by anybody later.
        (json!({"enabled": false, "overrides": {"governance": {}}}), score),
    ];
    let mut all: Vec<Try> = tries.iter().map(|(canary, says)| Try::new(patch("plain", developer, canary.clone()), says)).collect();
    all.extend(tries.iter().map(|(canary, _)| Try::new(patch("plain", admin, canary.clone()), &[])));
    let as_much = json!({"minQualityScore": 80, "riskProfile": "high", "evalDataset": "ds_hard", "policies": ["default"]});
    all.extend([
        Try::new(patch("plain", developer, with(as_much)), &[]),
        Try::new(patch("plain", developer, json!({"systemPrompt": "Be brief.", "overrides": {"judgeModel": "stub:/echo"}})), &[]),
        Try::new(patch("plain", developer, Value::Null), &[]),
        // It stays while other fields change, and may ask for more, not for less again.
        Try::new(patch("lowered", developer, json!({"weight": 20})), &[]),
        Try::new(patch("lowered", developer, with(json!({"minQualityScore": 11}))), score),
        Try::new(patch("lowered", developer, json!({"overrides": {"governance": null}})), &[]),
    ]);
    // A promotion by hand is a change like any other.
    let promotion = |user: &str| {
        let change = json!({"spec": {"canary": null, "judgeModel": "stub:/other", "governance": {"minQualityScore": 10, "riskProfile": null, "evalDataset": null}}});
        format!("-n {} patch agent/lowered --type=merge --dry-run=server --as={user} -p {change}", team.namespace)
    };
    all.push(Try::new(promotion(developer), &["spec.governance.minQualityScore: asks for less"]));
    all.push(Try::new(promotion(admin), &[]));
    judge(&all);
}
