//! `KnowledgeBase`: documents that agents of a namespace search, and the sources that they come from.

use std::str::FromStr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ingestion::IngestionPhase;
use crate::schedule::{Schedule, ScheduleError};
use crate::schema;
use crate::source::Source;
use crate::words::words;

/// The length of chunks, and how much neighbours share, of a base that does not say it.
pub const CHUNK_SIZE: i32 = 512;
pub const CHUNK_OVERLAP: i32 = 50;

/// Documents that agents of the same namespace can search.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[kube(
    group = "agents.slipway.dev",
    version = "v1",
    kind = "KnowledgeBase",
    doc = "Documents that agents of the same namespace can search.",
    plural = "knowledgebases",
    shortname = "kb",
    category = "slipway",
    namespaced,
    derive = "PartialEq",
    status = "KnowledgeBaseStatus",
    selectable = ".spec.embeddingModel",
    printcolumn(name = "Name", type_ = "string", json_path = ".spec.name"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Documents", type_ = "integer", json_path = ".status.documents"),
    printcolumn(name = "Chunks", type_ = "integer", json_path = ".status.chunks"),
    printcolumn(name = "Embedding", type_ = "string", json_path = ".status.embeddingModel"),
    printcolumn(name = "Last-Ingestion", type_ = "string", json_path = ".status.lastIngestion.name", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = kube::core::Rule::new("self.metadata.name.size() <= 63 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')")
        .message("metadata.name: must begin with a lower-case letter and have at most 63 lower-case letters, digits and hyphens"),
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = kube::core::Rule::new("self.chunkOverlap < self.chunkSize")
    .message("chunkOverlap: must be smaller than chunkSize"))]
pub struct KnowledgeBaseSpec {
    /// Display name, shown to people.
    #[schemars(length(min = 1, max = 128))]
    pub name: String,
    /// What the documents are about; the model reads this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub description: Option<String>,
    /// The model that turns text into vectors, for example builtin:all-minilm-l6-v2, openai:text-embedding-3-small or a model of Ollama such as nomic-embed-text. Default is nomic-embed-text where the platform names an Ollama server, else builtin:all-minilm-l6-v2. A change embeds every document again with the next ingestion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub embedding_model: Option<String>,
    /// The length of a chunk, in tokens, 16 to 8192. Default 512.
    #[serde(default = "chunk_size")]
    #[schemars(range(min = 16, max = 8192))]
    pub chunk_size: i32,
    /// How much neighbouring chunks share, in tokens. Default 50.
    #[serde(default = "chunk_overlap")]
    #[schemars(range(min = 0, max = 4096))]
    pub chunk_overlap: i32,
    /// Where the documents come from, at most 16. A source with a schedule is read by itself; any source is read by an Ingestion that names it in sourceName.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Map(vec!["name".to_owned()]))]
    pub sources: Vec<NamedSource>,
}

impl KnowledgeBaseSpec {
    /// What agents are made from. Where the documents come from does not change an agent, so that releases leave it out.
    #[must_use]
    pub fn without_sources(&self) -> Self {
        Self { sources: Vec::new(), ..self.clone() }
    }
}

/// A source that is read again and again.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = kube::core::Rule::new("self.name != 'uploads'")
    .message("name: uploads is the source of uploaded files, which reading another one would remove; choose another name"))]
pub struct NamedSource {
    /// The source's name within the knowledge base: lower-case letters, digits and hyphens. Documents belong to it; those of a name that is gone stay until they are deleted.
    #[schemars(length(min = 1, max = 40), regex(pattern = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// When the source is read, as in cron: minute, hour, day of the month, month and day of the week, in UTC. For example 0 3 * * * is every night at three. Default is never by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 9, max = 128), regex(pattern = r"^[0-9A-Za-z*/,-]+( +[0-9A-Za-z*/,-]+){4}$"))]
    pub schedule: Option<String>,
    /// What is read.
    #[serde(flatten)]
    pub source: Source,
}

impl NamedSource {
    /// When it is read by itself, if ever.
    pub fn schedule(&self) -> Result<Option<Schedule>, ScheduleError> {
        self.schedule.as_deref().map(Schedule::from_str).transpose()
    }
}

/// What is in the knowledge base.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KnowledgeBaseStatus {
    /// Empty has no documents, Processing has an ingestion under way, Ready can be searched, Error says why in the condition Ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<KnowledgePhase>,
    /// The id in the REST API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 66))]
    pub id: Option<String>,
    /// The name in URLs, which is metadata.name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub slug: Option<String>,
    /// The model that turns text into vectors here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub embedding_model: Option<String>,
    /// The length of its vectors. Known after the first ingestion.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub dimensions: Option<i32>,
    /// Documents that can be searched.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub documents: Option<i64>,
    /// Documents that could not be read.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub failed_documents: Option<i64>,
    /// Chunks of all documents.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub chunks: Option<i64>,
    /// The ingestion that ended last, or is under way.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Option::is_none")]
    pub last_ingestion: Option<LastIngestion>,
    /// When sources with a schedule are read next.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub schedules: Vec<ScheduledSource>,
    /// The generation of the spec that this status speaks of.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready: documents can be added and searched. Reconciling: not yet. Stalled: not before somebody changes something.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// An ingestion in short.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastIngestion {
    /// The Ingestion, by name.
    #[schemars(length(max = 63))]
    pub name: String,
    /// Where it stands.
    pub phase: IngestionPhase,
    /// When it ended.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
}

/// When a source is read next.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScheduledSource {
    /// The source, by name.
    #[schemars(length(max = 40))]
    pub name: String,
    /// The next time of its schedule.
    pub next_at: Time,
}

words!(
    /// Whether a knowledge base can be searched.
    KnowledgePhase { Empty = "Empty", Processing = "Processing", Ready = "Ready", Error = "Error" }
);

const fn chunk_size() -> i32 {
    CHUNK_SIZE
}

const fn chunk_overlap() -> i32 {
    CHUNK_OVERLAP
}
