//! An agent with several tracks: what each is built of, and what goes when a track does. And an agent of which a part cannot be
//! made.

use std::collections::HashSet;
use std::sync::Mutex;

use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::json;
use slipway_cluster::Object;
use slipway_cluster::controller::Failure;

use super::*;
use crate::agent::{apply, reconcile};
use crate::caches::child::Child;
use crate::testing::{context_of, give_policies};

#[test]
fn no_two_tracks_share_a_name_or_a_pod() {
    let yaml = std::fs::read_to_string("testdata/candidate.in.yaml").unwrap();
    let (mut names, mut selectors) = (HashSet::new(), Vec::new());
    for track in Track::ALL {
        let desired = build::build(&plan_on(track, &yaml, &settings(None)));
        let spec = desired.deployment.spec.clone().unwrap();
        let (pods, selector) = (spec.template.metadata.unwrap().labels.unwrap(), desired.service.spec.clone().unwrap().selector.unwrap());
        assert_eq!(spec.selector.match_labels.as_ref(), Some(&selector));
        assert!(selector.iter().all(|label| pods.get_key_value(label.0) == Some(label)));
        selectors.push((selector, pods));
        let built: HashSet<_> =
            desired.into_values().unwrap().iter().map(|(kind, value)| (*kind, value["metadata"]["name"].to_string())).collect();
        assert_eq!(built.len(), build::names("helper", track).len(), "all kinds are built");
        assert!(built.iter().all(|child| names.insert(child.clone())), "{track:?}");
    }
    for (at, (selector, _)) in selectors.iter().enumerate() {
        for (other, (_, pods)) in selectors.iter().enumerate() {
            let selected = selector.iter().all(|label| pods.get_key_value(label.0) == Some(label));
            assert_eq!(selected, at == other, "a Service sends requests to the pods of its track alone");
        }
    }
}

/// An object as a watch tells of it, owned by the Agent with that uid.
fn live(kind: ChildKind, name: &str, labelled: &str, uid: &str) -> Object {
    let types = kind.types();
    let owner = json!({"apiVersion": "agents.slipway.dev/v1", "kind": "Agent", "name": "helper", "uid": uid, "controller": true});
    let labels = json!({"agents.slipway.dev/agent": labelled});
    let metadata = json!({"name": name, "namespace": "team-a", "uid": name, "labels": labels, "ownerReferences": [owner]});
    serde_json::from_value(json!({"apiVersion": types.api_version, "kind": types.kind, "metadata": metadata})).unwrap()
}

#[tokio::test]
async fn what_belongs_to_an_agent_and_is_wanted_on_no_track_goes() {
    use ChildKind::{ConfigMap, Deployment, Service};
    let yaml = agent("replicas: 1");
    let (agent, stable) = (all::<Agent>(&documents(&yaml), "Agent").remove(0), plan(&yaml, &settings(None)));
    let controller = Controller::new(context());
    let key = Key::new("team-a", "helper");
    let there = |kind: ChildKind, name: &str, labelled: &str, uid: &str| {
        let object = live(kind, name, labelled, uid);
        let child = Child::look(&object, None, || None, "");
        controller.context.caches.children(kind).insert(Key::new("team-a", name), child);
        controller.found(&key, kind, name);
    };
    for (kind, name) in [(ConfigMap, "helper-config"), (Deployment, "helper"), (Service, "helper")] {
        there(kind, name, "helper", "u");
    }
    for (kind, name) in [
        (ConfigMap, "helper-candidate-config"),
        (Deployment, "helper-candidate"),
        (Service, "helper-canary"),
        (ConfigMap, "helper-tool-digests"),
        (ConfigMap, "of-an-earlier-version"),
    ] {
        there(kind, name, "helper", "u");
    }
    there(ConfigMap, "labelled-otherwise", "other", "u");
    there(ConfigMap, "helper-canary-config", "helper", "an earlier agent of this name");
    there(Service, "of-an-earlier-agent", "helper", "an earlier agent of this name");
    let names = |plan: &Plan| -> HashSet<(ChildKind, String)> {
        let values = build::build(plan).into_values().unwrap();
        values.into_iter().map(|(kind, value)| (kind, value["metadata"]["name"].as_str().unwrap().to_owned())).collect()
    };
    let orphans = |wanted: &HashSet<_>| {
        let mut found: Vec<String> =
            apply::orphans(&agent, wanted, &controller).into_iter().map(|(kind, name)| format!("{kind:?} {name}")).collect();
        found.sort();
        found
    };
    let mut wanted = names(&stable);
    assert_eq!(
        orphans(&wanted),
        [
            "ConfigMap helper-candidate-config",
            "ConfigMap helper-tool-digests",
            "ConfigMap of-an-earlier-version",
            "Deployment helper-candidate",
            "Service helper-canary"
        ]
    );
    wanted.extend(names(&Plan { track: Track::Candidate, ..stable }));
    assert_eq!(orphans(&wanted), ["ConfigMap helper-tool-digests", "ConfigMap of-an-earlier-version", "Service helper-canary"]);
    controller.context.caches.children(ConfigMap).remove(&Key::new("team-a", "of-an-earlier-version"));
    assert_eq!(orphans(&wanted), ["ConfigMap helper-tool-digests", "Service helper-canary"], "what is gone is forgotten");
}

