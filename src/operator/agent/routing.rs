//! Routes to an Agent from outside, with the weights of its tracks: an HTTPRoute of the Gateway API, and of Istio a
//! VirtualService with DestinationRules. Their types are not compiled in: objects are JSON, and exist where their kinds do
//! ([`ChildKind::is_optional`]).
//!
//! The weight is that of the status, so that REST, the Gateway and the mesh follow one number. [`gather`] reads the caches,
//! `objects` makes the routes, `bring` writes them, and `status` reports whether they lead to the agent.

mod bring;
mod objects;
mod status;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::sync::Arc;

use kube::Resource;
use serde_json::Value;
use slipway_api::agent::Access;
use slipway_api::{Agent, CanaryStatus, Track};
use slipway_cluster::Key;

use crate::caches::ChildKind;
use crate::caches::child::{Child, Mesh, RouteState};
use crate::caches::routes::RefusedRoutes;
use crate::context::Context;
use crate::settings::{Gateway, Settings};

pub(super) use bring::bring;
pub(super) use status::{carriers, exposed};

/// The most characters of a hostname, and of one of its labels.
const MAX_HOSTNAME: usize = 253;
const MAX_LABEL: usize = 63;

/// What surrounds an Agent that may be routed to.
#[expect(clippy::struct_excessive_bools, reason = "each is true for reasons of its own")]
#[derive(Default)]
pub(super) struct RoutingSeen {
    /// The slug of the team that owns the namespace.
    team: Option<String>,
    /// Whether the cluster has HTTPRoutes.
    has_gateway_kinds: bool,
    /// Whether it has VirtualServices and DestinationRules.
    has_mesh_kinds: bool,
    /// Whether both tracks have a Service beside the agent's own.
    has_services: bool,
    /// Of the namespace.
    mesh: Mesh,
    /// What Gateways say of the agent's HTTPRoute, where there is one.
    route: Option<RouteState>,
    /// Whether the agent has a VirtualService and both DestinationRules.
    has_mesh_objects: bool,
    /// What the API server would not take of all these.
    refused: RefusedRoutes,
}

/// Reads it from the caches.
pub(super) fn gather(agent: &Agent, context: &Context) -> RoutingSeen {
    let (caches, key) = (&context.caches, Key::of(agent));
    let is_there = |kind: ChildKind, name: &str| owned(agent, kind, name, context).is_some();
    let of_mesh = || names(&key.name).into_iter().filter(|(kind, _)| *kind != ChildKind::HttpRoute);
    let services = [Track::primary(&key.name), Track::Canary.workload(&key.name)];
    RoutingSeen {
        team: caches.team_of(&key.namespace),
        has_gateway_kinds: caches.has_kind(ChildKind::HttpRoute),
        has_mesh_kinds: of_mesh().all(|(kind, _)| caches.has_kind(kind)),
        has_services: services.iter().all(|name| is_there(ChildKind::Service, name)),
        mesh: caches.children(ChildKind::Namespace).get(&Key::new("", &key.namespace)).map(|namespace| namespace.mesh).unwrap_or_default(),
        route: owned(agent, ChildKind::HttpRoute, &key.name, context).and_then(|child| child.route.as_deref().cloned()),
        has_mesh_objects: of_mesh().all(|(kind, name)| is_there(kind, &name)),
        refused: caches.refused_routes.get(&key).map(|refused| (*refused).clone()).unwrap_or_default(),
    }
}

/// An object of this very Agent that stays.
fn owned(agent: &Agent, kind: ChildKind, name: &str, context: &Context) -> Option<Arc<Child>> {
    let child = context.caches.children(kind).get(&Key::new(Key::of(agent).namespace, name))?;
    (child.owner.is_some() && child.owner == agent.meta().uid && !child.deleting).then_some(child)
}

/// What leads to an Agent, with the weight that its status says is in force.
pub(super) fn routes(agent: &Agent, context: &Context) -> Vec<(ChildKind, Value)> {
    let weight = agent.canary_status().map(CanaryStatus::share);
    build(agent, weight, &gather(agent, context), &context.settings)
}

