//! Canaries: a second configuration of an agent that has a share of its conversations, until it is promoted or rolled back.
//!
//! `analysis` has canaries that Slipway judges, `flagger` the real Flagger, `gate` canaries that serve nobody before their evaluation,
//! `gateway` what a Gateway does with the weight and `mesh` what a mesh is told of it, `gitops` a canary in a spec that a GitOps tool
//! owns, `kills` an operator that is killed at each of its writes, `load` people who notice nothing, `pods` what becomes of a canary's
//! pods, `table` the specification's table, `weights` who is sent where. What the platform's own upgrade does to a canary is in `upgrade`.
//!
//! `gitops` and `kills` have an API server of their own without a node: `hack/test` runs them beside the parts that need none.

mod analysis;
mod flagger;
mod gate;
mod gateway;
mod gitops;
mod kills;
mod load;
mod mesh;
mod pods;
mod table;
mod weights;

use serde_json::Value;
use slipway_e2e::{Agent, poll};

/// How long a canary may take until its pods are ready and its weight is in force, and how long until nothing is left of it.
const SECONDS: u64 = 120;

/// What the status of an Agent says of its canary; null without one.
fn standing(agent: &Value) -> &Value {
    &agent["status"]["canary"]
}

/// Waits until the canary has this share of conversations.
#[track_caller]
fn serves(agent: &Agent, weight: u32) -> Value {
    agent.until(&format!("serving {weight} % by its canary"), SECONDS, |found| {
        let canary = standing(found);
        canary["phase"] == "Serving" && canary["weight"] == weight
    })
}

/// Waits until neither spec nor status knows of a canary, and nothing is left that it had.
#[track_caller]
fn ended(agent: &Agent) -> Value {
    let found = agent.until("without a canary", SECONDS, |found| standing(found).is_null() && found["spec"]["canary"].is_null());
    let name = &agent.name;
    let children = ["deployment/NAME-canary", "service/NAME-canary", "service/NAME-primary", "configmap/NAME-canary-config"];
    let children = children.map(|child| child.replace("NAME", name));
    poll(60, || {
        let left: Vec<&String> = children.iter().filter(|child| !agent.team.get(child).is_null()).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("nothing should be left of the canary of {name}, and this is: {left:?}")) }
    });
    found
}

/// Whether a canary has answered its share of requests, within four standard deviations.
fn is_share(answered: usize, all: usize, weight: u32) -> Result<(), String> {
    let number = |count: usize| f64::from(u32::try_from(count).unwrap());
    let share = f64::from(weight) / 100.0;
    let (expected, bound) = (number(all) * share, 4.0 * (number(all) * share * (1.0 - share)).sqrt());
    if (number(answered) - expected).abs() <= bound {
        return Ok(());
    }
    Err(format!("the canary has answered {answered} of {all}, which should be {expected:.0} within {bound:.0}"))
}

/// The Events about an agent that have this reason.
#[track_caller]
fn events(agent: &Agent, reason: &str) -> Vec<Value> {
    let list = agent.team.kubectl("get events.events.k8s.io").json();
    let is_one = |event: &&Value| {
        event["reason"] == reason && event["regarding"]["kind"] == "Agent" && event["regarding"]["name"] == agent.name.as_str()
    };
    list["items"].as_array().into_iter().flatten().filter(is_one).cloned().collect()
}

/// What an Event says besides its words.
#[track_caller]
fn payload(event: &Value) -> Value {
    let text = event["metadata"]["annotations"]["agents.slipway.dev/payload"].as_str().unwrap_or_else(|| panic!("no payload: {event:#}"));
    serde_json::from_str(text).unwrap()
}
