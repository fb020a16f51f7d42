//! One knowledge base: the question is embedded here, and searched for with the team's login. Where it cannot be embedded, it
//! is searched for by its words.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use slipway_database::Fault;
use slipway_database::knowledge::{Hit, KnowledgeBase, SearchQuery};
use slipway_models::embedding::{self, Embedder, Purpose};
use tokio::sync::OnceCell;
use tokio::time::timeout;
use tracing::warn;

use super::{Passage, PassageSource};
use crate::agent;

/// How long a search may take, and of that the embedding. Without optimisation the built-in model is twenty times slower.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(if cfg!(debug_assertions) { 15 } else { 5 });
const EMBEDDING_TIMEOUT: Duration = Duration::from_secs(if cfg!(debug_assertions) { 10 } else { 3 });
/// A longer passage is cut, and together they have this many bytes.
const MAX_PASSAGE_BYTES: usize = 8 * 1024;
const MAX_FOUND_BYTES: usize = 32 * 1024;

pub(super) struct Base {
    pub(super) kb_id: String,
    pub(super) name: String,
    pub(super) description: Option<String>,
    /// The name of its tool.
    pub(super) tool: String,
    /// Of the model that the configuration names.
    pub(super) embedder: Arc<dyn Embedder>,
    pub(super) documents: KnowledgeBase,
    /// Of the model that the base's vectors are of, where it is another: until all documents are embedded anew.
    pub(super) former: Mutex<Option<Arc<dyn Embedder>>>,
}

/// A question, embedded once for all bases of a model.
pub(super) struct EmbeddedQuestion<'a> {
    text: &'a str,
    vectors: BTreeMap<&'a str, OnceCell<Option<Vec<f32>>>>,
}

impl<'a> EmbeddedQuestion<'a> {
    pub(super) fn of(text: &'a str, bases: &'a [Arc<Base>]) -> Self {
        Self { text, vectors: bases.iter().map(|base| (base.embedder.id(), OnceCell::new())).collect() }
    }
}

/// Why nothing could be searched, in words for the model.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unfound {
    #[error("it took too long")]
    TimedOut,
    #[error("{0}")]
    Refused(String),
    #[error("its database does not answer")]
    Unavailable,
}

impl Unfound {
    /// A word for metrics and spans.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::TimedOut => "timeout",
            Self::Refused(_) => "refused",
            Self::Unavailable => "unavailable",
        }
    }
}

impl Base {
    /// The best first. What went wrong stands in the log.
    pub(super) async fn search(&self, asked: &EmbeddedQuestion<'_>, top: u32) -> Result<Vec<Passage>, Unfound> {
        let hits = match timeout(SEARCH_TIMEOUT, self.hits(asked, top)).await {
            Ok(Ok(hits)) => hits,
            Ok(Err(fault)) => {
                warn!(knowledge_base = self.kb_id, %fault, "a knowledge base could not be searched");
                return Err(match fault {
                    Fault::Refused(why) => Unfound::Refused(why),
                    _ => Unfound::Unavailable,
                });
            }
            Err(_) => {
                warn!(knowledge_base = self.kb_id, "a knowledge base could not be searched: it took too long");
                return Err(Unfound::TimedOut);
            }
        };
        let mut room = MAX_FOUND_BYTES;
        let passages = hits.into_iter().map(|hit| self.passage(hit)).take_while(|passage| {
            let fits = passage.content.len() <= room;
            room = room.saturating_sub(passage.content.len());
            fits
        });
        Ok(passages.collect())
    }

    async fn hits(&self, asked: &EmbeddedQuestion<'_>, top: u32) -> Result<Vec<Hit>, Fault> {
        // Most of the time it is the model that is configured.
        let (model, vector) = tokio::join!(self.documents.model(), self.embed(&*self.embedder, asked));
        let vector = match model? {
            Some((model, _)) if model == self.embedder.id() => vector,
            Some((model, _)) => self.embed_as(&model, asked).await,
            // Nothing was ingested yet.
            None => return Ok(Vec::new()),
        };
        self.documents.search(&SearchQuery { text: asked.text.to_owned(), vector, top_k: top, ..SearchQuery::default() }).await
    }

    async fn embed(&self, embedder: &dyn Embedder, asked: &EmbeddedQuestion<'_>) -> Option<Vec<f32>> {
        match asked.vectors.get(embedder.id()) {
            Some(vector) => vector.get_or_init(|| self.vector(embedder, asked.text)).await.clone(),
            None => self.vector(embedder, asked.text).await,
        }
    }

    async fn vector(&self, embedder: &dyn Embedder, query: &str) -> Option<Vec<f32>> {
        let query = [query.to_owned()];
        let why = match timeout(EMBEDDING_TIMEOUT, embedder.embed(&query, Purpose::Query)).await {
            Ok(Ok(vectors)) => return vectors.into_iter().next().map(|vector| vector.0),
            Ok(Err(fault)) => fault.to_string(),
            Err(_) => "it took too long".to_owned(),
        };
        warn!(knowledge_base = self.kb_id, why, "a question could not be embedded; it is searched for by its words");
        None
    }

    async fn embed_as(&self, model: &str, asked: &EmbeddedQuestion<'_>) -> Option<Vec<f32>> {
        let known = self.former().clone().filter(|former| former.id() == model);
        let embedder = match known {
            Some(embedder) => embedder,
            None => match embedding::open(model, &agent::variable) {
                Ok(embedder) => Arc::clone(self.former().insert(Arc::from(embedder))),
                Err(fault) => {
                    warn!(knowledge_base = self.kb_id, %fault, "a question is searched for by its words, as the base has vectors of another model");
                    return None;
                }
            },
        };
        self.embed(&*embedder, asked).await
    }

    fn former(&self) -> MutexGuard<'_, Option<Arc<dyn Embedder>>> {
        self.former.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn passage(&self, hit: Hit) -> Passage {
        let Hit { chunk_id, page, section, mut content, document_id, key, uri, filename, score, cosine, .. } = hit;
        content.truncate(content.floor_char_boundary(MAX_PASSAGE_BYTES));
        let source = if uri.is_empty() { key } else { uri };
        Passage {
            content,
            section: (!section.is_empty()).then(|| section.join(" / ")),
            cosine,
            source: PassageSource { source, filename, page, document_id, chunk_id, kb_id: self.kb_id.clone(), score },
        }
    }
}
