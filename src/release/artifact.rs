//! The release artifact: everything of an Agent that changes what runs, in blocks.
//!
//! Fields that are not the specification's stand in `agent`, `runtime` and `governance` under the Agent's own names.
//! What an Agent leaves out is left out here too, and lists are always there. What a later version of Slipway added to
//! a block is kept in `further`, so that it is not lost by being read and written.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Status;

/// Fields of a block that this version does not know. They can be shown and compared, but not be brought back.
pub type Further = BTreeMap<String, Value>;

/// One release of an agent.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Artifact {
    #[serde(rename = "apiVersion")]
    pub api_version: String,
    pub kind: String,
    pub metadata: Metadata,
    pub runtime: Runtime,
    pub agent: AgentBlock,
    pub governance: Governance,
    pub deployment: Deployment,
    pub resolved: Resolved,
}

/// Which release it is, whose, and where it stood when it was written.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Metadata {
    /// The Agent's name, which is the folder's name too.
    pub name: String,
    /// 1 and up.
    pub version: u64,
    /// The version before; 0 for the first.
    pub previous: u64,
    pub author: String,
    pub timestamp: Timestamp,
    pub changelog: String,
    /// SHA-256 of the artifact's YAML with this field empty. Empty until the artifact is sealed.
    pub checksum: String,
    pub status: Status,
    /// In tombstones alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted_at: Option<Timestamp>,
}

/// What runs the agent.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
pub struct Runtime {
    /// Absent when the Agent leaves it to the platform; `resolved` has the digest then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    pub channel: String,
    pub strategy: String,
    /// Carried, but no content: a change of it alone makes no release. Absent while an autoscaler sets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// Names of Secrets, in the order of the Agent.
    pub env_secrets: Vec<String>,
    /// The name of a Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential_secret: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gcp_service_account: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<String>,
    /// By what the agent is reached from outside. Absent when it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expose: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_template: Option<PodTemplate>,
    #[serde(flatten)]
    pub further: Further,
}

/// What a pod asks for and is limited to.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
pub struct Resources {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub requests: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, String>,
    #[serde(flatten)]
    pub further: Further,
}

/// Settings of the pods. Within tolerations and affinity, names are Kubernetes' own.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
pub struct PodTemplate {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub image_pull_secrets: Vec<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_class_name: Option<String>,
    #[serde(flatten)]
    pub further: Further,
}

/// What the agent is.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
pub struct AgentBlock {
    pub model: Model,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    pub skills: Vec<String>,
    pub tools: Vec<String>,
    pub knowledge_bases: Vec<String>,
    pub memory: Memory,
    pub framework: String,
    /// The author's label, not the number of the release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background_model: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database_url: Option<String>,
    /// The name of a Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database_credentials_secret: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suggestions_provider: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suggestions: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judge_model: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eval_sample_rate: Option<i32>,
    #[serde(flatten)]
    pub further: Further,
}

/// Who answers.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
pub struct Model {
    pub provider: String,
    pub id: String,
    /// The Integration that gives server and key, by the name or id that the Agent has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub integration: Option<String>,
    #[serde(flatten)]
    pub further: Further,
}

/// Where conversations and memories are kept.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
pub struct Memory {
    /// Absent when the Agent leaves it to the platform.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    #[serde(flatten)]
    pub further: Further,
}

/// What must not pass, and what a release must reach.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
pub struct Governance {
    pub guards: Vec<String>,
    pub policies: Vec<String>,
    pub risk_profile: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eval_dataset: Option<String>,
    pub min_quality_score: i32,
    /// Settings of guards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<GovernanceLimits>,
    #[serde(flatten)]
    pub further: Further,
}

/// Settings of guards.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
pub struct GovernanceLimits {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens_per_request: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_per_minute: Option<i64>,
    /// An amount as it was written; 5 is "5".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub daily_cost_usd: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocked_topics: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prices: Vec<Price>,
    #[serde(flatten)]
    pub further: Further,
}

/// What a model costs, in US dollars for a million tokens, as it was written.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
pub struct Price {
    pub model: String,
    pub input_usd: String,
    pub output_usd: String,
    #[serde(flatten)]
    pub further: Further,
}

/// Where the agent runs.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
pub struct Deployment {
    pub namespace: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,
    #[serde(flatten)]
    pub further: Further,
}

/// What names in the other blocks stood for when the release was made: name to digest.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
pub struct Resolved {
    /// The digest of the image, once it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    pub tools: BTreeMap<String, String>,
    pub skills: BTreeMap<String, String>,
    pub knowledge_bases: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub integrations: BTreeMap<String, String>,
    #[serde(flatten)]
    pub further: Further,
}
