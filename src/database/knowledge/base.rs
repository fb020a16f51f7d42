//! One knowledge base, by its team's login: the door of ingestions, workers and agents.
//!
//! Everything is done by functions of the database, which find the team by the login. Only where all teams share one login
//! does the setting `slipway.team` of each transaction name it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use pgvector::HalfVector;
use sqlx::Row;

use super::types::{self, Counts, DOCUMENT, StoredDocument, document, small};
use crate::connection::{Door, Question, Work, ask, in_long_time, in_time, settings};
use crate::{Fault, Page, id};

const MAX_CONNECTIONS: u32 = 4;
const MAX_DIMENSIONS: usize = 4_000;
/// How many chunks that are shown no more go in one transaction.
const SWEPT: i32 = 5_000;

/// Where a knowledge base is, and whose.
#[derive(Clone)]
pub struct KnowledgeOptions {
    /// Of the sibling database, as `RUNTIME_KNOWLEDGE_BASES` has it.
    pub url: String,
    /// Takes the place of a password in the URL.
    pub password: Option<String>,
    /// Takes the place of the URL's `sslmode`.
    pub sslmode: Option<String>,
    /// The team's id, as `RUNTIME_TEAM` has it.
    pub team: String,
    pub kb_id: String,
    /// 1 to 4; 2 are enough for an ingestion and its heartbeat.
    pub connections: u32,
}

impl fmt::Debug for KnowledgeOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { url: _, password: _, sslmode, team, kb_id, connections } = self;
        f.debug_struct("KnowledgeOptions")
            .field("sslmode", sslmode)
            .field("team", team)
            .field("kb_id", kb_id)
            .field("connections", connections)
            .finish_non_exhaustive()
    }
}

#[derive(Clone)]
pub struct KnowledgeBase {
    pub(super) door: Arc<Door>,
    pub(super) kb: Arc<str>,
}

impl fmt::Debug for KnowledgeBase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KnowledgeBase").field("kb", &self.kb).finish_non_exhaustive()
    }
}

impl KnowledgeBase {
    /// Connects to nothing yet.
    pub fn open(options: &KnowledgeOptions) -> Result<Self, Fault> {
        id::check("team", &options.team)?;
        id::check("knowledge base", &options.kb_id)?;
        let settings = settings(&options.url, options.password.as_deref(), options.sslmode.as_deref())?;
        // The types of vectors are in our schema, where nobody but its owner can create anything.
        let statements = format!("SET LOCAL search_path = pg_catalog, slipway, pg_temp; SET LOCAL slipway.team = '{}'", options.team);
        let door = Door::new(settings, options.connections.clamp(1, MAX_CONNECTIONS)).with_statements(&statements);
        Ok(Self { door: Arc::new(door), kb: options.kb_id.as_str().into() })
    }

    /// Another base of the same team, through the same connections.
    pub fn other(&self, kb_id: &str) -> Result<Self, Fault> {
        id::check("knowledge base", kb_id)?;
        Ok(Self { door: Arc::clone(&self.door), kb: kb_id.into() })
    }

    /// The embedding model and the dimensions of the base's vectors; `None` until an ingestion has fixed them.
    pub async fn model(&self) -> Result<Option<(String, u32)>, Fault> {
        in_time(async {
            let mut work = self.door.begin().await?;
            let row = ask("SELECT model, dimensions FROM slipway.base($1)").bind(&*self.kb).fetch_one(&mut *work).await?;
            work.commit().await?;
            let (model, dimensions): (Option<String>, Option<i32>) = (row.try_get("model")?, row.try_get("dimensions")?);
            Ok(model.zip(dimensions.map(i32::unsigned_abs)))
        })
        .await
    }

    /// The first model stays: another one is refused.
    pub async fn fix_model(&self, model: &str, dimensions: u32) -> Result<(), Fault> {
        check_dimensions(dimensions as usize)?;
        self.run(ask("SELECT slipway.fix_model($1, $2, $3)").bind(&*self.kb).bind(model).bind(small(dimensions))).await?;
        Ok(())
    }

    /// Which of these texts, by their hashes, have vectors already. In the precision of half a float, as they are kept.
    pub async fn vectors_of(&self, hashes: &[[u8; 32]]) -> Result<Vec<([u8; 32], Vec<f32>)>, Fault> {
        // As numbers: a type that the driver has to look up among a statement's results ends a statement without a name.
        const FOUND: &str = "SELECT hash, embedding::real[] AS embedding FROM slipway.vectors_of($1, $2)";
        let mut found = Vec::new();
        for hashes in hashes.chunks(500) {
            let hashes: Vec<&[u8]> = hashes.iter().map(<[u8; 32]>::as_slice).collect();
            let rows = self.rows(ask(FOUND).bind(&*self.kb).bind(hashes)).await?;
            for row in rows {
                let hash: &[u8] = row.try_get("hash")?;
                let hash = hash.try_into().map_err(|_| Fault::Broken("a hash has not 32 bytes".to_owned()))?;
                found.push((hash, row.try_get("embedding")?));
            }
        }
        Ok(found)
    }

    /// The newest first.
    pub async fn documents(&self, limit: u32, cursor: Option<&str>) -> Result<Page<StoredDocument>, Fault> {
        let limit = limit.clamp(1, 1_000);
        let query = sqlx::AssertSqlSafe(format!("SELECT {DOCUMENT} FROM slipway.list_documents($1, $2, $3) d"));
        let rows = self.rows(ask(query).bind(&*self.kb).bind(cursor).bind(small(limit + 1))).await?;
        Ok(page(rows.iter().map(document).collect::<Result<_, _>>()?, limit))
    }

