//! The Events of a canary. Each is published once, also where a manager is killed while it publishes.

use kube::Resource;
use serde_json::{Value, json};
use slipway_api::{Agent, CanaryStatus};
use slipway_cluster::event::EventSpec;

use crate::context::Context;

/// Who has ended a canary.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum EndedBy {
    /// A call of the REST API.
    Rest,
    /// Somebody else, by the annotation.
    Annotation,
    /// Slipway itself, by what it has measured, or by an evaluation.
    Analysis,
    /// Somebody, by changing the spec.
    #[default]
    Spec,
}

impl EndedBy {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Rest => "rest",
            Self::Annotation => "annotation",
            Self::Analysis => "analysis",
            Self::Spec => "spec",
        }
    }

    /// What people read where nobody has given a reason.
    const fn asked(self) -> &'static str {
        match self {
            Self::Rest => "asked for by the REST API",
            Self::Annotation => "asked for by annotation",
            Self::Analysis => "decided by Slipway",
            Self::Spec => "spec.canary is gone or disabled",
        }
    }
}

/// An Event.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct CanaryEvent {
    pub warning: bool,
    pub reason: &'static str,
    pub note: String,
    pub payload: Value,
    /// What tells it from others of its reason and its Agent.
    which: Vec<String>,
}

impl CanaryEvent {
    pub(super) async fn publish(&self, agent: &Agent, context: &Context) {
        let event = EventSpec { warning: self.warning, reason: self.reason.to_owned(), action: "Canary", note: self.note.clone() };
        let which: Vec<&str> = self.which.iter().map(String::as_str).collect();
        context.events.publish_once(&agent.object_ref(&()), event, &self.payload, &which).await;
    }
}

/// Of a canary, by when it began.
fn which(status: &CanaryStatus, more: impl Into<String>) -> Vec<String> {
    let began = status.started_at.as_ref().map(|began| began.0.to_string()).unwrap_or_default();
    vec!["canary".to_owned(), began, more.into()]
}

fn version(status: &CanaryStatus) -> &str {
    status.version.as_deref().unwrap_or("canary")
}

/// It is published before the status has the time of the beginning. The generation of which that status speaks identifies it, not the
/// spec's own, which an autoscaler may change before the status is written.
pub(super) fn started(agent: &Agent, status: &CanaryStatus) -> CanaryEvent {
    let observed = agent.status.as_ref().and_then(|status| status.observed_generation);
    CanaryEvent {
        warning: false,
        reason: "AgentCanaryStarted",
        note: format!("canary {} is being made, to have {} % of conversations", version(status), status.desired_weight),
        payload: json!({"version": status.version, "weight": status.desired_weight, "content": status.content}),
        which: vec!["canary".to_owned(), status.content.clone(), observed.unwrap_or_default().to_string()],
    }
}

/// To the weight that is wanted now.
pub(super) fn advanced(status: &CanaryStatus, requests: i64) -> CanaryEvent {
    let (step, steps) = (status.step.unwrap_or(1), status.steps.unwrap_or(1));
    let weight = status.desired_weight;
    CanaryEvent {
        warning: false,
        reason: "AgentCanaryAdvanced",
        note: format!("canary {} kept its gates over {requests} requests: step {step} of {steps}, {weight} %", version(status)),
        payload: json!({"weight": weight, "step": step, "steps": steps, "requests": requests}),
        which: which(status, format!("step {step} at {weight}")),
    }
}

pub(super) fn inconclusive(status: &CanaryStatus, reason: &str, why: &str) -> CanaryEvent {
    let step = status.step.unwrap_or(1);
    CanaryEvent {
        warning: true,
        reason: "AgentCanaryInconclusive",
        note: format!("canary {}, step {step}, stays at {} %: {why}", version(status), status.weight),
        payload: json!({"step": step, "reason": reason, "figures": {"canary": status.canary, "stable": status.stable}}),
        which: which(status, format!("step {step} at {} {reason}", status.weight)),
    }
}

pub(super) fn promoted(status: &CanaryStatus, by: EndedBy) -> CanaryEvent {
    CanaryEvent {
        warning: false,
        reason: "AgentCanaryPromoted",
        note: format!("canary {} becomes the agent: {}", version(status), by.asked()),
        payload: json!({
            "version": status.version,
            "stable_version": status.stable_version,
            "content": status.content,
            "weight": status.weight,
            "by": by.word(),
        }),
        which: which(status, ""),
    }
}

pub(super) fn rolled_back(status: &CanaryStatus, by: EndedBy, why: Option<&str>) -> CanaryEvent {
    let why = why.unwrap_or(by.asked());
    CanaryEvent {
        warning: by == EndedBy::Analysis,
        reason: "AgentCanaryRolledBack",
        note: format!("canary {} ends, and all conversations return to the stable track: {why}", version(status)),
        payload: json!({
            "version": status.version,
            "content": status.content,
            "weight": status.weight,
            "by": by.word(),
            "why": why,
        }),
        which: which(status, ""),
    }
}

/// `asked` tells one request from another.
pub(super) fn refused(status: &CanaryStatus, asked: &str, why: &str) -> CanaryEvent {
    CanaryEvent {
        warning: true,
        reason: "AgentCanaryRefused",
        note: format!("canary {}: {why}", version(status)),
        payload: json!({"version": status.version, "why": why}),
        which: which(status, format!("{asked} {why}")),
    }
}
