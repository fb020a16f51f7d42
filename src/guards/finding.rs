//! The types of a verdict: guard, kind, position and action of each finding.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::rule::PolicyRule;

/// The name of a guard in `RUNTIME_GUARDS`, the `guard` event and metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GuardName {
    PiiDetection,
    SecretsScanner,
    PromptInjection,
    BlockedTopics,
    MaxTokens,
    RateLimit,
    SpendLimit,
    Latency,
    /// These three are rules of policies only.
    DeniedTools,
    AllowedModels,
    RequiredGuards,
}

impl GuardName {
    /// Those that may stand in `RUNTIME_GUARDS`.
    pub const ALL: [Self; 8] = [
        Self::PiiDetection,
        Self::SecretsScanner,
        Self::PromptInjection,
        Self::BlockedTopics,
        Self::MaxTokens,
        Self::RateLimit,
        Self::SpendLimit,
        Self::Latency,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PiiDetection => "pii-detection",
            Self::SecretsScanner => "secrets-scanner",
            Self::PromptInjection => "prompt-injection",
            Self::BlockedTopics => "blocked-topics",
            Self::MaxTokens => "max-tokens",
            Self::RateLimit => "rate-limit",
            Self::SpendLimit => "spend-limit",
            Self::Latency => "latency",
            Self::DeniedTools => "denied-tools",
            Self::AllowedModels => "allowed-models",
            Self::RequiredGuards => "required-guards",
        }
    }

    pub(crate) fn read(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|name| name.as_str() == text)
    }
}

impl fmt::Display for GuardName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Input (from a user, a tool or a document) or output of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    Input,
    Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// The finding is reported only.
    Warn,
    /// The found text is replaced by its kind, as in `[EMAIL]`.
    Mask,
    /// The turn ends.
    Block,
}

/// A finding, with its span in bytes of the checked text and without the found text itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub guard: GuardName,
    pub kind: String,
    pub span: Range<usize>,
    pub action: Action,
    /// Where a policy asked for it.
    #[serde(skip)]
    pub policy: Option<PolicyRule>,
}

/// The reason for ending a turn, with a message for the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    pub guard: GuardName,
    pub message: String,
    /// The time until a retry can succeed; set by limits only.
    pub retry_after: Option<Duration>,
    /// The rule of a policy that ends it.
    pub policy: Option<PolicyRule>,
}

impl Block {
    /// The message names the kind and not the text, because it may be logged.
    pub(crate) fn of(finding: &Finding) -> Self {
        let Finding { guard, kind, policy, .. } = finding;
        let by = policy.as_ref().map_or_else(|| guard.to_string(), |asker| format!("{guard} (policy {})", asker.policy));
        let message = match guard {
            GuardName::SecretsScanner => {
                format!("refused by {by}: the text holds a secret ({kind}); remove it and revoke it if it was real")
            }
            GuardName::PiiDetection => format!("refused by {by}: the text holds personal data ({kind}); remove it and try again"),
            GuardName::PromptInjection => format!("refused by {by}: the text tries to change the agent's instructions ({kind})"),
            GuardName::BlockedTopics => format!("refused by {by}: this agent does not speak about {kind}"),
            _ => format!("refused by {by}: {kind}"),
        };
        Self { guard: *guard, message, retry_after: None, policy: policy.clone() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict<'a> {
    /// Sorted by position.
    pub findings: Vec<Finding>,
    /// The masked text, which may be stored: findings that block are masked as well.
    pub text: Cow<'a, str>,
    pub blocked: Option<Block>,
}
