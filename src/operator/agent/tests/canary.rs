//! An agent with a canary: what its children are, what is written in which order, and what goes when it ends.

use std::collections::HashSet;
use std::sync::Mutex;

use http::{Method, Request, Response};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::json;
use slipway_cluster::Object;

use super::*;
use crate::agent::canary::{Wants, wants};
use crate::agent::pin::tests::{agent_of, release_of};
use crate::agent::reconcile;
use crate::caches::HeldRelease;
use crate::caches::child::{Child, DeploymentState};
use crate::testing::{context_of, give_policies};

const ASKS: &str = "systemPrompt: old, replicas: 5, canary: {enabled: true, weight: 30, systemPrompt: new}";

#[test]
fn a_canary_has_children_of_its_own_and_a_service_of_stable() {
    let yaml = std::fs::read_to_string("testdata/canary.in.yaml").unwrap();
    let documents = documents(&yaml);
    let agent = all::<Agent>(&documents, "Agent").remove(0);
    let Wants::Run(effective) = wants(&agent) else { panic!("it is asked for") };
    let settings = settings(None);
    let resolved = resolve(&effective, Track::Canary, &seen(&effective, &documents, &settings), &settings);
    let Resolved::Plan(plan) = resolved else { panic!("it can be made") };
    let built = build::build(&plan).into_values().unwrap();
    let names: HashSet<_> = built.iter().map(|(kind, value)| (*kind, children::name(value).to_owned())).collect();
    assert_eq!(names, build::names("helper", Track::Canary).into_iter().collect(), "all kinds are built");
    for (kind, value) in &built {
        assert_eq!(value["metadata"]["labels"]["version"], "canary", "{kind:?}");
    }
    let place = |wanted: (ChildKind, &str)| built.iter().position(|(kind, value)| (*kind, children::name(value)) == wanted).unwrap();
    let (primary, deployment) = (place((ChildKind::Service, "helper-primary")), place((ChildKind::Deployment, "helper-canary")));
    assert!(primary < deployment, "before pods of the canary are there, the stable ones have a Service of their own");
    let stable = build::build(&plan_on(Track::Stable, &yaml, &settings));
    let selected = serde_json::to_value(stable.service.spec.unwrap().selector).unwrap();
    assert_eq!(built[primary].1["spec"]["selector"], selected);
    assert_eq!(built[deployment].1["spec"]["replicas"], 2, "30 % of five, rounded up");
    assert!(stable.primary.is_none() && !stable.config_map.metadata.labels.unwrap().contains_key("version"));
    golden_of(&plan, "canary");
}

/// Methods, paths and bodies, in order.
type Requests = Arc<Mutex<Vec<(Method, String, Value)>>>;

/// A cluster that takes everything.
fn cluster() -> (Client, Requests) {
    cluster_without(None)
}

/// A cluster that takes everything but one object, whose path ends so.
fn cluster_without(broken: Option<&'static str>) -> (Client, Requests) {
    let heard = Requests::default();
    let hearing = heard.clone();
    let server = tower::service_fn(move |request: Request<Body>| {
        let hearing = hearing.clone();
        async move {
            let (parts, body) = request.into_parts();
            let mut object: Value = serde_json::from_slice(&body.collect().await.unwrap().to_bytes()).unwrap_or_default();
            hearing.lock().unwrap().push((parts.method.clone(), parts.uri.path().to_owned(), object.clone()));
            if broken.is_some_and(|broken| parts.uri.path().ends_with(broken)) {
                let failed =
                    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 500, "message": "a webhook is away"});
                return Ok(Response::builder().status(500).body(Body::from(failed.to_string().into_bytes())).unwrap());
            }
            if parts.method == Method::DELETE {
                object = json!({"kind": "Status", "apiVersion": "v1", "status": "Success"});
            } else {
                object["metadata"]["uid"] = json!("made");
                object["metadata"]["resourceVersion"] = json!("9");
            }
            Ok::<_, std::io::Error>(Response::new(Body::from(object.to_string().into_bytes())))
        }
    });
    (Client::new(server, "default"), heard)
}

