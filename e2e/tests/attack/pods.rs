//! Attack: by `podTemplate` an Agent claims what is the cluster's: priority over everything, nodes that are kept for others,
//! what annotations and labels mean to clouds, meshes and networks, another sandbox.

use serde_json::{Value, json};
use slipway_e2e::attack::Installation;
use slipway_e2e::poll;

/// What a developer tried, and what is said of it.
fn claims() -> Vec<(&'static str, Value)> {
    vec![
        ("priorityClassName: agents of this team may not have system-node-critical", json!({"priorityClassName": "system-node-critical"})),
        ("runtimeClassName: agents of this team may not have runc", json!({"runtimeClassName": "runc"})),
        ("tolerations: agents of this team may not have all taints", json!({"tolerations": [{"operator": "Exists"}]})),
        (
            "tolerations: agents of this team may not have node-role.kubernetes.io/control-plane",
            json!({"tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}]}),
        ),
        ("tolerations: agents of this team may not have that", json!({"tolerations": [{"key": "one\ntwo", "operator": "Exists"}]})),
        (
            "annotations: agents of this team may not have iam.amazonaws.com/role",
            json!({"annotations": {"iam.amazonaws.com/role": "admin"}}),
        ),
        (
            "annotations: agents of this team may not have k8s.v1.cni.cncf.io/networks",
            json!({"annotations": {"k8s.v1.cni.cncf.io/networks": "host"}}),
        ),
        (
            "labels: agents of this team may not have azure.workload.identity/use",
            json!({"labels": {"azure.workload.identity/use": "true"}}),
        ),
    ]
}

fn agent(namespace: &str, name: &str, claim: &Value) -> Value {
    json!({
        "apiVersion": "agents.slipway.dev/v1", "kind": "Agent", "metadata": {"name": name, "namespace": namespace},
        "spec": {"name": "Claim", "framework": "custom", "suspend": true, "podTemplate": claim},
    })
}

/// A list of a team's namespace, once it is there.
fn listed(slipway: &Installation, namespace: &str, list: &str) -> String {
    poll(30, || {
        let home = slipway.kubectl(format!("get namespace {namespace}")).json();
        let lines = home["metadata"]["annotations"][format!("allowed.agents.slipway.dev/{list}")].as_str().map(str::to_owned);
        lines.ok_or_else(|| format!("the list {list} should be there"))
    })
}

#[test]
fn a_developer_claims_nothing_of_the_clusters() {
    let slipway = Installation::shared();
    let namespace = slipway.team("claims");
    let developer = slipway.member("claimant", "slipway-developer", &namespace);
    let rest = slipway.rest(&[]);
    let plain = agent(&namespace, "plain", &json!({"labels": {"cost-center": "a"}, "nodeSelector": {"disk": "fast"}}));
    poll(10, || {
        let made = slipway.kubectl_with(&developer.token, "apply -f -").input(&plain).run();
        if made.code == Some(0) { Ok(()) } else { Err(format!("what is nobody's business should be taken: {made:?}")) }
    });
    for (says, claim) in claims() {
        let refused = slipway.kubectl_with(&developer.token, "create -f -").input(agent(&namespace, "claim", &claim)).refused();
        assert!(refused.contains(says) && refused.contains("a platform admin allows it in the Team"), "{refused}");
        let patch = json!({"spec": {"podTemplate": claim}});
        let line = format!("patch agent plain -n {namespace} --type=merge -p");
        let refused = slipway.kubectl_with(&developer.token, &line).arg(&patch).refused();
        assert!(refused.contains(says), "{refused}");
        // Nor for a canary.
        let canary = json!({"enabled": true, "weight": 10, "overrides": {"podTemplate": claim}});
        let refused = slipway.kubectl_with(&developer.token, &line).arg(json!({"spec": {"canary": canary}})).refused();
        assert!(refused.contains(&format!("spec.canary.overrides.podTemplate.{says}")), "{refused}");
        let body = json!({"name": "claim", "framework": "custom", "podTemplate": claim});
        let reply = rest.call("POST", "/agents").header("X-Team", "claims").token(&developer.token).json(&body).send();
        // REST calls the field by its own name.
        let (_, says) = says.split_once(": ").unwrap_or_default();
        assert!(reply.status == 400 && reply.body.contains(says), "{reply:?}");
    }
    let left = slipway.kubectl(format!("get agents -n {namespace}")).json();
    let left: Vec<_> =
        left["items"].as_array().into_iter().flatten().map(|agent| (&agent["metadata"]["name"], &agent["spec"]["podTemplate"])).collect();
    assert_eq!(left, [(&json!("plain"), &plain["spec"]["podTemplate"])]);
    assert!(slipway.kubectl(format!("get agent plain -n {namespace}")).json()["spec"]["canary"].is_null());
}

/// The attacker may write everything in the team's namespace, and the Namespace itself, as a role for `*` gives.
#[test]
fn a_teams_own_people_do_not_write_the_lists() {
    let slipway = Installation::shared();
    let namespace = slipway.team("list");
    listed(&slipway, &namespace, "priorityClassNames");
    let owner = slipway.member("owner", "slipway-developer", &namespace);
    let (rbac, group) = ("rbac.authorization.k8s.io/v1", "rbac.authorization.k8s.io");
    let metadata = json!({"name": "owner", "namespace": namespace});
    let rules = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    slipway.apply(&json!({"apiVersion": rbac, "kind": "Role", "metadata": metadata, "rules": rules}));
    slipway.apply(&json!({
        "apiVersion": rbac, "kind": "RoleBinding", "metadata": metadata, "roleRef": {"apiGroup": group, "kind": "Role", "name": "owner"},
        "subjects": [{"kind": "User", "apiGroup": group, "name": owner.user}],
    }));
    poll(10, || {
        let marked = slipway.kubectl_with(&owner.token, format!("annotate namespace {namespace} example.com/desk=four --overwrite")).run();
        if marked.code == Some(0) { Ok(()) } else { Err(format!("the owner should be able to write the Namespace: {marked:?}")) }
    });
    let key = "allowed.agents.slipway.dev/priorityClassNames";
    for (subresource, change) in [("", json!("*")), ("", Value::Null), ("--subresource=status", json!("*"))] {
        let patch = json!({"metadata": {"annotations": {key: change}}});
        let line = format!("patch namespace {namespace} {subresource} --type=merge -p");
        let refused = slipway.kubectl_with(&owner.token, line).arg(&patch).refused();
        assert!(refused.contains("the Slipway manager makes them of the Team's spec.allowedPodSettings"), "{refused}");
    }
    let claim = agent(&namespace, "claim", &json!({"priorityClassName": "system-node-critical"}));
    slipway.kubectl_with(&owner.token, "create -f -").input(&claim).refused();
    assert_eq!(listed(&slipway, &namespace, "priorityClassNames"), "");
    assert!(slipway.kubectl(format!("get agents -n {namespace} -o name")).ok().is_empty());
}

/// Who may change the Team allows it, and takes it back: what runs may go on, and nothing new begins.
#[test]
fn what_a_team_is_allowed_is_the_administrators_word() {
    let slipway = Installation::shared();
    let namespace = slipway.team("allowed");
    let allow = |names: &[&str]| {
        let spec = json!({"name": "allowed", "allowedPodSettings": {"priorityClassNames": names, "annotations": ["example.com/*"]}});
        slipway.apply(&json!({"apiVersion": "agents.slipway.dev/v1", "kind": "Team", "metadata": {"name": "allowed"}, "spec": spec}));
        poll(30, || {
            let found = listed(&slipway, &namespace, "priorityClassNames");
            if found == names.join("\n") { Ok(()) } else { Err(format!("the list should say {names:?} and says {found}")) }
        });
    };
    allow(&["batch"]);
    let developer = slipway.member("allowed-developer", "slipway-developer", &namespace);
    let claim = json!({"priorityClassName": "batch", "annotations": {"example.com/contact": "desk"}});
    poll(10, || {
        let made = slipway.kubectl_with(&developer.token, "apply -f -").input(agent(&namespace, "early", &claim)).run();
        if made.code == Some(0) { Ok(()) } else { Err(format!("what the Team is allowed should be taken: {made:?}")) }
    });
    let deployment = |name: &str| {
        let found = slipway.kubectl(format!("get deployment {name} -n {namespace} --ignore-not-found -o json")).ok();
        serde_json::from_str::<Value>(&found).unwrap_or_default()
    };
    poll(30, || match deployment("early") {
        found if found["spec"]["template"]["spec"]["priorityClassName"] == "batch" => Ok(()),
        found => Err(format!("it should run so: {found}")),
    });
    allow(&[]);
    let description = json!({"spec": {"description": "Changed since."}});
    // The API server hears of the list a moment later.
    poll(10, || {
        let late = slipway.kubectl_with(&developer.token, "create --dry-run=server -f -").input(agent(&namespace, "late", &claim)).run();
        if late.code == Some(0) { Err("a new one should be refused".to_owned()) } else { Ok(()) }
    });
    slipway.kubectl_with(&developer.token, format!("patch agent early -n {namespace} --type=merge -p")).arg(&description).ok();
    // What is made anew is new.
    slipway.kubectl(format!("delete deployment early -n {namespace}")).ok();
    poll(30, || {
        let agent = slipway.kubectl(format!("get agent early -n {namespace}")).json();
        let told = agent["status"]["conditions"].to_string();
        if told.contains("may not have batch") { Ok(()) } else { Err(format!("the Agent should say why it does not run: {told}")) }
    });
    assert!(deployment("early").is_null(), "{}", deployment("early"));
}
