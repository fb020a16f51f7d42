//! Messages of the `GenAI` conventions, where content is captured.

use serde_json::Value;
use slipway_guards::Guards;
use slipway_models::{Content, Request, Role, ToolCall, ToolResult};

use super::presentable;
use crate::telemetry::{Message, Part};

pub(super) fn spoken(guards: &Guards, request: &Request) -> Vec<Message> {
    let system = request.system.iter().map(|text| Message::text("system", text));
    system.chain(request.messages.iter().filter_map(|message| told(guards, message))).collect()
}

/// What goes to the model has passed the guards; what it
/// said may not have, or is kept as it was for its own later rounds.
pub(super) fn told(guards: &Guards, message: &slipway_models::Message) -> Option<Message> {
    let (role, own) = match message.role {
        Role::User => ("user", false),
        Role::Assistant => ("assistant", true),
    };
    let part = |content: &Content| match content.clone() {
        Content::Text { text } if own => Some(Part::Text { content: presentable(guards, &text)? }),
        Content::Text { text } => Some(Part::Text { content: text }),
        Content::ToolCall(ToolCall { id, name, arguments, .. }) => {
            Some(Part::ToolCall { id, name, arguments: json(presentable(guards, &arguments.to_string())?) })
        }
        Content::ToolResult(ToolResult { id, content, .. }) => Some(Part::ToolResult { id, response: content }),
    };
    let parts: Vec<_> = message.content.iter().filter_map(part).collect();
    (!parts.is_empty()).then_some(Message { role, parts })
}

/// A masked text that was JSON, as JSON again where it still is.
pub(crate) fn json(text: String) -> Value {
    serde_json::from_str(&text).unwrap_or(Value::String(text))
}
