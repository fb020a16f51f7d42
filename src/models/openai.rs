//! OpenAI's chat completions API, also of compatible servers: vLLM, llama.cpp, LiteLLM, gateways. They differ in details, so
//! the reader is lenient: `[DONE]` may be missing after a finish reason.

use serde_json::{Value, json};
use url::Url;

use http::HeaderValue;

use crate::answer::{self, Piece, Stop, Usage};
use crate::draft::{self, Drafts};
use crate::exchange::{EventError, EventReader, Pieces, ProviderApi, WriteFuture};
use crate::fault::ModelFault;
use crate::message::{Content, Message, ModelRequest, Role, ToolSpec};
use crate::provider_settings::{self, ProviderVariables, Variables};
use crate::transport::ProviderCall;
use crate::wire::{Event, Framing};

pub(crate) const PLACE: ProviderVariables = ProviderVariables { base: "OPENAI_BASE_URL", key: "OPENAI_API_KEY" };
const DEFAULT_BASE: &str = "https://api.openai.com/v1";

pub(crate) struct OpenAi {
    id: String,
    url: Url,
    key: Option<HeaderValue>,
    place: ProviderVariables,
    /// OpenAI itself, which requires a key and the current names of fields; other servers support the older names.
    own: bool,
}

impl OpenAi {
    pub(crate) fn open(id: &str, place: ProviderVariables, variables: Variables<'_>) -> Result<Self, ModelFault> {
        let base = provider_settings::base(variables, place.base, DEFAULT_BASE)?;
        let own = base.host_str() == Some("api.openai.com");
        let key = provider_settings::key(variables, &[place.key], "Bearer ")?;
        Ok(Self { id: id.to_owned(), url: provider_settings::under(&base, "chat/completions")?, key, place, own })
    }

    fn body(&self, request: &ModelRequest) -> Value {
        let mut messages = Vec::new();
        if let Some(system) = &request.system {
            messages.push(json!({"role": "system", "content": system}));
        }
        request.messages.iter().for_each(|message| write(message, &mut messages));
        let mut body = json!({
            "model": self.id,
            "messages": messages,
            "stream": true,
            "stream_options": {"include_usage": true},
        });
        if !request.tools.is_empty() {
            body["tools"] = request.tools.iter().map(tool).collect();
        }
        if let Some(limit) = request.max_output_tokens {
            body[if self.own { "max_completion_tokens" } else { "max_tokens" }] = limit.into();
        }
        if let Some(temperature) = request.temperature {
            body["temperature"] = temperature.into();
        }
        if !request.stop.is_empty() {
            body["stop"] = json!(request.stop);
        }
        body
    }
}

impl ProviderApi for OpenAi {
    fn write<'a>(&'a self, request: &'a ModelRequest) -> WriteFuture<'a> {
        Box::pin(async move {
            let call = ProviderCall::json(self.url.clone(), &self.body(request));
            match &self.key {
                Some(key) => Ok(call.header("authorization", key.clone())),
                None if self.own => Err(self.place.missing()),
                None => Ok(call),
            }
        })
    }

    fn framing(&self) -> Framing {
        Framing::sse()
    }

    fn reader(&self) -> Box<dyn EventReader> {
        Box::new(Chunks::default())
    }
}

/// A tool in the format of OpenAI and Ollama.
pub(crate) fn tool(tool: &ToolSpec) -> Value {
    json!({"type": "function", "function": {"name": tool.name, "description": tool.description, "parameters": tool.schema}})
}

/// Each result becomes a message of its own, before the user's text.
fn write(message: &Message, messages: &mut Vec<Value>) {
    let mut calls = Vec::new();
    for content in &message.content {
        match content {
            Content::Text { .. } => {}
            Content::ToolCall(call) => calls.push(json!({
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments.as_str().map_or_else(|| call.arguments.to_string(), str::to_owned)},
            })),
            Content::ToolResult(result) => {
                messages.push(json!({"role": "tool", "tool_call_id": result.id, "content": result.content}));
            }
        }
    }
    let text = message.text();
    match message.role {
        Role::User if text.is_empty() && messages.last().is_some_and(|last| last["role"] == "tool") => {}
        Role::User => messages.push(json!({"role": "user", "content": text})),
        Role::Assistant if calls.is_empty() => messages.push(json!({"role": "assistant", "content": text})),
        Role::Assistant => {
            let text = if text.is_empty() { Value::Null } else { text.into() };
            messages.push(json!({"role": "assistant", "content": text, "tool_calls": calls}));
        }
    }
}