fn controller_of(client: Client) -> Controller {
    let controller = Controller::new(context_of(client));
    let caches = &controller.context.caches;
    let namespace: Object =
        serde_json::from_value(json!({"metadata": {"name": "team-a", "labels": {"agents.slipway.dev/team": "a"}}})).unwrap();
    caches.children(ChildKind::Namespace).insert(Key::new("", "team-a"), Child::look(&namespace, None, || None, ""));
    caches.teams.insert(Key::new("", "a"), Guarded(Ok(all::<Team>(&documents(&agent("replicas: 1")), "Team").remove(0))));
    caches.know_secrets_of("team-a");
    give_policies(&controller.context, "a", &[]);
    controller
}

/// Makes the Agent be as this says, with that status.
fn give(controller: &Controller, spec: &str, status: &Value) {
    let mut agent = all::<Agent>(&documents(&agent(spec)), "Agent").remove(0);
    agent.status = serde_json::from_value(status.clone()).unwrap();
    controller.context.caches.agents.insert(Key::new("team-a", "helper"), Guarded(Ok(agent)).into());
}

/// What was asked of the cluster since, and the last status of the Agent that was written.
async fn reconciled(controller: &Controller, heard: &Requests) -> (Vec<String>, Value) {
    reconcile(controller, &Key::new("team-a", "helper")).await.unwrap();
    let all = std::mem::take(&mut *heard.lock().unwrap());
    let status = all.iter().rfind(|(_, path, _)| path.ends_with("/agents/helper/status")).map(|(_, _, body)| body["status"].clone());
    let said = all.iter().map(|(method, path, body)| {
        let reason = body["reason"].as_str().unwrap_or_default();
        format!("{method} {} {reason}", path.rsplit("/namespaces/team-a/").next().unwrap()).trim_end().to_owned()
    });
    (said.collect(), status.unwrap_or_default())
}

#[tokio::test]
async fn a_canary_begins_ends_and_leaves_nothing() {
    let (client, heard) = cluster();
    let controller = controller_of(client);
    give(&controller, ASKS, &json!({}));
    let (asked, status) = reconciled(&controller, &heard).await;
    for child in ["deployments/helper-canary", "services/helper-canary", "services/helper-primary", "configmaps/helper-canary-config"] {
        assert!(asked.contains(&format!("PATCH {child}")), "{child}: {asked:#?}");
    }
    let told = asked.iter().position(|asked| asked.ends_with("AgentCanaryStarted")).expect("it is told");
    assert!(told < asked.iter().position(|asked| asked == "PATCH agents/helper/status").unwrap(), "an Event comes before the status");
    let canary = &status["canary"];
    assert_eq!((&canary["phase"], &canary["weight"], &canary["desiredWeight"]), (&json!("Progressing"), &json!(0), &json!(30)));
    let ready = status["conditions"].as_array().unwrap().iter().find(|condition| condition["type"] == "CanaryReady").unwrap();
    assert_eq!((&ready["status"], &ready["reason"]), (&json!("Unknown"), &json!("Progressing")));

    // It is promoted, and the stable track has yet to roll: nothing of it goes.
    let kept = |phase: &str, since: &str| {
        let canary = json!({"phase": phase, "weight": 30, "desiredWeight": 30, "content": "c", "specHash": "s", "startedAt": since,
            "stepStartedAt": since, "message": null});
        json!({"canary": canary})
    };
    give(&controller, "systemPrompt: new, replicas: 5", &kept("Promoting", "2020-01-01T00:00:00Z"));
    let (asked, status) = reconciled(&controller, &heard).await;
    assert!(asked.contains(&"PATCH deployments/helper".to_owned()) && asked.iter().all(|asked| !asked.starts_with("DELETE")), "{asked:#?}");
    assert_eq!(status["canary"]["phase"], "Promoting", "{status:#}");

    // Nobody is sent to it for long enough, so that it has ended, and then all of it goes.
    give(&controller, "systemPrompt: new, replicas: 5", &kept("Draining", "2020-01-01T00:00:00Z"));
    let (asked, status) = reconciled(&controller, &heard).await;
    assert!(asked.iter().all(|asked| !asked.starts_with("DELETE")), "{asked:#?}");
    assert_eq!(status["canary"], Value::Null);
    give(&controller, "systemPrompt: new, replicas: 5", &json!({}));
    // As the watches would tell of what was made, with its owner.
    let owner = json!({"apiVersion": "agents.slipway.dev/v1", "kind": "Agent", "name": "helper", "uid": "u", "controller": true});
    for (kind, name) in build::names("helper", Track::Canary) {
        let types = kind.types();
        let metadata = json!({"name": name, "namespace": "team-a", "uid": name, "resourceVersion": "20", "ownerReferences": [owner]});
        let object = json!({"apiVersion": types.api_version, "kind": types.kind, "metadata": metadata});
        let object: Object = serde_json::from_value(object).unwrap();
        controller.context.caches.children(kind).insert(Key::new("team-a", &*name), Child::look(&object, None, || None, ""));
    }
    let (asked, _) = reconciled(&controller, &heard).await;
    let mut gone: Vec<&str> = asked.iter().filter_map(|asked| asked.strip_prefix("DELETE ")).collect();
    gone.sort_unstable();
    let all = [
        "configmaps/helper-canary-config",
        "configmaps/helper-canary-tool-digests",
        "deployments/helper-canary",
        "serviceaccounts/helper-canary",
        "services/helper-canary",
        "services/helper-primary",
    ];
    assert_eq!(gone, all);
}

