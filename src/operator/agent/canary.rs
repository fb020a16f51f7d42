//! The canary of an Agent: its workload, and the decisions about it.
//!
//! `tracks` asks which tracks run ([`wants`]). Between apply and report, [`step`] gathers what is known (`gather`), decides
//! without I/O (`decide`, `ending`, `steps`), and carries the decision out (`act`, `events`). The state of a canary is in one
//! status with one writer. Each decision follows from the objects alone, so that a manager that is killed at any write doubles
//! nothing.

mod act;
mod decide;
mod decision;
mod ending;
mod evaluation;
mod events;
mod figures;
mod gather;
mod steps;
#[cfg(test)]
mod tests;
mod wants;

use std::time::Duration;

use jiff::Timestamp;
use serde_json::to_value;
use slipway_api::condition::{CANARY_READY, Finding};
use slipway_api::{Agent, Canary, CanaryStatus};
use slipway_cluster::write;
use slipway_release::digest;

use super::apply::Applied;
use super::resolve::{ConditionFault, Resolved};
use super::{Progress, routing};
use crate::context::Context;
use decide::decide;
use decision::{Act, Decision};
use gather::CanarySeen;
pub(super) use wants::{Wants, wants};

/// How often a decision is made anew at most: once with the book of the Agent's writers, and once after a refusal.
const ROUNDS: usize = 3;

/// What came of bringing the canary's workload.
#[derive(Debug, Clone, Default)]
pub(super) struct Brought {
    pub fault: Option<ConditionFault>,
    /// What it waits for.
    pub waits: Option<String>,
    /// What the pods run that are made from now on.
    pub run_hash: Option<String>,
}

impl Brought {
    pub(super) fn of(resolved: &Resolved, applied: &Applied) -> Self {
        let (fault, unknown) = match resolved {
            Resolved::Fault(fault) => (Some(fault.clone()), None),
            Resolved::Unknown(what) => (None, Some(format!("waiting to read {what}"))),
            Resolved::Plan(_) => (applied.fault.clone(), None),
        };
        Self { fault, waits: unknown.or_else(|| applied.left.clone()), run_hash: applied.run_hash.clone() }
    }
}

/// How a canary stands.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct CanaryReport {
    /// None without a canary.
    pub status: Option<CanaryStatus>,
    /// The condition about it.
    pub finding: Option<Finding>,
    /// When the agent is to be looked at again, where that is sooner than usual.
    pub next: Option<Duration>,
}

impl CanaryReport {
    /// What was said last.
    fn as_before(agent: &Agent) -> Self {
        Self { status: agent.canary_status().cloned(), finding: said_before(agent), next: None }
    }
}

/// The condition as it stands.
fn said_before(agent: &Agent) -> Option<Finding> {
    let said = agent.status.as_ref()?.conditions.iter().find(|condition| condition.type_ == CANARY_READY)?;
    let holds = (said.status != "Unknown").then_some(said.status == "True");
    Some(Finding { kind: CANARY_READY, holds, reason: said.reason.clone(), message: said.message.clone() })
}

/// Takes the canary as far as it can go now, and returns its status. An error beside it is tried again, and does not keep the Agent's
/// status from being written.
pub(super) async fn step(agent: &Agent, progress: &Progress, context: &Context) -> (CanaryReport, Option<write::Error>) {
    if agent.spec.canary.is_none() && agent.canary_status().is_none() && agent.canary_action().is_none() {
        return (CanaryReport::default(), None);
    }
    let mut seen = gather::gather(agent, progress, context);
    let decision = match settle(agent, &mut seen, context).await {
        Ok(Some(decision)) => decision,
        Ok(None) => return (CanaryReport::as_before(agent), None),
        Err(error) => return (CanaryReport::as_before(agent), Some(error)),
    };
    // Before the status: who is killed in between publishes the same Events again, which are there then.
    for event in &decision.events {
        event.publish(agent, context).await;
    }
    let done = match decision.act {
        Act::DropAnnotation => act::drop_annotation(agent, context).await,
        Act::MakeRun => act::make_run(agent, &seen, context).await,
        Act::Nothing | Act::Patch(_) => Ok(()),
    };
    let Decision { mut status, finding, next, .. } = decision;
    if let Some(status) = &mut status {
        status.carriers = routing::carriers(agent, status, &routing::gather(agent, context), &context.settings);
    }
    (CanaryReport { status, finding, next }, done.err())
}

/// Decides, reads who has written the Agent where that matters, and patches its spec where that is decided. What the API server does
/// not take is decided anew, as of a spec that belongs to others.
async fn settle(agent: &Agent, seen: &mut CanarySeen, context: &Context) -> Result<Option<Decision>, write::Error> {
    let now = Timestamp::now();
    for _ in 0..ROUNDS {
        let Some(decision) = decide(agent, seen, now) else {
            seen.book = Some(act::read_book(agent, context).await?);
            continue;
        };
        let Act::Patch(end) = decision.act else { return Ok(Some(decision)) };
        let Some(refused) = act::patch(agent, end, context).await? else { return Ok(Some(decision)) };
        seen.book.get_or_insert_default().barrier = Some(refused);
    }
    Ok(None)
}

/// What somebody asks for by annotation. What stands in a manifest counts once.
fn asked_for(agent: &Agent) -> Option<&str> {
    let counted = agent.canary_status().and_then(|status| status.counted_action.as_deref());
    agent.canary_action().filter(|word| counted != Some(in_status(word)))
}

/// The word of the annotation as the status has it.
fn in_status(word: &str) -> &str {
    if matches!(word, "promote" | "rollback") { word } else { "other" }
}

/// What a canary asks for, without its weight, its pods and how it is decided on.
fn spec_hash(canary: &Canary) -> String {
    let asked = Canary { weight: 0, replicas: None, analysis: None, ..canary.clone() };
    // Plain structs with keys that are strings: there is nothing in them that could fail.
    digest(&to_value(asked).unwrap_or_default())
}