    pub async fn counts(&self) -> Result<Counts, Fault> {
        let rows = self.rows(ask("SELECT * FROM slipway.count_documents($1)").bind(&*self.kb)).await?;
        rows.first().map_or(Ok(Counts::default()), types::counts)
    }

    /// Whether there was such a document. From then on nothing of it is found.
    pub async fn remove_document(&self, document_id: &str) -> Result<bool, Fault> {
        let removed = self.hide(None, &[document_id]).await?;
        self.sweep().await?;
        Ok(removed > 0)
    }

    /// Removes all documents of a source; how many there were. From then on nothing of them is found, and [`Self::sweep`] deletes
    /// their chunks.
    pub async fn remove_source(&self, source: &str) -> Result<u64, Fault> {
        let mut removed = 0;
        loop {
            let batch = self.hide(Some(source), &[]).await?;
            removed += batch;
            if batch == 0 {
                return Ok(removed);
            }
        }
    }

    /// Removes documents, some of a whole source at once, and leaves their chunks to a sweep.
    async fn hide(&self, source: Option<&str>, ids: &[&str]) -> Result<u64, Fault> {
        let question = ask("SELECT slipway.remove_documents($1, $2, NULL, $3) AS removed").bind(&*self.kb).bind(source).bind(ids);
        self.count(question, "removed").await
    }

    /// Deletes chunks that are shown no more. Whatever cuts this off leaves the rest to the next time.
    pub async fn sweep(&self) -> Result<(), Fault> {
        loop {
            let rows = self.rows(ask("SELECT slipway.sweep($1, $2) AS more").bind(&*self.kb).bind(SWEPT)).await?;
            if !rows.first().map_or(Ok(false), |row| row.try_get("more"))? {
                return Ok(());
            }
        }
    }

    /// Makes the index of vectors, if the base has `threshold` of them and it has none, and takes stock of its words. A writer
    /// to the base meanwhile waits or is refused with a fault that passes; searches go on. False if another is at it.
    pub async fn build(&self, threshold: u32) -> Result<bool, Fault> {
        const LIMIT: Duration = Duration::from_hours(2);
        let building = async {
            let mut work = self.door.begin_long().await?;
            sqlx::Executor::execute(&mut *work, "SET LOCAL statement_timeout = '2h'").await?;
            let row = ask("SELECT slipway.build($1, $2) AS built").bind(&*self.kb).bind(i64::from(threshold)).fetch_one(&mut *work).await?;
            work.commit().await?;
            Ok(row.try_get("built")?)
        };
        match tokio::time::timeout(LIMIT, building).await {
            Ok(outcome) => outcome,
            Err(_) => Err(Fault::Unavailable("the index of vectors was not built in time".to_owned())),
        }
    }

    /// One statement in a transaction of its own, with the limits of work in the background.
    pub(super) async fn rows(&self, question: Question<'_>) -> Result<Vec<sqlx::postgres::PgRow>, Fault> {
        in_long_time(async {
            let mut work: Work = self.door.begin_long().await?;
            let rows = question.fetch_all(&mut *work).await?;
            work.commit().await?;
            Ok(rows)
        })
        .await
    }

    pub(super) async fn run(&self, question: Question<'_>) -> Result<(), Fault> {
        self.rows(question).await.map(|_| ())
    }

    pub(super) async fn count(&self, question: Question<'_>, column: &str) -> Result<u64, Fault> {
        let rows = self.rows(question).await?;
        Ok(rows.first().map_or(Ok(0_i64), |row| row.try_get(column))?.unsigned_abs())
    }
}

/// A page and whether there is another, of one document more than it has.
pub(super) fn page(mut items: Vec<StoredDocument>, limit: u32) -> Page<StoredDocument> {
    let more = items.len() > limit as usize;
    items.truncate(limit as usize);
    let next_cursor = items.last().filter(|_| more).map(|last| last.id.clone());
    Page { items, next_cursor }
}

pub(super) fn check_dimensions(dimensions: usize) -> Result<(), Fault> {
    if (1..=MAX_DIMENSIONS).contains(&dimensions) {
        return Ok(());
    }
    Err(Fault::Refused(format!("vectors have 1 to {MAX_DIMENSIONS} dimensions")))
}

/// As it is kept. What would be no direction in half a float is refused.
pub(super) fn half(vector: &[f32]) -> Result<HalfVector, Fault> {
    check_dimensions(vector.len())?;
    let half = HalfVector::from_f32_slice(vector);
    if half.as_slice().iter().any(|value| !value.is_finite()) {
        return Err(Fault::Refused("a vector has numbers that half a float cannot hold".to_owned()));
    }
    if half.as_slice().iter().all(|value| value.to_f32() == 0.0) {
        return Err(Fault::Refused("a vector is zero and has no direction".to_owned()));
    }
    Ok(half)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_without_direction_is_refused() {
        for vector in [&[][..], &[0.0, 0.0], &[1e-9, 0.0], &[1e6, 1.0], &[f32::NAN, 1.0], &[1.0; 4_001]] {
            assert!(matches!(half(vector), Err(Fault::Refused(_))), "{} dimensions", vector.len());
        }
        assert_eq!(half(&[0.5, -0.25]).unwrap().as_slice().len(), 2);
    }

    #[test]
    fn options_do_not_show_a_password() {
        let options = KnowledgeOptions {
            url: "postgresql://u:hunter2@h/d".into(),
            password: Some("hunter2".into()),
            sslmode: None,
            team: "tk_a".into(),
            kb_id: "kb_docs".into(),
            connections: 2,
        };
        assert!(!format!("{options:?}").contains("hunter2"));
    }
}
