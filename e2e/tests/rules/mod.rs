//! The API server refuses what is wrong and names the field. Every CEL rule is met both ways, and none can be forgotten.

mod cases;
mod names;
mod schema;
mod sizes;

use std::collections::BTreeSet;
use std::fs;

use cases::RULES;
use serde_json::{Value, json};
use slipway_e2e::{Outcome, ROOT, kubectl};

/// A manifest of `kind` with `spec` given as YAML, and what the kind demands beside it.
fn manifest(kind: &str, name: &str, spec: &str) -> Value {
    let mut whole = json!({
        "apiVersion": "agents.slipway.dev/v1", "kind": kind,
        "metadata": {"name": name}, "spec": {"name": "Name"},
    });
    match kind {
        "Agent" => whole["spec"]["framework"] = json!("custom"),
        "Tool" => whole["spec"]["type"] = json!("builtin"),
        "Skill" => whole["spec"] = json!({"name": "name", "description": "What it does.", "instructions": "Do it."}),
        "AgentRelease" | "EvaluationRun" => whole["spec"] = json!({"agent": "helper"}),
        "Ingestion" => whole["spec"] = json!({"knowledgeBase": "docs"}),
        "GuardrailPolicy" => {
            whole["spec"]["severity"] = json!("critical");
            whole["spec"]["rules"] = json!([{"type": "blocked_topics", "operator": "contains", "value": "violence"}]);
        }
        "Dataset" => whole["spec"] = json!({"cases": [{"input": "Who are you?"}]}),
        _ => {}
    }
    let more: Value = serde_yaml::from_str(spec).unwrap();
    whole["spec"].as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    whole
}

/// `kubectl create --dry-run=server`; what `apply` notes down beside an object is too long for the largest of them.
fn create(manifest: &Value) -> Outcome {
    kubectl("create --dry-run=server -n default -f -").input(manifest).run()
}

/// A manifest that must be accepted.
#[track_caller]
fn accepted(manifest: &Value) {
    let outcome = create(manifest);
    assert!(outcome.code == Some(0), "should be accepted: {manifest:#}\n{}", outcome.stderr);
}

/// A manifest that must be refused in the very words of `says`.
#[track_caller]
fn refused(manifest: &Value, says: &[&str]) {
    let outcome = create(manifest);
    assert!(outcome.code != Some(0), "should be refused: {manifest:#}");
    for words in says {
        assert!(outcome.stderr.contains(words), "should be refused with {words:?}: {manifest:#}\ngot: {}", outcome.stderr);
    }
}

#[test]
fn every_rule_accepts_and_refuses() {
    for rule in RULES.into_iter().flatten() {
        accepted(&manifest(rule.kind, "fine", rule.accepted));
        for spec in rule.refused {
            refused(&manifest(rule.kind, "faulty", spec), &[rule.field, rule.message]);
        }
    }
}

/// The rules that compare with what was there before.
const UNCHANGED: [(&str, &str); 6] = [
    ("AgentRelease", "a release does not change; make another one"),
    ("EvaluationRun", "a run does not change, but for cancel and ttlSecondsAfterFinished; make another one"),
    ("EvaluationRun", "cancel: a run that was cancelled does not go on; make another one"),
    ("Ingestion", "an ingestion does not change, but for cancel and ttlSecondsAfterFinished; make another one"),
    ("Ingestion", "cancel: an ingestion that was cancelled does not go on; make another one"),
    ("Integration", "an integration keeps its type; make another one"),
];

