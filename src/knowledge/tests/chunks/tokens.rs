//! Tokens of chunks, counted word by word, compared with those of the whole text.

use slipway_knowledge::{Block, BlockKind, ChunkSize};
use slipway_models::embedding::EmbeddingTokens;

use crate::{MODELS, chunks, counter, variables};

/// The documents of this repository, read line by line.
fn documents() -> Vec<Vec<Block>> {
    let folder = slipway_peers::repository().join("docs");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "md"));
    files.sort();
    let block = |text: &str| {
        let level = u8::try_from(text.bytes().take_while(|&byte| byte == b'#').count()).unwrap_or(0);
        let kind = match text {
            _ if level > 0 => BlockKind::Heading(level),
            _ if text.starts_with("| ") => BlockKind::TableRow,
            _ if text.starts_with("    ") => BlockKind::Code,
            _ => BlockKind::Paragraph,
        };
        Block { kind, text: text.trim_end().trim_start_matches(['#', ' ']).to_owned(), page: None }
    };
    let read = |file| std::fs::read_to_string(file).unwrap();
    // Texts of more than a kilobyte are counted in slices, and a cut may add a token.
    let is_told = |line: &&str| !line.trim().is_empty() && line.len() < 1000;
    files.into_iter().map(|file| read(file).lines().filter(is_told).map(block).collect()).collect()
}

#[test]
fn tokens_of_chunks_are_those_of_the_model() {
    let documents = documents();
    assert!(documents.len() > 10);
    for model in MODELS {
        let tokens = EmbeddingTokens::open(model, &variables).unwrap();
        for (blocks, size) in documents.iter().flat_map(|blocks| [256, 384, 512].map(|size| (blocks, size))) {
            for chunk in chunks(blocks, ChunkSize { tokens: size, overlap: size / 10 }, counter(model)) {
                // Line by line, for the same reason.
                let counted: u32 = chunk.embedded().split_inclusive('\n').map(|line| tokens.count(line)).sum();
                assert_eq!(chunk.tokens, counted, "{model}: {:?}", chunk.embedded());
                assert!(counted <= size, "{model}: {counted} of {size}: {:?}", chunk.embedded());
            }
        }
    }
}
