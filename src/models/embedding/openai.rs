//! OpenAI's `/embeddings` API, also of compatible servers.

use std::collections::BTreeMap;

use http::HeaderValue;
use serde_json::{Value, json};
use url::Url;

use super::Purpose;
use super::catalog::ResolvedModel;
use super::checked::{BatchLimit, EmbeddingApi, RawVectors};
use super::remote::{list, numbers, unreadable};
use crate::provider_settings::{self, Variables};
use crate::transport::{ProviderCall, Transport, TransportLimits};
use crate::{FaultKind, ModelFault};

/// OpenAI accepts 2048 texts of 300,000 tokens together; fewer texts keep the JSON answer small.
const BATCH_LIMIT: BatchLimit = BatchLimit { texts: 64, bytes: 300_000 };

/// The input limit of OpenAI's own models in tokens, which are never more than bytes. Longer texts are refused.
const MAX_TEXT_BYTES: usize = 8191;

/// The bytes tokenized at once.
const SLICE_BYTES: usize = 8 << 10;

pub(super) struct OpenAi {
    url: Url,
    key: Option<HeaderValue>,
    /// Compatible servers may need no key.
    needs_no_key: bool,
    model: String,
    shortened: Option<usize>,
    /// Whether texts are cut here.
    cuts: bool,
    transport: Transport,
}

impl OpenAi {
    pub(super) fn open(chosen: &ResolvedModel, variables: Variables<'_>) -> Result<Self, ModelFault> {
        let base = provider_settings::base(variables, "OPENAI_BASE_URL", "https://api.openai.com/v1")?;
        Ok(Self {
            url: provider_settings::under(&base, "embeddings")?,
            key: provider_settings::key(variables, &["OPENAI_API_KEY"], "Bearer ")?,
            needs_no_key: base.host_str() != Some("api.openai.com"),
            model: chosen.model.clone(),
            shortened: chosen.shortened,
            cuts: chosen.known.is_some(),
            transport: Transport::new("OpenAI", &chosen.model, TransportLimits::default()),
        })
    }

    fn call(&self, texts: &[String]) -> Result<ProviderCall, ModelFault> {
        let mut body = json!({"model": self.model, "input": texts});
        if let Some(length) = self.shortened {
            body["dimensions"] = length.into();
        }
        let call = ProviderCall::json(self.url.clone(), &body);
        match &self.key {
            Some(key) => Ok(call.header("authorization", key.clone())),
            None if self.needs_no_key => Ok(call),
            None => Err(provider_settings::missing("OPENAI_API_KEY")),
        }
    }
}

impl EmbeddingApi for OpenAi {
    fn batch(&self) -> BatchLimit {
        BATCH_LIMIT
    }

    fn vectors(&self, texts: Vec<String>, _purpose: Purpose) -> RawVectors<'_> {
        Box::pin(async move {
            let long = self.cuts && texts.iter().any(|text| text.len() > MAX_TEXT_BYTES);
            let texts = if long { cut_on_blocking_thread(texts).await? } else { texts };
            read(&self.transport.json(&self.call(&texts)?).await?)
        })
    }
}

/// The vectors, sorted by their index in the answer.
fn read(answer: &Value) -> Result<Vec<Vec<f32>>, ModelFault> {
    let data = list(answer, "data")?;
    let mut sorted = BTreeMap::new();
    for (place, entry) in data.iter().enumerate() {
        sorted.insert(entry["index"].as_u64().unwrap_or(place as u64), numbers(&entry["embedding"])?);
    }
    let whole = sorted.keys().zip(0..).all(|(index, place)| *index == place) && sorted.len() == data.len();
    if whole { Ok(sorted.into_values().collect()) } else { Err(unreadable("the vectors are not numbered one after the other")) }
}

/// Cuts texts on a blocking thread, because counting tokens takes long.
async fn cut_on_blocking_thread(texts: Vec<String>) -> Result<Vec<String>, ModelFault> {
    let cut = tokio::task::spawn_blocking(|| texts.into_iter().map(cut).collect());
    cut.await.map_err(|_| ModelFault::new(FaultKind::Broken, "a text could not be cut to what the model reads"))
}

/// The beginning of a text that fits the model. It is counted in slices, because the tokenizer takes quadratic time on a long
/// run without a break; the slices have hardly more tokens than the text.
fn cut(mut text: String) -> String {
    if text.len() <= MAX_TEXT_BYTES {
        return text;
    }
    let tokenizer = tiktoken_rs::cl100k_base_singleton();
    let (mut end, mut left) = (0, MAX_TEXT_BYTES);
    while end < text.len() && left > 0 {
        let slice = &text[end..text.floor_char_boundary(end + SLICE_BYTES)];
        let tokens = tokenizer.encode_ordinary(slice);
        let fitting = &tokens[..left.min(tokens.len())];
        left -= fitting.len();
        let length = tokenizer.decode_bytes(fitting).map_or(0, |bytes| bytes.len());
        // The last token may end within a character, which is dropped.
        end = text.floor_char_boundary(end + length);
        if fitting.len() < tokens.len() {
            break;
        }
    }
    text.truncate(end);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_are_put_into_the_order_of_their_numbers() {
        let entry = |index: u64, x: f32| json!({"index": index, "embedding": [x]});
        assert_eq!(read(&json!({"data": [entry(1, 0.5), entry(0, 0.25)]})).unwrap(), [[0.25], [0.5]]);
        for wrong in [json!({"data": [entry(0, 0.5), entry(0, 0.25)]}), json!({"data": [entry(1, 0.5), entry(2, 0.25)]}), json!({})] {
            assert_eq!(*read(&wrong).unwrap_err().kind(), FaultKind::Broken, "{wrong}");
        }
    }

    #[test]
    fn a_text_is_cut_to_what_the_model_reads() {
        let tokens = |text: &str| tiktoken_rs::cl100k_base_singleton().encode_ordinary(text).len();
        let short = "word ".repeat(2_000);
        assert_eq!(cut(short.clone()), short, "more bytes than the limit, but fewer tokens");
        for long in ["word ".repeat(20_000), "🦀日本".repeat(10_000), "a".repeat(100_000)] {
            let beginning = cut(long.clone());
            assert!(long.starts_with(&beginning));
            assert!((MAX_TEXT_BYTES - 16..=MAX_TEXT_BYTES).contains(&tokens(&beginning)), "{} tokens", tokens(&beginning));
        }
    }
}
