//! What is built for an agent whose rollouts Flagger drives.

use slipway_api::labels;

use super::*;

const YAML: &str = "replicas: 2";

#[test]
fn replicas_are_left_to_flagger_but_for_a_stop() {
    let replicas = |spec: &str| {
        let plan = Plan { replicas_elsewhere: true, ..plan(&agent(spec), &settings(None)) };
        build::build(&plan).deployment.spec.unwrap().replicas
    };
    assert_eq!(replicas(YAML), None);
    assert_eq!(replicas("replicas: 2, suspend: true"), Some(0));
    assert_eq!(replicas("replicas: 0"), Some(0));
}

#[test]
fn the_service_selects_the_pods_that_flagger_labels() {
    let plan = Plan { primary_ready: true, ..plan(&agent(YAML), &settings(None)) };
    let desired = build::build(&plan);
    let selector = desired.service.spec.unwrap().selector.unwrap();
    let own = desired.deployment.spec.unwrap();
    let mut pods = own.template.metadata.unwrap().labels.unwrap();
    let selected =
        |pods: &std::collections::BTreeMap<String, String>| selector.iter().all(|label| pods.get_key_value(label.0) == Some(label));
    assert!(!selected(&pods), "the agent's own pods are what is tested");
    // As Flagger does: the first label of the selector that it knows.
    pods.insert(labels::NAME.to_owned(), format!("{}-primary", pods[labels::NAME]));
    assert!(selected(&pods));
    assert_eq!(own.selector.match_labels.unwrap().get(labels::NAME), Some(&"helper".to_owned()), "by which Flagger finds it");
}

#[test]
fn what_all_pods_read_as_it_is_flagger_does_not_copy() {
    let plan = Plan { tool_digests: Some("{}".to_owned()), ..plan(&agent(YAML), &settings(None)) };
    let desired = build::build(&plan);
    let tracking =
        |metadata: &kube::api::ObjectMeta| metadata.annotations.as_ref().and_then(|all| all.get(labels::CONFIG_TRACKING).cloned());
    assert_eq!(tracking(&desired.tool_digests.unwrap().metadata).as_deref(), Some("disabled"));
    assert_eq!(tracking(&desired.config_map.metadata), None, "what a release is goes with it");
}
