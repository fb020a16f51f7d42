//! The error of the engine: a file of the model is missing, damaged or of another model.

/// The message names the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ModelFileFault(String);

impl ModelFileFault {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}
