//! The part that all embedders share: refuses blank texts, adds the model's prefixes, splits texts into batches, runs a few of
//! them at once, and validates count, length and numbers of the answers.

use std::future::Future;
use std::pin::Pin;

use futures::{StreamExt, TryStreamExt};

use super::catalog::{CatalogEntry, ResolvedModel};
use super::{Embedder, Purpose, Vector, Vectors};
use crate::{FaultKind, ModelFault};

/// Concurrent batches. More would exceed the rate limits of small accounts.
const MAX_CONCURRENT_BATCHES: usize = 4;

pub(super) type RawVectors<'a> = Pin<Box<dyn Future<Output = Result<Vec<Vec<f32>>, ModelFault>> + Send + 'a>>;

/// The limits of one request. Bytes are an upper bound of tokens.
#[derive(Debug, Clone, Copy)]
pub(super) struct BatchLimit {
    pub(super) texts: usize,
    pub(super) bytes: usize,
}

/// The API of one provider.
pub(super) trait EmbeddingApi: Send + Sync {
    fn batch(&self) -> BatchLimit;

    /// The unchecked vectors of one batch.
    fn vectors(&self, texts: Vec<String>, purpose: Purpose) -> RawVectors<'_>;
}

pub(super) struct CheckedEmbedder {
    id: String,
    dimensions: usize,
    known: Option<&'static CatalogEntry>,
    source: Box<dyn EmbeddingApi>,
}

impl CheckedEmbedder {
    pub(super) fn new(chosen: &ResolvedModel, source: Box<dyn EmbeddingApi>) -> Self {
        Self { id: chosen.id(), dimensions: chosen.dimensions, known: chosen.known, source }
    }

    fn prepared(&self, texts: &[String], purpose: Purpose) -> Result<Vec<String>, ModelFault> {
        let prefix = self.known.map_or("", |known| known.prefix(purpose));
        let prepared = texts.iter().enumerate().map(|(index, text)| {
            if text.trim().is_empty() {
                return Err(blank(index, texts.len()));
            }
            Ok(format!("{prefix}{text}"))
        });
        prepared.collect()
    }

    fn validated(&self, asked: usize, raw: Vec<Vec<f32>>) -> Result<Vec<Vector>, ModelFault> {
        let broken = |why: String| ModelFault::new(FaultKind::Broken, format!("{} answered {why}", self.id));
        if raw.len() != asked {
            return Err(broken(format!("{} vectors for {asked} texts", raw.len())));
        }
        let vectors = raw.into_iter().map(|numbers| {
            if numbers.len() != self.dimensions {
                return Err(broken(format!("a vector of {} dimensions where {} were expected", numbers.len(), self.dimensions)));
            }
            normalised(numbers).ok_or_else(|| broken("a vector without a direction".to_owned()))
        });
        vectors.collect()
    }
}

impl Embedder for CheckedEmbedder {
    fn id(&self) -> &str {
        &self.id
    }

    fn dimensions(&self) -> usize {
        self.dimensions
    }

    fn embed<'a>(&'a self, texts: &'a [String], purpose: Purpose) -> Vectors<'a> {
        Box::pin(async move {
            let batches = split(self.prepared(texts, purpose)?, self.source.batch());
            let answers = futures::stream::iter(batches).map(|batch| async move {
                let asked = batch.len();
                self.validated(asked, self.source.vectors(batch, purpose).await?)
            });
            let parts: Vec<Vec<Vector>> = answers.buffered(MAX_CONCURRENT_BATCHES).try_collect().await?;
            Ok(parts.into_iter().flatten().collect())
        })
    }
}

pub(super) fn blank(index: usize, texts: usize) -> ModelFault {
    let which = format!("text {} of {texts}", index + 1);
    ModelFault::new(FaultKind::Refused, format!("{which} is blank: there is nothing to embed; leave it out"))
}

/// Splits texts into as few batches as possible, in order. A text that exceeds the limit gets a batch of its own.
fn split(texts: Vec<String>, limit: BatchLimit) -> Vec<Vec<String>> {
    let mut batches: Vec<Vec<String>> = Vec::new();
    let mut bytes = 0;
    for text in texts {
        match batches.last_mut() {
            Some(batch) if batch.len() < limit.texts && bytes + text.len() <= limit.bytes => {
                bytes += text.len();
                batch.push(text);
            }
            _ => {
                bytes = text.len();
                batches.push(vec![text]);
            }
        }
    }
    batches
}

/// `None` if all numbers are zero or one is not finite. Summed in f64, where no square of an f32 overflows.
pub(super) fn normalised(mut numbers: Vec<f32>) -> Option<Vector> {
    let length = numbers.iter().map(|&number| f64::from(number).powi(2)).sum::<f64>().sqrt();
    if !length.is_finite() || length < f64::from(f32::MIN_POSITIVE) {
        return None;
    }
    for number in &mut numbers {
        #[expect(clippy::cast_possible_truncation, reason = "it came from an f32 and lies between -1 and 1")]
        let scaled = (f64::from(*number) / length) as f32;
        *number = scaled;
    }
    Some(Vector(numbers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_split_in_order_into_what_is_accepted() {
        let limit = BatchLimit { texts: 3, bytes: 10 };
        for (lengths, expected) in [
            (vec![], vec![]),
            (vec![1, 1, 1, 1], vec![vec![1, 1, 1], vec![1]]),
            (vec![6, 4, 1], vec![vec![6, 4], vec![1]]),
            (vec![5, 6, 11, 2], vec![vec![5], vec![6], vec![11], vec![2]]),
        ] {
            let texts = lengths.iter().map(|&length| "x".repeat(length)).collect();
            let found: Vec<Vec<usize>> = split(texts, limit).iter().map(|batch| batch.iter().map(String::len).collect()).collect();
            assert_eq!(found, expected, "{lengths:?}");
        }
    }

    #[test]
    fn a_vector_is_made_of_length_one_or_refused() {
        assert_eq!(normalised(vec![3.0, 4.0]), Some(Vector(vec![0.6, 0.8])));
        assert_eq!(normalised(vec![1e38, 0.0]), Some(Vector(vec![1.0, 0.0])), "squares do not overflow");
        for without in [vec![], vec![0.0, 0.0], vec![f32::NAN, 1.0], vec![f32::INFINITY, 1.0]] {
            assert_eq!(normalised(without.clone()), None, "{without:?}");
        }
    }
}
