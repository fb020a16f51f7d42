//! Memories, from one conversation to the next: found by meaning where there is an embedding model, by words otherwise. A
//! failed search never fails a turn: the agent answers without memories.

pub(crate) mod extract;
mod tool;

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use slipway_database::{Category, Embedding, Fault, MemoryEntry, NewMemory, Page, Remembered};
use slipway_guards::Block;
use slipway_http::Error;
use slipway_models::embedding::{Embedder, Purpose};
use tokio::time::{Instant, timeout};
use tracing::warn;

use crate::failure;
use crate::record::Recorder;
use crate::store::Store;
pub(crate) use tool::{TOOL, is_tool, tools};

/// How long a turn waits for its memories. Without optimisation the built-in model is twenty times slower.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(if cfg!(debug_assertions) { 10 } else { 2 });
/// How many are searched for, and how much of them a prompt gets.
const CANDIDATES: u32 = 12;
const MAX_PROMPT_BYTES: usize = 2048;
/// Memories below these are irrelevant to the message.
const MIN_COSINE: f64 = 0.35;
const MIN_SHARE: f64 = 0.01;
const MAX_CONTENT_BYTES: usize = 4096;
const UNKNOWN: i64 = -1;
/// How long a count of zero is cached.
const EMPTY_COUNT_TTL: Duration = Duration::from_secs(30);

pub(crate) struct Recall {
    store: Arc<Store>,
    embedder: Option<Arc<dyn Embedder>>,
    recorder: Recorder,
    /// How many memories there are, so that an agent without any looks for none.
    count: AtomicI64,
    /// When they were counted; other replicas may have kept some since.
    counted: Mutex<Option<Instant>>,
}

impl Recall {
    pub(crate) fn new(store: Arc<Store>, embedder: Option<Arc<dyn Embedder>>, recorder: Recorder) -> Self {
        Self { store, embedder, recorder, count: AtomicI64::new(UNKNOWN), counted: Mutex::default() }
    }

    /// Whether the cached count is zero.
    pub(crate) fn is_empty(&self) -> bool {
        let counted = *self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        self.count.load(Ordering::Relaxed) == 0 && counted.is_some_and(|at| at.elapsed() < EMPTY_COUNT_TTL)
    }

    /// Memories for a prompt that answers `message`, most relevant first.
    pub(crate) async fn relevant(&self, message: &str) -> Vec<String> {
        let found = timeout(SEARCH_TIMEOUT, self.search(message, CANDIDATES)).await;
        let found = match found {
            Ok(Ok(found)) => found,
            Ok(Err(fault)) => {
                warn!(%fault, "an answer is given without memories");
                return Vec::new();
            }
            Err(_) => {
                warn!("an answer is given without memories: they took too long");
                return Vec::new();
            }
        };
        let least = if self.embedder.is_some() { MIN_COSINE } else { MIN_SHARE };
        let mut room = MAX_PROMPT_BYTES;
        let close = found.into_iter().filter(|memory| memory.relevance.is_some_and(|relevance| relevance >= least));
        close
            .map(|memory| memory.content)
            .take_while(|content| {
                let fits = content.len() <= room;
                room = room.saturating_sub(content.len());
                fits
            })
            .collect()
    }

    pub(crate) async fn search(&self, query: &str, top: u32) -> Result<Vec<MemoryEntry>, Fault> {
        if self.count.load(Ordering::Relaxed) <= 0 && self.ask_count().await? == 0 {
            return Ok(Vec::new());
        }
        let embedding = self.embed(query, Purpose::Query).await;
        self.store.search_memories(query, embedding.as_ref(), top).await
    }

    /// Stores a memory, after the guards have seen it.
    pub(crate) async fn remember(&self, content: &str, category: Category, source: &str) -> Result<Remembered, Unkept> {
        let content = self.recorder.admit(content).map_err(Unkept::Refused)?;
        let embedding = self.embed(&content, Purpose::Passage).await;
        let remembered = self.store.remember(NewMemory { content, category, source: source.to_owned(), embedding }).await?;
        // Another replica may know of more; it is enough to know that there are some.
        self.count.fetch_max(1, Ordering::Relaxed);
        Ok(remembered)
    }

