//! Anthropic's Messages API.

use http::HeaderValue;
use serde_json::{Value, json};
use url::Url;

use crate::answer::{self, Piece, Stop, Usage};
use crate::draft::{self, Drafts};
use crate::exchange::{EventError, EventReader, Pieces, ProviderApi, WriteFuture};
use crate::fault::ModelFault;
use crate::message::{Content, Message, ModelRequest, Role, ToolSpec};
use crate::provider_settings::{self, ProviderVariables, Variables};
use crate::transport::ProviderCall;
use crate::wire::{Event, Framing};

pub(crate) const PLACE: ProviderVariables = ProviderVariables { base: "ANTHROPIC_BASE_URL", key: "ANTHROPIC_API_KEY" };
const API_VERSION: HeaderValue = HeaderValue::from_static("2023-06-01");

pub(crate) struct Anthropic {
    id: String,
    url: Url,
    key: Option<HeaderValue>,
    place: ProviderVariables,
}

impl Anthropic {
    pub(crate) fn open(id: &str, place: ProviderVariables, variables: Variables<'_>) -> Result<Self, ModelFault> {
        let base = provider_settings::base(variables, place.base, "https://api.anthropic.com")?;
        let key = provider_settings::key(variables, &[place.key], "")?;
        Ok(Self { id: id.to_owned(), url: provider_settings::under(&base, "v1/messages")?, key, place })
    }

    fn body(&self, request: &ModelRequest) -> Value {
        let mut body = json!({
            "model": self.id,
            "messages": request.messages.iter().map(write).collect::<Value>(),
            "max_tokens": request.max_output_tokens.unwrap_or_else(|| longest_answer(&self.id)),
            "stream": true,
        });
        if let Some(system) = request.system.as_deref().filter(|system| !system.trim().is_empty()) {
            body["system"] = system.into();
        }
        // Older models refuse the history of calls without tools: "Requests which include `tool_use` or `tool_result` blocks must define tools."
        let tools = request.declared();
        if !tools.is_empty() {
            body["tools"] = tools.iter().map(tool).collect();
        }
        if request.tools.is_empty() && !tools.is_empty() {
            body["tool_choice"] = json!({"type": "none"});
        }
        if let Some(temperature) = request.temperature {
            body["temperature"] = temperature.into();
        }
        if !request.stop.is_empty() {
            body["stop_sequences"] = json!(request.stop);
        }
        body
    }
}

/// The output limit of the model: the API requires a limit, and refuses a higher one.
fn longest_answer(id: &str) -> u32 {
    if id.starts_with("claude-3-5") {
        8_192
    } else if id.starts_with("claude-3-") && !id.starts_with("claude-3-7") {
        4_096
    } else {
        32_000
    }
}

fn tool(tool: &ToolSpec) -> Value {
    json!({"name": tool.name, "description": tool.description, "input_schema": tool.schema})
}

/// Results precede text; empty text is left out, because the API refuses it.
fn write(message: &Message) -> Value {
    let (mut results, mut others) = (Vec::new(), Vec::new());
    for content in &message.content {
        match content {
            Content::Text { text } if text.trim().is_empty() => {}
            Content::Text { text } => others.push(json!({"type": "text", "text": text})),
            Content::ToolCall(call) => others.push(
                json!({"type": "tool_use", "id": draft::portable(&call.id), "name": call.name, "input": draft::object(&call.arguments)}),
            ),
            Content::ToolResult(result) => results.push(json!({
                "type": "tool_result", "tool_use_id": draft::portable(&result.id), "content": result.content, "is_error": result.is_error,
            })),
        }
    }
    results.append(&mut others);
    json!({"role": match message.role { Role::User => "user", Role::Assistant => "assistant" }, "content": results})
}

impl ProviderApi for Anthropic {
    fn write<'a>(&'a self, request: &'a ModelRequest) -> WriteFuture<'a> {
        Box::pin(async move {
            let key = self.key.clone().ok_or_else(|| self.place.missing())?;
            Ok(ProviderCall::json(self.url.clone(), &self.body(request)).header("x-api-key", key).header("anthropic-version", API_VERSION))
        })
    }

    fn framing(&self) -> Framing {
        Framing::sse()
    }

    fn reader(&self) -> Box<dyn EventReader> {
        Box::new(Events::default())
    }
}

#[derive(Default)]
struct Events {
    drafts: Drafts,
    usage: Usage,
    stop: Option<Stop>,
}

