//! Threat: whom an evaluation gate holds lets a canary ask for less, and makes it the agent's by a promotion.

use serde_json::{Value, json};
use slipway_e2e::{Team, kubectl};

use super::{Grant, Try, judge};

/// A stopped agent, with more in its spec as given.
fn stopped(team: &Team, name: &str, more: &Value) -> Value {
    let mut spec = json!({"name": "Gated", "framework": "custom", "suspend": true});
    for (field, value) in more.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    let metadata = json!({"name": name, "namespace": team.namespace});
    json!({"apiVersion": "agents.slipway.dev/v1", "kind": "Agent", "metadata": metadata, "spec": spec})
}

/// Makes a stopped agent with a gate, and a canary as given.
fn gated(team: &Team, name: &str, canary: &Value) {
    let governance = json!({"minQualityScore": 75, "riskProfile": "high", "evalDataset": "hard"});
    let more = json!({"judgeModel": "stub:/echo", "governance": governance, "canary": canary});
    kubectl("create -f -").input(stopped(team, name, &more)).ok();
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

#[test]
fn a_first_dataset_or_judge_under_a_gate_takes_the_right_to_lower_it() {
    let team = Team::new("policy-gate-first");
    let gate = json!({"governance": {"minQualityScore": 75}});
    kubectl("create -f -").input(stopped(&team, "held", &gate)).ok();
    kubectl("create -f -").input(stopped(&team, "free", &json!({}))).ok();
    let users = ["developer", "admin"].map(|role| format!("{}-{role}", team.slug));
    let [developer, admin] = &users;
    let _developer = Grant::bind("developer", "slipway-developer", developer, Some(&team.namespace));
    let _admin = Grant::bind("admin", "slipway-admin", admin, Some(&team.namespace));
    let patch = |name: &str, user: &str, spec: Value| {
        let change = json!({"spec": spec});
        format!("-n {} patch agent/{name} --type=merge --dry-run=server --as={user} -p {change}", team.namespace)
    };
    let canary = |overrides: Value| json!({"canary": {"enabled": true, "weight": 10, "overrides": overrides}});
    let own = json!({"judgeModel": "stub:/echo", "governance": {"minQualityScore": 75, "evalDataset": "easy"}});
    let tries: [(Value, &[&str]); 5] = [
        (json!({"governance": {"evalDataset": "easy"}}), &["spec.governance.evalDataset: asks for less", "agents/governance"]),
        (json!({"governance": {"minQualityScore": 90, "evalDataset": "ds_easy"}}), &["spec.governance.evalDataset: asks for less"]),
        (json!({"judgeModel": "stub:/echo"}), &["spec.judgeModel: asks for less"]),
        (
            canary(json!({"governance": {"minQualityScore": 75, "evalDataset": "easy"}})),
            &["spec.canary.overrides.governance.evalDataset: asks for less"],
        ),
        (canary(json!({"judgeModel": "stub:/echo"})), &["spec.canary.overrides.judgeModel: asks for less"]),
    ];
    let mut all: Vec<Try> = tries.iter().map(|(spec, says)| Try::new(patch("held", developer, spec.clone()), says)).collect();
    all.extend(tries.iter().map(|(spec, _)| Try::new(patch("held", admin, spec.clone()), &[])));
    let create = format!("-n {} create --dry-run=server --as={developer} -f -", team.namespace);
    all.extend([
        Try::new(patch("held", developer, json!({"governance": {"minQualityScore": 90, "riskProfile": "high"}})), &[]),
        // Where there was no gate, one comes with all that belongs to it.
        Try::new(patch("free", developer, own.clone()), &[]),
        Try::with(create, stopped(&team, "new", &own), &[]),
    ]);
    judge(&all);
}
