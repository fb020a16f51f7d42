//! Attack: REST's pod becomes the manager. Whoever took over the pod of one account makes a Secret which the cluster fills with
//! the token of another, under a name that the account may read.

use serde_json::{Value, json};
use slipway_e2e::attack::Installation;
use slipway_e2e::platform;

fn trap(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": {"name": name, "namespace": platform::NAMESPACE, "annotations": {"kubernetes.io/service-account.name": platform::MANAGER}},
    })
}

/// The token that the cluster has put into a Secret, if it has.
fn filled(slipway: &Installation, name: &str) -> bool {
    let found = slipway.kubectl(format!("get secret {name} -n {} --ignore-not-found -o name", platform::NAMESPACE)).ok();
    let secret = || slipway.kubectl(format!("get secret {name} -n {}", platform::NAMESPACE)).json();
    !found.trim().is_empty() && (secret()["type"] != "Opaque" || secret()["data"]["token"].is_string())
}

/// The attacker holds REST's token, the manager's or the history's, and writes to the API server directly.
#[test]
fn no_account_of_slipway_makes_a_secret_with_anothers_token() {
    let slipway = Installation::shared();
    for account in [platform::REST, platform::STATE, platform::MANAGER] {
        let token = slipway.token_of(account);
        for name in ["slipway-platform", "slipway-keys", "slipway-relay", "slipway-trap"] {
            for verb in ["create -f -", "replace --force -f -", "apply --server-side --force-conflicts -f -"] {
                slipway.kubectl_with(&token, verb).input(trap(name)).refused();
            }
            assert!(!filled(&slipway, name), "{account} has a token in {name}");
        }
    }
    // A team's namespace is the manager's to write, and so is every Secret in it, but for this.
    let namespace = slipway.team("trap");
    let mut there = trap("slipway-trap");
    there["metadata"]["namespace"] = json!(namespace);
    there["metadata"]["annotations"]["kubernetes.io/service-account.name"] = json!("default");
    let refused = slipway.kubectl_with(&slipway.token_of(platform::MANAGER), "create -f -").input(there).refused();
    assert!(refused.contains("writes Secrets of type Opaque"), "{refused}");
    assert!(slipway.kubectl(format!("get secret slipway-trap -n {namespace} --ignore-not-found -o name")).ok().is_empty());
}

/// The attacker may make any Secret in the platform's namespace, and means REST or the manager to take it for its own.
#[test]
fn nobody_puts_an_accounts_token_where_slipway_reads() {
    let slipway = Installation::shared();
    let rules = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["create", "delete"]}]);
    let attacker = slipway.person("trapper");
    let rbac = "rbac.authorization.k8s.io/v1";
    let metadata = json!({"name": "trapper", "namespace": platform::NAMESPACE});
    slipway.apply(&json!({"apiVersion": rbac, "kind": "Role", "metadata": metadata, "rules": rules}));
    slipway.apply(&json!({
        "apiVersion": rbac, "kind": "RoleBinding", "metadata": metadata,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "trapper"},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": attacker.user}],
    }));
    slipway_e2e::poll(10, || {
        let may = slipway.kubectl_with(&attacker.token, format!("auth can-i create secrets -n {}", platform::NAMESPACE)).run().stdout;
        if may.trim() == "yes" { Ok(()) } else { Err("the attacker should be able to make Secrets".to_owned()) }
    });
    for name in ["slipway-platform", "slipway-keys", "slipway-relay"] {
        // As if the chart's own were gone: a dry run would find the name taken before a policy is asked.
        let refused = slipway.kubectl_with(&attacker.token, "create --dry-run=server -f -").input(trap(name)).refused();
        assert!(refused.contains("type: must be Opaque"), "{refused}");
        assert!(!filled(&slipway, name), "{name} holds a token");
    }
}

/// A team's admins read the Secret with the credential of their quality gate. Whoever may make Secrets there, and read none, lets them
/// have no account's token by it.
#[test]
fn nobody_puts_an_accounts_token_where_a_teams_admins_read() {
    let slipway = Installation::shared();
    let namespace = slipway.team("gate-trap");
    let attacker = slipway.person("gate-trapper");
    let (rbac, metadata) = ("rbac.authorization.k8s.io/v1", json!({"name": "gate-trapper", "namespace": namespace}));
    let rules = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["create", "delete"]}]);
    slipway.apply(&json!({"apiVersion": rbac, "kind": "Role", "metadata": metadata, "rules": rules}));
    slipway.apply(&json!({
        "apiVersion": rbac, "kind": "RoleBinding", "metadata": metadata,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "gate-trapper"},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": attacker.user}],
    }));
    slipway_e2e::poll(10, || {
        let may = slipway.kubectl_with(&attacker.token, format!("auth can-i create secrets -n {namespace}")).run().stdout;
        if may.trim() == "yes" { Ok(()) } else { Err("the attacker should be able to make Secrets".to_owned()) }
    });
    let mut there = trap("slipway-canary-gate");
    there["metadata"]["namespace"] = json!(namespace);
    there["metadata"]["annotations"]["kubernetes.io/service-account.name"] = json!("default");
    let create = |secret: &Value| slipway.kubectl_with(&attacker.token, "create --dry-run=server -f -").input(secret).run();
    let refused = create(&there);
    assert!(refused.code != Some(0) && refused.stderr.contains("type: must be Opaque"), "{refused:?}");
    // Under another name it is the attacker's own business.
    there["metadata"]["name"] = json!("mine");
    let made = create(&there);
    assert_eq!(made.code, Some(0), "{made:?}");
    let kept = slipway.kubectl(format!("get secret slipway-canary-gate -n {namespace} --ignore-not-found")).json();
    assert!(kept.is_null() || kept["type"] == "Opaque", "{}", kept["type"]);
}

/// What the chart makes is empty, and Slipway fills it without the right to make it.
#[test]
fn the_platforms_configuration_is_kept_without_the_right_to_create() {
    let slipway = Installation::shared();
    let rest = slipway.rest(&[]);
    let pat = slipway.person("keeper");
    slipway.apply(&json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "keeper"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "slipway-platform-admin"},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": pat.user}],
    }));
    let _alone = crate::platform_configuration();
    let put = json!({"state_repo": "https://git.invalid/agents/{team}.git", "state_token": "hunter2"});
    slipway_e2e::poll(10, || match rest.call("PUT", "/platform/config").token(&pat.token).json(&put).send() {
        reply if reply.status == 200 => Ok(()),
        reply => Err(format!("the configuration should be kept: {reply:?}")),
    });
    let kept = |kind: &str| slipway.kubectl(format!("get {kind} slipway-platform -n {}", platform::NAMESPACE)).json()["data"].clone();
    assert_eq!(kept("secret"), json!({"state_token": "aHVudGVyMg=="}));
    assert_eq!(kept("configmap"), json!({"state_repo": "https://git.invalid/agents/{team}.git"}));
    let keys = slipway.kubectl(format!("get secret slipway-keys -n {}", platform::NAMESPACE)).json();
    assert_eq!(keys["data"].as_object().map(serde_json::Map::len), Some(3), "the manager has made its keys: {:?}", keys["metadata"]);
}