impl EventReader for Events {
    fn read(&mut self, event: Event, pieces: &mut Pieces) -> Result<(), EventError> {
        let event: Value = serde_json::from_slice(&event.data).map_err(|_| EventError::Unreadable("an event is not JSON"))?;
        let index = event["index"].as_u64().unwrap_or_default();
        match event["type"].as_str().unwrap_or_default() {
            "message_start" => self.count(&event["message"]["usage"]),
            "content_block_start" if event["content_block"]["type"] == "tool_use" => {
                let text = |field: &str| event["content_block"][field].as_str().unwrap_or_default();
                self.drafts.begin(index, text("id"), text("name"));
            }
            "content_block_delta" => {
                let delta = &event["delta"];
                if let Some(text) = delta["text"].as_str().filter(|text| !text.is_empty()) {
                    pieces.push_back(Piece::Text(text.to_owned()));
                }
                if let Some(arguments) = delta["partial_json"].as_str() {
                    // Fragments of the provider's own tool calls are ignored.
                    self.drafts.add(index, arguments);
                }
            }
            "message_delta" => {
                self.count(&event["usage"]);
                self.stop = event["delta"]["stop_reason"].as_str().map(|reason| match reason {
                    "end_turn" | "stop_sequence" => Stop::EndTurn,
                    "tool_use" => Stop::ToolUse,
                    "max_tokens" | "model_context_window_exceeded" => Stop::MaxTokens,
                    "refusal" => Stop::Filtered,
                    other => Stop::Other(other.to_owned()),
                });
            }
            "message_stop" => {
                let stop = self.stop.take().ok_or(EventError::Unreadable("it ended without a reason to stop"))?;
                draft::end(pieces, &mut self.drafts, Some(self.usage), stop);
            }
            "error" => return Err(EventError::Reported(event)),
            _ => {}
        }
        Ok(())
    }

    fn finish(&mut self, _pieces: &mut Pieces) -> Result<(), EventError> {
        Err(EventError::Unreadable("it ended before its end"))
    }
}

impl Events {
    /// Counts are cumulative; fields that are not repeated stay valid.
    fn count(&mut self, usage: &Value) {
        let read = |field: &str| answer::tokens(&usage[field]);
        if let Some(fresh) = read("input_tokens") {
            let cached = read("cache_read_input_tokens").unwrap_or_default();
            self.usage.input_tokens = fresh + cached + read("cache_creation_input_tokens").unwrap_or_default();
            self.usage.cached_input_tokens = cached;
        }
        self.usage.output_tokens = read("output_tokens").unwrap_or(self.usage.output_tokens);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{ToolCall, ToolResult};

    #[test]
    fn a_request_is_written_as_the_api_takes_it() {
        let model = Anthropic::open("claude-sonnet-4-5", PLACE, &|_| None).unwrap();
        let call = ToolCall { id: "f:1".into(), name: "f".into(), arguments: json!("no object"), signature: None };
        let result = ToolResult { id: "f:1".into(), name: "f".into(), content: "failed".into(), is_error: true };
        let request = ModelRequest {
            system: Some("s".into()),
            messages: vec![
                Message::user("hi"),
                Message { role: Role::Assistant, content: vec![Content::Text { text: " ".into() }, Content::ToolCall(call)] },
                Message { role: Role::User, content: vec![Content::Text { text: "and".into() }, Content::ToolResult(result)] },
            ],
            tools: vec![ToolSpec { name: "f".into(), description: "d".into(), schema: json!({"type": "object"}) }],
            ..ModelRequest::default()
        };
        let id = draft::portable("f:1");
        assert_eq!(
            model.body(&request),
            json!({
                "model": "claude-sonnet-4-5", "max_tokens": 32000, "stream": true, "system": "s",
                "messages": [
                    {"role": "user", "content": [{"type": "text", "text": "hi"}]},
                    {"role": "assistant", "content": [{"type": "tool_use", "id": id, "name": "f", "input": {"arguments": "no object"}}]},
                    {"role": "user", "content": [
                        {"type": "tool_result", "tool_use_id": id, "content": "failed", "is_error": true},
                        {"type": "text", "text": "and"},
                    ]},
                ],
                "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}}],
            })
        );
        // The last round of an agent, where it has to answer: its calls are still there, its tools are not offered.
        let last = model.body(&ModelRequest { tools: Vec::new(), ..request });
        assert_eq!((&last["tools"][0]["name"], last["tools"].as_array().unwrap().len()), (&json!("f"), 1));
        assert_eq!(last["tool_choice"], json!({"type": "none"}));
        let plain = model.body(&ModelRequest { messages: vec![Message::user("hi")], ..ModelRequest::default() });
        assert!(plain.get("tools").is_none() && plain.get("tool_choice").is_none(), "{plain}");
    }
}
