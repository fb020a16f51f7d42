//! An ingestion: one process that has one source of a base to itself, for as long as it reports.
//!
//! A process that has lost its ingestion to another is refused whatever it still writes.

use std::time::Duration;

use sqlx::Row;
use sqlx::postgres::PgRow;

use super::base::KnowledgeBase;
use super::draft::Draft;
use super::types::{DocumentMeta, Ending, NewChunk, Report, json};
use crate::connection::{Question, ask};
use crate::conversation::clean;
use crate::{Fault, id};

/// How long after its last report an ingestion may be taken over by another process.
pub const LEASE_DURATION: Duration = Duration::from_mins(1);
/// The longest key or filename of a document, and name of a source, in bytes.
pub const MAX_NAME_BYTES: usize = 1_024;
/// How many keys go in one statement.
const KEYS: usize = 1_000;

/// What came of wanting to ingest.
#[derive(Debug)]
pub enum Begun {
    Ingestion(Ingestion),
    /// Another process ingests this source: which Ingestion it runs, and for how long at least.
    Held {
        by: String,
        remaining: Duration,
    },
    /// This Ingestion has succeeded before.
    Succeeded,
}

/// A document as a source lists it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    pub key: String,
    /// None if the source tells none.
    pub version: Option<String>,
    pub filename: String,
    pub uri: String,
}

/// A document that a source lists and that needs work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    pub key: String,
    /// SHA-256 of the bytes that are shown of it. If what is fetched has the same, [`Ingestion::mark_seen`] is enough.
    pub content_hash: Option<[u8; 32]>,
}

/// What came of removing what a source no longer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// How many documents went.
    Removed(u64),
    /// The source has next to nothing of what was indexed, so that nothing went: how many documents it has, and how many not.
    Doubtful { found: u64, missing: u64 },
}

#[derive(Clone, Debug)]
pub struct Ingestion {
    pub(super) base: KnowledgeBase,
    pub(super) uid: String,
    /// This process, this time: what an earlier attempt of the same Ingestion has seen does not count as seen.
    pub(super) holder: String,
}

impl KnowledgeBase {
    /// `uid` is the Ingestion's, `source` names the source within the base.
    pub async fn begin_ingestion(&self, uid: &str, source: &str) -> Result<Begun, Fault> {
        id::check("uid of an ingestion", uid)?;
        check_text("name of a source", source)?;
        let holder = id::new("ing");
        let question = ask("SELECT * FROM slipway.begin_ingestion($1, $2, $3, $4)").bind(&*self.kb).bind(uid).bind(source).bind(&holder);
        let rows = self.rows(question).await?;
        let row = rows.first().ok_or_else(|| Fault::Broken("an ingestion neither began nor was held".to_owned()))?;
        Ok(match row.try_get("outcome")? {
            "begun" => Begun::Ingestion(Ingestion { base: self.clone(), uid: uid.to_owned(), holder }),
            "held" => {
                let seconds: f64 = row.try_get("held_for")?;
                Begun::Held { by: row.try_get("held_by")?, remaining: Duration::from_secs_f64(seconds.clamp(0.0, 3_600.0)) }
            }
            _ => Begun::Succeeded,
        })
    }
}

impl Ingestion {
    pub fn base(&self) -> &KnowledgeBase {
        &self.base
    }

    /// Reports, which is also the heartbeat: at least every 20 s. False once another process has the ingestion, or it has
    /// ended: then there is nothing more to do here.
    pub async fn report(&self, report: &Report) -> Result<bool, Fault> {
        self.send(report, false).await
    }

    /// Ends it. An ingestion that succeeds has been [`Self::settle`]d before. False if another process has it.
    pub async fn end(&self, report: &Report, ending: Ending) -> Result<bool, Fault> {
        let phase = ending.as_str();
        self.base.run(ask("SELECT slipway.discard_drafts($1, $2)").bind(&*self.base.kb).bind(&self.holder)).await?;
        self.send(&Report { phase: phase.to_owned(), ..report.clone() }, true).await
    }

    /// What follows the last document: deletes what is shown no more and makes the index. It may take minutes; reports go on.
    pub async fn settle(&self, threshold: u32) -> Result<(), Fault> {
        self.base.sweep().await?;
        self.base.build(threshold).await?;
        Ok(())
    }

    async fn send(&self, report: &Report, ends: bool) -> Result<bool, Fault> {
        let report = json(report)?.to_string();
        let question = ask("SELECT slipway.report_ingestion($1, $2, $3, $4::jsonb, $5) AS held");
        let rows = self.base.rows(self.mine(question).bind(report).bind(ends)).await?;
        Ok(rows.first().map_or(Ok(false), |row| row.try_get("held"))?)
    }

    /// Of documents that the source lists, those that need work: new, of another version or format, or not readable the last
    /// time. The others are marked as seen, under the names that they have now.
    pub async fn changed(&self, listed: &[Listed]) -> Result<Vec<Changed>, Fault> {
        let mut changed = Vec::new();
        for listed in listed.chunks(KEYS) {
            let question = ask("SELECT key, content_hash FROM slipway.changed($1, $2, $3, $4, $5, $6, $7)");
            for row in self.base.rows(of_listed(self.mine(question), listed)?).await? {
                let hash: Option<&[u8]> = row.try_get("content_hash")?;
                changed.push(Changed { key: row.try_get("key")?, content_hash: hash.and_then(|hash| hash.try_into().ok()) });
            }
        }
        Ok(changed)
    }

