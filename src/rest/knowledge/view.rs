//! A knowledge base as REST shows it.

use kube::ResourceExt;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde_json::{Map, Value};
use slipway_api::knowledge_base::KnowledgePhase;
use slipway_api::{KnowledgeBase, condition, ids};
use slipway_http::Error;

use super::source::{self, NAMED};
use crate::list_cache::{self, ListEntry};

/// A knowledge base.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "KnowledgeBase")]
pub(crate) struct View {
    pub id: String,
    /// The resource's name, which agents and paths may use instead of the id.
    pub slug: String,
    pub name: String,
    pub description: Option<String>,
    /// The model that turns text into vectors. Null until it is decided, where the knowledge base names none.
    pub embedding_model: Option<String>,
    /// The length of its vectors. Null until the first ingestion.
    pub embedding_dim: Option<i32>,
    /// The length of a chunk, in tokens.
    pub chunk_size: i32,
    /// How much neighbouring chunks share, in tokens.
    pub chunk_overlap: i32,
    pub status: Status,
    /// Why it cannot be searched or filled, if that is so.
    pub message: Option<String>,
    /// The documents that can be searched.
    pub document_count: i64,
    /// The documents that could not be read.
    pub failed_document_count: i64,
    pub chunk_count: i64,
    pub sources: Vec<KnowledgeSource>,
    /// The ingestion that ended last, or is under way.
    pub last_job_id: Option<String>,
    pub resource_version: Option<String>,
    pub created_at: String,
}

/// A source of a knowledge base.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(crate) struct KnowledgeSource(Map<String, Value>);

impl JsonSchema for KnowledgeSource {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "KnowledgeSource".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        Schema::try_from(source::form(&NAMED)).unwrap_or_default()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "KnowledgeBaseStatus")]
pub(crate) enum Status {
    /// It has no documents.
    Empty,
    /// An ingestion is under way.
    Processing,
    Ready,
    Error,
}

impl View {
    pub(super) fn of(base: &KnowledgeBase) -> Result<Self, Error> {
        let (spec, name) = (&base.spec, base.name_any());
        let status = base.status.clone().unwrap_or_default();
        let ready = status.conditions.iter().find(|found| found.type_ == condition::READY);
        let shown = |source| {
            let source = serde_json::to_value(source).map_err(Error::internal)?;
            source::to_callers(&NAMED, source).map(KnowledgeSource)
        };
        Ok(Self {
            id: ids::knowledge_base(&name),
            name: spec.name.clone(),
            description: spec.description.clone(),
            embedding_model: status.embedding_model.or_else(|| spec.embedding_model.clone()),
            embedding_dim: status.dimensions,
            chunk_size: spec.chunk_size,
            chunk_overlap: spec.chunk_overlap,
            status: match status.phase {
                None | Some(KnowledgePhase::Empty) => Status::Empty,
                Some(KnowledgePhase::Processing) => Status::Processing,
                Some(KnowledgePhase::Ready) => Status::Ready,
                Some(KnowledgePhase::Error) => Status::Error,
            },
            message: ready.filter(|ready| ready.status != "True").map(|ready| ready.message.clone()),
            document_count: status.documents.unwrap_or_default(),
            failed_document_count: status.failed_documents.unwrap_or_default(),
            chunk_count: status.chunks.unwrap_or_default(),
            sources: spec.sources.iter().map(shown).collect::<Result<_, _>>()?,
            last_job_id: status.last_ingestion.map(|last| last.name),
            resource_version: base.resource_version(),
            created_at: crate::agents::time(base.creation_timestamp().map(|time| time.0)),
            slug: name,
        })
    }
}

pub(crate) fn item(base: &KnowledgeBase) -> Option<ListEntry> {
    let mut view = View::of(base).ok()?;
    view.message = list_cache::truncate(view.message);
    let description = view.description.as_deref().unwrap_or_default();
    Some(ListEntry {
        id: view.id.clone(),
        created: base.creation_timestamp().map_or(0, |time| time.0.as_second()),
        search: format!("{} {} {description}", view.slug, view.name).to_lowercase().into(),
        json: serde_json::to_string(&view).ok()?.into(),
        ..ListEntry::default()
    })
}