#[test]
fn a_release_does_not_change() {
    let name = "rules-of-releases";
    let delete = || kubectl(format!("delete agentrelease -n default {name} --ignore-not-found")).ok();
    delete();
    kubectl("create -n default -f -").input(manifest("AgentRelease", name, "{changelog: First.}")).ok();
    let patch = |spec: Value| {
        kubectl(format!("patch agentrelease -n default {name} --type=merge --dry-run=server -p")).arg(json!({ "spec": spec })).run()
    };
    let same = patch(json!({"agent": "helper", "changelog": "First."}));
    let others = [json!({"changelog": "Second."}), json!({"changelog": null}), json!({"author": "ada"}), json!({"agent": "other"})];
    let others = others.map(|spec| (spec.clone(), patch(spec)));
    delete();
    assert_eq!(same.code, Some(0), "{}", same.stderr);
    for (spec, outcome) in others {
        assert!(outcome.code != Some(0) && outcome.stderr.contains(UNCHANGED[0].1), "{spec}: {}", outcome.stderr);
    }
}

#[test]
fn a_run_changes_in_two_fields_alone() {
    let name = "rules-of-runs";
    let delete = || kubectl(format!("delete evaluationrun -n default {name} --ignore-not-found")).ok();
    delete();
    let all =
        "{dataset: golden, riskProfile: low, minQualityScore: 60, judgeModel: 'stub:/echo', scorers: [fluency], guidelines: [Be kind.]}";
    kubectl("create -n default -f -").input(manifest("EvaluationRun", name, all)).ok();
    let patch = |spec: &Value, dry: &str| {
        kubectl(format!("patch evaluationrun -n default {name} --type=merge {dry} -p")).arg(json!({ "spec": spec })).run()
    };
    let ask = |spec: &Value| patch(spec, "--dry-run=server");
    let same = ask(&json!({"agent": "helper", "dataset": "golden", "scorers": ["fluency"], "ttlSecondsAfterFinished": 60, "cancel": true}));
    let others = [
        json!({"agent": "other"}),
        json!({"dataset": "other"}),
        json!({"dataset": null}),
        json!({"track": "candidate"}),
        json!({"release": "helper-v1"}),
        json!({"content": "0".repeat(64)}),
        json!({"riskProfile": "high"}),
        json!({"minQualityScore": 1}),
        json!({"minQualityScore": null}),
        json!({"judgeModel": null}),
        json!({"scorers": ["fluency", "safety"]}),
        json!({"scorers": null}),
        json!({"guidelines": ["Be brief."]}),
        json!({"excludeFeedback": true}),
    ];
    let others = others.map(|spec| (spec.clone(), ask(&spec)));
    let ends = patch(&json!({"cancel": true}), "");
    let goes_on = ask(&json!({"cancel": false}));
    delete();
    assert_eq!(same.code, Some(0), "{}", same.stderr);
    for (spec, outcome) in others {
        assert!(outcome.code != Some(0) && outcome.stderr.contains(UNCHANGED[1].1), "{spec}: {}", outcome.stderr);
    }
    assert_eq!(ends.code, Some(0), "{}", ends.stderr);
    assert!(goes_on.code != Some(0) && goes_on.stderr.contains(UNCHANGED[2].1), "{}", goes_on.stderr);
}

#[test]
fn an_ingestion_changes_in_two_fields_alone() {
    let name = "rules-of-ingestions";
    let delete = || kubectl(format!("delete ingestion -n default {name} --ignore-not-found")).ok();
    delete();
    let all = "{source: {s3: {bucket: docs, prefix: a/}, credentialsSecret: login}}";
    kubectl("create -n default -f -").input(manifest("Ingestion", name, all)).ok();
    let patch = |spec: &Value, dry: &str| {
        kubectl(format!("patch ingestion -n default {name} --type=merge {dry} -p")).arg(json!({ "spec": spec })).run()
    };
    let ask = |spec: &Value| patch(spec, "--dry-run=server");
    let same = ask(&json!({"knowledgeBase": "docs", "source": {"s3": {"bucket": "docs"}}, "ttlSecondsAfterFinished": 60, "cancel": true}));
    let others = [
        json!({"knowledgeBase": "other"}),
        json!({"source": {"s3": {"bucket": "other"}}}),
        json!({"source": {"s3": {"prefix": null}}}),
        json!({"source": {"s3": null, "local": {"path": "a"}, "credentialsSecret": null}}),
        json!({"source": {"credentialsSecret": "other"}}),
        json!({"source": null, "sourceName": "files"}),
        json!({"source": null, "upload": "up_1"}),
        json!({"confirmRemoval": true}),
    ];
    let others = others.map(|spec| (spec.clone(), ask(&spec)));
    let ends = patch(&json!({"cancel": true}), "");
    let goes_on = ask(&json!({"cancel": false}));
    delete();
    assert_eq!(same.code, Some(0), "{}", same.stderr);
    for (spec, outcome) in others {
        assert!(outcome.code != Some(0) && outcome.stderr.contains(UNCHANGED[3].1), "{spec}: {}", outcome.stderr);
    }
    assert_eq!(ends.code, Some(0), "{}", ends.stderr);
    assert!(goes_on.code != Some(0) && goes_on.stderr.contains(UNCHANGED[4].1), "{}", goes_on.stderr);
}

