//! Attack: a platform admin writes where Slipway has no business.

use serde_json::json;
use slipway_e2e::attack::Installation;
use slipway_e2e::{platform, poll};

const RBAC: &str = "rbac.authorization.k8s.io";

/// Binds `slipway-platform-admin` in the whole cluster.
fn appoint(slipway: &Installation, name: &str, user: &str) {
    slipway.apply(&json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "slipway-platform-admin"},
        "subjects": [{"kind": "User", "apiGroup": RBAC, "name": user}],
    }));
}

#[test]
fn a_platform_admin_writes_in_teams_and_in_no_other_namespace() {
    let slipway = Installation::shared();
    let namespace = slipway.team("reach");
    let pat = slipway.person("pat");
    appoint(&slipway, "pat", &pat.user);
    let kubectl = |line: String| slipway.kubectl_with(&pat.token, line);
    let agent = json!({"apiVersion": "agents.slipway.dev/v1", "kind": "Agent", "metadata": {"name": "reach"}, "spec": {"name": "R", "framework": "custom"}});
    poll(10, || {
        let made = kubectl(format!("apply -n {namespace} -f -")).input(&agent).run();
        if made.code == Some(0) { Ok(()) } else { Err(format!("a team's namespace should be theirs: {made:?}")) }
    });
    kubectl(format!("create rolebinding reach -n {namespace} --clusterrole=slipway-viewer --user=ann@example.com")).ok();
    // An administrator's own, which only shares the name of Slipway's.
    slipway.kubectl("create secret generic slipway-platform -n kube-system --from-literal=a=b").ok();
    slipway.kubectl("create rolebinding theirs -n kube-system --clusterrole=view --user=ann@example.com").ok();
    for elsewhere in ["kube-system", "default"] {
        for refused in [
            kubectl(format!("create -n {elsewhere} -f -")).input(&agent).refused(),
            kubectl(format!("create rolebinding reach -n {elsewhere} --clusterrole=slipway-admin --user={}", pat.user)).refused(),
        ] {
            assert!(refused.contains("slipway-platform-admin is a role for team-* namespaces"), "{refused}");
        }
        let left = slipway.kubectl(format!("get agents,rolebindings -n {elsewhere} -o name")).ok();
        assert!(!left.contains("reach"), "{left}");
    }
    kubectl("delete rolebinding theirs -n kube-system".to_owned()).refused();
    kubectl("patch secret slipway-platform -n kube-system -p".to_owned()).arg(json!({"data": {"a": "eA=="}})).refused();
    assert_eq!(slipway.kubectl("get secret slipway-platform -n kube-system").json()["data"], json!({"a": "Yg=="}));
    slipway.kubectl("get rolebinding theirs -n kube-system").ok();
    kubectl(format!("patch configmap slipway-platform -n {} --dry-run=server -p", platform::NAMESPACE)).arg(json!({"data": {}})).ok();
    // An administrator of the cluster is one everywhere.
    slipway.kubectl("create -n default --dry-run=server -f -").input(&agent).ok();
}
