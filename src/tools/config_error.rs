//! The errors of a toolbox's configuration. Opening a toolbox returns all of them at once.

use thiserror::Error;

/// An invalid field of a tool, with a message that says what is valid.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("tool {tool}: {field}: {message}")]
pub struct ConfigError {
    pub tool: String,
    pub field: &'static str,
    pub message: String,
}

impl ConfigError {
    pub(crate) fn new(tool: &str, field: &'static str, message: impl Into<String>) -> Self {
        Self { tool: tool.to_owned(), field, message: message.into() }
    }
}
