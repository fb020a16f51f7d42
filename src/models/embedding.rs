//! Texts to vectors, for memory and knowledge bases. `open` makes an `Embedder` of a name such as
//! `builtin:all-minilm-l6-v2`. Whatever the provider, an embedder keeps the order of the texts, gives one
//! normalised vector of the announced length for each, cuts a text that is longer than the model reads, and
//! refuses a blank one, which means nothing. Vectors of different embedders must never be compared: keep
//! `id` beside them.

mod builtin;
mod catalog;
mod checked;
mod kernels;
mod network;
mod ollama;
mod openai;
mod remote;
mod safetensors;
mod vertex_ai;
mod vocabulary;
mod words;

use std::fmt;
use std::future::Future;
use std::pin::Pin;

pub use catalog::open;

use crate::Fault;

/// What a text is embedded for. Some models put questions and what answers them into the same space only when told
/// which is which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    Query,
    Passage,
}

/// A direction in the model's space; its length is one, so that a dot product is the cosine.
#[derive(Clone, PartialEq)]
pub struct Vector(pub Vec<f32>);

pub type Vectors<'a> = Pin<Box<dyn Future<Output = Result<Vec<Vector>, Fault>> + Send + 'a>>;

pub trait Embedder: Send + Sync {
    /// `provider:model`, and `?dimensions=` where they are not the model's own.
    fn id(&self) -> &str;

    fn dimensions(&self) -> usize;

    /// One vector for each text, in their order. All or none: a fault says which text it is about.
    fn embed<'a>(&'a self, texts: &'a [String], purpose: Purpose) -> Vectors<'a>;
}

impl Vector {
    /// The cosine of the angle to another vector of the same embedder: 1 for the same meaning, about 0 for unrelated ones.
    pub fn cosine(&self, other: &Self) -> f32 {
        self.0.iter().zip(&other.0).map(|(a, b)| a * b).sum()
    }
}

/// Hundreds of numbers tell a reader of logs nothing.
impl fmt::Debug for Vector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Vector({} dimensions)", self.0.len())
    }
}
