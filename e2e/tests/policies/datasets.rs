//! Threat: whom a release gate holds makes the examination easier, by writing the cases.

use serde_json::{Value, json};
use slipway_e2e::{Team, kubectl};

use super::{Grant, Try, judge};

fn dataset(team: &Team, name: &str, protected: bool) -> Value {
    let metadata = json!({"name": name, "namespace": team.namespace});
    let spec = json!({"cases": [{"input": "a"}], "protected": protected});
    json!({"apiVersion": "agents.slipway.dev/v1", "kind": "Dataset", "metadata": metadata, "spec": spec})
}

#[test]
fn a_protected_dataset_takes_the_right_to_lower_gates() {
    let team = Team::new("policy-datasets");
    kubectl("create -f -").input(dataset(&team, "held", true)).ok();
    kubectl("create -f -").input(dataset(&team, "free", false)).ok();
    let users = ["developer", "admin", "deleter"].map(|role| format!("{}-{role}", team.slug));
    let [developer, admin, deleter] = &users;
    let _developer = Grant::bind("developer", "slipway-developer", developer, Some(&team.namespace));
    let _admin = Grant::bind("admin", "slipway-admin", admin, Some(&team.namespace));
    // All rights on datasets, and no other.
    let rules = json!([{"apiGroups": ["agents.slipway.dev"], "resources": ["datasets"], "verbs": ["*"]}]);
    let _deleter = Grant::make(deleter, &rules, deleter);
    let by = |verb: &str, user: &str| format!("-n {} {verb} --dry-run=server --as={user}", team.namespace);
    let patch = |name: &str, user: &str, spec: Value| {
        let change = json!({ "spec": spec });
        format!("-n {} patch dataset/{name} --type=merge --dry-run=server --as={user} -p {change}", team.namespace)
    };
    let words: &[&str] = &["spec.protected", "update agents/governance"];
    let open = json!({"protected": false});
    let easier = json!({"cases": [{"input": "b"}]});
    judge(&[
        Try::new(patch("held", developer, easier.clone()), words),
        Try::new(patch("held", developer, open.clone()), words),
        Try::new(patch("free", developer, json!({"protected": true})), words),
        Try::with(by("create -f -", developer), dataset(&team, "new", true), words),
        Try::new(by("delete dataset/held", deleter), words),
        Try::new(by("delete datasets --all", deleter), words),
        Try::new(patch("held", deleter, open.clone()), words),
        // What does not concern it.
        Try::new(patch("free", developer, easier.clone()), &[]),
        Try::with(by("create -f -", developer), dataset(&team, "new", false), &[]),
        Try::new(by("delete dataset/free", deleter), &[]),
        // Who may lower gates.
        Try::new(patch("held", admin, easier), &[]),
        Try::new(patch("held", admin, open), &[]),
        Try::with(by("create -f -", admin), dataset(&team, "new", true), &[]),
        Try::new(by("delete dataset/held", admin), &[]),
    ]);
}

/// The garbage collector, and the controller that empties a namespace, are held up by nothing.
#[test]
fn a_protected_dataset_goes_with_its_owner_and_its_namespace() {
    let team = Team::new("policy-dataset-goes");
    team.apply(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}}));
    let owner = team.get("configmap/owner");
    let mut claimed = dataset(&team, "owned", true);
    claimed["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}]);
    kubectl("create -f -").input(claimed).ok();
    kubectl("create -f -").input(dataset(&team, "held", true)).ok();
    team.kubectl("delete configmap owner").ok();
    team.kubectl("wait dataset/owned --for=delete --timeout=60s").ok();
    kubectl(format!("delete team {} --wait=false", team.slug)).ok();
    kubectl(format!("wait namespace/{} --for=delete --timeout=120s", team.namespace)).ok();
}
