//! What goes into a knowledge base and comes out of it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize, Serializer};
use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::Fault;
use crate::conversation::{clean, short, time};

/// From this number of vectors on, a base has an approximate index.
pub const INDEX_THRESHOLD: u32 = 10_000;
/// How many errors of documents a report keeps.
pub const MAX_REPORTED_ERRORS: usize = 20;
/// How many notes are kept with a document, and how long each.
const MAX_NOTES: usize = 8;
const MAX_NOTE_BYTES: usize = 200;

/// A knowledge base that is to be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseSpec {
    /// The KnowledgeBase's UID: another object of its name has nothing of this one.
    pub uid: String,
    /// The team's id, as logins and runtimes know it.
    pub team: String,
    pub team_uid: String,
    /// `kb_` and the name.
    pub kb_id: String,
    /// How many bytes of uploads may wait to be ingested into this base.
    pub upload_quota: u64,
    /// The same for all bases of the team.
    pub team_upload_quota: u64,
    /// How many documents and chunks all bases of the team may have.
    pub quota: Quota,
}

/// Of all knowledge bases of a team.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    pub documents: u64,
    pub chunks: u64,
}

/// A knowledge base that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseInfo {
    pub uid: String,
    pub team: String,
    pub team_uid: String,
    pub kb_id: String,
    /// Fixed by the first ingestion.
    pub model: Option<String>,
    pub dimensions: Option<u32>,
    /// Whether vectors are searched by an approximate index.
    pub indexed: bool,
}

/// What a source and an extractor say of a document.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DocumentMeta {
    /// Its name within its source, which stays the same when its content changes; at most 1,024 bytes.
    pub key: String,
    pub uri: String,
    pub filename: String,
    pub content_type: String,
    /// What the source calls this state of it, and how it was read: another version needs work.
    pub version: Option<String>,
    /// SHA-256 of its bytes.
    #[serde(skip)]
    pub content_hash: Option<[u8; 32]>,
    pub pages: Option<u32>,
    pub bytes: u64,
    /// What was left out of it, in words, the most important first. Some are kept, and how many more there are.
    #[serde(serialize_with = "bounded", skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

fn bounded<S: Serializer>(notes: &[String], serializer: S) -> Result<S::Ok, S::Error> {
    let more = notes.len().saturating_sub(MAX_NOTES);
    let more = (more > 0).then(|| format!("and {more} more"));
    serializer.collect_seq(notes.iter().take(MAX_NOTES).map(|note| short(note, MAX_NOTE_BYTES)).chain(more))
}

/// A piece of a document, with its vector.
#[derive(Clone, Debug, PartialEq)]
pub struct NewChunk {
    pub ordinal: u32,
    pub text: String,
    pub page: Option<u32>,
    pub section: Vec<String>,
    pub tokens: u32,
    pub start: u64,
    pub end: u64,
    /// The same hash, the same vector.
    pub hash: [u8; 32],
    /// Without one it is found in full text alone.
    pub vector: Option<Vec<f32>>,
}

/// A chunk without a vector of the present model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unembedded {
    pub revision: String,
    pub ordinal: u32,
    pub section: Vec<String>,
    pub content: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DocumentStatus {
    Ready,
    /// Its newest state could not be read. Chunks of an earlier state are still found.
    Error,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredDocument {
    pub id: String,
    pub source: String,
    pub key: String,
    pub uri: String,
    pub filename: String,
    pub content_type: String,
    pub version: Option<String>,
    pub status: DocumentStatus,
    pub error: Option<String>,
    /// What was left out of what is found of it.
    pub notes: Vec<String>,
    pub pages: Option<u32>,
    pub chunk_count: u32,
    pub bytes: u64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub ready: u64,
    pub failed: u64,
    pub chunks: u64,
    pub bytes: u64,
}

/// How far an ingestion is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// `traversing`, `removing`, `indexing`; at the end that of the [`Ending`], which [`super::Ingestion::end`] sets.
    pub phase: String,
    pub seen: u64,
    pub changed: u64,
    pub unchanged: u64,
    pub failed: u64,
    pub removed: u64,
    pub pages: u64,
    pub chunks: u64,
    pub errors: Vec<DocumentError>,
}

/// How an ingestion has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Succeeded,
    /// Another attempt may come to the end.
    Failed,
    /// Next to nothing of what was indexed was found, and nothing removed.
    Doubtful,
    /// The team's quota has no room for some of the documents.
    Full,
}