#[test]
fn an_integration_keeps_its_type() {
    let name = "rules-of-integrations";
    let delete = || kubectl(format!("delete integration -n default {name} --ignore-not-found")).ok();
    delete();
    kubectl("create -n default -f -").input(manifest("Integration", name, "{prometheus: {url: 'https://p.example'}}")).ok();
    let patch = |spec: Value| {
        kubectl(format!("patch integration -n default {name} --type=merge --dry-run=server -p")).arg(json!({ "spec": spec })).run()
    };
    let same = patch(json!({"name": "Other", "prometheus": {"url": "https://other.example"}, "credentialsSecret": "login"}));
    let other = patch(json!({"prometheus": null, "mlflow": {"url": "https://p.example"}}));
    delete();
    assert_eq!(same.code, Some(0), "{}", same.stderr);
    assert!(other.code != Some(0) && other.stderr.contains(UNCHANGED[5].1), "{}", other.stderr);
}

#[test]
fn no_rule_is_forgotten() {
    let mut messages = BTreeSet::new();
    for entry in fs::read_dir(format!("{ROOT}/crds")).unwrap() {
        let crd: Value = serde_yaml::from_str(&fs::read_to_string(entry.unwrap().path()).unwrap()).unwrap();
        let kind = crd["spec"]["names"]["kind"].as_str().unwrap();
        for version in crd["spec"]["versions"].as_array().unwrap() {
            collect(kind, &version["schema"], &mut messages);
        }
    }
    let tried = RULES.into_iter().flatten().map(|rule| (rule.kind.to_owned(), rule.message.to_owned()));
    let tried: BTreeSet<_> = tried
        .chain(names::RULES.into_iter().chain(sizes::RULES).chain(UNCHANGED).map(|(kind, message)| (kind.to_owned(), message.to_owned())))
        .collect();
    let forgotten: Vec<_> = messages.difference(&tried).collect();
    assert!(forgotten.is_empty(), "rules of crds/ without a case in e2e/tests/rules/cases: {forgotten:#?}");
    let gone: Vec<_> = tried.difference(&messages).collect();
    assert!(gone.is_empty(), "cases in e2e/tests/rules for rules that crds/ does not have: {gone:#?}");
}

/// The messages of all rules in a schema.
fn collect(kind: &str, schema: &Value, messages: &mut BTreeSet<(String, String)>) {
    match schema {
        Value::Object(fields) => {
            for rule in fields.get("x-kubernetes-validations").and_then(Value::as_array).into_iter().flatten() {
                let message = rule["message"].as_str().unwrap_or_else(|| panic!("a rule of {kind} has no message: {rule}"));
                messages.insert((kind.to_owned(), message.to_owned()));
            }
            fields.values().for_each(|value| collect(kind, value, messages));
        }
        Value::Array(list) => list.iter().for_each(|value| collect(kind, value, messages)),
        _ => {}
    }
}
