//! Why a toolbox cannot be opened: one refusal for each fault, so that all can be mended at once.

use thiserror::Error;

/// Names the tool and the field, and says what would be right.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("tool {tool}: {field}: {message}")]
pub struct Refusal {
    pub tool: String,
    pub field: &'static str,
    pub message: String,
}

impl Refusal {
    pub(crate) fn new(tool: &str, field: &'static str, message: impl Into<String>) -> Self {
        Self { tool: tool.to_owned(), field, message: message.into() }
    }
}
