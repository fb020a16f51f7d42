//! Cuts blocks into chunks of a number of tokens, with overlap, along sections.

/// Counts tokens as the embedding model does.
pub trait TokenCounter {
    fn count(&self, text: &str) -> u32;
}

/// A piece of a document that is embedded and found as one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// From 0, in reading order.
    pub ordinal: u32,
    pub text: String,
    /// The page on which the chunk begins.
    pub page: Option<u32>,
    /// The headings above the chunk, outermost first.
    pub section: Vec<String>,
    pub tokens: u32,
    /// Where the chunk begins and ends in the document's text, which is its blocks with a line break after each, in bytes.
    pub start: u64,
    pub end: u64,
    /// SHA-256 of what is embedded: the same hash, the same vector.
    pub hash: [u8; 32],
}

/// The lengths of chunks, in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkSize {
    pub tokens: u32,
    pub overlap: u32,
}
