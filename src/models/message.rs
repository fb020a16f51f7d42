//! The request to a model. Conversations are stored as messages, so their JSON form is stable: fields are only added, and
//! only with a default.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The description of a tool that was called earlier and is no longer available.
const REMOVED_TOOL: &str = "Not available any more. Answer with what is known.";

#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelRequest {
    pub system: Option<String>,
    pub messages: Vec<Message>,
    pub tools: Vec<ToolSpec>,
    /// `None`: the provider's default; for Anthropic, which requires a limit, that of the model.
    pub max_output_tokens: Option<u32>,
    pub temperature: Option<f32>,
    pub stop: Vec<String>,
}

impl ModelRequest {
    /// The tools to declare. Some providers refuse a conversation with calls if no tool is declared; then the tools that were
    /// called are declared, with a description that says that they are not available.
    pub(crate) fn declared(&self) -> Cow<'_, [ToolSpec]> {
        if !self.tools.is_empty() {
            return Cow::Borrowed(&self.tools);
        }
        let mut tools: Vec<ToolSpec> = Vec::new();
        for content in self.messages.iter().flat_map(|message| &message.content) {
            let (Content::ToolCall(ToolCall { name, .. }) | Content::ToolResult(ToolResult { name, .. })) = content else { continue };
            if !tools.iter().any(|tool| tool.name == *name) {
                tools.push(ToolSpec { name: name.clone(), description: REMOVED_TOOL.to_owned(), schema: json!({"type": "object"}) });
            }
        }
        Cow::Owned(tools)
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    pub role: Role,
    pub content: Vec<Content>,
}

impl Message {
    pub fn user(text: impl Into<String>) -> Self {
        Self { role: Role::User, content: vec![Content::Text { text: text.into() }] }
    }

    pub fn assistant(text: impl Into<String>) -> Self {
        Self { role: Role::Assistant, content: vec![Content::Text { text: text.into() }] }
    }

    /// The text of the message; tool calls and results are left out.
    pub fn text(&self) -> String {
        let texts = self.content.iter().filter_map(|content| match content {
            Content::Text { text } => Some(text.as_str()),
            Content::ToolCall(_) | Content::ToolResult(_) => None,
        });
        texts.collect()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    User,
    Assistant,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Content {
    Text { text: String },
    ToolCall(ToolCall),
    ToolResult(ToolResult),
}

/// A tool call of the model, in a message of the assistant.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    pub id: String,
    pub name: String,
    /// An object, or a string with the model's text if that is no object.
    pub arguments: Value,
    /// Opaque data that the provider requires back with the call (Gemini's thought signature).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
}

/// The result of a call, in the user message that follows the call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolResult {
    /// The call's id.
    pub id: String,
    pub name: String,
    pub content: String,
    #[serde(default)]
    pub is_error: bool,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolSpec {
    pub name: String,
    pub description: String,
    /// The JSON Schema of the arguments.
    pub schema: Value,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_tools_those_that_were_called_are_declared_once() {
        let call = |name: &str| Content::ToolCall(ToolCall { name: name.into(), ..ToolCall::default() });
        let result =
            |name: &str| Content::ToolResult(ToolResult { id: String::new(), name: name.into(), content: String::new(), is_error: false });
        let history = vec![
            Message::user("hi"),
            Message { role: Role::Assistant, content: vec![call("add"), call("look_up"), call("add")] },
            Message { role: Role::User, content: vec![result("add"), result("look_up"), result("add"), result("lost")] },
        ];
        let own = ToolSpec { name: "own".into(), description: String::new(), schema: json!({}) };
        for (tools, messages, expected) in [
            (vec![], vec![Message::user("hi")], vec![]),
            (vec![], history.clone(), vec!["add", "look_up", "lost"]),
            (vec![own], history, vec!["own"]),
        ] {
            let request = ModelRequest { messages, tools, ..ModelRequest::default() };
            assert_eq!(request.declared().iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn the_stored_form_stays_readable() {
        for (content, stored) in [
            (Content::Text { text: "hi".into() }, json!({"type": "text", "text": "hi"})),
            (
                Content::ToolCall(ToolCall { id: "1".into(), name: "add".into(), arguments: json!({"a": 1}), signature: None }),
                json!({"type": "tool_call", "id": "1", "name": "add", "arguments": {"a": 1}}),
            ),
            (
                Content::ToolResult(ToolResult { id: "1".into(), name: "add".into(), content: "2".into(), is_error: false }),
                json!({"type": "tool_result", "id": "1", "name": "add", "content": "2", "is_error": false}),
            ),
        ] {
            let message = Message { role: Role::User, content: vec![content] };
            let expected = json!({"role": "user", "content": [stored]});
            assert_eq!(serde_json::to_value(&message).unwrap(), expected);
            assert_eq!(serde_json::from_value::<Message>(expected).unwrap(), message);
        }
    }
}