    /// Documents that need no work after all, such as ones whose content is the same under a new version. How many are known.
    pub async fn mark_seen(&self, seen: &[Listed]) -> Result<u64, Fault> {
        let mut marked = 0;
        for seen in seen.chunks(KEYS) {
            let question = ask("SELECT slipway.mark_seen($1, $2, $3, $4, $5, $6, $7) AS marked");
            marked += self.base.count(of_listed(self.mine(question), seen)?, "marked").await?;
        }
        Ok(marked)
    }

    /// Begins a document that is shown once it is published. One may be written for an hour between two batches.
    pub async fn draft(&self) -> Result<Draft, Fault> {
        let rows = self.base.rows(self.mine(ask("SELECT slipway.begin_draft($1, $2, $3) AS revision"))).await?;
        let row = rows.first().ok_or_else(|| Fault::Broken("a draft did not begin".to_owned()))?;
        Ok(Draft::new(self.clone(), row.try_get("revision")?))
    }

    /// A whole document, in place of what was shown under its key; returns its id.
    pub async fn put_document(&self, meta: &DocumentMeta, chunks: Vec<NewChunk>) -> Result<String, Fault> {
        let mut draft = self.draft().await?;
        for chunk in chunks {
            draft.add(chunk).await?;
        }
        draft.publish(meta).await
    }

    /// A document that could not be read. What an earlier state of it has put here stays, and the next ingestion tries again.
    pub async fn fail_document(&self, meta: &DocumentMeta, error: &str) -> Result<String, Fault> {
        self.publish(None, meta, Some(error)).await
    }

    /// Removes the documents of the source that this ingestion has not seen. Only after a complete traversal. Unless it is
    /// confirmed, nothing goes if next to nothing of what was indexed was found.
    pub async fn remove_unseen(&self, confirmed: bool) -> Result<Removal, Fault> {
        const REMOVE: &str = "SELECT removed, found, missing FROM slipway.remove_unseen($1, $2, $3, $4)";
        let mut removed = 0;
        loop {
            match removal(&self.base.rows(self.mine(ask(REMOVE)).bind(confirmed)).await?)? {
                Removal::Removed(0) => {
                    self.base.sweep().await?;
                    return Ok(Removal::Removed(removed));
                }
                Removal::Removed(batch) => removed += batch,
                doubtful @ Removal::Doubtful { .. } => return Ok(doubtful),
            }
        }
    }

    pub(super) async fn publish(&self, revision: Option<&str>, meta: &DocumentMeta, error: Option<&str>) -> Result<String, Fault> {
        check_text("key of a document", &meta.key)?;
        check_text("filename", &meta.filename)?;
        let mut value = json(meta)?;
        if let (Some(object), Some(error)) = (value.as_object_mut(), error) {
            object.insert("error".to_owned(), clean(error).chars().take(2_000).collect::<String>().into());
        }
        let question = self.mine(ask("SELECT slipway.publish($1, $2, $3, $4, $5, $6::jsonb, $7) AS id"));
        let question = question.bind(revision).bind(id::new("doc")).bind(value.to_string());
        let rows = self.base.rows(question.bind(meta.content_hash.as_ref().map(<[u8; 32]>::as_slice))).await?;
        let row = rows.first().ok_or_else(|| Fault::Broken("a document was published without an id".to_owned()))?;
        Ok(row.try_get("id")?)
    }

    /// The first three parameters of every function that only the holder may call.
    pub(super) fn mine<'q>(&'q self, question: Question<'q>) -> Question<'q> {
        question.bind(&*self.base.kb).bind(&self.uid).bind(&self.holder)
    }
}

/// The outcome of one statement that removes.
pub(super) fn removal(rows: &[PgRow]) -> Result<Removal, Fault> {
    let row = rows.first().ok_or_else(|| Fault::Broken("a removal had no outcome".to_owned()))?;
    let count = |name| Ok::<u64, Fault>(row.try_get::<i64, _>(name)?.unsigned_abs());
    Ok(match row.try_get::<Option<i64>, _>("removed")? {
        Some(removed) => Removal::Removed(removed.unsigned_abs()),
        None => Removal::Doubtful { found: count("found")?, missing: count("missing")? },
    })
}

/// Binds what is listed: keys, versions, file names and addresses.
fn of_listed<'q>(question: Question<'q>, listed: &'q [Listed]) -> Result<Question<'q>, Fault> {
    for Listed { key, filename, .. } in listed {
        check_text("key of a document", key)?;
        check_text("filename", filename)?;
    }
    let keys: Vec<&str> = listed.iter().map(|listed| listed.key.as_str()).collect();
    let versions: Vec<Option<String>> = listed.iter().map(|listed| listed.version.as_deref().map(clean)).collect();
    let filenames: Vec<&str> = listed.iter().map(|listed| listed.filename.as_str()).collect();
    let uris: Vec<String> = listed.iter().map(|listed| clean(&listed.uri)).collect();
    Ok(question.bind(keys).bind(versions).bind(filenames).bind(uris))
}

/// Part of a key of the database.
pub(super) fn check_text(what: &str, text: &str) -> Result<(), Fault> {
    let fits = (1..=MAX_NAME_BYTES).contains(&text.len()) && !text.contains('\0');
    if fits { Ok(()) } else { Err(Fault::Refused(format!("a {what} has 1 to {MAX_NAME_BYTES} bytes, none of them zero"))) }
}