/// Paths and bodies, in order.
type Writes = Arc<Mutex<Vec<(String, Value)>>>;

/// A cluster that has no address left for Services, and what it is asked to write.
fn cluster_without_addresses() -> (Client, Writes) {
    let written = Arc::new(Mutex::new(Vec::new()));
    let writes = written.clone();
    let server = tower::service_fn(move |request: Request<Body>| {
        let writes = writes.clone();
        async move {
            let (parts, body) = request.into_parts();
            let path = parts.uri.path().to_owned();
            let mut object: Value = serde_json::from_slice(&body.collect().await.unwrap().to_bytes()).unwrap_or_default();
            let (status, answer) = if parts.method == Method::PATCH && path.contains("/services/") {
                let message = "Internal error occurred: failed to allocate a serviceIP: range is full";
                let failure = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": "InternalError", "code": 500});
                (StatusCode::INTERNAL_SERVER_ERROR, failure)
            } else {
                writes.lock().unwrap().push((path, object.clone()));
                object["metadata"]["uid"] = json!("made");
                object["metadata"]["resourceVersion"] = json!("9");
                (StatusCode::OK, object)
            };
            let answer = Body::from(answer.to_string().into_bytes());
            Ok::<_, std::io::Error>(Response::builder().status(status).body(answer).unwrap())
        }
    });
    (Client::new(server, "default"), written)
}

#[tokio::test]
async fn an_agent_whose_service_gets_no_address_says_so_and_tries_again() {
    let (client, written) = cluster_without_addresses();
    let controller = Controller::new(context_of(client));
    let (caches, key) = (&controller.context.caches, Key::new("team-a", "helper"));
    let namespace: Object =
        serde_json::from_value(json!({"metadata": {"name": "team-a", "labels": {"agents.slipway.dev/team": "a"}}})).unwrap();
    caches.children(ChildKind::Namespace).insert(Key::new("", "team-a"), Child::look(&namespace, None, || None, ""));
    let documents = documents(&agent("replicas: 1"));
    caches.teams.insert(Key::new("", "a"), Guarded(Ok(all::<Team>(&documents, "Team").remove(0))));
    caches.know_secrets_of("team-a");
    caches.agents.insert(key.clone(), Guarded(Ok(all::<Agent>(&documents, "Agent").remove(0))).into());
    give_policies(&controller.context, "a", &[]);

    let error = reconcile(&controller, &key).await.unwrap_err();
    assert_eq!(error.category(), "api", "it is tried again: {error}");
    let written = written.lock().unwrap();
    let (_, status) = written.iter().find(|(path, _)| path.ends_with("/agents/helper/status")).expect("a status is written");
    let ready = status["status"]["conditions"].as_array().unwrap().iter().find(|condition| condition["type"] == "Ready").unwrap();
    assert_eq!((&ready["status"], &ready["reason"]), (&json!("False"), &json!("NoServiceAddress")));
    let message = ready["message"].as_str().unwrap();
    assert!(message.contains("Service helper") && message.contains("range is full") && message.contains("ServiceCIDR"), "{message}");
    assert!(written.iter().any(|(path, _)| path.ends_with("/deployments/helper")), "what needs no address is made");
}
