//! The built-in embedding engine, for models of all-MiniLM-L6-v2's kind. A `Network` reads a folder of model files and turns
//! texts into vectors; a `Vocabulary` counts the tokens of a text. Why it is written here stands in
//! `docs/decisions/006-embedding.md`. No network, no async; the only I/O is reading the files.

mod fault;
mod kernels;
mod network;
mod vocabulary;
mod weights;
mod words;

pub use fault::ModelFileFault;
pub use network::Network;
pub use vocabulary::Vocabulary;
