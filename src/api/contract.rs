//! The contract with an agent's pod: the variables it is given, and the JSON inside some of them.

pub mod command;
pub mod endpoint;
pub mod placeholder;
pub mod policies;
pub mod tools;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::agent::Guard;
use crate::tool::{HeaderScheme, Method, Parameter, Protocol, ToolType};

pub const PORT: i32 = 8000;
pub const CONTROL_PORT: i32 = 8001;
/// Where `credentialSecret` is mounted.
pub const CREDENTIALS: &str = "/var/run/slipway/credentials";
/// Where an ingestion finds the team's volume.
pub const LOCAL_FOLDER: &str = "/var/lib/slipway/local";
/// Where skills are mounted, each in a folder of its name.
pub const SKILLS_FOLDER: &str = "/var/run/slipway/skills";
/// Linux allows 128 KiB for one variable; this leaves room for its name.
pub const VARIABLE_MAX: usize = 120 * 1024;

pub const CHANNEL: &str = "RUNTIME_CHANNEL";
pub const STRATEGY: &str = "RUNTIME_STRATEGY";
pub const MODEL_TYPE: &str = "RUNTIME_MODEL_TYPE";
pub const MODEL_ID: &str = "RUNTIME_MODEL_ID";
/// The server of the agent's own models of the provider in [`MODEL_TYPE`], where the Agent names an integration for them. Judges are
/// not asked there.
pub const MODEL_BASE_URL: &str = "RUNTIME_MODEL_BASE_URL";
/// The key there. With [`MODEL_BASE_URL`] no other key counts.
pub const MODEL_API_KEY: &str = "RUNTIME_MODEL_API_KEY";
pub const BACKGROUND_MODEL: &str = "RUNTIME_BACKGROUND_MODEL";
pub const SYSTEM_PROMPT: &str = "RUNTIME_SYSTEM_PROMPT";
pub const STORAGE: &str = "RUNTIME_STORAGE";
pub const DATABASE_URL: &str = "RUNTIME_DATABASE_URL";
pub const DATABASE_USER: &str = "RUNTIME_DATABASE_USER";
pub const DATABASE_PASSWORD: &str = "RUNTIME_DATABASE_PASSWORD";
pub const TOOLS: &str = "RUNTIME_TOOLS";
/// JSON object: tool → digest of the approved list of the server that it stands for. See [`ToolConfig::tools_digest`].
pub const TOOL_DIGESTS: &str = "RUNTIME_TOOL_DIGESTS";
pub const SKILLS: &str = "RUNTIME_SKILLS";
pub const GUARDS: &str = "RUNTIME_GUARDS";
/// JSON array of the policies that the agent names: ids of the file in [`POLICIES_FILE`], or whole policies. Not set: the file's
/// defaults.
pub const POLICIES: &str = "RUNTIME_POLICIES";
/// The path of the team's policies, [`policies::PATH`].
pub const POLICIES_FILE: &str = "RUNTIME_POLICIES_FILE";
pub const EMBEDDING_MODEL: &str = "RUNTIME_EMBEDDING_MODEL";
pub const EGRESS_ALLOW: &str = "RUNTIME_EGRESS_ALLOW";
pub const EGRESS_PROXY: &str = "RUNTIME_EGRESS_PROXY";
pub const SEARCH_URL: &str = "RUNTIME_SEARCH_URL";
pub const PLATFORM_URL: &str = "RUNTIME_PLATFORM_URL";
pub const CONTROL_PUBLIC_KEY: &str = "RUNTIME_CONTROL_PUBLIC_KEY";
/// `platform`, or not set.
pub const ACCESS: &str = "RUNTIME_ACCESS";
pub const ACCESS_PUBLIC_KEY: &str = "RUNTIME_ACCESS_PUBLIC_KEY";
pub const RUN_HASH: &str = "RUNTIME_RUN_HASH";
pub const MLFLOW_URI: &str = "RUNTIME_MLFLOW_URI";
pub const OTLP_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
pub const OTEL_ATTRIBUTES: &str = "OTEL_RESOURCE_ATTRIBUTES";
pub const DATABASE_MIGRATE: &str = "RUNTIME_DATABASE_MIGRATE";
pub const DATABASE_PREPARED_STATEMENTS: &str = "RUNTIME_DATABASE_PREPARED_STATEMENTS";
pub const KNOWLEDGE_BASES: &str = "RUNTIME_KNOWLEDGE_BASES";
/// The database of chunks, for workers and ingestions.
pub const KNOWLEDGE_URL: &str = "SLIPWAY_KNOWLEDGE_URL";
pub const INGESTION: &str = "SLIPWAY_INGESTION";
/// JSON of a [`crate::worker::ProbeRequest`] without credentials: what a Job looks for on the team's volume.
pub const PROBE: &str = "SLIPWAY_PROBE";
/// The source that uploaded files belong to. A file takes the place of an earlier one of its name, so that they are read one after
/// the other.
pub const UPLOADS: &str = "uploads";
/// Percent of answers that are scored; set together with the next three, and only where answers are stored.
pub const EVAL_SAMPLE_RATE: &str = "RUNTIME_EVAL_SAMPLE_RATE";
pub const EVAL_SAMPLES_PER_DAY: &str = "RUNTIME_EVAL_SAMPLES_PER_DAY";
pub const RISK_PROFILE: &str = "RUNTIME_RISK_PROFILE";
pub const JUDGE_MODEL: &str = "RUNTIME_JUDGE_MODEL";
/// `true`: the pod is no agent. It puts the cases of an evaluation to an agent with an image of its own, and scores the answers.
pub const EVALUATOR: &str = "RUNTIME_EVALUATOR";
/// `provider:model_id` of that agent, by which its answers are priced.
pub const EVALUATED_MODEL: &str = "RUNTIME_EVALUATED_MODEL";
/// On what an evaluator asks an agent: the id of the run.
pub const EVALUATION_HEADER: &str = "x-slipway-evaluation";
/// On a stream of an agent: of what its events tell whenever there is something to tell, `tools` and `sources`, separated by commas.
pub const EVENTS_HEADER: &str = "x-slipway-events";
pub const SUGGESTIONS_PROVIDER: &str = "RUNTIME_SUGGESTIONS_PROVIDER";
pub const SUGGESTIONS: &str = "RUNTIME_SUGGESTIONS";
pub const AGENT_ID: &str = "RUNTIME_AGENT_ID";
pub const AGENT_NAME: &str = "RUNTIME_AGENT_NAME";
pub const TEAM: &str = "RUNTIME_TEAM";
pub const TRACK: &str = "RUNTIME_TRACK";
pub const OLLAMA_BASE_URL: &str = "OLLAMA_BASE_URL";
pub const PGSSLMODE: &str = "PGSSLMODE";
pub const GOOGLE_APPLICATION_CREDENTIALS: &str = "GOOGLE_APPLICATION_CREDENTIALS";

