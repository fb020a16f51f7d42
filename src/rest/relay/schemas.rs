//! Requests and responses of agents, for the OpenAPI document. The agent validates and makes them; it may add fields, and a
//! custom image may omit some.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

/// A message to an agent. One of `message` and `input` is needed; where both are given, `message` counts.
#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct Chat {
    #[schemars(default)]
    message: Option<String>,
    #[schemars(default)]
    input: Option<String>,
    /// The conversation to go on with; without it a new one begins.
    #[schemars(default, regex(pattern = "^[A-Za-z0-9_-]{1,64}$"))]
    conversation_id: Option<String>,
    /// Ends the turn when the client leaves. Without it the answer is finished and kept.
    #[schemars(default)]
    cancel_on_disconnect: bool,
}

/// What an agent answered.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Said")]
pub(crate) struct ChatReply {
    output: String,
    conversation_id: Option<String>,
    trace_id: Option<String>,
    usage: Option<Usage>,
    stop_reason: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ChatUsage")]
pub(crate) struct Usage {
    input_tokens: u64,
    output_tokens: u64,
}

/// A conversation in a list.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ConversationSummary")]
pub(crate) struct ConversationSummary {
    id: String,
    title: Option<String>,
    created_at: String,
    updated_at: String,
    message_count: u64,
}

/// A conversation with what was said.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Conversation {
    id: String,
    title: Option<String>,
    created_at: String,
    updated_at: String,
    message_count: u64,
    messages: Vec<Message>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Message {
    id: String,
    /// user or assistant
    role: String,
    content: String,
    created_at: String,
    trace_id: Option<String>,
    interrupted: Option<bool>,
    /// What was found in knowledge bases for the answer.
    sources: Option<Vec<MessageSource>>,
}

/// Where a passage stands that was found for an answer.
#[derive(Serialize, JsonSchema)]
pub(crate) struct MessageSource {
    /// The document's address, or what else its source calls it.
    source: String,
    filename: String,
    page: Option<u32>,
    document_id: String,
    chunk_id: String,
    kb_id: String,
    score: f64,
}

/// Whether an answer is being made, and what there is of it.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ConversationStatus")]
pub(crate) struct ConversationStatus {
    generating: bool,
    partial: Option<String>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Suggestions {
    suggestions: Vec<String>,
}

/// What was deleted.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Forgotten")]
pub(crate) struct Forgotten {
    id: String,
    deleted: bool,
}

/// Something an agent remembers.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Memory")]
pub(crate) struct Memory {
    id: String,
    content: String,
    /// fact, preference, instruction or observation
    category: Option<String>,
    source: Option<String>,
    relevance: Option<f64>,
    created_at: Option<String>,
}

/// Something for an agent to remember.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "NewMemory", deny_unknown_fields)]
pub(crate) struct NewMemory {
    content: String,
    #[schemars(default)]
    category: Option<String>,
    #[schemars(default)]
    source: Option<String>,
}

/// How an agent remembers.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "MemoryStatus")]
pub(crate) struct MemoryStatus {
    enabled: bool,
    backend: Option<String>,
    persistent: Option<bool>,
    search_type: Option<String>,
    embedding_model: Option<String>,
    count: Option<u64>,
}

/// What to look for among memories.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "MemorySearch", deny_unknown_fields)]
pub(crate) struct MemorySearch {
    query: String,
    #[schemars(default)]
    top_k: Option<u32>,
}

/// Memories that fit, best first.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "MemoryResults")]
pub(crate) struct MemoryResults {
    results: Vec<Value>,
}
