//! Vectors for chunks that another embedding model left without one.

use pgvector::HalfVector;
use sqlx::Row;

use super::base::{KnowledgeBase, half};
use super::ingestion::Ingestion;
use super::search::headings;
use super::types::{Unembedded, small};
use crate::Fault;
use crate::connection::ask;

impl KnowledgeBase {
    /// Chunks of documents behind this place, by revision and ordinal, that have no vector; none once all have.
    pub async fn unembedded(&self, after: Option<&(String, u32)>, most: u32) -> Result<Vec<Unembedded>, Fault> {
        let question = ask("SELECT revision, ordinal, section, content FROM slipway.unembedded($1, $2, $3, $4)").bind(&*self.kb);
        let (revision, ordinal) = after.map(|(revision, ordinal)| (revision.as_str(), small(*ordinal))).unzip();
        let rows = self.rows(question.bind(revision).bind(ordinal).bind(small(most))).await?;
        let read = |row: &sqlx::postgres::PgRow| {
            Ok(Unembedded {
                revision: row.try_get("revision")?,
                ordinal: row.try_get::<i32, _>("ordinal")?.unsigned_abs(),
                section: headings(row.try_get("section")?),
                content: row.try_get("content")?,
            })
        };
        rows.iter().map(read).collect()
    }
}

impl Ingestion {
    /// Vectors by this model for chunks that have none.
    pub async fn add_vectors(&self, model: &str, vectors: &[(&Unembedded, Vec<f32>)]) -> Result<(), Fault> {
        let revisions: Vec<&str> = vectors.iter().map(|(chunk, _)| chunk.revision.as_str()).collect();
        let ordinals: Vec<i32> = vectors.iter().map(|(chunk, _)| small(chunk.ordinal)).collect();
        let halves: Vec<HalfVector> = vectors.iter().map(|(_, vector)| half(vector)).collect::<Result<_, _>>()?;
        let question = self.mine(ask("SELECT slipway.add_vectors($1, $2, $3, $4, $5, $6, $7)")).bind(model);
        self.base.run(question.bind(revisions).bind(ordinals).bind(halves)).await
    }

    /// That all chunks have vectors by this model, so that nobody looks for others.
    pub async fn all_embedded(&self, model: &str) -> Result<(), Fault> {
        self.base.run(self.mine(ask("SELECT slipway.all_embedded($1, $2, $3, $4)")).bind(model)).await
    }
}
