//! A Team owns its namespace, keeps it in shape, and goes only when it is empty.

use serde_json::{Value, json};
use slipway_e2e::{Second, Team, assert_holds, condition, kubectl, platform, poll, settings, until};
use slipway_peers::skip;

const SPEC: fn() -> Value = || {
    json!({
        "quota": {"pods": 10, "limits.memory": "2Gi"},
        "containerLimits": {"default": {"memory": "128Mi"}, "defaultRequest": {"cpu": "10m"}, "max": {"memory": "1Gi"}},
    })
};

#[test]
fn its_namespace_is_in_shape() {
    let team = Team::with("shape", &SPEC());
    let slug = &team.slug;
    let namespace = platform::namespace(&team.namespace);
    let labels = json!({"agents.slipway.dev/team": slug, "pod-security.kubernetes.io/enforce": "restricted"});
    assert_holds(
        "the Namespace",
        &json!({"metadata": {"labels": labels, "ownerReferences": [{"kind": "Team", "name": slug}]}}),
        &namespace,
    );

    let manager = kubectl(format!("get deployment {} -n {}", platform::MANAGER, platform::NAMESPACE)).json();
    let account = &manager["spec"]["template"]["spec"]["serviceAccountName"];
    let expected = json!({
        "roleRef": {"kind": "ClusterRole", "name": "slipway-team-secrets"},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": platform::NAMESPACE}],
    });
    assert_holds("the RoleBinding", &expected, &team.get("rolebinding/slipway-team-secrets"));
    assert!(team.get("secret/slipway-runtime").is_object(), "the runtime's Secret should exist");
    assert_holds(
        "the ResourceQuota",
        &json!({"spec": {"hard": {"pods": "10", "limits.memory": "2Gi"}}}),
        &team.get("resourcequota/slipway"),
    );
    let limits = json!({"type": "Container", "default": {"memory": "128Mi"}, "defaultRequest": {"cpu": "10m"}, "max": {"memory": "1Gi"}});
    assert_holds("the LimitRange", &json!({"spec": {"limits": [limits]}}), &team.get("limitrange/slipway"));

    let status = kubectl(format!("get team {slug}")).json();
    assert_holds("the status", &json!({"namespace": team.namespace, "id": format!("tk_{slug}"), "agents": 0}), &status["status"]);

    // What is no longer wanted goes.
    team.apply_spec(&json!({}));
    team.kubectl("wait limitrange/slipway --for=delete --timeout=15s").ok();
    until(&format!("resourcequotas -n {}", team.namespace), 15, |quotas| {
        let hard = &quotas.first().ok_or("the quota should stay, with what the chart sets")?["spec"]["hard"];
        match (hard["pods"].is_null(), hard["count/secrets"].is_string()) {
            (true, true) => Ok(()),
            _ => Err(format!("the quota should have the chart's amounts alone: {hard}")),
        }
    });
}

#[test]
fn its_network_is_closed_but_for_what_agents_need() {
    let team = Team::new("network");
    let list = team.kubectl("get networkpolicies").json();
    let policies = list["items"].as_array().unwrap();
    let closed = policies.iter().find(|policy| policy["spec"]["podSelector"] == json!({}));
    let closed = closed.unwrap_or_else(|| panic!("a policy should select all pods: {list:#}"));
    assert_eq!(closed["spec"]["policyTypes"], json!(["Ingress", "Egress"]));
    assert!(closed["spec"]["ingress"].is_null() && closed["spec"]["egress"].is_null(), "and allow nothing: {closed:#}");

    let rules = |direction: &str| -> Vec<Value> {
        policies.iter().flat_map(|policy| policy["spec"][direction].as_array().cloned().unwrap_or_default()).collect()
    };
    let ports = |rule: &Value| -> Vec<Value> { rule["ports"].as_array().into_iter().flatten().map(|port| port["port"].clone()).collect() };
    let from = |rule: &Value| -> Vec<Value> {
        let peers = rule["from"].as_array().cloned().unwrap_or_default();
        peers.iter().map(|peer| peer["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"].clone()).collect()
    };
    for rule in rules("ingress") {
        assert!(!ports(&rule).is_empty() && !from(&rule).is_empty(), "nothing is open to everybody: {rule:#}");
        if ports(&rule).contains(&json!(8001)) {
            assert_eq!(from(&rule), [json!(platform::NAMESPACE)], "only the platform reaches the control port");
        }
    }
    assert!(rules("ingress").iter().any(|rule| ports(rule).contains(&json!(8000)) && from(rule).contains(&json!(team.namespace))));
    assert!(rules("egress").iter().any(|rule| ports(rule).contains(&json!(53))), "names can be looked up");
    for rule in rules("egress") {
        assert!(rule["to"].as_array().is_some_and(|peers| !peers.is_empty()), "nothing is open to everywhere, not even names: {rule:#}");
    }
}

