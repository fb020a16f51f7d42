//! The embedding model of a base, and vectors for chunks that another one left without.

use pgvector::HalfVector;
use sqlx::Row;

use super::base::{KnowledgeBase, check_dimensions, half};
use super::ingestion::Ingestion;
use super::search::headings;
use super::types::{Unembedded, small};
use crate::Fault;
use crate::connection::ask;

/// What came of wanting a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelUse {
    /// All vectors are by it, or will be.
    Kept,
    /// It takes the place of this one. All vectors went at once, and every document needs work in the next ingestion of its
    /// source, whatever its version. What is not read again gets its vectors from [`KnowledgeBase::unembedded`]; until then it is
    /// found in full text. Documents that are being written are refused when they are published.
    Replaced { former: String },
    /// Another one has been chosen since: which.
    Outdated { present: String },
}

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
    /// Chooses the base's model: the one that this generation of the KnowledgeBase's spec wants. An ingestion of an earlier one, which
    /// is tried again, changes nothing.
    pub async fn use_model(&self, model: &str, dimensions: u32, generation: i64) -> Result<ModelUse, Fault> {
        check_dimensions(dimensions as usize)?;
        let question = self.mine(ask("SELECT outcome, former FROM slipway.use_model($1, $2, $3, $4, $5, $6)"));
        let rows = self.base.rows(question.bind(model).bind(small(dimensions)).bind(generation)).await?;
        let row = rows.first().ok_or_else(|| Fault::Broken("the choice of a model had no outcome".to_owned()))?;
        let former = || Ok::<_, Fault>(row.try_get::<Option<String>, _>("former")?.unwrap_or_default());
        Ok(match row.try_get("outcome")? {
            "outdated" => ModelUse::Outdated { present: former()? },
            "replaced" => ModelUse::Replaced { former: former()? },
            _ => ModelUse::Kept,
        })
    }

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
