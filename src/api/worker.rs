//! What REST and a team's worker say to each other: searches, documents and uploads of knowledge bases; and what the manager has
//! it connect to: tests of integrations and alerts. The worker is a Deployment and a Service in the team's namespace, owned by
//! the Team.

mod connection;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

pub use connection::{DELIVER_PATH, DeliverReply, DeliverRequest, DeliveryOutcome, ProbeReply, ProbeRequest, TEST_PATH};

/// The name of the Deployment and of the Service.
pub const NAME: &str = "slipway-worker";
pub const PORT: u16 = 8000;

/// The largest file that is uploaded.
pub const UPLOAD_BYTES_MAX: u64 = 100 * 1024 * 1024;
/// The header with the name of an uploaded file, percent-encoded.
pub const FILENAME_HEADER: &str = "x-filename";
pub const FILENAME_BYTES_MAX: usize = 255;
/// The longest media type of an uploaded file.
pub const MEDIA_TYPE_BYTES_MAX: usize = 128;

const QUERY_CHARACTERS_MAX: usize = 8192;
pub const TOP_K_DEFAULT: u32 = 5;
pub const TOP_K_MAX: u32 = 100;
pub const DOCUMENTS_DEFAULT: u32 = 100;
pub const DOCUMENTS_MAX: u32 = 500;

/// A question to a knowledge base.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "KnowledgeSearch")]
pub struct SearchRequest {
    /// What is searched for, in words.
    #[schemars(length(min = 1, max = 8192))]
    pub query: String,
    /// How many results at most, 1 to 100. Default 5.
    #[serde(default = "top_k", deserialize_with = "whole")]
    #[schemars(range(min = 1, max = 100))]
    pub top_k: u32,
    /// Results with a lower score are left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1))]
    pub min_score: Option<f64>,
    /// Only documents of this source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub source: Option<String>,
    /// Only this document, by id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub document: Option<String>,
}

const fn top_k() -> u32 {
    TOP_K_DEFAULT
}

/// An integer, however it is written: 5.0 is one.
fn whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let number = f64::deserialize(deserializer)?;
    let whole = (number.fract() == 0.0).then(|| format!("{number:.0}").parse().ok()).flatten();
    whole.ok_or_else(|| serde::de::Error::custom("top_k: must be an integer"))
}

impl SearchRequest {
    /// What is wrong with it, beyond its form.
    pub fn fault(&self) -> Option<String> {
        if self.query.is_empty() {
            return Some("query: must not be empty".to_owned());
        }
        if self.query.chars().count() > QUERY_CHARACTERS_MAX {
            return Some(format!("query: may have at most {QUERY_CHARACTERS_MAX} characters"));
        }
        if !(1..=TOP_K_MAX).contains(&self.top_k) {
            return Some(format!("top_k: must be a number, 1 to {TOP_K_MAX}"));
        }
        if self.min_score.is_some_and(|score| !(0.0..=1.0).contains(&score)) {
            return Some("min_score: must be a number, 0 to 1".to_owned());
        }
        None
    }
}

/// What was found, the best first.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq)]
#[schemars(rename = "KnowledgeResults")]
pub struct SearchResponse {
    pub results: Vec<SearchResult>,
}

/// A piece of a document.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq)]
#[schemars(rename = "KnowledgeResult")]
pub struct SearchResult {
    pub content: String,
    /// How well it fits, 0 to 1. Scores of one search compare with each other only.
    pub score: f64,
    pub metadata: ResultMetadata,
}

/// Where a piece of a document stands.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq)]
#[schemars(rename = "KnowledgeResultMetadata")]
pub struct ResultMetadata {
    /// Where the document comes from: its address in the source, or the name of the uploaded file.
    pub source: String,
    /// The page on which it begins, from 1. Null where the format has no pages.
    pub page: Option<u32>,
    pub chunk_id: String,
    pub document_id: String,
    pub filename: String,
    /// The headings above it, outermost first.
    pub section: Vec<String>,
}

