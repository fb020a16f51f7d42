//! Captured content, where `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT` asks for it: messages in the JSON form of
//! the GenAI conventions, bounded in size. The guards have masked them before.

use serde::Serialize;
use serde_json::Value;

/// A longer text within a message is cut.
const MAX_TEXT_BYTES: usize = 8 << 10;
/// Of all messages of an attribute; the oldest are dropped first.
const MAX_ATTRIBUTE_BYTES: usize = 64 << 10;

#[derive(Debug, Clone, Serialize)]
pub(crate) struct SpanMessage {
    /// `system`, `user`, `assistant` or `tool`.
    pub(crate) role: &'static str,
    pub(crate) parts: Vec<Part>,
}

#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type")]
pub(crate) enum Part {
    #[serde(rename = "text")]
    Text { content: String },
    #[serde(rename = "tool_call")]
    ToolCall { id: String, name: String, arguments: Value },
    #[serde(rename = "tool_call_response")]
    ToolResult { id: String, response: String },
}

impl SpanMessage {
    pub(crate) fn text(role: &'static str, content: impl Into<String>) -> Self {
        Self { role, parts: vec![Part::Text { content: content.into() }] }
    }

    fn shortened(mut self) -> Self {
        for part in &mut self.parts {
            match part {
                Part::Text { content } | Part::ToolResult { response: content, .. } => shorten(content),
                // Cut JSON would not be JSON.
                Part::ToolCall { arguments, .. } => {
                    let mut text = arguments.to_string();
                    if text.len() > MAX_TEXT_BYTES {
                        shorten(&mut text);
                        *arguments = Value::String(text);
                    }
                }
            }
        }
        self
    }
}

/// The value of `gen_ai.input.messages` or `gen_ai.output.messages`.
pub(super) fn json(messages: Vec<SpanMessage>) -> String {
    let messages: Vec<_> = messages.into_iter().filter_map(|message| serde_json::to_string(&message.shortened()).ok()).collect();
    let mut room = MAX_ATTRIBUTE_BYTES;
    let kept = messages.iter().rev().take_while(|message| {
        let fits = message.len() < room;
        room -= (message.len() + 1).min(room);
        fits
    });
    let first = messages.len() - kept.count();
    format!("[{}]", messages[first..].join(","))
}

pub(super) fn shorten(text: &mut String) {
    if text.len() > MAX_TEXT_BYTES {
        text.truncate(text.floor_char_boundary(MAX_TEXT_BYTES));
        text.push('…');
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn messages_have_the_form_of_the_conventions() {
        let call = Part::ToolCall { id: "c1".into(), name: "weather".into(), arguments: json!({"city": "Paris"}) };
        let messages = vec![
            SpanMessage::text("user", "Weather in \"Paris\"?"),
            SpanMessage { role: "assistant", parts: vec![call] },
            SpanMessage { role: "tool", parts: vec![Part::ToolResult { id: "c1".into(), response: "57°F".into() }] },
        ];
        let read: Value = serde_json::from_str(&super::json(messages)).unwrap();
        let expected = json!([
            {"role": "user", "parts": [{"type": "text", "content": "Weather in \"Paris\"?"}]},
            {"role": "assistant", "parts": [{"type": "tool_call", "id": "c1", "name": "weather", "arguments": {"city": "Paris"}}]},
            {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "57°F"}]},
        ]);
        assert_eq!(read, expected);
        assert_eq!(super::json(Vec::new()), "[]");
    }

    #[test]
    fn what_is_long_is_cut_and_stays_json() {
        let long = "é".repeat(MAX_ATTRIBUTE_BYTES);
        let call = Part::ToolCall { id: String::new(), name: String::new(), arguments: json!({"text": long}) };
        let cut: Value = serde_json::from_str(&super::json(vec![
            SpanMessage::text("user", &*long),
            SpanMessage { role: "assistant", parts: vec![call] },
        ]))
        .unwrap();
        for text in [&cut[0]["parts"][0]["content"], &cut[1]["parts"][0]["arguments"]] {
            let text = text.as_str().unwrap();
            assert!(text.len() <= MAX_TEXT_BYTES + 3 && text.ends_with('…'), "{} bytes", text.len());
        }

        let many = (0..1000).map(|number| SpanMessage::text("user", format!("{number} {}", "x".repeat(1000)))).collect();
        let text = super::json(many);
        let kept: Vec<Value> = serde_json::from_str(&text).unwrap();
        let contents: Vec<_> = kept.iter().map(|message| message["parts"][0]["content"].as_str().unwrap()).collect();
        assert!(text.len() <= MAX_ATTRIBUTE_BYTES && kept.len() > 50, "{} messages in {} bytes", kept.len(), text.len());
        assert!(contents.last().unwrap().starts_with("999 "), "the newest message is kept");
        assert!(contents[0].starts_with(&format!("{} ", 1000 - kept.len())), "those that are kept are the newest");
    }
}
