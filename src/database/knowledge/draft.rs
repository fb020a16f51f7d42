//! A document that is being written: chunk by chunk in short transactions, shown to nobody until it is published at once.

use pgvector::HalfVector;

use super::base::half;
use super::ingestion::Ingestion;
use super::types::{DocumentMeta, NewChunk, signed, small};
use crate::Fault;
use crate::connection::ask;
use crate::conversation::clean;

/// Chunks go together up to a number and a size.
const BATCH_CHUNKS: usize = 256;
const BATCH_BYTES: usize = 2 << 20;

/// Dropped without being published, it is as if it had never been; its chunks are deleted an hour later, and until then their
/// vectors are found by [`super::KnowledgeBase::vectors_of`].
#[derive(Debug)]
pub struct Draft {
    ingestion: Ingestion,
    revision: String,
    batch: Vec<NewChunk>,
    bytes: usize,
}

impl Draft {
    pub(super) fn new(ingestion: Ingestion, revision: String) -> Self {
        Self { ingestion, revision, batch: Vec::new(), bytes: 0 }
    }

    /// Takes a chunk, and writes once there are enough together.
    pub async fn add(&mut self, chunk: NewChunk) -> Result<(), Fault> {
        self.bytes += chunk.text.len() + chunk.vector.as_ref().map_or(0, |vector| vector.len() * 4) + 200;
        self.batch.push(chunk);
        if self.batch.len() >= BATCH_CHUNKS || self.bytes >= BATCH_BYTES { self.flush().await } else { Ok(()) }
    }

    /// Writes what has been added so far, so that its vectors are not lost with this process.
    pub async fn flush(&mut self) -> Result<(), Fault> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let batch = std::mem::take(&mut self.batch);
        self.bytes = 0;
        let vectors: Vec<Option<HalfVector>> =
            batch.iter().map(|chunk| chunk.vector.as_deref().map(half).transpose()).collect::<Result<_, _>>()?;
        let column = |value: &dyn Fn(&NewChunk) -> i64| batch.iter().map(value).collect::<Vec<_>>();
        let ordinals: Vec<i32> = batch.iter().map(|chunk| small(chunk.ordinal)).collect();
        let pages: Vec<Option<i32>> = batch.iter().map(|chunk| chunk.page.map(small)).collect();
        let tokens: Vec<i32> = batch.iter().map(|chunk| small(chunk.tokens)).collect();
        let hashes: Vec<&[u8]> = batch.iter().map(|chunk| chunk.hash.as_slice()).collect();
        let sections: Vec<String> = batch.iter().map(|chunk| section(&chunk.section)).collect();
        let contents: Vec<String> = batch.iter().map(|chunk| clean(&chunk.text)).collect();
        let question = self
            .ingestion
            .mine(ask("SELECT slipway.add_chunks($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)"))
            .bind(&self.revision)
            .bind(ordinals)
            .bind(pages)
            .bind(tokens)
            .bind(column(&|chunk| signed(chunk.start)))
            .bind(column(&|chunk| signed(chunk.end)))
            .bind(hashes)
            .bind(sections)
            .bind(contents)
            .bind(vectors);
        self.ingestion.base.run(question).await
    }

    /// Shows the document, in place of what was shown under its key; returns its id, which stays the same for a key.
    pub async fn publish(mut self, meta: &DocumentMeta) -> Result<String, Fault> {
        self.flush().await?;
        self.ingestion.publish(Some(&self.revision), meta, None).await
    }
}

/// Headings, one a line.
fn section(headings: &[String]) -> String {
    let line = |heading: &String| heading.split(['\n', '\r', '\0']).collect::<Vec<_>>().join(" ");
    headings.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heading_is_one_line() {
        assert_eq!(section(&["a\nb".into(), "c".into()]), "a b\nc");
        assert_eq!(section(&[]), "");
    }
}