/// Documents, newest first.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct DocumentPage {
    pub documents: Vec<Document>,
    /// The `after` of the next page, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A document of a knowledge base.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq)]
#[schemars(rename = "KnowledgeDocument")]
pub struct Document {
    pub id: String,
    pub filename: String,
    pub content_type: String,
    pub status: DocumentStatus,
    /// Null where the format has no pages.
    pub pages: Option<u32>,
    pub chunk_count: u32,
    /// Why it cannot be searched, if that is so.
    pub error: Option<String>,
    /// What was left out of it, such as pages that OCR did not read: at most eight notes, and how many more there are.
    #[serde(default)]
    pub notes: Vec<String>,
    /// The source that it comes from. Null for an uploaded file.
    pub source: Option<String>,
    pub created_at: String,
}

#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "KnowledgeDocumentStatus")]
pub enum DocumentStatus {
    Ready,
    /// Its newest state could not be read. What was read before is still found.
    Error,
}

/// What came of deleting all documents of a source.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemovedDocuments {
    /// How many there were.
    pub removed: u64,
}

/// A file that the worker has stored, for an Ingestion that names it.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
pub struct Uploaded {
    pub upload: String,
}

/// The name of an uploaded file without folders, or what is wrong with it.
pub fn filename(given: &str) -> Result<&str, String> {
    let name = given.rsplit(['/', '\\']).next().unwrap_or(given).trim();
    if name.is_empty() || matches!(name, "." | "..") {
        return Err("the file has no name".to_owned());
    }
    if name.len() > FILENAME_BYTES_MAX {
        return Err(format!("the file's name may have at most {FILENAME_BYTES_MAX} bytes"));
    }
    if name.chars().any(char::is_control) {
        return Err("the file's name has control characters".to_owned());
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filename_has_no_folders_and_no_control_characters() {
        let long = "x".repeat(FILENAME_BYTES_MAX);
        for (given, expected) in [
            ("a.pdf", Some("a.pdf")),
            ("../../etc/passwd", Some("passwd")),
            ("C:\\fakepath\\Größe 1.pdf", Some("Größe 1.pdf")),
            (&*long, Some(&*long)),
            ("folder/", None),
            ("..", None),
            ("", None),
            ("a\nb.pdf", None),
            ("a\0.pdf", None),
            (&*format!("{long}x"), None),
        ] {
            assert_eq!(filename(given).ok(), expected, "{given:?}");
        }
    }

    #[test]
    fn a_search_has_bounds() {
        let read = |json: &str| serde_json::from_str::<SearchRequest>(json);
        assert_eq!(read(r#"{"query": "x"}"#).unwrap().top_k, TOP_K_DEFAULT);
        assert!(read(r#"{"query": "x", "topk": 1}"#).is_err());
        for (json, word) in [
            (r#"{"query": ""}"#, "query"),
            (r#"{"query": "x", "top_k": 0}"#, "top_k"),
            (r#"{"query": "x", "top_k": 101}"#, "top_k"),
            (r#"{"query": "x", "min_score": 1.5}"#, "min_score"),
        ] {
            let fault = read(json).unwrap().fault().unwrap();
            assert!(fault.starts_with(word), "{json}: {fault}");
        }
        assert_eq!(read(r#"{"query": "x", "top_k": 100, "min_score": 0.5}"#).unwrap().fault(), None);
        assert_eq!(read(r#"{"query": "x", "top_k": 82.0}"#).unwrap().top_k, 82);
        assert!(read(r#"{"query": "x", "top_k": 1.5}"#).is_err() && read(r#"{"query": "x", "top_k": -1}"#).is_err());
        for letter in ["x", "🦀"] {
            let of = |length| SearchRequest { query: letter.repeat(length), ..read(r#"{"query": "x"}"#).unwrap() };
            assert!(of(QUERY_CHARACTERS_MAX).fault().is_none() && of(QUERY_CHARACTERS_MAX + 1).fault().is_some());
        }
    }
}
