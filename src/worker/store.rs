//! The team's knowledge bases in the database, in the words of the wire.

use slipway_api::contract::UPLOADS;
use slipway_api::worker::{Document, DocumentPage, DocumentStatus, ResultMetadata, SearchRequest, SearchResult};
use slipway_database::Fault;
use slipway_database::knowledge::{self, Filter, Hit, KnowledgeBase, KnowledgeOptions, SearchQuery};
use slipway_http::Error;
use slipway_models::embedding::Vector;
use tracing::warn;

use crate::failure;
use crate::settings::Database;

/// Searches are short; an upload has one while it stores a part.
const CONNECTIONS: u32 = 4;
/// Any id: all bases share the connections.
const SOME_BASE: &str = "kb_worker";

pub(crate) struct KnowledgeStore(KnowledgeBase);

/// A file that is being stored. Unless it is finished, it is removed.
pub(crate) struct Upload {
    base: KnowledgeBase,
    id: String,
    parts: u32,
    bytes: u64,
    is_finished: bool,
}

impl KnowledgeStore {
    /// Connects to nothing yet.
    pub(crate) fn open(database: &Database, team: &str) -> Result<Self, Fault> {
        let Database { url, sslmode } = database.clone();
        let (team, kb_id) = (team.to_owned(), SOME_BASE.to_owned());
        let options = KnowledgeOptions { url, password: None, sslmode, team, kb_id, connections: CONNECTIONS };
        KnowledgeBase::open(&options).map(Self)
    }

    fn base(&self, base: &str) -> Result<KnowledgeBase, Error> {
        self.0.other(base).map_err(failure::of_store)
    }

    /// The model that turned the documents into vectors. None while there are no documents.
    pub(crate) async fn embedding_model(&self, base: &str) -> Result<Option<String>, Error> {
        let model = self.base(base)?.model().await.map_err(of_missing)?;
        Ok(model.map(|(model, _)| model))
    }

    /// `vector` is the question's, by the base's model.
    pub(crate) async fn search(&self, base: &str, question: &SearchRequest, vector: Vector) -> Result<Vec<SearchResult>, Error> {
        let SearchRequest { query, top_k, min_score, source, document } = question.clone();
        let filter = Filter { sources: source.into_iter().collect(), document_ids: document.into_iter().collect(), ..Filter::default() };
        let query = SearchQuery { text: query, vector: Some(vector.0), top_k, min_score, filter };
        let hits = self.base(base)?.search(&query).await.map_err(failure::of_store)?;
        Ok(hits.into_iter().map(result).collect())
    }

    pub(crate) async fn documents(&self, base: &str, limit: u32, after: Option<&str>) -> Result<DocumentPage, Error> {
        let page = self.base(base)?.documents(limit, after).await.map_err(of_missing)?;
        Ok(DocumentPage { documents: page.items.into_iter().map(shown).collect(), next: page.next_cursor })
    }

    /// Whether there was such a document.
    pub(crate) async fn delete_document(&self, base: &str, document: &str) -> Result<bool, Error> {
        self.base(base)?.remove_document(document).await.map_err(of_missing)
    }

    /// Removes all documents of a source; how many there were. They are found no more, and their chunks go behind the answer.
    pub(crate) async fn delete_source(&self, base: &str, source: &str) -> Result<u64, Error> {
        let base = self.base(base)?;
        let removed = base.remove_source(source).await.map_err(of_missing)?;
        tokio::spawn(async move {
            // What is left of them goes with the next ingestion.
            if let Err(fault) = base.sweep().await {
                warn!(%fault, "chunks of deleted documents are left");
            }
        });
        Ok(removed)
    }

    pub(crate) async fn begin_upload(&self, base: &str, filename: &str, content_type: &str) -> Result<Upload, Error> {
        let base = self.base(base)?;
        let id = base.begin_upload(filename, content_type).await.map_err(of_missing)?;
        Ok(Upload { base, id, parts: 0, bytes: 0, is_finished: false })
    }
}

impl Upload {
    pub(crate) async fn append(&mut self, part: &[u8]) -> Result<(), Error> {
        self.base.put_part(&self.id, self.parts, part).await.map_err(failure::of_store)?;
        self.parts += 1;
        self.bytes += part.len() as u64;
        Ok(())
    }

    /// The id, by which an ingestion finds it.
    pub(crate) async fn finish(mut self) -> Result<String, Error> {
        self.base.finish_upload(&self.id, self.parts, self.bytes).await.map_err(failure::of_store)?;
        self.is_finished = true;
        Ok(std::mem::take(&mut self.id))
    }
}

impl Drop for Upload {
    /// What this cannot remove, the database removes an hour later.
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        let (base, id) = (self.base.clone(), std::mem::take(&mut self.id));
        tokio::spawn(async move {
            if let Err(fault) = base.remove_upload(&id).await {
                warn!(upload = id, %fault, "an upload that did not arrive as a whole was not removed");
            }
        });
    }
}

/// REST has seen the KnowledgeBase: the manager is about to make its rows.
fn of_missing(fault: Fault) -> Error {
    match fault {
        Fault::Refused(words) => failure::later(Error::unavailable(format!("{words}, or not yet; try again in a moment")), 2),
        fault => failure::of_store(fault),
    }
}

fn result(hit: Hit) -> SearchResult {
    let source = [hit.uri, hit.key].into_iter().find(|name| !name.is_empty()).unwrap_or_else(|| hit.filename.clone());
    let metadata = ResultMetadata {
        source,
        page: hit.page,
        chunk_id: hit.chunk_id,
        document_id: hit.document_id,
        filename: hit.filename,
        section: hit.section,
    };
    SearchResult { content: hit.content, score: hit.score, metadata }
}

fn shown(document: knowledge::StoredDocument) -> Document {
    Document {
        id: document.id,
        filename: document.filename,
        content_type: document.content_type,
        status: match document.status {
            knowledge::DocumentStatus::Ready => DocumentStatus::Ready,
            knowledge::DocumentStatus::Error => DocumentStatus::Error,
        },
        pages: document.pages,
        chunk_count: document.chunk_count,
        error: document.error,
        notes: document.notes,
        source: Some(document.source).filter(|source| source != UPLOADS),
        created_at: document.created_at.to_string(),
    }
}