impl Ending {
    /// The phase that it is reported with.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Doubtful => "doubtful",
            Self::Full => "full",
        }
    }

    /// Of a phase that an ingestion has ended with.
    pub fn of(phase: &str) -> Self {
        [Self::Succeeded, Self::Doubtful, Self::Full].into_iter().find(|ending| ending.as_str() == phase).unwrap_or(Self::Failed)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DocumentError {
    pub key: String,
    pub error: String,
}

impl Report {
    /// Counts a document that failed and keeps the first errors.
    pub fn failed(&mut self, key: &str, error: &str) {
        self.failed += 1;
        if self.errors.len() < MAX_REPORTED_ERRORS {
            let short = |text: &str| text.chars().take(500).collect();
            self.errors.push(DocumentError { key: short(key), error: short(error) });
        }
    }
}

/// An ingestion as the database knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IngestionState {
    pub uid: String,
    pub source: String,
    pub report: Report,
    pub heartbeat: Timestamp,
    pub started_at: Timestamp,
    pub ended_at: Option<Timestamp>,
}

/// The columns that [`document`] reads of a document `d`. A database of a former version has no notes, which this does not mind.
pub(super) const DOCUMENT: &str =
    "d.id, d.source, d.key, d.uri, d.filename, d.content_type, d.version, d.status, d.error, d.pages, d.chunk_count, d.bytes,
    (to_jsonb(d)->'notes')::text AS notes,
    (extract(epoch FROM d.created_at) * 1000000)::bigint AS created, (extract(epoch FROM d.updated_at) * 1000000)::bigint AS updated";

pub(super) fn document(row: &PgRow) -> Result<StoredDocument, Fault> {
    let status: String = row.try_get("status")?;
    let notes: Option<&str> = row.try_get("notes")?;
    Ok(StoredDocument {
        id: row.try_get("id")?,
        source: row.try_get("source")?,
        key: row.try_get("key")?,
        uri: row.try_get("uri")?,
        filename: row.try_get("filename")?,
        content_type: row.try_get("content_type")?,
        version: row.try_get("version")?,
        status: if status == "ready" { DocumentStatus::Ready } else { DocumentStatus::Error },
        error: row.try_get("error")?,
        notes: notes.and_then(|notes| serde_json::from_str(notes).ok()).unwrap_or_default(),
        pages: row.try_get::<Option<i32>, _>("pages")?.map(i32::unsigned_abs),
        chunk_count: row.try_get::<i32, _>("chunk_count")?.unsigned_abs(),
        bytes: row.try_get::<i64, _>("bytes")?.unsigned_abs(),
        created_at: time(row.try_get("created")?)?,
        updated_at: time(row.try_get("updated")?)?,
    })
}

pub(super) fn counts(row: &PgRow) -> Result<Counts, Fault> {
    let count = |name| Ok::<u64, Fault>(row.try_get::<i64, _>(name)?.unsigned_abs());
    Ok(Counts { ready: count("ready")?, failed: count("failed")?, chunks: count("chunks")?, bytes: count("bytes")? })
}

pub(super) fn info(row: &PgRow) -> Result<BaseInfo, Fault> {
    Ok(BaseInfo {
        uid: row.try_get("uid")?,
        team: row.try_get("team")?,
        team_uid: row.try_get("team_uid")?,
        kb_id: row.try_get("kb_id")?,
        model: row.try_get("model")?,
        dimensions: row.try_get::<Option<i32>, _>("dimensions")?.map(i32::unsigned_abs),
        indexed: row.try_get("indexed")?,
    })
}

/// A count as the database takes it.
pub(super) fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

pub(super) fn small(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// JSON that PostgreSQL takes: without the character zero.
pub(super) fn json(value: &impl Serialize) -> Result<serde_json::Value, Fault> {
    let mut value = serde_json::to_value(value).map_err(|_| Fault::Broken("a value cannot be written as JSON".to_owned()))?;
    clean_json(&mut value);
    Ok(value)
}

fn clean_json(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::String(text) => *text = clean(text),
        serde_json::Value::Array(items) => items.iter_mut().for_each(clean_json),
        serde_json::Value::Object(fields) => fields.values_mut().for_each(clean_json),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_keeps_the_first_errors_without_zeros() {
        let mut report = Report::default();
        for n in 0..30 {
            report.failed(&format!("k{n}"), "a\0b \\u0000");
        }
        assert_eq!((report.failed, report.errors.len()), (30, MAX_REPORTED_ERRORS));
        let text = json(&report).unwrap().to_string();
        assert!(!text.replace("\\\\u0000", "").contains("u0000"), "{text}");
    }
}
