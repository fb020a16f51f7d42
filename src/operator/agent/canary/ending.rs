//! The end of a canary: an Event says who ended it, a promotion waits until the stable track runs its content, and users are
//! taken away before its pods are. Pure.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use slipway_api::canary::CanaryPhase;
use slipway_api::condition::{self, CANARY_READY, Finding};
use slipway_api::{Agent, CanaryStatus};
use slipway_release::content_of;

use super::asked_for;
use super::decision::{Decision, cut};
use super::events::{self, EndedBy};
use super::gather::{Book, CanarySeen, Stable};
use super::steps;

/// How long REST's replicas, gateways and meshes have to hear that nobody is sent to a canary any more, before its pods go.
pub(super) const DRAIN: Duration = Duration::from_secs(10);

/// No canary.
pub(super) fn none(agent: &Agent) -> Decision {
    let of_flagger = || Finding::new(CANARY_READY, false, "FlaggerMode", "spec.canary: Flagger drives the rollouts of this agent");
    let finding = agent.canary().filter(|_| agent.is_flaggers()).map(|_| of_flagger());
    Decision { finding, ..Decision::default() }
}

/// The spec asks for no canary any more: it was promoted if somebody says so, or if its content is the agent's now, else rolled back.
/// None where it is not known who has written that.
pub(super) fn ended(agent: &Agent, before: &CanaryStatus, seen: &CanarySeen, now: Timestamp) -> Option<Decision> {
    let Book { by, .. } = *seen.book.as_ref()?;
    let word = asked_for(agent);
    // An annotation that has counted does not end it once more.
    let by = if word.is_none() && by == EndedBy::Annotation { EndedBy::Spec } else { by };
    let is_promoted = match word {
        Some(word) => word == "promote",
        None => !agent.is_flaggers() && content_of(agent).content_hash() == before.content,
    };
    if is_promoted {
        let mut decision = promoting(&turned(before, CanaryPhase::Promoting, now), seen, now);
        decision.events.insert(0, events::promoted(before, by));
        return Some(decision);
    }
    let why = match by {
        EndedBy::Analysis => before.message.clone(),
        _ if agent.is_flaggers() => Some("Flagger drives the rollouts of this agent".to_owned()),
        EndedBy::Rest | EndedBy::Annotation | EndedBy::Spec => None,
    };
    let events = vec![events::rolled_back(before, by, why.as_deref())];
    let status = CanaryStatus { message: why.map(cut), ..drained(before, now) };
    Some(Decision { events, next: Some(DRAIN), ..said(status, "Draining", "conversations return to the stable track") })
}

/// The stable track takes over what the canary ran. The canary goes on at the weight that it had, so that nobody is lost meanwhile.
pub(super) fn promoting(before: &CanaryStatus, seen: &CanarySeen, now: Timestamp) -> Decision {
    match &seen.stable {
        Stable::Rolled => {
            let status = CanaryStatus { message: None, ..drained(before, now) };
            Decision { next: Some(DRAIN), ..said(status, "Draining", "the stable track runs what the canary ran") }
        }
        Stable::Rejected(why) => {
            let why = cut(why.clone());
            let events = vec![events::rolled_back(before, EndedBy::Analysis, Some(&why))];
            let status = CanaryStatus { message: Some(why.clone()), ..drained(before, now) };
            Decision { events, next: Some(DRAIN), ..said(status, "Draining", &why) }
        }
        Stable::Rolls(what) => {
            let is_there = seen.deployment.as_ref().is_some_and(|deployment| deployment.available > 0);
            let message = cut(format!("the stable track rolls: {what}"));
            let status =
                CanaryStatus { weight: if is_there { before.weight } else { 0 }, message: Some(message.clone()), ..before.clone() };
            said(status, "Promoting", &message)
        }
    }
}

/// Nobody is sent to it; its pods go in a moment.
pub(super) fn draining(agent: &Agent, before: &CanaryStatus, now: Timestamp) -> Decision {
    match rest(before, now) {
        Some(rest) => {
            let message = before.message.as_deref().unwrap_or("its pods go in a moment");
            Decision { next: Some(rest), ..said(before.clone(), "Draining", message) }
        }
        None => none(agent),
    }
}

/// Rolled back by its status, while the spec still asks for it. Its pods go once nobody is sent to them.
pub(super) fn rolled_back(before: &CanaryStatus, now: Timestamp) -> Decision {
    let (next, run_hash) = match rest(before, now) {
        Some(rest) if before.run_hash.is_some() => (Some(rest), before.run_hash.clone()),
        _ => (None, None),
    };
    let finding = Finding::new(CANARY_READY, false, "RolledBack", before.message.clone().unwrap_or_default());
    let status = CanaryStatus { run_hash, replicas: 0, ready_replicas: 0, ..before.clone() };
    Decision { status: Some(status), finding: Some(finding), next, ..Decision::default() }
}

/// Whether users have just been taken away from it: what was said of it is cleared away now. Later that might be of the next one.
pub(super) fn is_ending(before: &CanaryStatus, now: Timestamp) -> bool {
    match before.phase {
        CanaryPhase::Draining => true,
        CanaryPhase::RolledBack => before.run_hash.is_some() || rest(before, now).is_some(),
        _ => false,
    }
}

/// For how much longer the phase lasts at least.
fn rest(before: &CanaryStatus, now: Timestamp) -> Option<Duration> {
    let lasted = u64::try_from(steps::seconds_since(before, now)).unwrap_or_default();
    let left = DRAIN.as_secs().saturating_sub(lasted);
    (left > 0).then(|| Duration::from_secs(left))
}

fn turned(before: &CanaryStatus, phase: CanaryPhase, now: Timestamp) -> CanaryStatus {
    CanaryStatus { phase, step_started_at: Some(Time(condition::whole_seconds(now))), step_requests: 0, ..before.clone() }
}

fn drained(before: &CanaryStatus, now: Timestamp) -> CanaryStatus {
    CanaryStatus { weight: 0, desired_weight: 0, ..turned(before, CanaryPhase::Draining, now) }
}

fn said(status: CanaryStatus, reason: &str, message: &str) -> Decision {
    Decision { status: Some(status), finding: Some(Finding::unknown(CANARY_READY, reason, message)), ..Decision::default() }
}
