//! The events of a turn.

use std::time::Duration;

use serde::{Serialize, Serializer};
use serde_json::Value;
use slipway_database::Stage;
use slipway_guards::{Action, Breach, Finding, GuardName, PolicyRule, Ruled, Side};
use slipway_models::{ModelFault, Usage};

use crate::knowledge::PassageSource;

/// In place of the name of a tool that there is not: the model made it up, and no guard has judged it.
pub(crate) const UNKNOWN: &str = "unknown";
/// Why an answer is incomplete.
pub(crate) const OUT_OF_TIME: &str = "the time for its answer ran out before that was whole";
pub(crate) const OUT_OF_TOKENS: &str = "the tokens for its answer ran out before that was whole";

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
        sources: Vec<PassageSource>,
        unavailable: Vec<String>,
    },
    Guard(Guarded),
    Suggestions(Vec<String>),
    /// The last event of a turn that failed.
    Failed(ModelFault),
    /// The last event of a turn that came to an end.
    Done(TurnAnswer),
}

/// The answer of a turn.
#[derive(Debug, Clone)]
pub(crate) struct TurnAnswer {
    pub(crate) content: String,
    pub(crate) usage: Usage,
    pub(crate) stop: Stop,
    /// Whether the conversation has it.
    pub(crate) saved: bool,
}

impl TurnAnswer {
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

impl Stop {
    /// How an answer ended that a budget of the turn has cut off, in words.
    pub(crate) const fn cut_off(self) -> Option<&'static str> {
        match self {
            Self::TimeBudget => Some(OUT_OF_TIME),
            Self::TokenBudget => Some(OUT_OF_TOKENS),
            _ => None,
        }
    }
}

/// A guard that did something.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Guarded {
    pub(crate) guard: GuardName,
    pub(crate) action: Action,
    pub(crate) kind: String,
    pub(crate) side: Side,
    /// The policy that asked for it.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "policy_id")]
    pub(crate) policy: Option<PolicyRule>,
    #[serde(skip)]
    pub(crate) stage: Stage,
}

impl Guarded {
    pub(crate) fn finding(finding: &Finding, side: Side) -> Self {
        let Finding { guard, action, kind, policy, span: _ } = finding.clone();
        let stage = match side {
            Side::Input => Stage::Input,
            Side::Output => Stage::Output,
        };
        Self { guard, action, kind, side, policy, stage }
    }

    pub(crate) fn breach(breach: &Breach, side: Side) -> Self {
        let kind = breach.policy.as_ref().map_or_else(|| "limit".to_owned(), |rule| rule.policy.to_string());
        Self { guard: breach.guard, action: breach.action, kind, side, policy: breach.policy.clone(), stage: Stage::Limit }
    }

    pub(crate) fn ruled(ruled: &Ruled) -> Self {
        let Ruled { guard, kind, action, policy } = ruled.clone();
        let (side, stage) = match guard {
            GuardName::DeniedTools => (Side::Output, Stage::Tool),
            GuardName::AllowedModels => (Side::Input, Stage::Model),
            _ => (Side::Input, Stage::Input),
        };
        Self { guard, action, kind, side, policy: Some(policy), stage }
    }
}

#[expect(clippy::ref_option, reason = "serde calls it so")]
fn policy_id<S: Serializer>(rule: &Option<PolicyRule>, serializer: S) -> Result<S::Ok, S::Error> {
    rule.as_ref().map(|rule| &*rule.policy).serialize(serializer)
}
