//! Counts tokens as an embedding model does: with the vocabulary in the built-in model's folder for models of BERT's family, and
//! with OpenAI's for its models. Others are estimated by OpenAI's newest vocabulary, which is larger than most.

use std::sync::Arc;

use slipway_embedding::Vocabulary;
use tiktoken_rs::CoreBPE;

use super::builtin;
use super::catalog::{self, Provider, ResolvedModel, Tokenizer};
use crate::ModelFault;
use crate::provider_settings::Variables;
use crate::tokens::vocabulary;

/// The tokens of texts for an embedding model, without the special ones. Cheap to clone.
#[derive(Clone)]
pub struct EmbeddingTokens(Counter);

#[derive(Clone)]
enum Counter {
    Pieces(Arc<Vocabulary>),
    Exact(&'static CoreBPE),
    Estimate(&'static CoreBPE),
}

impl EmbeddingTokens {
    /// The counter of a model, named as for `open`. Without the built-in model's folder, other models of its family are
    /// estimated. Loads a vocabulary, which takes a moment and, for models other than BERT's, tens of megabytes.
    pub fn open(uri: &str, variables: &dyn Fn(&str) -> Option<String>) -> Result<Self, ModelFault> {
        Self::of(&catalog::choose(uri)?, variables)
    }

    pub(super) fn of(model: &ResolvedModel, variables: Variables<'_>) -> Result<Self, ModelFault> {
        let estimate = || Counter::Estimate(tiktoken_rs::o200k_base_singleton());
        Ok(Self(match model.tokenizer() {
            Tokenizer::Bert => match Vocabulary::read(&builtin::folder(variables).join("vocab.txt")) {
                Ok(vocabulary) => Counter::Pieces(Arc::new(vocabulary)),
                Err(fault) if model.provider == Provider::Builtin => return Err(fault.into()),
                Err(_) => estimate(),
            },
            Tokenizer::Cl100k => Counter::Exact(tiktoken_rs::cl100k_base_singleton()),
            Tokenizer::Unknown => estimate(),
        }))
    }

    pub fn count(&self, text: &str) -> u32 {
        let tokens = match &self.0 {
            Counter::Pieces(vocabulary) => vocabulary.count(text) as u64,
            Counter::Exact(words) | Counter::Estimate(words) => vocabulary::count(words, text),
        };
        u32::try_from(tokens).unwrap_or(u32::MAX)
    }

    /// Whether the vocabulary is the model's own.
    pub fn exact(&self) -> bool {
        !matches!(self.0, Counter::Estimate(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(uri: &str) -> EmbeddingTokens {
        EmbeddingTokens::open(uri, &|_| Some(slipway_peers::minilm().display().to_string())).unwrap()
    }

    #[test]
    fn models_of_berts_family_are_counted_as_the_reference_does() {
        // Of the cases in `src/embedding/testdata/minilm.json`, without the special tokens.
        let cases = [
            ("The cat sits on the mat.", 7),
            ("Quarterly revenue grew by 12.5% to $3,141,592.65 (unaudited)!?", 25),
            ("Crème brûlée, naïve façade, Ångström; Straße and İstanbul.", 17),
            ("日本語のテキストと中文字符，한국어 문장도 있습니다。", 32),
        ];
        for uri in ["builtin:all-minilm-l6-v2", "nomic-embed-text", "mxbai-embed-large", "ollama:all-minilm"] {
            let tokens = opened(uri);
            assert!(tokens.exact());
            for (text, expected) in cases {
                assert_eq!(tokens.count(text), expected, "{uri}: {text:?}");
            }
        }
    }

    #[test]
    fn openais_models_are_counted_as_it_publishes() {
        // From the OpenAI cookbook, "How to count tokens with tiktoken".
        let (own, other) = (opened("text-embedding-3-small"), opened("gemini-embedding-001"));
        assert!(own.exact() && !other.exact());
        for (text, cl100k, o200k) in
            [("tiktoken is great!", 6, 6), ("antidisestablishmentarianism", 6, 6), ("2 + 2 = 4", 7, 7), ("お誕生日おめでとう", 9, 8)]
        {
            assert_eq!((own.count(text), other.count(text)), (cl100k, o200k), "{text}");
        }
    }

    #[test]
    fn without_the_vocabulary_a_model_is_estimated_or_refused() {
        let nowhere = |_: &str| Some("/nowhere".to_owned());
        assert!(!EmbeddingTokens::open("nomic-embed-text", &nowhere).unwrap().exact());
        let fault = EmbeddingTokens::open("builtin:all-minilm-l6-v2", &nowhere).err().unwrap();
        assert!(fault.message().contains("/nowhere/vocab.txt"), "{fault}");
    }
}
