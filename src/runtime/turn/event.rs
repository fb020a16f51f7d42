//! The events of a turn.

use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use slipway_guards::{Action, Breach, Finding, GuardName, Side};
use slipway_models::{Fault, Usage};

use crate::knowledge::Source;

#[derive(Debug)]
pub(crate) enum TurnEvent {
    Text(String),
    ToolStart {
        id: String,
        name: String,
        arguments: Value,
    },
    ToolEnd {
        id: String,
        name: String,
        is_error: bool,
        content: String,
        took: Duration,
    },
    /// Where an answer may come from, and the knowledge bases that did not answer.
    Sources {
        sources: Vec<Source>,
        unavailable: Vec<String>,
    },
    Guard(Guarded),
    Suggestions(Vec<String>),
    /// The last event of a turn that failed.
    Failed(Fault),
    /// The last event of a turn that came to an end.
    Done(Answer),
}

/// The answer of a turn.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) content: String,
    pub(crate) usage: Usage,
    pub(crate) stop: Stop,
    /// Whether the conversation has it.
    pub(crate) saved: bool,
}

impl Answer {
    /// A guard answers in place of the model.
    pub(crate) fn refused(content: String) -> Self {
        Self { content, usage: Usage::default(), stop: Stop::Guard, saved: false }
    }
}

/// Why a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Stop {
    EndTurn,
    /// The answer is as long as one may be.
    MaxTokens,
    /// The provider's own filter ended it.
    Filtered,
    /// As many rounds of tool calls as are allowed; the model then answered without tools.
    MaxRounds,
    TokenBudget,
    TimeBudget,
    Guard,
    Cancelled,
    Failed,
}

/// A guard that did something.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Guarded {
    pub(crate) guard: GuardName,
    pub(crate) action: Action,
    pub(crate) kind: String,
    pub(crate) side: Side,
    /// A policy asked for it, by the id in `kind`.
    #[serde(skip)]
    pub(crate) policy: bool,
}

impl Guarded {
    pub(crate) fn finding(finding: &Finding, side: Side) -> Self {
        Self { guard: finding.guard, action: finding.action, kind: finding.kind.clone(), side, policy: false }
    }

    pub(crate) fn breach(breach: &Breach, side: Side) -> Self {
        let kind = breach.policy.clone().unwrap_or_else(|| "limit".to_owned());
        Self { guard: breach.guard, action: breach.action, kind, side, policy: breach.policy.is_some() }
    }
}
