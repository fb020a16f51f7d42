//! The words of a verdict: which guard found what, where, and what follows from it.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A guard, as `RUNTIME_GUARDS`, the `guard` event and the metrics spell it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Name {
    PiiDetection,
    SecretsScanner,
    PromptInjection,
    BlockedTopics,
    MaxTokens,
    RateLimit,
    SpendLimit,
    Latency,
}

impl Name {
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
        }
    }

    pub(crate) fn read(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|name| name.as_str() == text)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What comes in (from a person, a tool or a document) and what the model says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    Input,
    Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// Told, nothing more.
    Warn,
    /// The found text is replaced by its kind, as in `[EMAIL]`.
    Mask,
    /// The turn ends here.
    Block,
}

/// What was found and where, in bytes of the text that was checked; never the found text itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub guard: Name,
    pub kind: String,
    pub span: Range<usize>,
    pub action: Action,
}

/// Why a turn ends, in words that the caller may read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Block {
    pub guard: Name,
    pub message: String,
    /// When it is worth trying again; only limits know.
    pub retry_after: Option<Duration>,
}

impl Block {
    /// Says which kind was found, not the text: the message may end in a log.
    pub(crate) fn found(guard: Name, kind: &str) -> Self {
        let message = match guard {
            Name::SecretsScanner => format!("refused by {guard}: the text holds a secret ({kind}); remove it and revoke it if it was real"),
            Name::PiiDetection => format!("refused by {guard}: the text holds personal data ({kind}); remove it and try again"),
            Name::PromptInjection => format!("refused by {guard}: the text tries to change the agent's instructions ({kind})"),
            Name::BlockedTopics => format!("refused by {guard}: this agent does not speak about {kind}"),
            _ => format!("refused by {guard}: {kind}"),
        };
        Self { guard, message, retry_after: None }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict<'a> {
    /// In the order of their places in the text.
    pub findings: Vec<Finding>,
    /// The text with everything masked that is to be masked, secrets that block included: it may be stored.
    pub text: Cow<'a, str>,
    pub blocked: Option<Block>,
}
