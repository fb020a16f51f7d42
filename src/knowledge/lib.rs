//! Documents to answers: a source lists documents, an extractor reads one into blocks, the chunker cuts blocks into chunks.
//! Each stage is a trait and a file per kind.

pub mod block;
pub mod budget;
pub mod chunk;
pub mod extract;
pub mod source;
pub mod subprocess;

pub use block::{Block, BlockKind};
pub use chunk::{Chunk, ChunkSize, Chunker, TokenCounter};
pub use extract::{Format, Unreadable};
