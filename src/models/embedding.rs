//! Embeddings of texts, for memory and knowledge bases. `open` builds an `Embedder` from a name such as
//! `builtin:all-minilm-l6-v2`. An embedder returns one normalised vector of the announced length for each text, in order. It
//! cuts texts that exceed the model's input, and refuses blank ones; `PassageEmbedder` reads long texts to their end. Vectors of different embedders must never be compared:
//! store `id` with them.

mod builtin;
mod catalog;
mod checked;
mod counter;
mod ollama;
mod openai;
mod passages;
mod remote;
mod vertex_ai;
mod windows;

use std::fmt;
use std::future::Future;
use std::pin::Pin;

pub use catalog::{open, window};
pub use counter::EmbeddingTokens;
pub use passages::PassageEmbedder;

use crate::ModelFault;

/// The purpose of an embedding. Some models need to know whether a text is a query or a passage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    Query,
    Passage,
}

/// A vector of length one, so that the dot product of two is their cosine.
#[derive(Clone, PartialEq)]
pub struct Vector(pub Vec<f32>);

pub type Vectors<'a> = Pin<Box<dyn Future<Output = Result<Vec<Vector>, ModelFault>> + Send + 'a>>;

pub trait Embedder: Send + Sync {
    /// `provider:model`, with `?dimensions=` if they differ from the model's default.
    fn id(&self) -> &str;

    fn dimensions(&self) -> usize;

    /// One vector per text, in order, or a fault that names the text.
    fn embed<'a>(&'a self, texts: &'a [String], purpose: Purpose) -> Vectors<'a>;
}

impl Vector {
    /// The cosine of the angle to another vector of the same embedder: 1 for the same meaning, about 0 for unrelated ones.
    pub fn cosine(&self, other: &Self) -> f32 {
        self.0.iter().zip(&other.0).map(|(a, b)| a * b).sum()
    }
}

/// Shortened: hundreds of numbers are of no use in logs.
impl fmt::Debug for Vector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Vector({} dimensions)", self.0.len())
    }
}
