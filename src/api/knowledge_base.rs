//! `KnowledgeBase`: documents that agents of a namespace are to search. Nothing fills or searches them yet.

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

/// Documents that agents of the same namespace are to search. This version of Slipway neither fills nor searches them yet.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[kube(
    group = "agents.slipway.dev",
    version = "v1",
    kind = "KnowledgeBase",
    doc = "Documents that agents of the same namespace are to search. This version of Slipway neither fills nor searches them yet.",
    plural = "knowledgebases",
    shortname = "kb",
    category = "slipway",
    namespaced,
    derive = "PartialEq",
    selectable = ".spec.embeddingModel",
    printcolumn(name = "Name", type_ = "string", json_path = ".spec.name"),
    printcolumn(name = "Embedding", type_ = "string", json_path = ".spec.embeddingModel"),
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
    /// The model that turns text into vectors. Default nomic-embed-text.
    #[serde(default = "nomic")]
    #[schemars(length(min = 1, max = 256))]
    pub embedding_model: String,
    /// The length of a chunk, in tokens, 16 to 8192. Default 512.
    #[serde(default = "chunk_size")]
    #[schemars(range(min = 16, max = 8192))]
    pub chunk_size: i32,
    /// How much neighbouring chunks share, in tokens. Default 50.
    #[serde(default = "chunk_overlap")]
    #[schemars(range(min = 0, max = 4096))]
    pub chunk_overlap: i32,
}

fn nomic() -> String {
    "nomic-embed-text".to_owned()
}

const fn chunk_size() -> i32 {
    512
}

const fn chunk_overlap() -> i32 {
    50
}
