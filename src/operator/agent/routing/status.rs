//! The routes to an Agent in its status: whether a Gateway leads to it, and which component sends a canary its share.

use kube::ResourceExt;
use slipway_api::canary::{Carrier, CarrierName};
use slipway_api::condition::{EXPOSED, Finding};
use slipway_api::{Agent, CanaryStatus};

use super::{RoutingSeen, exposure};
use crate::caches::child::Mesh;
use crate::settings::Settings;

/// What everybody has to know who exposes an agent.
const WARNING: &str = "anyone who reaches the Gateway talks to this agent without REST's rights, limits and conversation ids";
/// The most characters of what others say, in a message of ours.
const MAX_WORDS: usize = 768;

/// Whether the Gateway leads to the agent, where its spec asks for that.
pub(in crate::agent) fn exposed(agent: &Agent, seen: &RoutingSeen, settings: &Settings) -> Option<Finding> {
    agent.spec.expose?;
    let (reason, message) = match programmed(agent, seen, settings) {
        Ok(hostname) => ("RouteProgrammed", format!("the Gateway leads requests for {hostname} to the agent")),
        Err(why) => why,
    };
    Some(Finding::new(EXPOSED, reason == "RouteProgrammed", reason, format!("{message}; {WARNING}")))
}

/// Who sends a canary its share, and who does not.
pub(in crate::agent) fn carriers(agent: &Agent, canary: &CanaryStatus, seen: &RoutingSeen, settings: &Settings) -> Vec<Carrier> {
    let idle = || "the canary takes no requests now".to_owned();
    let is_ready = canary.phase.serves() && seen.has_services;
    let gateway = match programmed(agent, seen, settings) {
        Ok(_) if is_ready => Ok(()),
        Ok(_) => Err(idle()),
        Err((_, why)) => Err(why),
    };
    let mesh = meshed(agent, seen).and_then(|()| match seen.refused.mesh.as_deref() {
        _ if !is_ready => Err(idle()),
        None if seen.has_mesh_objects => Ok(()),
        refused => Err(yet(refused, "the VirtualService and its DestinationRules have yet to be made")),
    });
    let direct = match &mesh {
        Ok(()) => String::new(),
        Err(_) => format!("callers inside the cluster that call Service {} directly reach stable alone", agent.name_any()),
    };
    let carrier = |name: CarrierName, carries: Result<(), String>| Carrier {
        name,
        carries: carries.is_ok(),
        message: carries.err().unwrap_or_default(),
    };
    vec![
        Carrier { name: CarrierName::Rest, carries: canary.phase.serves(), message: direct },
        carrier(CarrierName::Gateway, gateway),
        carrier(CarrierName::Mesh, mesh),
    ]
}

/// The hostname by which the Gateway leads to the agent, or why it does not.
fn programmed(agent: &Agent, seen: &RoutingSeen, settings: &Settings) -> Result<String, (&'static str, String)> {
    let (_, hostname) = exposure(agent, seen, settings)?;
    let refused = seen.refused.gateway.as_deref();
    let not = |message: String| Err(("RouteNotAccepted", message));
    // A Gateway speaks of another weight a moment later. What the status says stands until then.
    let stands = seen.route.as_ref().is_some_and(|route| route.was_accepted) && is_programmed(agent);
    match seen.route.as_ref().map(|route| (route.accepted, &route.message)) {
        Some((Some(false), why)) => not(format!("the Gateway does not take the HTTPRoute: {why}")),
        Some((accepted, _)) if refused.is_none() && (accepted.is_some() || stands) => Ok(hostname),
        Some(_) => not(yet(refused, "no Gateway has taken the HTTPRoute yet")),
        None => not(yet(refused, "the HTTPRoute has yet to be made")),
    }
}

/// Whether the status says that the Gateway leads to the agent.
fn is_programmed(agent: &Agent) -> bool {
    let mut conditions = agent.status.iter().flat_map(|status| &status.conditions);
    conditions.any(|found| found.type_ == EXPOSED && found.status == "True")
}

/// Whether a mesh would do as its objects say, or why not.
fn meshed(agent: &Agent, seen: &RoutingSeen) -> Result<(), String> {
    let namespace = agent.namespace().unwrap_or_default();
    if !seen.has_mesh_kinds {
        return Err("the kinds of Istio are not installed".to_owned());
    }
    match seen.mesh {
        Mesh::Enrolled => Ok(()),
        Mesh::Absent => Err(format!("namespace {namespace} is not enrolled: label it istio-injection=enabled")),
        Mesh::WithoutWaypoint => Err(format!(
            "namespace {namespace} is in the ambient mesh without a waypoint, which alone weighs requests: label it istio.io/use-waypoint"
        )),
    }
}

/// What the API server said, else what is to be waited for.
fn yet(refused: Option<&str>, otherwise: &str) -> String {
    refused.map_or_else(|| otherwise.to_owned(), |why| why.chars().take(MAX_WORDS).collect())
}