/// The models of the provider stub.
pub const STUB_MODELS: [&str; 2] = ["stub-echo", "stub-script"];

/// One element of `RUNTIME_TOOLS`: a Tool as the runtime sees it.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ToolConfig {
    pub name: String,
    #[serde(rename = "type")]
    pub type_: ToolType,
    pub category: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<Method>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Header → the variable that holds its value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers_from: BTreeMap<String, String>,
    /// Header → how its value is made of variables. No header is here and in `headers_from`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub auth: BTreeMap<String, HeaderAuth>,
    #[serde(default)]
    pub parameters: Vec<Parameter>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binary: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_commands: Option<Vec<String>>,
    /// Absent for arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mcp_endpoint: Option<String>,
    /// The list that somebody has named as the approved one. One that was merely seen first stands in
    /// [`TOOL_DIGESTS`], a variable of its own, because no pod is to be restarted for its sake.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools_digest: Option<String>,
    pub timeout: i32,
}

/// How the value of a header is made.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
pub struct HeaderAuth {
    pub scheme: HeaderScheme,
    /// The variable with the token, or with the password.
    pub secret: String,
    /// The variable with the user's name, with basic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

/// One element of `RUNTIME_SKILLS`.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
pub struct SkillConfig {
    pub name: String,
    pub description: String,
    /// The folder that holds `SKILL.md` and the files beside it.
    pub path: String,
    /// SHA-256 over all that the folder should hold. It makes the pods roll when that changes.
    pub digest: String,
}

/// One element of `RUNTIME_GUARDS`: a name alone, or a name with settings.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(untagged)]
pub enum GuardConfig {
    Name(Guard),
    MaxTokens {
        name: Guard,
        limit: i64,
    },
    RateLimit {
        name: Guard,
        requests: i64,
    },
    BlockedTopics {
        name: Guard,
        topics: Vec<String>,
    },
    // The last one: it is read from whatever has a name.
    SpendLimit {
        name: Guard,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usd: Option<f64>,
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        prices: BTreeMap<String, ModelPrice>,
    },
}

/// US dollars for a million tokens of a model.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq)]
pub struct ModelPrice {
    pub input: f64,
    pub output: f64,
}

/// One element of `RUNTIME_KNOWLEDGE_BASES`.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
pub struct KnowledgeBaseConfig {
    pub kb_id: String,
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The kind of vector store; `pgvector` is the only one.
    pub store: String,
    pub connection_url: String,
    pub embedding: EmbeddingConfig,
}

/// `SLIPWAY_INGESTION`: what the pod of an ingestion is to do.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct IngestionConfig {
    /// Of the Ingestion. The progress in the database bears it.
    pub uid: String,
    pub name: String,
    pub kb_id: String,
    pub embedding: EmbeddingConfig,
    /// Of the KnowledgeBase's spec that the embedding is from: what a later one wants is not undone.
    #[serde(default)]
    pub generation: i64,
    /// The source that the documents belong to.
    pub source_name: String,
    /// What former versions called it, if that is another name: documents of that name are this source's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub former_source_name: Option<String>,
    /// As the REST API has it, with `type`; none of an upload.
    pub source: Option<Value>,
    pub upload: Option<String>,
    /// Whether a source is believed that has next to nothing of what was indexed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub confirm_removal: bool,
    /// Whether its time has come, and nobody asked for it: then deletions may be left to one ingestion a day, where the source tells
    /// its changes and not its deletions.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub scheduled: bool,
}

/// How the chunks of a knowledge base were made.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
pub struct EmbeddingConfig {
    pub model: String,
    pub chunk_size: i32,
    pub chunk_overlap: i32,
}
