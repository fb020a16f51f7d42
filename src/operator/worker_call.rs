//! One call to a team's worker, with a token of the control key that names the team: what the worker is to connect to. Its Service
//! is the Team's own by UID, as REST asks it to be.

use std::net::{IpAddr, SocketAddr};

use http::{Method, StatusCode};
use k8s_openapi::api::core::v1::Service;
use kube::{Api, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use slipway_api::names::TeamSlug;
use slipway_api::{GROUP, ids, labels, worker};
use slipway_cluster::Key;
use thiserror::Error;

use crate::context::Context;
use crate::control_port::{self, PodCall, Sign};

/// An answer is a few words.
const MAX_ANSWER_BYTES: usize = 16 * 1024;

/// Why there is no answer.
#[derive(Debug, Error)]
pub(crate) enum WorkerFault {
    /// It is not there, or not yet: nothing was sent.
    #[error("the worker of team {team} is not there: {why}")]
    Absent { team: String, why: String },
    #[error("the worker of team {team} could not be asked: {fault}")]
    Call { team: String, fault: control_port::Fault },
    /// In the worker's words.
    #[error("the worker of team {team} answered with status {status}: {words}")]
    Refused { team: String, status: StatusCode, words: String },
}

/// A team's worker, where it was found.
pub(crate) struct Worker {
    /// By slug.
    team: String,
    address: SocketAddr,
}

/// Posts to the worker of a team, by slug.
pub(crate) async fn post<T: DeserializeOwned>(
    context: &Context,
    sign: &Sign,
    team: &str,
    what: (&str, &impl Serialize),
) -> Result<T, WorkerFault> {
    find(context, team).await?.post(sign, what).await
}

/// Looks for the worker of a team, by slug, for several calls in a row.
pub(crate) async fn find(context: &Context, team: &str) -> Result<Worker, WorkerFault> {
    let address = address(context, team).await.map_err(|why| WorkerFault::Absent { team: team.to_owned(), why })?;
    Ok(Worker { team: team.to_owned(), address })
}

impl Worker {
    /// The answer has come within the time of a control port's.
    pub(crate) async fn post<T: DeserializeOwned>(&self, sign: &Sign, (path, body): (&str, &impl Serialize)) -> Result<T, WorkerFault> {
        let team = || self.team.clone();
        let broken = |error: serde_json::Error| WorkerFault::Call { team: team(), fault: control_port::Fault::Answer(Box::new(error)) };
        let unsigned = || WorkerFault::Absent { team: team(), why: "no token can be signed for it".to_owned() };
        let token = sign(&ids::team(&self.team)).ok_or_else(unsigned)?;
        let body = serde_json::to_vec(body).map_err(broken)?.into();
        let call = PodCall { method: Method::POST, path, token: &token, body, max_answer_bytes: MAX_ANSWER_BYTES };
        let answer = control_port::call(self.address, call).await.map_err(|fault| WorkerFault::Call { team: team(), fault })?;
        if !answer.status.is_success() {
            let words = String::from_utf8_lossy(&answer.body).chars().take(512).collect();
            return Err(WorkerFault::Refused { team: team(), status: answer.status, words });
        }
        serde_json::from_slice(&answer.body).map_err(broken)
    }
}

/// The cluster address of the worker's Service, if that is this Team's own; otherwise what is wrong.
async fn address(context: &Context, team: &str) -> Result<SocketAddr, String> {
    let name = worker::NAME;
    let slug = TeamSlug::new(team).map_err(|error| error.to_string())?;
    let uid = context.caches.teams.get(&Key::new("", team)).and_then(|team| team.meta().uid.clone());
    let api: Api<Service> = Api::namespaced(context.client.clone(), &slug.namespace());
    let found = api.get_opt(name).await.map_err(|error| format!("Service {name} could not be read: {error}"))?;
    let Some(service) = found else { return Err(format!("there is no Service {name} yet")) };
    let address = own_address(&service, uid.as_deref()).ok_or_else(|| format!("Service {name} is not as Slipway makes it; delete it"))?;
    Ok(SocketAddr::new(address, worker::PORT))
}

fn own_address(service: &Service, team: Option<&str>) -> Option<IpAddr> {
    let owner = service.owner_references().iter().find(|owner| owner.controller == Some(true))?;
    let is_own = owner.api_version.split_once('/').is_some_and(|(group, _)| group == GROUP) && owner.kind == "Team";
    let spec = service.spec.as_ref().filter(|_| is_own && Some(&*owner.uid) == team)?;
    let is_workers = spec.selector.as_ref().and_then(|selector| selector.get(labels::NAME)).is_some_and(|name| name == worker::NAME);
    let is_plain = spec.type_.as_deref().is_none_or(|kind| kind == "ClusterIP") && spec.external_name.is_none();
    spec.cluster_ip.as_ref().filter(|_| is_workers && is_plain)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn only_the_service_of_the_team_is_called() {
        let own = json!({
            "metadata": {"name": "slipway-worker", "ownerReferences": [
                {"apiVersion": "agents.slipway.dev/v1", "kind": "Team", "name": "a", "uid": "u-1", "controller": true}]},
            "spec": {"type": "ClusterIP", "clusterIP": "10.1.2.3", "selector": {"app.kubernetes.io/name": "slipway-worker"}},
        });
        let of = |service: &Value, uid: Option<&str>| own_address(&serde_json::from_value(service.clone()).unwrap(), uid);
        assert_eq!(of(&own, Some("u-1")), Some([10, 1, 2, 3].into()));
        assert_eq!((of(&own, Some("u-2")), of(&own, None)), (None, None));
        for (pointer, value) in [
            ("/metadata/ownerReferences/0/kind", json!("Agent")),
            ("/metadata/ownerReferences/0/apiVersion", json!("v1")),
            ("/metadata/ownerReferences", json!([])),
            ("/spec/selector", json!({"app.kubernetes.io/name": "helper"})),
            ("/spec/type", json!("ExternalName")),
            ("/spec/clusterIP", json!("None")),
        ] {
            let mut other = own.clone();
            *other.pointer_mut(pointer).unwrap() = value;
            assert_eq!(of(&other, Some("u-1")), None, "{pointer}");
        }
    }
}
