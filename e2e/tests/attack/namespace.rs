//! Attack: the manager's pod is taken over, and its account makes itself a place in which pods may do everything.

use serde_json::{Value, json};
use slipway_e2e::attack::Installation;
use slipway_e2e::platform;

fn namespace(name: &str, standard: Option<&str>) -> Value {
    let labels = standard.map(|standard| json!({"pod-security.kubernetes.io/enforce": standard}));
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
}

/// A privileged pod in a namespace of one's own has the node. The attacker may create and change namespaces named team-*.
#[test]
fn the_manager_makes_no_namespace_for_privileged_pods() {
    let slipway = Installation::shared();
    let token = slipway.token_of(platform::MANAGER);
    for standard in [None, Some("privileged"), Some("baseline")] {
        let refused = slipway.kubectl_with(&token, "create -f -").input(namespace("team-den", standard)).refused();
        assert!(refused.contains("pod-security.kubernetes.io/enforce: restricted"), "{refused}");
    }
    assert!(slipway.kubectl("get namespace team-den --ignore-not-found -o name").ok().is_empty());
    // Nor does it lower the standard of a team's.
    let there = slipway.team("den2");
    for standard in ["privileged", "baseline"] {
        let line = format!("label --overwrite namespace {there} pod-security.kubernetes.io/enforce={standard}");
        slipway.kubectl_with(&token, line).refused();
    }
    slipway.kubectl_with(&token, format!("label namespace {there} pod-security.kubernetes.io/enforce-")).refused();
    let left = slipway.kubectl(format!("get namespace {there}")).json();
    assert_eq!(left["metadata"]["labels"]["pod-security.kubernetes.io/enforce"], "restricted");
}
