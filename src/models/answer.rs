//! What a model answers: a stream of pieces, given out as they come. A stream that ends without
//! `Stopped` and without a fault does not exist.

use std::pin::Pin;

use futures::Stream;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::fault::Fault;
use crate::message::{Request, ToolCall};
use crate::provider::Provider;

#[derive(Debug, Clone, PartialEq)]
pub enum Piece {
    Text(String),
    /// Always a whole call, however many fragments it came in.
    ToolCall(ToolCall),
    /// Comes at most once.
    Usage(Usage),
    /// Comes once, last.
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
    /// The provider's own word for it.
    Other(String),
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// All tokens of the prompt, those from a cache included.
    pub input_tokens: u64,
    /// All tokens the model wrote, those of its reasoning included.
    pub output_tokens: u64,
    /// The part of `input_tokens` that was read from the provider's prompt cache.
    #[serde(default)]
    pub cached_input_tokens: u64,
}

/// A count of tokens as a provider tells it. No call has as many as cannot be believed, and sums of those that can do not
/// overflow.
pub(crate) fn tokens(count: &Value) -> Option<u64> {
    count.as_u64().map(|count| count.min(u32::MAX.into()))
}

pub type Answer = Pin<Box<dyn Stream<Item = Result<Piece, Fault>> + Send>>;

pub trait Model: Send + Sync {
    /// Nothing is sent before the answer is polled; dropping it ends the call. After a fault
    /// nothing more comes.
    fn answer(&self, request: Request) -> Answer;
    fn provider(&self) -> Provider;
    fn id(&self) -> &str;
    /// How many tokens fit into the model, prompt and answer together.
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
