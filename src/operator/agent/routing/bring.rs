//! Writes the routes to an Agent, independently of its workloads. A failure is reported in the status and tried again at the next
//! resync: a webhook of others that is away keeps no agent from its pods.

use std::collections::HashSet;

use kube::Resource;
use slipway_api::Agent;
use slipway_cluster::{Key, write};

use super::{routes, unwanted};
use crate::agent::MANAGER;
use crate::caches::ChildKind;
use crate::caches::routes::RefusedRoutes;
use crate::children::{self, Outcome};
use crate::context::Context;

/// Adds what there is to be to `wanted`, and what came of it to `outcomes`.
pub(in crate::agent) async fn bring(
    agent: &Agent,
    wanted: &mut HashSet<(ChildKind, String)>,
    outcomes: &mut Vec<(ChildKind, String, Outcome)>,
    context: &Context,
) {
    let (key, uid) = (Key::of(agent), agent.meta().uid.as_deref().unwrap_or_default());
    let mut refused = RefusedRoutes::default();
    for (kind, value) in routes(agent, context) {
        let name = children::name(&value).to_owned();
        wanted.insert((kind, name.clone()));
        // A VirtualService that names what is not there would lead nowhere.
        if kind == ChildKind::VirtualService && refused.mesh.is_some() {
            continue;
        }
        match children::apply(context, kind, uid, &value, MANAGER).await {
            Ok(outcome) => {
                refused.add(kind, refusal(kind, &name, &outcome));
                outcomes.push((kind, name, outcome));
            }
            Err(error) => refused.add(kind, Some(failed(&key, kind, &name, &error))),
        }
    }
    for (kind, name) in unwanted(agent, wanted, context) {
        if let Err(error) = children::delete(context, kind, &Key::new(&key.namespace, &name)).await {
            refused.add(kind, Some(failed(&key, kind, &name, &error)));
        }
    }
    if refused == RefusedRoutes::default() {
        context.caches.refused_routes.remove(&key);
    } else {
        context.caches.refused_routes.insert(key, refused);
    }
}

/// Why an object that leads to an agent is not as it should be, after that was tried.
fn refusal(kind: ChildKind, name: &str, outcome: &Outcome) -> Option<String> {
    match outcome {
        Outcome::Taken => Some(format!("{kind:?} {name} exists and does not belong to this Agent; delete it")),
        Outcome::Left => Some(format!("{kind:?} {name} of an earlier Agent of this name has yet to go")),
        Outcome::Refused(why) => Some(format!("the API server refused {kind:?} {name}: {why}")),
        Outcome::Unchanged | Outcome::Created | Outcome::Updated | Outcome::Repaired => None,
    }
}

/// The message about an object that others keep from being written.
fn failed(agent: &Key, kind: ChildKind, name: &str, error: &write::Error) -> String {
    tracing::warn!(%error, %agent, ?kind, "what leads to an agent could not be written");
    format!("{kind:?} {name} could not be written: {error}")
}
