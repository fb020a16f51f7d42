//! Where answers come from. A model is given a prompt and returns its answer in fragments as they
//! come; whoever asked decides whether to send them on or to wait for all.

mod stub;

use std::pin::Pin;

use futures::Stream;
use serde::Serialize;

pub(crate) use stub::Echo;

/// What a model is asked.
#[derive(Debug)]
pub(crate) struct Prompt {
    pub(crate) message: String,
}

/// A part of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    Text(String),
    /// Comes once, last.
    Usage(Usage),
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Usage {
    pub(crate) input_tokens: u64,
    pub(crate) output_tokens: u64,
}

/// Why an answer did not come, or ended early. The text is for the log.
#[derive(Debug, thiserror::Error)]
#[error("the model failed: {0}")]
pub(crate) struct Fault(pub(crate) String);

pub(crate) type Answer = Pin<Box<dyn Stream<Item = Result<Piece, Fault>> + Send>>;

pub(crate) trait Model: Send + Sync {
    fn answer(&self, prompt: Prompt) -> Answer;
}
