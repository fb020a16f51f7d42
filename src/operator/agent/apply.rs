//! Fourth step: make the cluster be as built, sending nothing that is there already.

use kube::Resource;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use slipway_api::Agent;

use super::MANAGER;
use super::build::Desired;
use super::resolve::{Fault, Plan};
use crate::queue::Key;
use crate::world::{ChildKind, World};
use crate::write::{self, Outcome};

/// What came of it.
#[derive(Default)]
pub(super) struct Applied {
    pub outcomes: Vec<(ChildKind, String, Outcome)>,
    pub fault: Option<Fault>,
}

pub(super) async fn apply(desired: Desired, plan: &Plan, world: &World) -> Result<Applied, write::Error> {
    let mut applied = Applied::default();
    for (kind, value) in desired.into_values()? {
        let name = value["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let outcome = write::child(world, kind, &plan.owner.uid, &value, MANAGER).await?;
        let fault = fault(kind, &name, &outcome);
        applied.outcomes.push((kind, name, outcome));
        if fault.is_some() {
            // What comes after needs what comes before; half an agent is worse than none.
            applied.fault = fault;
            return Ok(applied);
        }
    }
    remove_orphan(plan, world).await?;
    Ok(applied)
}

fn fault(kind: ChildKind, name: &str, outcome: &Outcome) -> Option<Fault> {
    match outcome {
        Outcome::Taken => Some(Fault {
            reason: "NameTaken",
            message: format!("{kind:?} {name} exists and does not belong to this Agent; delete it or give the Agent another name"),
        }),
        Outcome::Refused(why) => Some(Fault { reason: "Refused", message: format!("the API server refused {kind:?} {name}: {why}") }),
        _ => None,
    }
}

/// The ServiceAccount is the one child that an agent may cease to want.
async fn remove_orphan(plan: &Plan, world: &World) -> Result<(), write::Error> {
    let key = Key::new(&plan.namespace, &plan.name);
    let account = world.children(ChildKind::ServiceAccount).get(&key);
    let ours = account.is_some_and(|account| account.owner.as_deref() == Some(&plan.owner.uid) && !account.deleting);
    if plan.gcp_service_account.is_none() && ours { write::delete(world, ChildKind::ServiceAccount, &key).await } else { Ok(()) }
}

/// An Agent at fault keeps what it has: what ran goes on running, and is not touched. Only stopping works.
pub(super) async fn keep(agent: &Agent, world: &World) -> Result<Applied, write::Error> {
    let key = Key::of(agent);
    let ours = |child: &crate::world::child::Child| child.owner.as_deref() == agent.meta().uid.as_deref();
    let running = world.children(ChildKind::Deployment).get(&key).filter(|child| ours(child)).and_then(|child| child.deployment.clone());
    if agent.stopped_by().is_some() && running.is_some_and(|deployment| deployment.wanted > 0) {
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let none = Patch::Merge(json!({"spec": {"replicas": 0}}));
        write::api(world, ChildKind::Deployment, &key.namespace).patch(&key.name, &params, &none).await?;
    }
    Ok(Applied::default())
}
