//! The errors of model calls. The message is for the caller and says what to do; it never contains a key, nor the provider's
//! text about one.

use std::time::Duration;

use slipway_embedding::ModelFileFault;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ModelFault {
    kind: FaultKind,
    message: String,
    retry_after: Option<Duration>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FaultKind {
    /// An invalid setting.
    Misconfigured,
    MissingKey,
    Unauthorized,
    UnknownModel,
    ContextOverflow,
    RateLimited {
        retry_after: Option<Duration>,
    },
    Overloaded,
    Timeout,
    /// The provider does not accept the request (another 4xx).
    Refused,
    /// The answer was cut off or cannot be read.
    Broken,
    Unreachable,
}

impl FaultKind {
    /// The label value of metrics and traces.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Misconfigured => "misconfigured",
            Self::MissingKey => "missing_key",
            Self::Unauthorized => "unauthorized",
            Self::UnknownModel => "unknown_model",
            Self::ContextOverflow => "context_overflow",
            Self::RateLimited { .. } => "rate_limited",
            Self::Overloaded => "overloaded",
            Self::Timeout => "timeout",
            Self::Refused => "refused",
            Self::Broken => "broken",
            Self::Unreachable => "unreachable",
        }
    }
}

impl ModelFault {
    pub fn new(kind: FaultKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), retry_after: None }
    }

    pub fn kind(&self) -> &FaultKind {
        &self.kind
    }

    pub fn message(&self) -> &str {
        &self.message
    }

    /// The pause that the provider asks for.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    pub(crate) fn after(self, retry_after: Option<Duration>) -> Self {
        Self { retry_after, ..self }
    }

    pub(crate) fn without(self, secret: &str) -> Self {
        Self { message: self.message.replace(secret, "***"), ..self }
    }

    /// Whether the same request may succeed later.
    pub fn retryable(&self) -> bool {
        use FaultKind as Kind;
        match self.kind {
            Kind::RateLimited { .. } | Kind::Overloaded | Kind::Timeout | Kind::Broken | Kind::Unreachable => true,
            Kind::Misconfigured | Kind::MissingKey | Kind::Unauthorized | Kind::UnknownModel | Kind::ContextOverflow | Kind::Refused => {
                false
            }
        }
    }
}

/// The files of the built-in embedding model are a setting: `RUNTIME_EMBEDDING_DIR` names their folder.
impl From<ModelFileFault> for ModelFault {
    fn from(fault: ModelFileFault) -> Self {
        Self::new(FaultKind::Misconfigured, fault.to_string())
    }
}
