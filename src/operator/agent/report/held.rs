//! Changes that a gate keeps from an Agent's pods: their release waits for its evaluation, or was rejected by it.

use kube::Resource;
use slipway_api::condition::APPROVED;
use slipway_api::{Agent, Track};

use crate::agent::{pin, track_pods};
use crate::children::QUOTA_EXCEEDED;
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
        Held::Waits(format!("{why}{}", trouble.as_deref().map(not_ready).unwrap_or_default()))
    };
    Some(match approved {
        Some(approved) if approved.status == "Unknown" => waits(&approved.message),
        // It may speak of an earlier spec.
        Some(approved) if approved.observed_generation == agent.meta().generation => Held::Rejected(approved.message.clone()),
        _ => waits("what the spec says runs when a release of it has passed its evaluation"),
    })
}

/// That a candidate is not ready for this trouble. A full quota is not mended in the agent.
fn not_ready(trouble: &str) -> String {
    let is_without_room = trouble.split_once(": ").is_some_and(|(reason, _)| reason == QUOTA_EXCEEDED);
    let way_out = if is_without_room {
        "; it goes on by itself when there is room: raise the quota (spec.quota of the Team, unless an administrator made another), or \
         stop other pods"
    } else {
        ""
    };
    format!("; its candidate is not ready: {trouble}{way_out}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_quota_is_told_with_the_way_out() {
        let full =
            not_ready("QuotaExceeded: pods \"a\" is forbidden: exceeded quota: slipway, requested: pods=1, used: pods=1, limited: pods=1");
        assert!(full.contains("limited: pods=1; it goes on by itself when there is room: raise the quota"), "{full}");
        assert_eq!(not_ready("CrashLoopBackOff: exit 2"), "; its candidate is not ready: CrashLoopBackOff: exit 2");
    }
}