/// Threat 2: with a database, no two teams' agents log in as the same role. The default team is the other one.
#[test]
fn its_database_login_is_its_own() {
    if !platform::has_database() {
        skip("the platform has no database");
        return;
    }
    let team = Team::new("login");
    let seen = until(&format!("teams --field-selector metadata.name={}", team.slug), 30, |teams| {
        let isolated = teams.iter().find(|team| !condition(team, "DatabaseIsolated").is_null());
        isolated.cloned().ok_or("the Team should say how it stands with the database".to_owned())
    });
    let isolated = condition(&seen, "DatabaseIsolated");
    let user = |namespace: &str| {
        let secret = kubectl(format!("get secret slipway-runtime -n {namespace}")).json();
        secret["data"]["RUNTIME_DATABASE_USER"].as_str().unwrap_or_default().to_owned()
    };
    let (ours, theirs) = (user(&team.namespace), user("team-default"));
    assert!(!ours.is_empty() && !theirs.is_empty(), "every team's Secret names a user");
    match isolated["status"].as_str() {
        Some("True") => assert_ne!(ours, theirs, "two teams must not share a login"),
        _ => assert!(isolated["message"].as_str().unwrap().contains("every team"), "what is lost must be said: {isolated:#}"),
    }
}

#[test]
fn what_it_owns_is_put_back() {
    let team = Team::with("teamdrift", &SPEC());
    let mut children: Vec<(String, Value)> =
        ["rolebinding/slipway-team-secrets", "secret/slipway-runtime", "resourcequota/slipway", "limitrange/slipway"]
            .map(|object| (object.to_owned(), settings(&team.get(object))))
            .into();
    let policies = team.kubectl("get networkpolicies -o name").ok();
    children.extend(policies.lines().map(|object| (object.replace(".networking.k8s.io", ""), settings(&team.get(object)))));
    for (object, before) in &children {
        let (kind, name) = object.split_once('/').unwrap();
        let restored = |after: &str| {
            until(&format!("{kind} -n {} --field-selector metadata.name={name}", team.namespace), 10, |objects| {
                let now = objects.first().map(settings);
                if now.as_ref() == Some(before) {
                    Ok(())
                } else {
                    Err(format!("{object} should be back {after}: expected {before}, got {now:?}"))
                }
            });
        };
        team.kubectl(format!("delete {object}")).ok();
        restored("after being deleted");
        team.kubectl(format!("label --overwrite {object} app.kubernetes.io/managed-by=somebody")).ok();
        restored("after its label was changed");
    }
    let patch = |object: &str, patch: Value| team.kubectl(format!("patch {object} --type=merge -p")).arg(patch).ok();
    let back = |object: &str| {
        let (kind, name) = object.split_once('/').unwrap();
        let before = &children.iter().find(|(known, _)| known == object).unwrap().1;
        until(&format!("{kind} -n {} --field-selector metadata.name={name}", team.namespace), 10, |objects| {
            let now = objects.first().map(settings);
            if now.as_ref() == Some(before) { Ok(()) } else { Err(format!("{object}: expected {before}, got {now:?}")) }
        });
    };
    patch("resourcequota/slipway", json!({"spec": {"hard": {"pods": "1000", "services": "1"}}}));
    back("resourcequota/slipway");
    patch(
        "rolebinding/slipway-team-secrets",
        json!({"subjects": [{"kind": "User", "name": "mallory", "apiGroup": "rbac.authorization.k8s.io"}]}),
    );
    back("rolebinding/slipway-team-secrets");
    patch("secret/slipway-runtime", json!({"stringData": {"RUNTIME_MODEL_TYPE": "other"}}));
    back("secret/slipway-runtime");
    kubectl(format!("label --overwrite namespace {} pod-security.kubernetes.io/enforce=privileged", team.namespace)).ok();
    until(&format!("namespaces --field-selector metadata.name={}", team.namespace), 10, |objects| {
        let level = objects.first().map(|namespace| namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"].clone());
        if level == Some(json!("restricted")) { Ok(()) } else { Err(format!("the namespace should be restricted again, is {level:?}")) }
    });
}

#[test]
fn it_waits_until_it_is_empty() {
    let team = Team::new("leaving");
    let agent = team.agent("hello", &json!({"suspend": true}));
    agent.until("suspended", 20, |agent| agent["status"]["phase"] == "Terminated");
    until(&format!("teams --field-selector metadata.name={}", team.slug), 10, |teams| {
        if teams.iter().any(|team| team["status"]["agents"] == 1) { Ok(()) } else { Err("the Team should count its agent".to_owned()) }
    });

    kubectl(format!("delete team {} --wait=false", team.slug)).ok();
    let seen = until(&format!("teams --field-selector metadata.name={}", team.slug), 10, |teams| {
        let waiting = teams.iter().find(|team| condition(team, "Ready")["reason"] == "NotEmpty");
        waiting.cloned().ok_or("the Team should say what it waits for".to_owned())
    });
    let ready = condition(&seen, "Ready");
    assert!(ready["status"] == "False" && ready["message"].as_str().unwrap().contains("hello"), "{ready:#}");
    assert_eq!(platform::namespace(&team.namespace)["status"]["phase"], "Active");
    assert_eq!(agent.get()["status"]["phase"], "Terminated", "the agent is left alone");

    agent.kubectl("delete").ok();
    kubectl(format!("wait team/{} namespace/{} --for=delete --timeout=60s", team.slug, team.namespace)).ok();
}

#[test]
fn a_namespace_of_others_is_not_taken_over() {
    let team = Team::planned(slipway_e2e::together(), "occupied");
    kubectl(format!("create namespace {}", team.namespace)).ok();
    team.kubectl("create configmap theirs --from-literal=keep=1").ok();
    team.apply_spec(&json!({}));
    let seen = until(&format!("teams --field-selector metadata.name={}", team.slug), 10, |teams| {
        let told =
            teams.iter().find(|team| condition(team, "Stalled")["status"] == "True" && condition(team, "Ready")["reason"] == "NameTaken");
        told.cloned().ok_or("the Team should say that the name is taken".to_owned())
    });
    let message = condition(&seen, "Ready")["message"].as_str().unwrap().to_owned();
    assert!(message.contains(&team.namespace), "{message}");
    let namespace = platform::namespace(&team.namespace);
    assert!(namespace["metadata"]["labels"]["agents.slipway.dev/team"].is_null() && namespace["metadata"]["ownerReferences"].is_null());
    // Nor do agents run there.
    let agent = team.agent("hello", &json!({}));
    agent.stalled(&["NotATeamNamespace"], 10);
    agent.kubectl("delete").ok();

    kubectl(format!("delete team {} --timeout=30s", team.slug)).ok();
    assert_eq!(team.get("configmap/theirs")["data"]["keep"], "1", "what is not ours stays when the Team goes");
    kubectl(format!("delete namespace {} --wait=false", team.namespace)).ok();
}

/// The label decides whose Secrets and rights meet in a namespace; not even an admin gives it to another one by hand.
#[test]
fn the_teams_label_cannot_be_forged() {
    let team = Team::new("label");
    let stray = format!("{}-stray", team.slug);
    kubectl(format!("delete namespace {stray} --ignore-not-found --timeout=60s")).ok();
    let forged =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": stray, "labels": {"agents.slipway.dev/team": team.slug}}});
    let word = "agents.slipway.dev/team";
    for line in ["create -f -", "create -f - --as=mallory --as-group=system:masters"] {
        let refusal = kubectl(line).input(&forged).refused();
        assert!(refusal.contains(word), "{line}: {refusal}");
    }
    let refusal = kubectl(format!("label --overwrite namespace {} agents.slipway.dev/team=other", team.namespace)).refused();
    assert!(refusal.contains(word), "{refusal}");
    // Who may delete the Team may take it away, and as long as there is that Team it comes back.
    kubectl(format!("label namespace {} agents.slipway.dev/team-", team.namespace)).ok();
    until(&format!("namespaces --field-selector metadata.name={}", team.namespace), 10, |objects| {
        let label = objects.first().map(|namespace| namespace["metadata"]["labels"][word].clone());
        if label == Some(json!(team.slug)) { Ok(()) } else { Err(format!("the label should be back, is {label:?}")) }
    });
    let plain = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": stray}});
    kubectl("create -f -").input(&plain).ok();
    let refusal = kubectl(format!("label namespace {stray} agents.slipway.dev/team={}", team.slug)).refused();
    assert!(refusal.contains(word), "{refusal}");
    kubectl(format!("delete namespace {stray} --wait=false")).ok();
}

/// The manager does not hear of Agents there, and has to ask.
#[test]
fn a_team_whose_namespace_is_not_watched_waits_for_its_agents_too() {
    let (cluster, _operator) = Second::operated("aside", &[("SLIPWAY_WATCH_NAMESPACES", "team-watched")]);
    cluster.apply(&json!({
        "kind": "Agent", "metadata": {"name": "left", "namespace": "team-aside"},
        "spec": {"name": "Left", "framework": "custom"},
    }));
    cluster.kubectl("delete team aside --wait=false").ok();
    poll(20, || {
        let ready = condition(&cluster.kubectl("get team aside").json(), "Ready").clone();
        let waits = ready["reason"] == "NotEmpty" && ready["message"].as_str().is_some_and(|message| message.contains("left"));
        if waits { Ok(()) } else { Err(format!("the Team should wait for its agent: {ready}")) }
    });
    cluster.kubectl("get agent left -n team-aside").ok();
    cluster.kubectl("delete agent left -n team-aside").ok();
    poll(30, || {
        let phase = cluster.kubectl("get namespace team-aside --ignore-not-found").json()["status"]["phase"].clone();
        if phase == "Terminating" || phase.is_null() { Ok(()) } else { Err(format!("the namespace should go: {phase}")) }
    });
}
