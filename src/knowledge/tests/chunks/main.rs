//! The chunker with real tokenizers, documents and embeddings: exact counts, speed, and how well what was cut is found again.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test tells by a panic what is wrong")]

mod faq;
mod lexical;
mod retrieval;
mod shipped;
mod tokens;

use slipway_knowledge::{Block, Chunk, ChunkSize, Chunker, TokenCounter};
use slipway_models::embedding::EmbeddingTokens;

/// The built-in model, and one of OpenAI's.
const MODELS: [&str; 2] = ["builtin:all-minilm-l6-v2", "openai:text-embedding-3-small"];

fn variables(name: &str) -> Option<String> {
    (name == "RUNTIME_EMBEDDING_DIR").then(|| slipway_peers::minilm().display().to_string())
}

fn counter(model: &str) -> impl TokenCounter + use<> {
    let tokens = EmbeddingTokens::open(model, &variables).unwrap();
    move |text: &str| tokens.count(text)
}

fn chunks(blocks: &[Block], size: ChunkSize, counter: impl TokenCounter) -> Vec<Chunk> {
    let mut found = Vec::new();
    let mut chunker = Chunker::new(size, counter);
    for block in blocks {
        chunker.push(block, &mut |chunk| found.push(chunk));
    }
    chunker.finish(&mut |chunk| found.push(chunk));
    found
}
