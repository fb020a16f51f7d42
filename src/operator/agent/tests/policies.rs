//! Guardrail policies: what an Agent is told of those that it names, whom a change of one reaches, and what waits for their file.

use std::sync::Mutex;

use http::{Request, Response};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::json;
use slipway_cluster::Object;

use super::*;
use crate::agent::{apply, reconcile};
use crate::caches::child::Child;
use crate::caches::guardrail_policy::{LeftOut, TeamPolicies};
use crate::testing::{context_of, give_policies};

fn policy(name: &str, spec: &str) -> String {
    format!(
        "---\nkind: GuardrailPolicy\nmetadata: {{name: {name}, namespace: team-a, uid: {name}}}\nspec: {{name: P, severity: critical, {spec}}}\n"
    )
}

const GUNS: &str = "rules: [{type: blocked_topics, operator: contains, value: guns}]";

fn named(policies: &str) -> String {
    agent(&format!("governance: {{policies: [{policies}]}}"))
}

#[test]
fn an_agent_is_told_the_ids_of_the_policies_that_it_names() {
    let told = |policies: &str| {
        let yaml = named(policies) + &policy("no-guns", GUNS) + &policy("default-cost", GUNS);
        plan(&yaml, &settings(None)).variables.get(contract::POLICIES).cloned()
    };
    assert_eq!(told(""), None);
    assert_eq!(told("default"), None, "the file says which these are");
    assert_eq!(told("no-guns, gp_no_guns").as_deref(), Some(r#"["gp_no_guns"]"#));
    let all = r#"["gp_no_guns","default","gp_default_cost"]"#;
    assert_eq!(told("no-guns, default, default-cost").as_deref(), Some(all), "whichever defaults there are, so that none restarts it");
}

#[test]
fn a_policy_that_cannot_be_used_is_a_fault_that_names_it() {
    let wrong = "rules: [{type: max_tokens, operator: in, value: '1'}]";
    for (policies, others, reason, says) in [
        ("default, gp_no_pe", String::new(), "PolicyNotFound", "spec.governance.policies[1]: there is no GuardrailPolicy no-pe"),
        ("default-cost", String::new(), "PolicyNotFound", "there is no GuardrailPolicy default-cost"),
        ("p", policy("p", wrong), "PolicyInvalid", "spec.governance.policies[0]: GuardrailPolicy p: spec.rules[0].operator: "),
    ] {
        let fault = fault(&(named(policies) + &others), &settings(None));
        assert_eq!(fault.reason, reason, "{}", fault.message);
        assert!(fault.message.contains(says), "{policies}: {}", fault.message);
    }
    let documents = documents(&(named("p") + &policy("p", GUNS)));
    let agent = all::<Agent>(&documents, "Agent").remove(0);
    let full = TeamPolicies { left_out: [("p".to_owned(), LeftOut::NoRoom)].into(), ..TeamPolicies::default() };
    let seen = Seen { team_policies: Some(full.into()), ..seen(&agent, &documents, &settings(None)) };
    let Resolved::Fault(found) = resolve(&agent, Track::Stable, &seen, &settings(None)) else { panic!("its pods would not begin") };
    assert_eq!(found.reason, "PolicyInvalid", "{}", found.message);
    let late = policy("p", GUNS).replace("uid: p", "uid: p, deletionTimestamp: '2026-01-01T00:00:00Z'");
    assert_eq!(fault(&(named("p") + &late), &settings(None)).reason, "PolicyNotFound", "it is on its way out");
}

#[test]
fn what_a_policy_says_is_nowhere_in_an_agents_objects() {
    let built = |spec: &str| {
        let plan = plan(&(named("no-guns") + &policy("no-guns", spec)), &settings(None));
        build::build(&plan).into_values().unwrap()
    };
    assert_eq!(built(GUNS), built("enabled: false, rules: [{type: max_tokens, operator: lt, value: '7'}]"));
}

#[tokio::test]
async fn a_policy_that_changes_reconciles_no_agent_but_when_it_comes_or_goes() {
    let key = |name: &str| Key::new("team-a", name);
    let controller = Controller::new(context());
    let caches = &controller.context.caches;
    caches.references.set(&key("one"), [(Kind::of::<GuardrailPolicy>(), key("p"))].into());
    let put = |spec: &str, deleting: bool| {
        let mut yaml = policy("p", spec);
        if deleting {
            yaml = yaml.replace("uid: p", "uid: p, deletionTimestamp: '2026-01-01T00:00:00Z'");
        }
        let found = all::<GuardrailPolicy>(&documents(&yaml), "GuardrailPolicy").remove(0);
        caches.guardrail_policies.insert(key("p"), CachedPolicy::from(Guarded(Ok(found))));
    };
    let requested = async || {
        let requests = controller.requests.open();
        controller.changed(&Change::Object(Kind::of::<GuardrailPolicy>(), key("p")));
        let count = controller.requests.depth();
        drop(requests.take(count).collect::<Vec<_>>().await);
        count
    };
    put(GUNS, false);
    assert_eq!(requested().await, 1, "it came");
    put("enabled: false, rules: [{type: blocked_topics, operator: contains, value: 'guns, knives'}]", false);
    assert_eq!(requested().await, 0, "it says something else");
    put("rules: [{type: max_tokens, operator: in, value: '1'}]", false);
    assert_eq!(requested().await, 1, "it cannot be used");
    put(GUNS, false);
    assert_eq!(requested().await, 1, "it can");
    put(GUNS, true);
    assert_eq!(requested().await, 1, "it goes");
    caches.guardrail_policies.remove(&key("p"));
    assert_eq!(requested().await, 0, "it has gone");
}

/// A cluster that takes what it is given, and the paths of what it was given.
fn willing_cluster() -> (Client, Arc<Mutex<Vec<String>>>) {
    let written = Arc::new(Mutex::new(Vec::new()));
    let writes = written.clone();
    let server = tower::service_fn(move |request: Request<Body>| {
        let writes = writes.clone();
        async move {
            let (parts, body) = request.into_parts();
            let mut object: Value = serde_json::from_slice(&body.collect().await.unwrap().to_bytes()).unwrap_or_default();
            writes.lock().unwrap().push(parts.uri.path().rsplit('/').take(2).collect::<Vec<_>>().join(" of "));
            object["metadata"]["uid"] = json!("made");
            object["metadata"]["resourceVersion"] = json!("9");
            Ok::<_, std::io::Error>(Response::new(Body::from(object.to_string().into_bytes())))
        }
    });
    (Client::new(server, "default"), written)
}

#[tokio::test]
async fn new_pods_wait_for_the_file_and_take_nobodys_turn() {
    let (client, written) = willing_cluster();
    let controller = Controller::new(context_of(client));
    let (caches, key) = (&controller.context.caches, Key::new("team-a", "helper"));
    let namespace: Object =
        serde_json::from_value(json!({"metadata": {"name": "team-a", "labels": {"agents.slipway.dev/team": "a"}}})).unwrap();
    caches.children(ChildKind::Namespace).insert(Key::new("", "team-a"), Child::look(&namespace, None, || None, ""));
    let documents = documents(&agent("replicas: 1"));
    caches.teams.insert(Key::new("", "a"), Guarded(Ok(all::<Team>(&documents, "Team").remove(0))));
    caches.know_secrets_of("team-a");
    caches.agents.insert(key.clone(), Guarded(Ok(all::<Agent>(&documents, "Agent").remove(0))).into());
    controller.begin_rollout();
    // It serves with pods that an earlier version made.
    let owner = json!({"apiVersion": "v1", "kind": "Agent", "name": "helper", "uid": "u", "controller": true});
    let serving: Object = serde_json::from_value(json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "helper", "ownerReferences": [owner]},
        "spec": {"replicas": 1}, "status": {"replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1},
    }))
    .unwrap();
    caches.children(ChildKind::Deployment).insert(key.clone(), Child::look(&serving, None, || Some(json!({})), ""));
    let wrote = async || {
        let next = reconcile(&controller, &key).await.unwrap();
        (std::mem::take(&mut *written.lock().unwrap()), next)
    };

    let (paths, next) = wrote().await;
    let has = |paths: &[String], path: &str| paths.iter().any(|found| found == path);
    assert!(!has(&paths, "helper of deployments") && !has(&paths, "helper-config of configmaps"), "{paths:?}");
    assert!(has(&paths, "helper of services"), "what needs no policies is made: {paths:?}");
    assert_eq!(next, Some(crate::agent::WAITING_INTERVAL));
    assert_eq!(controller.rollout.count(), (0, 0), "others have their turn");
    assert!(controller.rollout.holds_back(&Key::new("team-a", "none"), None) || !controller.rollout.is_over(), "its own is to come");

    // A policy that holds it has yet to come into the file.
    give_policies(&controller.context, "a", &[]);
    let cost = all::<GuardrailPolicy>(&super::documents(&policy("default-cost", GUNS)), "GuardrailPolicy").remove(0);
    caches.guardrail_policies.insert(Key::new("team-a", "default-cost"), CachedPolicy::from(Guarded(Ok(cost))));
    let (paths, _) = wrote().await;
    assert!(!has(&paths, "helper of deployments"), "{paths:?}");
    let requests = controller.requests.open();
    controller.changed(&Change::TeamPolicies(Key::new("", "a")));
    assert_eq!(controller.requests.depth(), 1, "an agent that waits hears of the file at once");
    drop(requests.take(1).collect::<Vec<_>>().await);

    give_policies(&controller.context, "a", &["default-cost"]);
    let (paths, _) = wrote().await;
    assert!(has(&paths, "helper of deployments"), "{paths:?}");
    assert_eq!(controller.rollout.count(), (1, 0), "it has its turn");
    apply::leave_turn(&controller, &key);
    let _requests = controller.requests.open();
    controller.changed(&Change::TeamPolicies(Key::new("", "a")));
    assert_eq!(controller.requests.depth(), 0, "nobody waits");
}
