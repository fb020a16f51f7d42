//! Conversations and memories as callers see them, in the answers of either server: the agent's own runtime, or REST while the
//! agent rests.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::types::{ConversationSummary, Page, Role, StoredMessage};

/// A page of a list.
#[derive(Debug, Serialize)]
pub struct Listed<T> {
    data: Vec<T>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

impl<T> From<Page<T>> for Listed<T> {
    fn from(page: Page<T>) -> Self {
        Self { data: page.items, next_cursor: page.next_cursor }
    }
}

/// A conversation with what was said.
#[derive(Debug, Serialize)]
pub struct Detail {
    #[serde(flatten)]
    summary: ConversationSummary,
    messages: Vec<Message>,
}

impl From<(ConversationSummary, Vec<StoredMessage>)> for Detail {
    fn from((summary, messages): (ConversationSummary, Vec<StoredMessage>)) -> Self {
        Self { summary, messages: messages.into_iter().map(Message::from).collect() }
    }
}

/// A message without what only the model's adapter needs.
#[derive(Debug, Serialize)]
struct Message {
    id: String,
    role: Role,
    content: String,
    created_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<String>,
    /// The answer ended before it was whole.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    interrupted: bool,
    /// Where in documents the answer may come from.
    #[serde(skip_serializing_if = "Option::is_none")]
    sources: Option<Value>,
}

impl From<StoredMessage> for Message {
    fn from(message: StoredMessage) -> Self {
        let StoredMessage { id, role, content, trace_id, interrupted, created_at, parts } = message;
        let sources = parts.and_then(|mut parts| parts.as_object_mut()?.remove("sources"));
        Self { id, role, content, created_at, trace_id, interrupted, sources }
    }
}
