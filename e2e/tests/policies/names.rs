//! Threat: somebody signs with another one's name. REST says for whom it wrote; nobody else does, by the annotation or by
//! writing under REST's name so that the last annotation is taken for theirs.

use serde_json::{Value, json};
use slipway_e2e::{Kubectl, Team, kubectl, platform};

use super::{Try, judge};

const BY: &str = "agents.slipway.dev/changed-by";

fn rest() -> String {
    format!("system:serviceaccount:{}:{}", platform::NAMESPACE, platform::REST)
}

/// What REST does, by its own account.
fn as_rest(call: &Kubectl) -> Kubectl {
    call.clone().arg(format!("--as={}", rest())).arg("--field-manager=slipway-rest")
}

/// The object with the book of field managers, as `kubectl get --show-managed-fields` gives it, in no particular version:
/// the operator writes the status meanwhile.
fn whole(team: &Team, object: &str) -> Value {
    let mut object = team.kubectl(format!("get {object} --show-managed-fields")).json();
    object["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    object
}

fn entries(object: &mut Value) -> &mut Vec<Value> {
    object["metadata"]["managedFields"].as_array_mut().unwrap()
}

#[test]
fn nobody_signs_with_the_name_of_another() {
    let team = Team::new("policy-names");
    let name = format!("system:serviceaccount:{}:e2e-admin", team.namespace);
    team.token("admin");
    let spec = json!({"name": "Hello", "framework": "custom", "suspend": true});
    let manifest = |name: &str, spec: &Value, more: Value| {
        let mut metadata = json!({"name": name, "namespace": team.namespace});
        metadata.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
        json!({"apiVersion": "agents.slipway.dev/v1", "kind": "Agent", "metadata": metadata, "spec": spec})
    };
    let ann = json!({"annotations": {BY: "ann@example.com"}});
    as_rest(&kubectl("create -f -")).input(manifest("hello", &spec, ann.clone())).ok();
    let change = |by: &str, spec: Value| json!({"metadata": {"annotations": {BY: by}}, "spec": spec}).to_string();
    as_rest(&team.kubectl("patch agent hello --type=merge -p").arg(change("bob@example.com", json!({"description": "one"})))).ok();

    let patch = |more: &str, patch: Value| {
        format!("-n {} patch agent/hello --type=merge --dry-run=server --as={name} {more} -p {patch}", team.namespace)
    };
    let on = |verb: &str| format!("-n {} {verb} -f - --dry-run=server --as={name}", team.namespace);
    let mine = json!({"spec": {"description": "two"}});
    let signed = |kind: &str, spec: Value| {
        let metadata = json!({"name": "signed", "annotations": {BY: "ann@example.com"}});
        json!({"apiVersion": "agents.slipway.dev/v1", "kind": kind, "metadata": metadata, "spec": spec})
    };
    let roles = "rbac.authorization.k8s.io";
    let member = json!({
        "apiVersion": format!("{roles}/v1"), "kind": "RoleBinding", "metadata": {"name": "signed", "annotations": {BY: "ann@example.com"}},
        "roleRef": {"apiGroup": roles, "kind": "ClusterRole", "name": "slipway-viewer"}, "subjects": [],
    });
    let mut newer = whole(&team, "agent/hello");
    newer["spec"]["description"] = json!("two");
    for entry in entries(&mut newer).iter_mut().filter(|entry| entry["manager"] == "slipway-rest") {
        entry["time"] = json!("2100-01-01T00:00:00Z");
    }
    let mut copy = manifest("copy", &spec, json!({}));
    copy["metadata"]["managedFields"] = whole(&team, "agent/hello")["metadata"]["managedFields"].clone();
    let mut own = whole(&team, "agent/hello");
    own["spec"]["description"] = json!("two");
    let mut unsigned = own.clone();
    unsigned["metadata"].as_object_mut().unwrap().remove("annotations");
    let mut other = own.clone();
    other["metadata"]["annotations"][BY] = json!("ann@example.com");

    let tokens = json!({"name": "P", "severity": "warning", "rules": [{"type": "max_tokens", "operator": "lt", "value": "1"}]});
    let word: &[&str] = &["agents.slipway.dev/changed-by", "REST alone", "leave it out"];
    let manager: &[&str] = &["the field manager slipway", "--field-manager"];
    let book: &[&str] = &["metadata.managedFields", "leave metadata.managedFields out"];
    judge(&[
        Try::with(on("create"), signed("Agent", spec.clone()), word),
        Try::with(on("create"), signed("Tool", json!({"name": "datetime", "type": "builtin"})), word),
        Try::with(on("create"), signed("Skill", json!({"name": "s", "description": "d", "instructions": "i"})), word),
        Try::with(on("create"), signed("KnowledgeBase", json!({"name": "k"})), word),
        Try::with(on("create"), signed("Ingestion", json!({"knowledgeBase": "k", "upload": "up_1"})), word),
        Try::with(on("create"), signed("AgentRelease", json!({"agent": "hello"})), word),
        Try::with(on("create"), signed("Dataset", json!({"cases": [{"input": "a"}]})), word),
        Try::with(on("create"), signed("EvaluationRun", json!({"agent": "hello"})), word),
        Try::with(on("create"), signed("GuardrailPolicy", tokens), word),
        Try::with(on("create"), signed("Integration", json!({"name": "i", "slack": {}})), word),
        Try::with(on("create"), member, word),
        Try::new(patch("", json!({"metadata": {"annotations": {BY: "eve@example.com"}}})), word),
        Try::new(patch("", json!({"metadata": {"annotations": {BY: "BOB@example.com"}}})), word),
        Try::with(on("replace"), other, word),
        Try::new(patch("--field-manager=slipway-rest", mine.clone()), manager),
        Try::new(patch("--field-manager=slipway-release", mine.clone()), manager),
        Try::new(patch("--field-manager=slipway/release", mine.clone()), manager),
        Try::with(on("apply --server-side --force-conflicts --field-manager=slipway-rest"), manifest("hello", &spec, json!({})), manager),
        Try::with(on("create --field-manager=slipway-rest"), manifest("fresh", &spec, json!({})), manager),
        Try::with(on("replace"), newer, book),
        Try::with(on("create"), copy, book),
        // What people and GitOps do.
        Try::new(patch("", mine.clone()), &[]),
        Try::new(patch("--field-manager=slipways", mine), &[]),
        Try::new(patch("", json!({"metadata": {"annotations": {BY: null}}})), &[]),
        Try::new(patch("", json!({"metadata": {"annotations": {"agents.slipway.dev/deploy-release": "1"}}})), &[]),
        Try::new(patch("", json!({"metadata": {"annotations": {"agents.slipway.dev/suspend": "true"}}})), &[]),
        Try::with(on("replace"), own.clone(), &[]),
        Try::with(on("replace"), unsigned, &[]),
        Try::with(
            on("apply --server-side --force-conflicts"),
            manifest("hello", &spec, json!({"annotations": {BY: "bob@example.com"}})),
            &[],
        ),
        Try::with(on("create"), manifest("fresh", &spec, json!({})), &[]),
        Try::new(format!("-n {} scale agent/hello --replicas=2 --dry-run=server --as={name}", team.namespace), &[]),
        // A backup, restored by an administrator, who could impersonate REST as well.
        Try::with(format!("-n {} create -f - --dry-run=server", team.namespace), manifest("restored", &spec, ann), &[]),
    ]);
    hide(&team, &name);
}

/// Who has changed a spec since may not strike themselves out of the book, so that REST would be its last writer again.
fn hide(team: &Team, name: &str) {
    let before = whole(team, "agent/hello");
    let time = |object: &Value, manager: &str| {
        let mut all = object["metadata"]["managedFields"].as_array().unwrap().iter().filter(|entry| entry["manager"] == manager);
        all.find(|entry| entry["fieldsV1"]["f:spec"].is_object()).map(|entry| entry["time"].as_str().unwrap().to_owned())
    };
    // The book counts in seconds.
    let after = slipway_e2e::poll(10, || {
        let patch = json!({"spec": {"systemPrompt": format!("At {:?}.", std::time::SystemTime::now())}});
        team.kubectl(format!("patch agent hello --type=merge --field-manager=mallory --as={name} -p")).arg(patch).ok();
        let after = whole(team, "agent/hello");
        if time(&after, "mallory") > time(&before, "slipway-rest") { Ok(after) } else { Err("time should go by".to_owned()) }
    });
    let replace = format!("-n {} replace -f - --dry-run=server --as={name}", team.namespace);
    let mut hidden = after.clone();
    entries(&mut hidden).retain(|entry| entry["manager"] != "mallory");
    let mut backdated = after.clone();
    for entry in entries(&mut backdated).iter_mut().filter(|entry| entry["manager"] == "mallory") {
        entry["time"] = json!("2020-01-01T00:00:00Z");
    }
    let mut renamed = after.clone();
    for entry in entries(&mut renamed).iter_mut().filter(|entry| entry["manager"] == "mallory") {
        entry["manager"] = json!("slipway-rest");
    }
    let mut moved = after.clone();
    for entry in entries(&mut moved).iter_mut().filter(|entry| entry["manager"] == "mallory") {
        entry["manager"] = json!("kustomize-controller");
    }
    let book: &[&str] = &["metadata.managedFields", "leave metadata.managedFields out"];
    judge(&[
        Try::with(&*replace, hidden, book),
        Try::with(&*replace, backdated, book),
        Try::with(&*replace, renamed, book),
        // What tools do that take over from others.
        Try::with(&*replace, moved, &[]),
        Try::with(&*replace, after, &[]),
    ]);
}
