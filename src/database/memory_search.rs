//! Searching memories: by vectors where there are any, in full text otherwise.
//!
//! Vectors are compared one by one, over the rows of one agent. An approximate index would hold all teams'
//! vectors together and give the nearest of them all, of which few or none might be this agent's; docs/database.md
//! has the measurements.

use sqlx::{PgConnection, Row};

use crate::connection::{ask, in_time};
use crate::conversation::clean;
use crate::memory::{ENTRY, check_embedding, entry};
use crate::types::{Embedding, MemoryEntry};
use crate::{Fault, Store, id};

const MAX_RESULTS: u32 = 100;
/// A longer query is cut: each word is compared with each memory.
const MAX_QUERY_CHARS: usize = 500;

impl Store {
    /// The most relevant first. Memories that have no vector of the embedding's model are searched in full text,
    /// and fill what places the others leave.
    pub async fn search_memories(&self, query: &str, embedding: Option<&Embedding>, top_k: u32) -> Result<Vec<MemoryEntry>, Fault> {
        let top = i64::from(top_k.clamp(1, MAX_RESULTS));
        embedding.map_or(Ok(()), check_embedding)?;
        let query: String = clean(query).chars().take(MAX_QUERY_CHARS).collect();
        in_time(async {
            let (mut work, schema) = self.begin().await?;
            let found = match (embedding, &schema.vectors) {
                (Some(embedding), Some(vectors)) => {
                    let nearest = self.nearest(&mut work, vectors, embedding, top).await?;
                    let mut found: Vec<_> = nearest.into_iter().map(|(entry, _)| entry).collect();
                    let places = top - i64::try_from(found.len()).unwrap_or(top);
                    if places > 0 {
                        found.extend(self.in_text(&mut work, &query, Some(embedding), places).await?);
                    }
                    found
                }
                _ => self.in_text(&mut work, &query, None, top).await?,
            };
            work.commit().await?;
            Ok(found)
        })
        .await
    }

