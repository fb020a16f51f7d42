//! Embeds passages of any length: what exceeds the model's window is read in several, and the vector is their mean, weighted by
//! tokens. `Embedder::embed` cuts instead, which is right for queries.

use super::catalog::{self, ResolvedModel};
use super::checked::{blank, normalised};
use super::counter::EmbeddingTokens;
use super::windows::{Window, windows};
use super::{Embedder, Purpose, Vector};
use crate::{FaultKind, ModelFault};

/// The most bytes of windows that are copied and sent at once.
const MAX_BATCH_BYTES: usize = 256 << 10;

/// An embedder and what it needs to know of the model to read texts to their end.
pub struct PassageEmbedder {
    embedder: Box<dyn Embedder>,
    tokens: EmbeddingTokens,
    /// The most tokens of a window's text.
    room: u32,
}

impl PassageEmbedder {
    /// Opens a model by its name, as `open` does.
    pub fn open(uri: &str, variables: &dyn Fn(&str) -> Option<String>) -> Result<Self, ModelFault> {
        let model = catalog::choose(uri)?;
        let tokens = EmbeddingTokens::of(&model, variables)?;
        Ok(Self { embedder: catalog::open(uri, variables)?, room: room(&model, &tokens), tokens })
    }

    /// For queries, which are cut.
    pub fn embedder(&self) -> &dyn Embedder {
        self.embedder.as_ref()
    }

    pub fn tokens(&self) -> &EmbeddingTokens {
        &self.tokens
    }

    /// One vector per text, in order, or a fault that names the text.
    pub async fn embed(&self, texts: &[String]) -> Result<Vec<Vector>, ModelFault> {
        let mut means: Vec<Mean> = Vec::with_capacity(texts.len());
        let mut batch = Batch::default();
        for (index, text) in texts.iter().enumerate() {
            let parts = windows(text, self.room, |text| self.tokens.count(text));
            if parts.is_empty() {
                return Err(blank(index, texts.len()));
            }
            means.push(Mean::default());
            for part in parts {
                batch.add(index, part);
                if batch.bytes >= MAX_BATCH_BYTES {
                    self.read(std::mem::take(&mut batch), &mut means).await?;
                }
            }
        }
        self.read(batch, &mut means).await?;
        means.into_iter().map(Mean::vector).collect()
    }

    async fn read(&self, batch: Batch, means: &mut [Mean]) -> Result<(), ModelFault> {
        let vectors = self.embedder.embed(&batch.texts, Purpose::Passage).await?;
        for ((index, tokens), vector) in batch.places.into_iter().zip(vectors) {
            means[index].add(vector, tokens);
        }
        Ok(())
    }
}

/// The window without special tokens and prefix; where tokens are estimated, with a margin of a quarter.
fn room(model: &ResolvedModel, tokens: &EmbeddingTokens) -> u32 {
    let prefix = tokens.count(model.prefix(Purpose::Passage));
    let room = model.window().saturating_sub(model.tokenizer().specials() + prefix);
    if tokens.exact() { room } else { room - room / 4 }
}

/// Windows of several texts, each with its text's index and its tokens.
#[derive(Default)]
struct Batch {
    texts: Vec<String>,
    places: Vec<(usize, u32)>,
    bytes: usize,
}

impl Batch {
    fn add(&mut self, index: usize, part: Window<'_>) {
        self.texts.push(part.text.to_owned());
        self.places.push((index, part.tokens.max(1)));
        self.bytes += part.text.len();
    }
}

/// The mean of a text's windows.
#[derive(Default)]
struct Mean {
    sum: Vec<f32>,
}

impl Mean {
    fn add(&mut self, vector: Vector, tokens: u32) {
        #[expect(clippy::cast_precision_loss, reason = "windows have thousands of tokens at most")]
        let weight = tokens as f32;
        if self.sum.is_empty() {
            self.sum = vec![0.0; vector.0.len()];
        }
        for (sum, x) in self.sum.iter_mut().zip(vector.0) {
            *sum += weight * x;
        }
    }

    fn vector(self) -> Result<Vector, ModelFault> {
        let opposed = || ModelFault::new(FaultKind::Broken, "the windows of a text have opposite vectors");
        normalised(self.sum).ok_or_else(opposed)
    }
}
