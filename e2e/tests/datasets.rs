//! Datasets: their phase, what is said of their cases, and cases that stand in a ConfigMap.

use serde_json::{Value, json};
use slipway_e2e::{Team, condition, long, until};

/// Waits until a Dataset's status speaks of its present spec, and `Ready` has this reason.
#[track_caller]
fn told(team: &Team, name: &str, reason: &str, seconds: u64) -> Value {
    until(&format!("datasets -n {} --field-selector metadata.name={name}", team.namespace), seconds, |datasets| {
        let is_told = |dataset: &&Value| {
            dataset["status"]["observedGeneration"] == dataset["metadata"]["generation"] && condition(dataset, "Ready")["reason"] == reason
        };
        datasets.iter().find(is_told).cloned().ok_or(format!("dataset {name} should be told {reason}: {datasets:?}"))
    })
}

fn apply(team: &Team, name: &str, spec: &Value) {
    team.apply(&json!({"apiVersion": "agents.slipway.dev/v1", "kind": "Dataset", "metadata": {"name": name}, "spec": spec}));
}

fn cases(team: &Team, name: &str, key: &str, text: &str) {
    team.apply(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {key: text}}));
}

#[test]
fn their_status_says_what_they_hold_and_columns_show_it() {
    let team = Team::new("datasets");
    let spec = json!({"agent": "helper", "guidelines": ["Be kind."], "cases": [{"input": "a"}, {"input": "b", "expectedOutput": "c"}]});
    apply(&team, "gold-en", &spec);
    let status = told(&team, "gold-en", "Valid", 10)["status"].clone();
    assert_eq!((&status["phase"], &status["cases"], &status["id"]), (&json!("Available"), &json!(2), &json!("ds_gold_en")));
    let shown = team.kubectl("get datasets").ok();
    let words: Vec<&str> = shown.lines().nth(1).unwrap_or_default().split_whitespace().take(4).collect();
    assert_eq!(words, ["gold-en", "helper", "2", "Available"], "{shown}");

    // The same content elsewhere has the same digest, and other content another one.
    cases(&team, "cases", "cases.yaml", "- input: a\n- {input: b, expectedOutput: c}\n");
    apply(&team, "elsewhere", &json!({"guidelines": ["Be kind."], "casesFrom": {"configMap": "cases"}}));
    assert_eq!(told(&team, "elsewhere", "Valid", 10)["status"]["digest"], status["digest"]);
    team.kubectl("patch dataset gold-en --type=merge -p").arg(json!({"spec": {"guidelines": ["Be brief."]}})).ok();
    assert_ne!(told(&team, "gold-en", "Valid", 10)["status"]["digest"], status["digest"]);
}

#[test]
fn faults_name_the_field_and_heal() {
    let team = Team::new("datasetfaults");
    let text = "x".repeat(30_000);
    let large: Vec<Value> = (0..20).map(|_| json!({"input": text})).collect();
    let rules = json!({"input": "a", "metadata": {"guidelines": [1]}});
    for (name, list, says) in [
        ("large", json!(large), "spec.cases: they have"),
        ("blank", json!([{"input": "a"}, {"input": " "}]), "spec.cases[1].input: is empty"),
        ("rules", json!([rules]), "spec.cases[0].metadata.guidelines: must be a list"),
    ] {
        // What `apply` notes down beside an object is too long for the largest of them.
        let whole = json!({"apiVersion": "agents.slipway.dev/v1", "kind": "Dataset", "metadata": {"name": name}, "spec": {"cases": list}});
        team.kubectl("apply --server-side -f -").input(&whole).ok();
        let found = told(&team, name, "FieldInvalid", 10);
        let message = condition(&found, "Ready")["message"].as_str().unwrap_or_default().to_owned();
        assert!(message.starts_with(says), "{name}: {message}");
        assert_eq!((&found["status"]["phase"], &found["status"]["digest"]), (&json!("Error"), &Value::Null), "{name}");
    }
    team.kubectl("patch dataset blank --type=merge -p").arg(json!({"spec": {"cases": [{"input": "a"}]}})).ok();
    told(&team, "blank", "Valid", 10);
}

#[test]
fn a_config_map_is_read_again() {
    let team = Team::within(long(), "datasetfrom", &json!({}));
    apply(&team, "mine", &json!({"casesFrom": {"configMap": "cases", "key": "mine.json"}}));
    let found = told(&team, "mine", "ConfigMapMissing", 10);
    let message = condition(&found, "Ready")["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.starts_with("spec.casesFrom: ConfigMap cases does not exist"), "{message}");
    // It is looked for every 30 seconds.
    cases(&team, "cases", "other.json", "[]");
    told(&team, "mine", "ConfigMapKeyMissing", 45);
    for (text, says) in [
        ("- &a {input: x}\n- *a\n", "an anchor or alias at line 1"),
        ("- inputs: x\n", "the field \"inputs\" is not known"),
        ("[{\"input\": \"x\"}", "no JSON list"),
    ] {
        cases(&team, "cases", "mine.json", text);
        until(&format!("datasets -n {}", team.namespace), 45, |datasets| {
            let message = datasets.first().map(|dataset| condition(dataset, "Ready")["message"].clone()).unwrap_or_default();
            if message.as_str().is_some_and(|message| message.contains(says)) {
                Ok(())
            } else {
                Err(format!("it should say {says}: {message}"))
            }
        });
    }
    cases(&team, "cases", "mine.json", "[{\"input\": \"x\"}]");
    assert_eq!(told(&team, "mine", "Valid", 45)["status"]["cases"], 1);
    team.kubectl("delete configmap cases").ok();
    told(&team, "mine", "ConfigMapMissing", 45);
}