#[derive(Default)]
struct Chunks {
    drafts: Drafts,
    usage: Option<Usage>,
    stop: Option<Stop>,
}

impl EventReader for Chunks {
    fn read(&mut self, event: Event, pieces: &mut Pieces) -> Result<(), EventError> {
        if event.data.trim_ascii() == b"[DONE]" {
            return self.finish(pieces);
        }
        let chunk: Value = serde_json::from_slice(&event.data).map_err(|_| EventError::Unreadable("a chunk is not JSON"))?;
        if chunk.get("error").is_some_and(|error| !error.is_null()) || event.name == "error" {
            return Err(EventError::Reported(chunk));
        }
        if let Some(usage) = chunk.get("usage").filter(|usage| usage.is_object()) {
            let count = |value: &Value| answer::tokens(value).unwrap_or_default();
            self.usage = Some(Usage {
                input_tokens: count(&usage["prompt_tokens"]),
                output_tokens: count(&usage["completion_tokens"]),
                cached_input_tokens: count(&usage["prompt_tokens_details"]["cached_tokens"]),
            });
        }
        let choice = &chunk["choices"][0];
        let delta = &choice["delta"];
        for text in [&delta["content"], &delta["refusal"]].into_iter().filter_map(Value::as_str).filter(|text| !text.is_empty()) {
            pieces.push_back(Piece::Text(text.to_owned()));
        }
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            self.call(call);
        }
        if let Some(reason) = choice["finish_reason"].as_str() {
            self.stop = Some(match reason {
                "stop" => Stop::EndTurn,
                "tool_calls" | "function_call" => Stop::ToolUse,
                "length" => Stop::MaxTokens,
                "content_filter" => Stop::Filtered,
                other => Stop::Other(other.to_owned()),
            });
        }
        Ok(())
    }

    fn finish(&mut self, pieces: &mut Pieces) -> Result<(), EventError> {
        let stop = self.stop.take().ok_or(EventError::Unreadable("it ended without a reason to stop"))?;
        draft::end(pieces, &mut self.drafts, self.usage.take(), stop);
        Ok(())
    }
}

