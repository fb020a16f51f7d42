//! The agent controller: gather → resolve → build → apply → report, one file each.

mod apply;
mod build;
mod gather;
mod pin;
mod report;
mod resolve;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use kube::Resource;
use serde_json::Value;
use slipway_api::Tool;
use slipway_cluster::controller::RESYNC;

use crate::tenancy::admission;
use crate::world::{ChildKind, Guarded, World, pod};
use crate::write;
use slipway_cluster::Key;

pub(crate) use build::CONTAINER;
pub(crate) use pin::Pins;

/// The field manager of everything that this controller writes.
pub(crate) const MANAGER: &str = "slipway/agent";

/// When an agent is reconciled again that waits for something to be read.
const SOON: Duration = Duration::from_secs(5);

/// Brings the cluster to what an Agent says, as far as that can be done now.
pub(crate) async fn reconcile(world: &World, key: &Key) -> Result<Option<Duration>, write::Error> {
    let Some(kept) = world.agents.get(key) else {
        world.references.set(key, HashSet::new());
        world.pins.forget(key);
        world.untroubled("Agent", key);
        apply::leave_turn(world, key);
        return Ok(None);
    };
    let agent = match kept.agent() {
        Ok(agent) => agent,
        Err(invalid) => {
            apply::leave_turn(world, key);
            report::malformed(world, key, &invalid).await?;
            return Ok(Some(RESYNC));
        }
    };
    if agent.meta().deletion_timestamp.is_some() {
        apply::leave_turn(world, key);
        return Ok(None);
    }
    if let Err(error) = pin::read(&agent, world).await {
        apply::keep(&agent, world).await?;
        return Err(error);
    }
    let plan = match pin::effective(&agent, world) {
        Some(effective) => {
            gather::note(&effective, world);
            resolve::resolve(&effective, &gather::gather(&effective, world), &world.settings)
        }
        None => resolve::Resolved::Unknown("the release that it is pinned to"),
    };
    let applied = match &plan {
        resolve::Resolved::Plan(plan) => {
            let mut desired = apply::in_turn(build::build(plan).into_values()?, &agent, world);
            let waits = admission::waits(world, &agent, plan.storage).await;
            if waits.is_some() {
                desired.retain(|(kind, _)| *kind != ChildKind::Deployment);
            }
            let mut applied = apply::apply(desired, plan, world).await?;
            applied.left = applied.left.or(waits);
            applied
        }
        resolve::Resolved::Fault(_) => {
            apply::leave_turn(world, key);
            apply::keep(&agent, world).await?
        }
        resolve::Resolved::Unknown(_) => apply::keep(&agent, world).await?,
    };
    let sooner = report::report(&agent, &plan, &applied, world).await?;
    let next = if matches!(plan, resolve::Resolved::Unknown(_)) || applied.left.is_some() { SOON } else { RESYNC };
    Ok(Some(sooner.map_or(next, |sooner| next.min(sooner))))
}

/// What an Agent's child of that kind and name should be, if that can be said now. It is asked whenever a child arrives on a
/// watch, by standing-by replicas too, and changes nothing.
pub(crate) fn desired(world: &World, key: &Key, kind: ChildKind, name: &str) -> Option<Value> {
    let agent = world.agents.get(key)?.agent().ok()?;
    let agent = pin::effective(&agent, world)?;
    match resolve::resolve(&agent, &gather::gather(&agent, world), &world.settings) {
        resolve::Resolved::Plan(plan) => build::child(&plan, kind, name).ok()?,
        _ => None,
    }
}

/// A Tool of an agent that stands for a server which speaks mcp.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Offering {
    /// The name that the model knows.
    pub name: String,
    pub tool: Key,
    pub server: String,
}

/// The servers that an agent's pods use which run with the present configuration, and which configuration that is.
pub(crate) fn offerings(world: &World, key: &Key) -> Option<(u64, Vec<Offering>)> {
    let agent = world.agents.get(key)?.agent().ok()?;
    let agent = pin::effective(&agent, world)?;
    let seen = gather::gather(&agent, world);
    let resolve::Resolved::Plan(plan) = resolve::resolve(&agent, &seen, &world.settings) else { return None };
    let offering = |(name, tool): &(String, Option<Arc<Guarded<Tool>>>)| {
        let spec = &tool.as_ref()?.0.as_ref().ok()?.spec;
        let server = spec.server().filter(|_| spec.enabled)?;
        Some(Offering { name: spec.name.clone(), tool: Key::new(&key.namespace, name), server })
    };
    Some((pod::config(Some(&build::config_hash(&plan))), seen.tools.iter().filter_map(offering).collect()))
}
