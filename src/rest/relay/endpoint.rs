//! Resolves the endpoint of an agent. Its Service must be the one that the operator made: owned by this Agent by UID, of
//! type ClusterIP, selecting its pods. It is reached at its cluster address, never by its name, which could stand for any
//! host. Endpoints that were added by hand pass these checks; against them the call carries a token that names the agent.
//!
//! The same goes for the Services of single tracks. One of these that is not there, or that nothing answers on, is avoided for a
//! while, so that an agent that lacks it costs no requests to the API server.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http::HeaderValue;
use k8s_openapi::api::core::v1::Service;
use kube::api::{Api, PartialObjectMeta};
use kube::{Client, ResourceExt};
use slipway_api::{Agent, GROUP, labels};
use slipway_cluster::Key;
use slipway_http::Error;

use super::response;
use super::target::Target;
use super::track::Destination;
use crate::cluster_error;
use crate::context::Sign;
use crate::fast_map::FastMap;

/// The time to live of a resolved endpoint. Tokens are valid twice as long.
const ENDPOINT_TTL: Duration = Duration::from_mins(1);
/// How long the Service of a track is avoided after it could not be used.
const AVOIDED_FOR: Duration = Duration::from_secs(5);
/// Expired endpoints are removed at this length.
const PRUNE_AT_LEN: usize = 1024;

/// The address of an agent, and the token for calls to it.
pub(super) struct Endpoint {
    expires: Instant,
    /// Since when there is such a Service: a later agent of the name, or a later canary, has another.
    since: i64,
    pub address: IpAddr,
    pub token: Option<HeaderValue>,
}

pub(super) struct Endpoints {
    client: Client,
    sign: Option<Sign>,
    /// By the Service.
    known: Mutex<FastMap<Key, Arc<Endpoint>>>,
    /// The Services of tracks that are avoided, and until when.
    avoided: Mutex<FastMap<Key, Instant>>,
}

