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

/// Declares the names of variables, and [`ALL`] of them.
macro_rules! variables {
    ($($(#[$meta:meta])* $name:ident = $word:literal;)+) => {
        $($(#[$meta])* pub const $name: &str = $word;)+

        /// The variables of the contract.
        pub const ALL: &[&str] = &[$($name),+];
    };
}

variables! {
    CHANNEL = "RUNTIME_CHANNEL";
    STRATEGY = "RUNTIME_STRATEGY";
    MODEL_TYPE = "RUNTIME_MODEL_TYPE";
    MODEL_ID = "RUNTIME_MODEL_ID";
    /// The server of the agent's own models of the provider in [`MODEL_TYPE`], where the Agent names an integration for them. Judges are
    /// not asked there.
    MODEL_BASE_URL = "RUNTIME_MODEL_BASE_URL";
    /// The key there. With [`MODEL_BASE_URL`] no other key counts.
    MODEL_API_KEY = "RUNTIME_MODEL_API_KEY";
    BACKGROUND_MODEL = "RUNTIME_BACKGROUND_MODEL";
    SYSTEM_PROMPT = "RUNTIME_SYSTEM_PROMPT";
    STORAGE = "RUNTIME_STORAGE";
    DATABASE_URL = "RUNTIME_DATABASE_URL";
    DATABASE_USER = "RUNTIME_DATABASE_USER";
    DATABASE_PASSWORD = "RUNTIME_DATABASE_PASSWORD";
    TOOLS = "RUNTIME_TOOLS";
    /// JSON object: tool → digest of the approved list of the server that it stands for. See [`ToolConfig::tools_digest`].
    TOOL_DIGESTS = "RUNTIME_TOOL_DIGESTS";
    SKILLS = "RUNTIME_SKILLS";
    GUARDS = "RUNTIME_GUARDS";
    /// JSON array of the policies that the agent names: ids of the file in [`POLICIES_FILE`], or whole policies. Not set: the file's
    /// defaults.
    POLICIES = "RUNTIME_POLICIES";
    /// The path of the team's policies, [`policies::PATH`].
    POLICIES_FILE = "RUNTIME_POLICIES_FILE";
    EMBEDDING_MODEL = "RUNTIME_EMBEDDING_MODEL";
    EGRESS_ALLOW = "RUNTIME_EGRESS_ALLOW";
    EGRESS_PROXY = "RUNTIME_EGRESS_PROXY";
    SEARCH_URL = "RUNTIME_SEARCH_URL";
    PLATFORM_URL = "RUNTIME_PLATFORM_URL";
    CONTROL_PUBLIC_KEY = "RUNTIME_CONTROL_PUBLIC_KEY";
    /// `platform`, or not set.
    ACCESS = "RUNTIME_ACCESS";
    ACCESS_PUBLIC_KEY = "RUNTIME_ACCESS_PUBLIC_KEY";
    RUN_HASH = "RUNTIME_RUN_HASH";
    MLFLOW_URI = "RUNTIME_MLFLOW_URI";
    OTLP_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT";
    OTEL_ATTRIBUTES = "OTEL_RESOURCE_ATTRIBUTES";
    DATABASE_MIGRATE = "RUNTIME_DATABASE_MIGRATE";
    DATABASE_PREPARED_STATEMENTS = "RUNTIME_DATABASE_PREPARED_STATEMENTS";
    KNOWLEDGE_BASES = "RUNTIME_KNOWLEDGE_BASES";
    /// The database of chunks, for workers and ingestions.
    KNOWLEDGE_URL = "SLIPWAY_KNOWLEDGE_URL";
    INGESTION = "SLIPWAY_INGESTION";
    /// JSON of a [`crate::worker::ProbeRequest`] without credentials: what a Job looks for on the team's volume.
    PROBE = "SLIPWAY_PROBE";
    /// Percent of answers that are scored; set together with the next three, and only where answers are stored.
    EVAL_SAMPLE_RATE = "RUNTIME_EVAL_SAMPLE_RATE";
    EVAL_SAMPLES_PER_DAY = "RUNTIME_EVAL_SAMPLES_PER_DAY";
    RISK_PROFILE = "RUNTIME_RISK_PROFILE";
    JUDGE_MODEL = "RUNTIME_JUDGE_MODEL";
    /// `true`: the pod is no agent. It puts the cases of an evaluation to an agent with an image of its own, and scores the answers.
    EVALUATOR = "RUNTIME_EVALUATOR";
    /// `provider:model_id` of that agent, by which its answers are priced.
    EVALUATED_MODEL = "RUNTIME_EVALUATED_MODEL";
    SUGGESTIONS_PROVIDER = "RUNTIME_SUGGESTIONS_PROVIDER";
    SUGGESTIONS = "RUNTIME_SUGGESTIONS";
    AGENT_ID = "RUNTIME_AGENT_ID";
    AGENT_NAME = "RUNTIME_AGENT_NAME";
    TEAM = "RUNTIME_TEAM";
    TRACK = "RUNTIME_TRACK";
    OLLAMA_BASE_URL = "OLLAMA_BASE_URL";
    PGSSLMODE = "PGSSLMODE";
    GOOGLE_APPLICATION_CREDENTIALS = "GOOGLE_APPLICATION_CREDENTIALS";
}

/// The variables that an agent with an image of its own and its evaluator have alike.
pub const EVALUATOR_SHARED: [&str; 9] =
    [AGENT_ID, AGENT_NAME, TEAM, TRACK, GUARDS, POLICIES, OLLAMA_BASE_URL, PLATFORM_URL, CONTROL_PUBLIC_KEY];

/// The variables that an evaluator has empty. They would make an agent of it, have it report elsewhere, or change how it reaches the
/// database, and a Secret of the team may hold the names. Of the others it has values of its own.
pub const EVALUATOR_UNSET: [&str; 32] = [
    CHANNEL,
    STRATEGY,
    MODEL_TYPE,
    MODEL_ID,
    MODEL_BASE_URL,
    MODEL_API_KEY,
    BACKGROUND_MODEL,
    EMBEDDING_MODEL,
    SYSTEM_PROMPT,
    SUGGESTIONS,
    SUGGESTIONS_PROVIDER,
    TOOLS,
    TOOL_DIGESTS,
    SKILLS,
    KNOWLEDGE_BASES,
    EGRESS_ALLOW,
    EGRESS_PROXY,
    SEARCH_URL,
    EVAL_SAMPLE_RATE,
    EVAL_SAMPLES_PER_DAY,
    RISK_PROFILE,
    JUDGE_MODEL,
    ACCESS,
    ACCESS_PUBLIC_KEY,
    RUN_HASH,
    DATABASE_USER,
    DATABASE_PASSWORD,
    DATABASE_MIGRATE,
    PGSSLMODE,
    OTLP_ENDPOINT,
    OTEL_ATTRIBUTES,
    MLFLOW_URI,
];

/// The source that uploaded files belong to. A file takes the place of an earlier one of its name, so that they are read one after
/// the other.
pub const UPLOADS: &str = "uploads";
/// On what an evaluator asks an agent: the id of the run.
pub const EVALUATION_HEADER: &str = "x-slipway-evaluation";
/// On a stream of an agent: of what its events tell whenever there is something to tell, `tools` and `sources`, separated by commas.
pub const EVENTS_HEADER: &str = "x-slipway-events";

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