/// What led to an Agent, or weighed its tracks, and is no longer to.
fn unwanted(agent: &Agent, wanted: &HashSet<(ChildKind, String)>, context: &Context) -> Vec<(ChildKind, String)> {
    let all = names(&Key::of(agent).name).into_iter();
    all.filter(|route| !wanted.contains(route) && owned(agent, route.0, &route.1, context).is_some()).collect()
}

/// The objects that there should be. `weight` is the canary's share; None without a canary. Those that name others come after them.
fn build(agent: &Agent, weight: Option<u8>, seen: &RoutingSeen, settings: &Settings) -> Vec<(ChildKind, Value)> {
    let canary = agent.canary_status();
    // Before a canary serves, and while it drains, all goes to the agent's own Service: nothing leads to what is about to come or go.
    let weight = weight.filter(|_| seen.has_services && canary.is_some_and(|canary| canary.phase.serves()));
    let mut routes = Vec::new();
    if let Ok((gateway, hostname)) = exposure(agent, seen, settings) {
        routes.push((ChildKind::HttpRoute, objects::http_route(agent, weight, gateway, &hostname)));
    }
    if let Some(weight) = weight.filter(|_| seen.has_mesh_kinds && seen.mesh == Mesh::Enrolled) {
        routes.extend(objects::destination_rules(agent, settings).map(|rule| (ChildKind::DestinationRule, rule)));
        routes.push((ChildKind::VirtualService, objects::virtual_service(agent, weight, settings)));
    }
    routes
}

/// All such objects that an agent can have. Those that name others are deleted before them.
fn names(agent: &str) -> [(ChildKind, String); 4] {
    [
        (ChildKind::HttpRoute, agent.to_owned()),
        (ChildKind::VirtualService, agent.to_owned()),
        (ChildKind::DestinationRule, Track::primary(agent)),
        (ChildKind::DestinationRule, Track::Canary.workload(agent)),
    ]
}

/// Whether an agent can have an object of that kind and name.
pub(super) fn is_name(agent: &str, kind: ChildKind, name: &str) -> bool {
    kind.is_optional() && names(agent).iter().any(|(of_kind, known)| *of_kind == kind && known == name)
}

/// The Gateway and the hostname that lead to an agent which asks for that; or why nothing does, as a reason and a message.
fn exposure<'a>(agent: &Agent, seen: &RoutingSeen, settings: &'a Settings) -> Result<(&'a Gateway, String), (&'static str, String)> {
    let refused = |reason: &'static str, message: &str| Err((reason, message.to_owned()));
    if agent.spec.expose.is_none() {
        return refused("NotExposed", "the agent is not exposed");
    }
    if agent.spec.access == Some(Access::Platform) {
        return refused("AccessPlatform", "spec.access: platform keeps all but the platform from the agent");
    }
    let Some(gateway) = &settings.gateway else {
        return refused("NoGateway", "the chart names no Gateway (gateway.name)");
    };
    if !seen.has_gateway_kinds {
        return refused("GatewayKindsMissing", "the kinds of the Gateway API are not installed");
    }
    let Some(team) = &seen.team else {
        return refused("NoTeam", "the namespace is no team's");
    };
    let hostname = gateway.hostname.replace("{agent}", &Key::of(agent).name).replace("{team}", team);
    if is_hostname(&hostname) {
        Ok((gateway, hostname))
    } else {
        Err(("HostnameInvalid", format!("{hostname} is no hostname: at most {MAX_HOSTNAME} characters, in labels of at most {MAX_LABEL}")))
    }
}

/// As the Gateway API wants it: labels of lower-case letters, digits and hyphens, and no wildcard.
fn is_hostname(text: &str) -> bool {
    let is_label = |label: &str| {
        let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let ends_well = !label.starts_with('-') && !label.ends_with('-');
        (1..=MAX_LABEL).contains(&label.len()) && ends_well && label.bytes().all(is_inner)
    };
    text.len() <= MAX_HOSTNAME && text.split('.').all(is_label)
}