impl Endpoints {
    pub(super) fn new(client: Client, sign: Option<Sign>) -> Self {
        Self { client, sign, known: Mutex::default(), avoided: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, FastMap<Key, Arc<Endpoint>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) async fn find(&self, target: &Target, destination: Destination) -> Result<Arc<Endpoint>, Error> {
        match self.found(target, destination) {
            Some(endpoint) => Ok(endpoint),
            None => Box::pin(self.resolve(target, destination)).await,
        }
    }

    /// An endpoint that was resolved a short while ago.
    fn found(&self, target: &Target, destination: Destination) -> Option<Arc<Endpoint>> {
        let (known, now) = (self.known(), Instant::now());
        known
            .get(&*destination.key(&target.key))
            .filter(|endpoint| now < endpoint.expires && endpoint.since == since(target, destination))
            .cloned()
    }

    /// The endpoint of a track. None for a while after it could not be found, or was avoided. The agent's own, which stands in for
    /// it then, is found beside it, so that nothing is asked of the API server when it is needed.
    pub(super) async fn find_track(&self, target: &Target, destination: Destination) -> Option<Arc<Endpoint>> {
        let key = destination.key(&target.key);
        if self.avoided().get(&*key).is_some_and(|until| Instant::now() < *until) {
            return None;
        }
        if let Some(endpoint) = self.found(target, destination) {
            return Some(endpoint);
        }
        let (resolved, _) =
            Box::pin(async { futures::join!(self.resolve(target, destination), self.find(target, Destination::Agent)) }).await;
        resolved.map_err(|error| self.avoid(&key, error.message())).ok()
    }

    /// Removes an endpoint that cannot be reached or belongs to another agent.
    pub(super) fn forget(&self, service: &Key) {
        self.known().remove(service);
    }

    /// The same for the Service of a track, which is left alone for a while.
    pub(super) fn avoid(&self, service: &Key, why: &str) {
        self.forget(service);
        tracing::warn!(%service, why, "the Service of a track cannot be used; the agent's own stands in for it");
        let now = Instant::now();
        let mut avoided = self.avoided();
        if avoided.len() >= PRUNE_AT_LEN {
            avoided.retain(|_, until| now < *until);
        }
        avoided.insert(service.clone(), now + AVOIDED_FOR);
    }

    fn avoided(&self) -> MutexGuard<'_, FastMap<Key, Instant>> {
        self.avoided.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn resolve(&self, target: &Target, destination: Destination) -> Result<Arc<Endpoint>, Error> {
        let Key { namespace, name } = &target.key;
        let key = destination.key(&target.key);
        let agents: Api<Agent> = Api::namespaced(self.client.clone(), namespace);
        let services: Api<Service> = Api::namespaced(self.client.clone(), namespace);
        let failed = |error| cluster_error::from_kube(error, &target.to_string());
        let (agent, service) = futures::try_join!(agents.get_metadata(name), services.get_opt(&key.name)).map_err(failed)?;
        let address = address(&agent, service.as_ref(), destination).map_err(|why| response::without_service(target, &why))?;
        let now = Instant::now();
        let endpoint = Arc::new(Endpoint {
            expires: now + ENDPOINT_TTL,
            since: since(target, destination),
            address,
            token: self.token(&target.item.id),
        });
        let mut known = self.known();
        if known.len() >= PRUNE_AT_LEN {
            known.retain(|_, endpoint| now < endpoint.expires);
        }
        known.insert(key.into_owned(), endpoint.clone());
        Ok(endpoint)
    }

    fn token(&self, agent: &str) -> Option<HeaderValue> {
        token(self.sign.as_ref(), agent)
    }
}

/// The creation time of the agent, or for a track's own Service the time when its canary began.
fn since(target: &Target, destination: Destination) -> i64 {
    let canary = target.item.data.canary_run.as_deref().filter(|_| destination != Destination::Agent);
    canary.map_or(target.item.created, |canary| canary.began)
}

/// The token for calls to `audience`, as a header.
pub(super) fn token(sign: Option<&Sign>, audience: &str) -> Option<HeaderValue> {
    let mut token = HeaderValue::try_from(sign?.token(audience)?).ok()?;
    token.set_sensitive(true);
    Some(token)
}

/// The cluster address of the Service, if it is this Agent's own; otherwise what is wrong.
fn address(agent: &PartialObjectMeta<Agent>, service: Option<&Service>, destination: Destination) -> Result<IpAddr, String> {
    let agent_name = agent.name_any();
    let name = destination.service(&agent_name);
    let Some(service) = service else { return Err(format!("there is no Service {name} yet")) };
    if !is_owned(service, "Agent", agent.metadata.uid.as_deref()) {
        return Err(format!("Service {name} does not belong to this Agent; delete it or give the Agent another name"));
    }
    cluster_address(service, (labels::AGENT, &agent_name))
        .filter(|_| destination.is_selected_by(service))
        .ok_or_else(|| format!("Service {name} is not as the operator makes it: of type ClusterIP, with an address, for the agent's pods"))
}

/// Whether the object of ours with this UID controls the Service.
pub(super) fn is_owned(service: &Service, kind: &str, uid: Option<&str>) -> bool {
    let owner = service.owner_references().iter().find(|owner| owner.controller == Some(true));
    owner.is_some_and(|owner| {
        let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
        group == GROUP && owner.kind == kind && Some(&*owner.uid) == uid
    })
}

/// The cluster address of a Service of type ClusterIP that selects pods by this label.
pub(super) fn cluster_address(service: &Service, (label, value): (&str, &str)) -> Option<IpAddr> {
    let spec = service.spec.as_ref()?;
    let leads = spec.selector.as_ref().and_then(|selector| selector.get(label)).is_some_and(|selected| selected == value);
    let plain = spec.type_.as_deref().is_none_or(|kind| kind == "ClusterIP") && spec.external_name.is_none();
    let address = spec.cluster_ip.as_ref().and_then(|address| address.parse().ok());
    address.filter(|_| leads && plain)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use slipway_api::Track;

    use super::*;

    fn agent() -> PartialObjectMeta<Agent> {
        serde_json::from_value(json!({"metadata": {"name": "helper", "namespace": "team-a", "uid": "u-1"}})).unwrap()
    }

    fn own() -> Value {
        json!({
            "metadata": {"name": "helper", "ownerReferences": [
                {"apiVersion": "agents.slipway.dev/v1", "kind": "Agent", "name": "helper", "uid": "u-1", "controller": true}]},
            "spec": {"type": "ClusterIP", "clusterIP": "10.96.0.7", "selector": {"agents.slipway.dev/agent": "helper"}},
        })
    }

    fn found(service: Value) -> Result<IpAddr, String> {
        led(service, Destination::Agent)
    }

    fn led(service: Value, destination: Destination) -> Result<IpAddr, String> {
        address(&agent(), Some(&serde_json::from_value(service).unwrap()), destination)
    }

    #[test]
    fn a_service_of_a_track_selects_its_pods() {
        for (track, other) in [(Track::Stable, "canary"), (Track::Canary, "stable")] {
            let mut service = own();
            let destination = Destination::Of(track);
            assert!(led(service.clone(), destination).is_err(), "{track:?}: of any track");
            service["spec"]["selector"]["agents.slipway.dev/track"] = json!(track.as_str());
            assert_eq!(led(service.clone(), destination).unwrap().to_string(), "10.96.0.7");
            assert!(led(service.clone(), Destination::Agent).is_ok(), "the agent's own is of any");
            service["metadata"]["ownerReferences"][0]["uid"] = json!("u-2");
            assert!(led(service.clone(), destination).is_err(), "{track:?}: of somebody else");
            service["metadata"] = own()["metadata"].clone();
            service["spec"]["selector"]["agents.slipway.dev/track"] = json!(other);
            assert!(led(service, destination).is_err(), "{track:?}: of {other}");
        }
        let missing = address(&agent(), None, Destination::Of(Track::Stable)).unwrap_err();
        assert!(missing.contains("Service helper-primary"), "{missing}");
    }

    #[test]
    fn an_agents_own_service_is_reached_at_its_address() {
        assert_eq!(found(own()).unwrap().to_string(), "10.96.0.7");
        let mut six = own();
        six["spec"]["clusterIP"] = json!("fd00::7");
        assert_eq!(found(six).unwrap().to_string(), "fd00::7");
    }

    #[test]
    fn a_service_of_somebody_else_is_not_an_agents() {
        for (pointer, value) in [
            ("/metadata/ownerReferences", json!([])),
            ("/metadata/ownerReferences/0/uid", json!("u-2")),
            ("/metadata/ownerReferences/0/kind", json!("Skill")),
            ("/metadata/ownerReferences/0/controller", json!(false)),
            ("/metadata/ownerReferences/0/apiVersion", json!("agents.slipway.dev.evil/v1")),
            ("/spec/type", json!("ExternalName")),
            ("/spec/clusterIP", json!("None")),
            ("/spec/clusterIP", json!("")),
            ("/spec/selector", json!({})),
            ("/spec/selector", json!({"app": "other"})),
            ("/spec", json!({"type": "ExternalName", "externalName": "other.team-b.svc.cluster.local"})),
        ] {
            let mut service = own();
            *service.pointer_mut(pointer).unwrap() = value.clone();
            assert!(found(service).is_err(), "{pointer} {value}");
        }
        assert!(address(&agent(), None, Destination::Agent).is_err());
    }
}