    /// Memories that no vector of this model stands for, the oldest first: what to embed after a change of models.
    /// Empty when there is nowhere to keep vectors.
    pub async fn unembedded(&self, model: &str, limit: u32) -> Result<Vec<MemoryEntry>, Fault> {
        let query = sqlx::AssertSqlSafe(format!(
            "SELECT {ENTRY} FROM slipway.memories m WHERE team = $1 AND agent_id = $2 AND NOT EXISTS (
                 SELECT 1 FROM slipway.memory_vectors v
                 WHERE v.team = $1 AND v.agent_id = $2 AND v.memory_id = m.id AND v.model = $3)
             ORDER BY id LIMIT $4"
        ));
        in_time(async {
            let (mut work, schema) = self.begin().await?;
            if schema.vectors.is_none() {
                work.commit().await?;
                return Ok(Vec::new());
            }
            let limit = i64::from(limit.clamp(1, MAX_RESULTS));
            let rows = ask(query).bind(&self.team).bind(&self.agent).bind(clean(model)).bind(limit).fetch_all(&mut *work).await?;
            work.commit().await?;
            rows.iter().map(|row| entry(row, None)).collect()
        })
        .await
    }

    /// Gives a memory its vector, in place of one of another model. Whether there was such a memory, and somewhere
    /// to keep the vector.
    pub async fn embed(&self, memory_id: &str, embedding: &Embedding) -> Result<bool, Fault> {
        const THERE: &str = "SELECT 1 FROM slipway.memories WHERE team = $1 AND agent_id = $2 AND id = $3 FOR UPDATE";
        id::check("memory id", memory_id)?;
        check_embedding(embedding)?;
        in_time(async {
            let (mut work, schema) = self.begin().await?;
            let there = ask(THERE).bind(&self.team).bind(&self.agent).bind(memory_id).fetch_optional(&mut *work).await?;
            let vectors = schema.vectors.filter(|_| there.is_some());
            if let Some(vectors) = &vectors {
                self.write_vector(&mut work, vectors, memory_id, embedding).await?;
            }
            work.commit().await?;
            Ok(vectors.is_some())
        })
        .await
    }

    pub(crate) async fn write_vector(&self, work: &mut PgConnection, vectors: &str, id: &str, embedding: &Embedding) -> Result<(), Fault> {
        let query = sqlx::AssertSqlSafe(format!(
            "INSERT INTO slipway.memory_vectors (team, agent_id, memory_id, model, dimensions, embedding)
             VALUES ($1, $2, $3, $4, cardinality($5::real[]), $5::real[]::{vectors}.vector)
             ON CONFLICT (team, agent_id, memory_id) DO UPDATE
             SET model = excluded.model, dimensions = excluded.dimensions, embedding = excluded.embedding"
        ));
        ask(query).bind(&self.team).bind(&self.agent).bind(id).bind(&embedding.model).bind(&embedding.vector).execute(work).await?;
        Ok(())
    }

    /// The nearest by cosine, which is also told as it is, below 0 too.
    pub(crate) async fn nearest(
        &self,
        work: &mut PgConnection,
        vectors: &str,
        embedding: &Embedding,
        limit: i64,
    ) -> Result<Vec<(MemoryEntry, f64)>, Fault> {
        let query = sqlx::AssertSqlSafe(format!(
            "SELECT {ENTRY}, 1 - near.distance AS cosine
             FROM (SELECT memory_id, embedding OPERATOR({vectors}.<=>) $3::real[]::{vectors}.vector AS distance
                   FROM slipway.memory_vectors
                   WHERE team = $1 AND agent_id = $2 AND model = $4 AND dimensions = cardinality($3::real[])
                   ORDER BY distance LIMIT $5) near
             JOIN slipway.memories m ON m.team = $1 AND m.agent_id = $2 AND m.id = near.memory_id
             ORDER BY near.distance, m.id DESC"
        ));
        let rows = ask(query)
            .bind(&self.team)
            .bind(&self.agent)
            .bind(&embedding.vector)
            .bind(&embedding.model)
            .bind(limit)
            .fetch_all(work)
            .await?;
        rows.iter()
            .map(|row| {
                let cosine: f64 = row.try_get("cosine")?;
                Ok((entry(row, Some(cosine.clamp(0.0, 1.0)))?, cosine))
            })
            .collect()
    }

    /// `unlike`: only memories without a vector of this embedding's model and dimension.
    ///
    /// Whole queries, with their phrases, exclusions and the words as they stand, come first; after them, unless
    /// something was excluded, whatever has any of the words.
    async fn in_text(
        &self,
        work: &mut PgConnection,
        query: &str,
        unlike: Option<&Embedding>,
        limit: i64,
    ) -> Result<Vec<MemoryEntry>, Fault> {
        let without = match unlike {
            Some(_) => {
                "AND NOT EXISTS (SELECT 1 FROM slipway.memory_vectors v WHERE v.team = $1 AND v.agent_id = $2
                 AND v.memory_id = m.id AND v.model = $5 AND v.dimensions = $6)"
            }
            None => "AND $5::text IS NULL AND $6::integer IS NULL",
        };
        let query_text = sqlx::AssertSqlSafe(format!(
            "WITH asked AS MATERIALIZED (
                 SELECT websearch_to_tsquery('english', $3) || websearch_to_tsquery('simple', $3) AS whole,
                        CASE WHEN websearch_to_tsquery('english', $3)::text LIKE '%!%' THEN NULL
                             ELSE replace(websearch_to_tsquery('english', $3)::text, ' & ', ' | ')::tsquery END AS any_word,
                        ARRAY(SELECT array_to_tsvector(ARRAY[word])::text::tsquery
                              FROM unnest(tsvector_to_array(to_tsvector('english', $3))) word) AS words)
             SELECT {ENTRY}, share FROM (
                 SELECT m.*, ts_rank_cd(document, coalesce(any_word, whole)) AS rank,
                        CASE WHEN document @@ whole OR cardinality(words) = 0 THEN 1
                             ELSE (SELECT count(*) FROM unnest(words) word WHERE document @@ word)::float8
                                  / cardinality(words) END::float8 AS share
                 FROM slipway.memories m, asked
                 WHERE team = $1 AND agent_id = $2 AND (document @@ whole OR document @@ any_word) {without}) found
             ORDER BY share DESC, rank DESC, id DESC LIMIT $4"
        ));
        let dimensions = unlike.map(|embedding| i32::try_from(embedding.vector.len()).unwrap_or(i32::MAX));
        let rows = ask(query_text)
            .bind(&self.team)
            .bind(&self.agent)
            .bind(query)
            .bind(limit)
            .bind(unlike.map(|embedding| &embedding.model))
            .bind(dimensions)
            .fetch_all(work)
            .await?;
        rows.iter().map(|row| entry(row, Some(row.try_get("share")?))).collect()
    }
}
