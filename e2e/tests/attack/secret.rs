//! Attack: REST's pod becomes the manager. An attacker who took over the pod of one account makes a Secret which the cluster fills with
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
    let token = slipway.token_of(platform::MANAGER);
    slipway_e2e::poll(60, || {
        let may = slipway.kubectl_with(&token, format!("auth can-i create secrets -n {namespace}")).run().stdout;
        if may.trim() == "yes" { Ok(()) } else { Err("the manager should be able to make Secrets".to_owned()) }
    });
    let refused = slipway.kubectl_with(&token, "create -f -").input(there).refused();
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

/// A team's admins read the Secret with the credential of their quality gate. A user who may make Secrets there, and read none, lets them
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

/// The attacker holds REST's token, which may write the logins of a team's integrations, and wants to know one.
#[test]
fn who_has_rests_token_reads_no_login() {
    let slipway = Installation::shared();
    let namespace = slipway.team("login-trap");
    let token = slipway.token_of(platform::REST);
    slipway_e2e::poll(60, || {
        let may = slipway.kubectl_with(&token, format!("auth can-i update secrets -n {namespace}")).run().stdout;
        if may.trim() == "yes" { Ok(()) } else { Err("REST should be able to replace logins".to_owned()) }
    });
    let spec = json!({"name": "Trap", "prometheus": {"url": "https://metrics.example.com"}});
    let metadata = json!({"name": "trap", "namespace": namespace});
    slipway.apply(&json!({"apiVersion": "agents.slipway.dev/v1", "kind": "Integration", "metadata": metadata, "spec": spec}));
    let uid = slipway.kubectl(format!("get integration trap -n {namespace}")).json()["metadata"]["uid"].clone();
    let owner = json!({"apiVersion": "agents.slipway.dev/v1", "kind": "Integration", "name": "trap", "uid": uid});
    let login = |name: &str, owners: Value| {
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": {"name": name, "namespace": namespace, "ownerReferences": owners},
        })
    };
    let planted = |mut secret: Value| {
        secret["stringData"] = json!({"token": "hunter2"});
        secret
    };
    slipway.apply(&planted(login("in-trap", json!([owner]))));
    slipway.apply(&planted(login("in-theirs", json!([]))));
    let data = |name: &str| slipway.kubectl(format!("get secret {name} -n {namespace}")).json()["data"].clone();

    for line in [
        "get secret in-trap -o yaml",
        "get secrets",
        "get secrets --watch",
        "patch secret in-trap --type=merge -p {}",
        "delete secret in-trap",
        "delete secrets --all",
    ] {
        let refused = slipway.kubectl_with(&token, format!("{line} -n {namespace}")).refused();
        assert!(refused.to_lowercase().contains("forbidden"), "{line}: {refused}");
    }
    let applied = "apply --server-side --force-conflicts -f -";
    slipway.kubectl_with(&token, applied).input(login("in-trap", json!([owner]))).refused();
    // Another's, with an owner made up.
    let put = |name: &str, query: &str| format!("replace --raw=/api/v1/namespaces/{namespace}/secrets/{name}{query} -f -");
    let mut claimed = login("in-theirs", json!([owner]));
    claimed["metadata"]["ownerReferences"][0]["name"] = json!("theirs");
    let refused = slipway.kubectl_with(&token, put("in-theirs", "")).input(claimed).refused();
    assert!(refused.contains("replaces no Secret that belongs to no Integration") && !refused.contains("aHVudGVyMg"), "{refused}");
    // One that the cluster would fill with an account's token, or that agents may read.
    let mut filled = trap("in-trapped");
    filled["metadata"]["namespace"] = json!(namespace);
    filled["metadata"]["ownerReferences"] = json!([owner]);
    filled["metadata"]["ownerReferences"][0]["name"] = json!("trapped");
    filled["metadata"]["annotations"]["kubernetes.io/service-account.name"] = json!("default");
    let mut opened = login("in-trapped", filled["metadata"]["ownerReferences"].clone());
    opened["metadata"]["labels"] = json!({"agents.slipway.dev/agent-readable": "true"});
    for secret in [filled, opened] {
        let refused = slipway.kubectl_with(&token, "create -f -").input(&secret).refused();
        assert!(refused.contains("is Opaque, has 16 keys at most, names no service account, and is for no agent"), "{refused}");
    }
    assert!(slipway.kubectl(format!("get secret in-trapped -n {namespace} --ignore-not-found -o name")).ok().is_empty());
    assert_eq!((data("in-trap"), data("in-theirs")), (json!({"token": "aHVudGVyMg=="}), json!({"token": "aHVudGVyMg=="})));

    // The answer to a replacement has what was sent, whether it was meant or tried.
    for query in ["?dryRun=All", ""] {
        let answered = slipway.kubectl_with(&token, put("in-trap", query)).input(login("in-trap", json!([owner]))).ok();
        for known in ["aHVudGVyMg", "hunter2", "last-applied", "f:token"] {
            assert!(!answered.contains(known), "{known} should not be answered: {answered}");
        }
        assert!(answered.contains("\"in-trap\""), "{answered}");
        let left = data("in-trap");
        assert_eq!(left.is_null(), query.is_empty(), "a dry run changes nothing: {left}");
    }
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
