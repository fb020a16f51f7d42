//! `Ingestion`: one run of one source, or of one uploaded file, into a knowledge base.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;
use crate::source::Source;
use crate::words::words;

/// The longest name: that of its Job is longer, and has 63 characters at most.
pub const NAME_MAX: usize = 56;
/// How many errors a status shows.
pub const ERRORS_MAX: usize = 20;

/// One run of one source into a knowledge base of the same namespace.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[kube(
    group = "agents.slipway.dev",
    version = "v1",
    kind = "Ingestion",
    doc = "One run of one source into a knowledge base of the same namespace.",
    plural = "ingestions",
    category = "slipway",
    namespaced,
    derive = "PartialEq",
    status = "IngestionStatus",
    selectable = ".spec.knowledgeBase",
    printcolumn(name = "Knowledge-Base", type_ = "string", json_path = ".spec.knowledgeBase"),
    printcolumn(name = "Source", type_ = "string", json_path = ".spec.sourceName"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Seen", type_ = "integer", json_path = ".status.documents.seen"),
    printcolumn(name = "Changed", type_ = "integer", json_path = ".status.documents.changed"),
    printcolumn(name = "Failed", type_ = "integer", json_path = ".status.documents.failed"),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].message", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = kube::core::Rule::new("self.metadata.name.size() <= 56 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')")
        .message("metadata.name: must begin with a lower-case letter and have at most 56 lower-case letters, digits and hyphens; the Job is named after it"),
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = kube::core::Rule::new("[has(self.source), has(self.sourceName), has(self.upload)].filter(is, is).size() == 1")
        .message("source: exactly one of source, sourceName and upload is required"),
    validation = kube::core::Rule::new(
        "self.knowledgeBase == oldSelf.knowledgeBase && has(self.source) == has(oldSelf.source) && (!has(self.source) || self.source == oldSelf.source) && has(self.sourceName) == has(oldSelf.sourceName) && (!has(self.sourceName) || self.sourceName == oldSelf.sourceName) && has(self.upload) == has(oldSelf.upload) && (!has(self.upload) || self.upload == oldSelf.upload)")
        .message("an ingestion does not change, but for cancel and ttlSecondsAfterFinished; make another one"),
    validation = kube::core::Rule::new("!oldSelf.cancel || self.cancel")
        .message("cancel: an ingestion that was cancelled does not go on; make another one"),
)]
pub struct IngestionSpec {
    /// The KnowledgeBase of the same namespace, by name or by id (kb_...).
    #[schemars(length(min = 1, max = 66), regex(pattern = r"^[a-z]([-_a-z0-9]*[a-z0-9])?$"))]
    pub knowledge_base: String,

    /// What is read once. Its documents belong to a source that is named after what it reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,

    /// A source of the knowledge base, by its name in spec.sources.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 40), regex(pattern = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"))]
    pub source_name: Option<String>,

    /// A file that was uploaded through the REST API, by the id of the upload. Only Slipway sets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[A-Za-z0-9_-]+$"))]
    pub upload: Option<String>,

    /// Whether documents are removed even though the source has next to nothing of what was indexed. Without it such an ingestion fails and removes nothing, in case the source's settings are wrong or its folder was emptied by mistake: if nothing is found, or less than a tenth of at least 20 documents. An uploaded file removes nothing in any case. Default false.
    #[serde(default)]
    #[x_kube(validation = kube::core::Rule::new("self == oldSelf").message("an ingestion does not change, but for cancel and ttlSecondsAfterFinished; make another one"))]
    pub confirm_removal: bool,

    /// Ends the ingestion. Documents that were added stay. Default false.
    #[serde(default)]
    pub cancel: bool,

    /// After how many seconds an ingestion that has ended is deleted. Default is the chart's value worker.ingestion.ttlSeconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 31_536_000))]
    pub ttl_seconds_after_finished: Option<i64>,
}

/// How far an ingestion is.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IngestionStatus {
    /// Pending waits for what it names or for its pod, Running reads documents, Completed has read all of them, Failed did not come to the end, Cancelled was ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<IngestionPhase>,
    /// The documents.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Option::is_none")]
    pub documents: Option<IngestedDocuments>,
    /// Pages that were read.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub pages: Option<i64>,
    /// Chunks that were written.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub chunks: Option<i64>,
    /// The first documents that could not be read, and why; at most 20.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    pub errors: Vec<DocumentError>,
    /// When its Job was made.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// When it ended.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
    /// The generation of the spec that this status speaks of.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready: all documents have been read. Reconciling: it is on its way. Stalled: it ended before that.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// The documents of an ingestion.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IngestedDocuments {
    /// Documents that the source has, as far as it has been read.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub seen: i64,
    /// Documents that are new or differ from before.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub changed: i64,
    /// Documents that are as before.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub unchanged: i64,
    /// Documents that could not be read.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub failed: i64,
    /// Documents that the source has no more.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub removed: i64,
}

/// Why a document could not be read.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DocumentError {
    /// The document.
    #[schemars(length(max = 512))]
    pub document: String,
    /// What is wrong with it.
    #[schemars(length(max = 1024))]
    pub message: String,
}

words!(
    /// Where an ingestion stands.
    IngestionPhase { Pending = "Pending", Running = "Running", Completed = "Completed", Failed = "Failed", Cancelled = "Cancelled" }
);

impl IngestionPhase {
    /// Whether it has ended.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}