impl Chunks {
    /// Reads a fragment of a call. A new call has a new index or id; some servers send neither, some the same index for all,
    /// some the whole call at once, some arguments that are not a string.
    fn call(&mut self, fragment: &Value) {
        let function = &fragment["function"];
        let id = fragment["id"].as_str().unwrap_or_default();
        let name = function["name"].as_str().unwrap_or_default();
        let index = fragment["index"].as_u64();
        let nameless = name.is_empty() || index.is_some() || !id.is_empty();
        let at = match self.drafts.newest(index) {
            Some((at, known, named)) if (id.is_empty() || known.is_empty() || id == known) && (nameless || named.is_empty()) => at,
            newest => {
                let at = index.unwrap_or_else(|| newest.map_or(0, |(at, ..)| at.wrapping_add(1)));
                self.drafts.begin(at, id, name);
                at
            }
        };
        self.drafts.name(at, name);
        match &function["arguments"] {
            Value::String(arguments) => self.drafts.add(at, arguments),
            Value::Null => true,
            whole => self.drafts.add(at, &whole.to_string()),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{ToolCall, ToolResult};

    fn read(chunks: &[Value]) -> Result<Vec<Piece>, EventError> {
        let mut reader = Chunks::default();
        let mut pieces = Pieces::new();
        for chunk in chunks {
            reader.read(Event { data: chunk.to_string().into_bytes(), ..Event::default() }, &mut pieces)?;
        }
        reader.finish(&mut pieces)?;
        Ok(pieces.into())
    }

    #[test]
    fn calls_are_put_together_however_a_server_cuts_them() {
        let end = json!({"choices": [{"delta": {}, "finish_reason": "stop"}]});
        let delta = |calls: Value| json!({"choices": [{"delta": {"tool_calls": calls}}]});
        for (chunks, expected) in [
            (
                vec![
                    delta(json!([{"index": 0, "id": "a", "function": {"name": "f", "arguments": ""}}])),
                    delta(json!([{"index": 0, "function": {"arguments": "{\"x\""}}])),
                    delta(json!([{"index": 0, "function": {"arguments": ":1}"}}])),
                ],
                vec![("a", "f", json!({"x": 1}))],
            ),
            // Whole, and without an index.
            (
                vec![delta(
                    json!([{"id": "a", "function": {"name": "f", "arguments": "{}"}}, {"id": "b", "function": {"name": "g", "arguments": "{}"}}]),
                )],
                vec![("a", "f", json!({})), ("b", "g", json!({}))],
            ),
            // One index for all.
            (
                vec![
                    delta(json!([{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}])),
                    delta(json!([{"index": 0, "id": "b", "function": {"name": "g", "arguments": "{}"}}])),
                ],
                vec![("a", "f", json!({})), ("b", "g", json!({}))],
            ),
            // Neither index nor id, but a name each.
            (
                vec![delta(json!([{"function": {"name": "f", "arguments": "{}"}}, {"function": {"name": "f", "arguments": "{}"}}]))],
                vec![("", "f", json!({})), ("", "f", json!({}))],
            ),
            // The greatest index that there is, and then none.
            (
                vec![
                    delta(json!([{"index": u64::MAX, "id": "a", "function": {"name": "f", "arguments": "{}"}}])),
                    delta(json!([{"id": "b", "function": {"name": "g", "arguments": "{}"}}])),
                ],
                vec![("a", "f", json!({})), ("b", "g", json!({}))],
            ),
            // Arguments that are an object, and the id repeated with each fragment.
            (
                vec![delta(json!([{"index": 0, "id": "a", "function": {"name": "f", "arguments": {"x": 1}}}]))],
                vec![("a", "f", json!({"x": 1}))],
            ),
            (
                vec![
                    delta(json!([{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{\"x\":"}}])),
                    delta(json!([{"index": 0, "id": "a", "function": {"name": "f", "arguments": "1}"}}])),
                ],
                vec![("a", "f", json!({"x": 1}))],
            ),
        ] {
            let mut pieces = read(&[chunks.clone(), vec![end.clone()]].concat()).unwrap_or_else(|_| panic!("{chunks:?}"));
            for piece in &mut pieces {
                // Ids that we gave are random.
                if let Piece::ToolCall(call) = piece
                    && call.id.starts_with("call_")
                {
                    call.id.clear();
                }
            }
            let calls: Vec<_> = expected
                .into_iter()
                .map(|(id, name, arguments)| Piece::ToolCall(ToolCall { id: id.into(), name: name.into(), arguments, signature: None }))
                .collect();
            assert_eq!(pieces, [calls, vec![Piece::Stopped(Stop::ToolUse)]].concat(), "{chunks:?}");
        }
    }

    #[test]
    fn a_call_without_an_id_gets_one() {
        let pieces = read(&[
            json!({"choices": [{"delta": {"tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}, "finish_reason": "tool_calls"}]}),
        ]);
        let Ok([Piece::ToolCall(call), Piece::Stopped(Stop::ToolUse)]) = pieces.as_deref() else { panic!() };
        assert!(call.id.starts_with("call_") && call.id.len() > 20, "{}", call.id);
    }

    #[test]
    fn a_request_is_written_as_the_api_takes_it() {
        let model = |base: &str| OpenAi::open("m", PLACE, &|name| (name == PLACE.base).then(|| base.to_owned())).unwrap();
        let call = ToolCall { id: "1".into(), name: "f".into(), arguments: json!({"x": 1}), signature: None };
        let result = ToolResult { id: "1".into(), name: "f".into(), content: "2".into(), is_error: false };
        let request = ModelRequest {
            system: Some("s".into()),
            messages: vec![
                Message::user("hi"),
                Message { role: Role::Assistant, content: vec![Content::ToolCall(call)] },
                Message { role: Role::User, content: vec![Content::ToolResult(result)] },
            ],
            tools: vec![ToolSpec { name: "f".into(), description: "d".into(), schema: json!({"type": "object"}) }],
            max_output_tokens: Some(9),
            temperature: Some(0.5),
            stop: vec!["END".into()],
        };
        let mut expected = json!({
            "model": "m", "stream": true, "stream_options": {"include_usage": true}, "temperature": 0.5, "stop": ["END"],
            "max_tokens": 9,
            "messages": [
                {"role": "system", "content": "s"},
                {"role": "user", "content": "hi"},
                {"role": "assistant", "content": null, "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"x\":1}"}}]},
                {"role": "tool", "tool_call_id": "1", "content": "2"},
            ],
            "tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}],
        });
        assert_eq!(model("http://localhost/v1").body(&request), expected);
        expected["max_completion_tokens"] = expected.as_object_mut().unwrap().remove("max_tokens").unwrap();
        assert_eq!(model(DEFAULT_BASE).body(&request), expected);
    }
}
