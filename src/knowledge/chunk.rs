//! Cuts blocks into chunks of a number of tokens, with overlap, along sections. Blocks come one by one and chunks leave as soon
//! as they are full, so that a document's size does not decide how much memory it takes.
//!
//! A heading begins a new chunk. Within a section a chunk ends where a paragraph does, else a sentence, else a word. A table row
//! stays whole, and the table's head is repeated above rows that continue in the next chunk; a row that is longer than a chunk is
//! cut at cells. Code is cut at lines.

mod atoms;
mod choice;
mod chunker;
mod counts;
mod section;

pub use chunker::Chunker;
pub use section::embedded;

/// Counts tokens as the embedding model does. It is asked about single words with the blanks around them, each once as long as it
/// is remembered, so the tokens of a text must be about the sum of those of its words.
pub trait TokenCounter {
    fn count(&self, text: &str) -> u32;
}

impl<F: Fn(&str) -> u32> TokenCounter for F {
    fn count(&self, text: &str) -> u32 {
        self(text)
    }
}

/// A piece of a document that is embedded and found as one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// From 0, in reading order.
    pub ordinal: u32,
    /// The text of `start..end`; of a table that began in an earlier chunk, under a copy of its head.
    pub text: String,
    /// The page on which the chunk begins, its overlap apart.
    pub page: Option<u32>,
    /// The headings above the chunk, outermost first, each cut to `MAX_HEADING_CHARS`. Where several small sections share a chunk,
    /// the headings above all of them.
    pub section: Vec<String>,
    /// The tokens of what is embedded.
    pub tokens: u32,
    /// Where the chunk begins and ends in the document's text, which is its blocks with a line break after each, in bytes.
    /// The overlap with the chunk before is included.
    pub start: u64,
    pub end: u64,
    /// The bytes at the beginning that the chunk before has, too.
    pub overlap: u32,
    /// SHA-256 of what is embedded: the same hash, the same vector.
    pub hash: [u8; 32],
}

impl Chunk {
    /// The text to embed: the headings that the chunk's own text does not begin with, and the text. Most paragraphs do not name
    /// what they are about, because a heading does. `text` stays as it is in the document, so that it can be quoted.
    pub fn embedded(&self) -> String {
        section::embedded(&self.section, &self.text)
    }
}

/// The lengths of chunks, in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkSize {
    /// The most tokens of what is embedded, headings included. Headings take half of it at most.
    pub tokens: u32,
    /// The most tokens of a chunk's end that the next one of the same section repeats; a quarter of `tokens` at most.
    pub overlap: u32,
}

#[cfg(test)]
mod tests;