#[tokio::test]
async fn what_keeps_a_canary_from_being_made_is_told() {
    let (client, heard) = cluster_without(Some("/deployments/helper-canary"));
    let controller = controller_of(client);
    give(&controller, ASKS, &json!({}));
    assert!(reconcile(&controller, &Key::new("team-a", "helper")).await.is_err(), "it is tried again");
    let heard = heard.lock().unwrap();
    let (_, _, written) = heard.iter().rfind(|(_, path, _)| path.ends_with("/agents/helper/status")).expect("the agent says how it is");
    let ready = written["status"]["conditions"].as_array().unwrap().iter().find(|condition| condition["type"] == "CanaryReady").unwrap();
    assert!(ready["message"].as_str().unwrap().contains("a webhook is away"), "{ready}");
}

#[tokio::test]
async fn a_canary_that_cannot_be_made_keeps_no_release_from_its_run() {
    let (client, heard) = cluster_without(Some("/deployments/helper-canary"));
    let controller = controller_of(client);
    let (key, caches) = (Key::new("team-a", "helper"), &controller.context.caches);
    let asks = "systemPrompt: old, governance: {minQualityScore: 60}, canary: {enabled: true, weight: 30, systemPrompt: new}";
    let release = release_of(&agent_of("systemPrompt: old, governance: {minQualityScore: 60}"), 1);
    caches.held.insert(key.clone(), HeldRelease { run: "ev-1".to_owned(), release: release.into() });
    give(&controller, asks, &json!({"pendingRelease": 1, "pendingEvaluation": "ev-1"}));
    assert!(reconcile(&controller, &key).await.is_err());
    let (deployments, candidate) = (caches.children(ChildKind::Deployment), Key::new("team-a", "helper-candidate"));
    let mut ready = (*deployments.get(&candidate).expect("it is made")).clone();
    let pods = DeploymentState { wanted: 1, updated: 1, ready: 1, available: 1, total: 1, current: true, ..DeploymentState::default() };
    ready.deployment = Some(Box::new(pods));
    deployments.insert(candidate, ready);
    assert!(reconcile(&controller, &key).await.is_err());
    let heard = heard.lock().unwrap();
    let run = heard.iter().find(|(method, path, _)| method == Method::POST && path.ends_with("/evaluationruns")).expect("its run is made");
    assert_eq!(run.2["metadata"]["name"], "ev-1");
}

#[tokio::test]
async fn a_canary_that_could_not_be_promoted_is_a_fault_before() {
    let (client, heard) = cluster();
    let controller = controller_of(client);
    give(&controller, "canary: {enabled: true, weight: 30, overrides: {databaseCredentialsSecret: s}}", &json!({}));
    let (asked, status) = reconciled(&controller, &heard).await;
    assert!(!asked.contains(&"PATCH deployments/helper-canary".to_owned()), "{asked:#?}");
    let ready = status["conditions"].as_array().unwrap().iter().find(|condition| condition["type"] == "CanaryReady").unwrap();
    assert_eq!((&ready["status"], &ready["reason"]), (&json!("False"), &json!("InvalidCanary")));
    assert!(ready["message"].as_str().unwrap().starts_with("spec.canary.overrides.databaseCredentialsSecret: "), "{ready}");
}
