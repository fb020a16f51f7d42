//! Resolves the endpoint of an agent. Its Service must be the one that the operator made: owned by this Agent by UID, of
//! type ClusterIP, selecting its pods. It is reached at its cluster address, never by its name, which could stand for any
//! host. Endpoints that were added by hand pass these checks; against them the call carries a token that names the agent.

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
use crate::cluster_error;
use crate::context::Sign;
use crate::fast_map::FastMap;

/// The time to live of a resolved endpoint. Tokens are valid twice as long.
const ENDPOINT_TTL: Duration = Duration::from_mins(1);
/// Expired endpoints are removed at this length.
const PRUNE_AT_LEN: usize = 1024;

/// The address of an agent, and the token for calls to it.
pub(super) struct Endpoint {
    expires: Instant,
    /// The creation time of the agent; a later agent of the name has another Service.
    created: i64,
    pub address: IpAddr,
    pub token: Option<HeaderValue>,
}

pub(super) struct Endpoints {
    client: Client,
    sign: Option<Sign>,
    known: Mutex<FastMap<Key, Arc<Endpoint>>>,
}

impl Endpoints {
    pub(super) fn new(client: Client, sign: Option<Sign>) -> Self {
        Self { client, sign, known: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, FastMap<Key, Arc<Endpoint>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) async fn find(&self, target: &Target) -> Result<Arc<Endpoint>, Error> {
        let now = Instant::now();
        let known =
            self.known().get(&target.key).filter(|endpoint| now < endpoint.expires && endpoint.created == target.item.created).cloned();
        match known {
            Some(endpoint) => Ok(endpoint),
            None => Box::pin(self.resolve(target)).await,
        }
    }

    /// Removes an endpoint that cannot be reached or belongs to another agent.
    pub(super) fn forget(&self, agent: &Key) {
        self.known().remove(agent);
    }

    async fn resolve(&self, target: &Target) -> Result<Arc<Endpoint>, Error> {
        let Key { namespace, name } = &target.key;
        let agents: Api<Agent> = Api::namespaced(self.client.clone(), namespace);
        let services: Api<Service> = Api::namespaced(self.client.clone(), namespace);
        let failed = |error| cluster_error::from_kube(error, &target.to_string());
        let (agent, service) = futures::try_join!(agents.get_metadata(name), services.get_opt(name)).map_err(failed)?;
        let address = address(&agent, service.as_ref()).map_err(|why| response::without_service(target, &why))?;
        let now = Instant::now();
        let endpoint =
            Arc::new(Endpoint { expires: now + ENDPOINT_TTL, created: target.item.created, address, token: self.token(&target.item.id) });
        let mut known = self.known();
        if known.len() >= PRUNE_AT_LEN {
            known.retain(|_, endpoint| now < endpoint.expires);
        }
        known.insert(target.key.clone(), endpoint.clone());
        Ok(endpoint)
    }

    fn token(&self, agent: &str) -> Option<HeaderValue> {
        token(self.sign.as_ref(), agent)
    }
}

/// The token for calls to `audience`, as a header.
pub(super) fn token(sign: Option<&Sign>, audience: &str) -> Option<HeaderValue> {
    let mut token = HeaderValue::try_from(sign?.token(audience)?).ok()?;
    token.set_sensitive(true);
    Some(token)
}

/// The cluster address of the Service, if it is this Agent's own; otherwise what is wrong.
fn address(agent: &PartialObjectMeta<Agent>, service: Option<&Service>) -> Result<IpAddr, String> {
    let name = agent.name_any();
    let Some(service) = service else { return Err(format!("there is no Service {name} yet")) };
    if !is_owned(service, "Agent", agent.metadata.uid.as_deref()) {
        return Err(format!("Service {name} does not belong to this Agent; delete it or give the Agent another name"));
    }
    cluster_address(service, (labels::AGENT, &name))
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
        address(&agent(), Some(&serde_json::from_value(service).unwrap()))
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
        assert!(address(&agent(), None).is_err());
    }
}
