//! The objects of the Gateway API and of Istio. They lead to the port for users only, and never to the platform's own.

use kube::Resource;
use serde_json::{Value, json};
use slipway_api::{Agent, Track, contract, labels};
use slipway_cluster::Key;

use crate::caches::ChildKind;
use crate::settings::{Gateway, Settings};

/// The subsets of an agent's DestinationRules, by track.
const TRACKS: [Track; 2] = [Track::Stable, Track::Canary];

/// Of the Services, the one that has a track's pods alone.
fn service(agent: &str, track: Track) -> String {
    match track {
        Track::Stable => Track::primary(agent),
        Track::Candidate | Track::Canary => track.workload(agent),
    }
}

/// Each track's share of a hundred requests.
fn shares(weight: u8) -> [(Track, u8); 2] {
    let canary = weight.min(100);
    [(Track::Stable, 100 - canary), (Track::Canary, canary)]
}

/// An object that the agent owns, by its labels as well.
fn object(kind: ChildKind, name: &str, agent: &Agent, spec: &Value) -> Value {
    let (types, key) = (kind.types(), Key::of(agent));
    let labels = json!({
        labels::NAME: key.name, labels::AGENT: key.name, labels::PART_OF: labels::PLATFORM, labels::MANAGED_BY: labels::OPERATOR,
    });
    let owners: Vec<_> = agent.controller_owner_ref(&()).into_iter().collect();
    json!({
        "apiVersion": types.api_version, "kind": types.kind,
        "metadata": {"name": name, "namespace": key.namespace, "labels": labels, "ownerReferences": owners},
        "spec": spec,
    })
}

/// The route from a Gateway: to the agent's own Service, or by weight to those of its tracks.
pub(super) fn http_route(agent: &Agent, weight: Option<u8>, gateway: &Gateway, hostname: &str) -> Value {
    let name = Key::of(agent).name;
    let backend = |service: String, weight: u8| json!({"name": service, "port": contract::PORT, "weight": weight});
    let backends: Vec<Value> = match weight {
        None => vec![backend(name.clone(), 1)],
        Some(weight) => shares(weight).into_iter().map(|(track, share)| backend(service(&name, track), share)).collect(),
    };
    let mut parent = json!({"name": gateway.name, "namespace": gateway.namespace});
    if !gateway.section_name.is_empty() {
        parent["sectionName"] = json!(gateway.section_name);
    }
    let spec = json!({"parentRefs": [parent], "hostnames": [hostname], "rules": [{"backendRefs": backends}]});
    object(ChildKind::HttpRoute, &name, agent, &spec)
}

/// What a mesh does with requests for the agent's own Service, and for no other: nothing is weighed twice.
pub(super) fn virtual_service(agent: &Agent, weight: u8, settings: &Settings) -> Value {
    let name = Key::of(agent).name;
    let to = |track: Track, share: u8| {
        let host = host(agent, &service(&name, track), settings);
        json!({"destination": {"host": host, "subset": track.as_str(), "port": {"number": contract::PORT}}, "weight": share})
    };
    let own = host(agent, &name, settings);
    let control = json!({"destination": {"host": own, "port": {"number": contract::CONTROL_PORT}}});
    let spec = json!({
        "hosts": [own],
        "http": [
            {"match": [{"port": contract::PORT}], "route": shares(weight).map(|(track, share)| to(track, share))},
            {"match": [{"port": contract::CONTROL_PORT}], "route": [control]},
        ],
    });
    object(ChildKind::VirtualService, &name, agent, &spec)
}

/// What a mesh knows of the Services that a VirtualService leads to.
pub(super) fn destination_rules(agent: &Agent, settings: &Settings) -> [Value; 2] {
    TRACKS.map(|track| {
        let name = service(&Key::of(agent).name, track);
        let subset = json!({"name": track.as_str(), "labels": {labels::POD_VERSION: track.as_str()}});
        let spec = json!({"host": host(agent, &name, settings), "subsets": [subset]});
        object(ChildKind::DestinationRule, &name, agent, &spec)
    })
}

/// The full name of a Service beside the agent.
fn host(agent: &Agent, service: &str, settings: &Settings) -> String {
    format!("{service}.{}.svc.{}", Key::of(agent).namespace, settings.cluster_domain)
}
