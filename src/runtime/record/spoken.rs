//! Messages of the `GenAI` conventions, where content is captured.

use serde_json::Value;
use slipway_guards::Guards;
use slipway_models::{Content, ModelRequest, Role, ToolCall, ToolResult};

use super::presentable;
use crate::chat::is_id;
use crate::telemetry::{Part, SpanMessage};
use crate::turn::UNKNOWN;

pub(super) fn spoken(guards: &Guards, request: &ModelRequest) -> Vec<SpanMessage> {
    let system = request.system.iter().map(|text| SpanMessage::text("system", text));
    system.chain(request.messages.iter().filter_map(|message| told(guards, message))).collect()
}

/// What goes to the model has passed the guards; what it
/// said may not have, or is kept as it was for its own later rounds.
pub(super) fn told(guards: &Guards, message: &slipway_models::Message) -> Option<SpanMessage> {
    let (role, own) = match message.role {
        Role::User => ("user", false),
        Role::Assistant => ("assistant", true),
    };
    let part = |content: &Content| match content.clone() {
        Content::Text { text } if own => Some(Part::Text { content: presentable(guards, &text)? }),
        Content::Text { text } => Some(Part::Text { content: text }),
        Content::ToolCall(ToolCall { id, name, arguments, .. }) => {
            // The model may have made it up.
            let name = plain(presentable(guards, &name).unwrap_or_default());
            Some(Part::ToolCall { id: plain(id), name, arguments: json(presentable(guards, &arguments.to_string())?) })
        }
        Content::ToolResult(ToolResult { id, content, .. }) => Some(Part::ToolResult { id: plain(id), response: content }),
    };
    let parts: Vec<_> = message.content.iter().filter_map(part).collect();
    (!parts.is_empty()).then_some(SpanMessage { role, parts })
}

/// A name or an id of the form that tools and providers give them.
fn plain(name: String) -> String {
    if is_id(&name) { name } else { UNKNOWN.to_owned() }
}

/// A masked text that was JSON, as JSON again where it still is.
pub(crate) fn json(text: String) -> Value {
    serde_json::from_str(&text).unwrap_or(Value::String(text))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_and_ids_that_a_model_made_up_are_not_repeated() {
        let guards = Guards::read(r#"[{"name": "blocked-topics", "topics": [{"name": "cats", "words": ["catnip"]}]}]"#, "").unwrap();
        for (id, name, expected) in [
            ("call_1", "git_log", ("call_1", "git_log")),
            ("call 1", "catnip", (UNKNOWN, UNKNOWN)),
            ("", "a story", (UNKNOWN, UNKNOWN)),
            ("x", "a.b", ("x", UNKNOWN)),
        ] {
            let call = ToolCall { id: id.into(), name: name.into(), arguments: json!({}), signature: None };
            let result = ToolResult { id: id.into(), name: name.into(), content: "fine".into(), is_error: false };
            let message = |role, content| slipway_models::Message { role, content: vec![content] };
            let called = told(&guards, &message(Role::Assistant, Content::ToolCall(call))).unwrap();
            let answered = told(&guards, &message(Role::User, Content::ToolResult(result))).unwrap();
            assert!(
                matches!(&called.parts[..], [Part::ToolCall { id, name, .. }] if (id.as_str(), name.as_str()) == expected),
                "{id:?}, {name:?}"
            );
            assert!(matches!(&answered.parts[..], [Part::ToolResult { id, .. }] if id == expected.0), "{id:?}");
        }
    }
}
