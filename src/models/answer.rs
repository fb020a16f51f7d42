//! The answer of a model: a stream of pieces, which always ends with `Stopped` or a fault.

use std::pin::Pin;

use futures::Stream;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::fault::ModelFault;
use crate::message::{ModelRequest, ToolCall};
use crate::provider::Provider;

#[derive(Debug, Clone, PartialEq)]
pub enum Piece {
    Text(String),
    /// A complete call.
    ToolCall(ToolCall),
    /// Emitted at most once.
    Usage(Usage),
    /// Emitted once, last.
    Stopped(Stop),
}

/// Why the model stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    EndTurn,
    ToolUse,
    MaxTokens,
    /// The provider withheld the answer or the rest of it.
    Filtered,
    /// Another reason, in the provider's term.
    Other(String),
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// All tokens of the prompt, including cached ones.
    pub input_tokens: u64,
    /// All tokens of the answer, including reasoning.
    pub output_tokens: u64,
    /// The part of `input_tokens` from the provider's prompt cache.
    #[serde(default)]
    pub cached_input_tokens: u64,
}

/// A token count in a provider's answer. Implausible counts are dropped, so that sums do not overflow.
pub(crate) fn tokens(count: &Value) -> Option<u64> {
    count.as_u64().map(|count| count.min(u32::MAX.into()))
}

pub type Answer = Pin<Box<dyn Stream<Item = Result<Piece, ModelFault>> + Send>>;

pub trait Model: Send + Sync {
    /// Nothing is sent before the answer is polled; dropping it ends the call. A fault ends the stream.
    fn answer(&self, request: ModelRequest) -> Answer;
    fn provider(&self) -> Provider;
    fn id(&self) -> &str;
    /// The context window in tokens, for prompt and answer together.
    fn window(&self) -> u32;
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn counts_that_cannot_be_believed_are_cut() {
        for (told, expected) in [(json!(7), Some(7)), (json!(u64::MAX), Some(u64::from(u32::MAX))), (json!(-1), None), (json!("7"), None)] {
            assert_eq!(tokens(&told), expected, "{told}");
        }
    }
}
