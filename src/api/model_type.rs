//! The providers of models, and the patterns of fields that name a model with its provider.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::words::words;

words!(
    /// The provider of a model.
    ModelType {
        Stub = "stub",
        Ollama = "ollama",
        Openai = "openai",
        Anthropic = "anthropic",
        GoogleAi = "google-ai",
        VertexAi = "vertex-ai",
        Bedrock = "bedrock",
    }
);

/// The words of `ModelType` as alternatives of a pattern. A macro, because `concat!` takes no constants.
macro_rules! providers {
    () => {
        "stub|ollama|openai|anthropic|google-ai|vertex-ai|bedrock"
    };
}
pub(crate) use providers;

/// `provider:model_id`, or an empty text.
pub(crate) const MODEL_PATTERN: &str = concat!("^((", providers!(), "):.+)?$");
/// `provider:/model_id`, as judges are named.
pub(crate) const JUDGE_PATTERN: &str = concat!("^(", providers!(), "):/.+$");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_have_every_provider() {
        let words: Vec<_> = ModelType::ALL.iter().map(|provider| provider.as_str()).collect();
        assert_eq!(providers!(), words.join("|"));
    }
}