    pub(crate) async fn forget(&self, id: &str) -> Result<bool, Fault> {
        let forgotten = self.store.forget(id).await?;
        self.count.store(UNKNOWN, Ordering::Relaxed);
        Ok(forgotten)
    }

    pub(crate) async fn list(&self, limit: u32, cursor: Option<&str>) -> Result<Page<MemoryEntry>, Fault> {
        self.store.memories(limit, cursor).await
    }

    pub(crate) async fn status(&self) -> Result<MemoryStatus, Fault> {
        let count = self.ask_count().await?;
        let backend = self.store.backend();
        let search_type = if self.embedder.is_some() { "semantic" } else { "full-text" };
        let embedding_model = self.embedder.as_ref().map(|embedder| embedder.id().to_owned());
        Ok(MemoryStatus { enabled: true, backend, persistent: self.store.persists(), search_type, embedding_model, count })
    }

    async fn ask_count(&self) -> Result<i64, Fault> {
        let before = self.count.load(Ordering::Relaxed);
        let count = self.store.memory_count().await?;
        // What was kept or forgotten meanwhile is not in it.
        if self.count.compare_exchange(before, count, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            *self.counted.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        }
        Ok(count)
    }

    /// Without an embedding a memory is still found by its words.
    async fn embed(&self, text: &str, purpose: Purpose) -> Option<Embedding> {
        let embedder = self.embedder.as_ref()?;
        match embedder.embed(&[text.to_owned()], purpose).await {
            Ok(vectors) => vectors.into_iter().next().map(|vector| Embedding { model: embedder.id().to_owned(), vector: vector.0 }),
            Err(fault) => {
                warn!(%fault, "a memory goes without an embedding");
                None
            }
        }
    }
}

/// Why something is not remembered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unkept {
    #[error("{}", .0.message)]
    Refused(Block),
    #[error("it could not be kept: {0}")]
    Fault(#[from] Fault),
}

#[derive(Serialize)]
pub(crate) struct MemoryStatus {
    enabled: bool,
    backend: &'static str,
    /// Whether memories survive the pod.
    persistent: bool,
    search_type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    embedding_model: Option<String>,
    count: i64,
}

/// What a caller wants remembered.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Note {
    content: String,
    #[serde(default = "fact")]
    category: Category,
    #[serde(default)]
    source: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Question {
    query: String,
    #[serde(default = "five")]
    top_k: u32,
}

impl Note {
    pub(crate) async fn keep(self, recall: &Recall) -> Result<Remembered, Error> {
        let content = self.content.trim();
        if content.is_empty() || content.len() > MAX_CONTENT_BYTES {
            return Err(Error::bad_request(format!("`content` must have 1 to {MAX_CONTENT_BYTES} bytes")));
        }
        let source = self.source.as_deref().unwrap_or("api");
        if source.is_empty() || source.len() > 128 {
            return Err(Error::bad_request("`source` must have 1 to 128 bytes"));
        }
        let refused = |field: &str, block: Block| Error::bad_request(format!("`{field}` was {}", block.message));
        let source = recall.recorder.admit(source).map_err(|block| refused("source", block))?;
        recall.remember(content, self.category, &source).await.map_err(|unkept| match unkept {
            Unkept::Refused(block) => refused("content", block),
            Unkept::Fault(fault) => failure::of_store(fault),
        })
    }
}

impl Question {
    pub(crate) async fn ask(self, recall: &Recall) -> Result<Vec<MemoryEntry>, Error> {
        if self.query.trim().is_empty() || self.query.len() > MAX_CONTENT_BYTES {
            return Err(Error::bad_request(format!("`query` must have 1 to {MAX_CONTENT_BYTES} bytes")));
        }
        if !(1..=100).contains(&self.top_k) {
            return Err(Error::bad_request("`top_k` must be 1 to 100"));
        }
        recall.search(&self.query, self.top_k).await.map_err(failure::of_store)
    }
}

const fn fact() -> Category {
    Category::Fact
}

const fn five() -> u32 {
    5
}
