//! Changes that a gate keeps from an Agent's pods: their release waits for its evaluation, or was rejected by it.

use kube::Resource;
use slipway_api::condition::APPROVED;
use slipway_api::{Agent, Track};

use crate::agent::{pin, track_pods};
use crate::context::Context;

/// What of an Agent does not run, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::agent) enum Held {
    Waits(String),
    Rejected(String),
}

/// `fault` is why its candidate cannot be made, where it cannot.
pub(super) fn of(agent: &Agent, fault: Option<String>, context: &Context) -> Option<Held> {
    if !pin::is_held(agent, context) {
        return None;
    }
    let conditions = agent.status.iter().flat_map(|status| &status.conditions);
    let approved = conditions.into_iter().find(|condition| condition.type_ == APPROVED);
    let waits = |why: &str| {
        let trouble = fault.or_else(|| track_pods::trouble(agent, Track::Candidate, context).map(|trouble| trouble.said()));
        let trouble = trouble.map(|trouble| format!("; its candidate is not ready: {trouble}")).unwrap_or_default();
        Held::Waits(format!("{why}{trouble}"))
    };
    Some(match approved {
        Some(approved) if approved.status == "Unknown" => waits(&approved.message),
        // It may speak of an earlier spec.
        Some(approved) if approved.observed_generation == agent.meta().generation => Held::Rejected(approved.message.clone()),
        _ => waits("what the spec says runs when a release of it has passed its evaluation"),
    })
}
