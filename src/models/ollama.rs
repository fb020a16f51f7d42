//! Ollama's own API: JSON lines, complete tool calls. Each request sets the window, because Ollama silently drops the beginning
//! of a prompt that exceeds its default.

use serde_json::{Value, json};
use url::Url;

use crate::answer::{self, Piece, Stop, Usage};
use crate::draft::{self, Drafts};
use crate::exchange::{EventError, EventReader, Pieces, ProviderApi, WriteFuture};
use crate::fault::ModelFault;
use crate::message::{Content, Message, ModelRequest, Role, ToolCall};
use crate::openai;
use crate::provider_settings::{self, Variables};
use crate::transport::ProviderCall;
use crate::wire::{Event, Framing};

pub(crate) struct Ollama {
    id: String,
    url: Url,
    window: u32,
}

impl Ollama {
    pub(crate) fn open(id: &str, window: u32, variables: Variables<'_>) -> Result<Self, ModelFault> {
        let base = provider_settings::base(variables, "OLLAMA_BASE_URL", "http://localhost:11434")?;
        Ok(Self { id: id.to_owned(), url: provider_settings::under(&base, "api/chat")?, window })
    }

    fn body(&self, request: &ModelRequest) -> Value {
        let mut messages = Vec::new();
        if let Some(system) = &request.system {
            messages.push(json!({"role": "system", "content": system}));
        }
        request.messages.iter().for_each(|message| write(message, &mut messages));
        let mut options = json!({"num_ctx": self.window});
        if let Some(limit) = request.max_output_tokens {
            options["num_predict"] = limit.into();
        }
        if let Some(temperature) = request.temperature {
            options["temperature"] = temperature.into();
        }
        if !request.stop.is_empty() {
            options["stop"] = json!(request.stop);
        }
        let mut body = json!({"model": self.id, "messages": messages, "stream": true, "options": options});
        if !request.tools.is_empty() {
            body["tools"] = request.tools.iter().map(openai::tool).collect();
        }
        body
    }
}

fn write(message: &Message, messages: &mut Vec<Value>) {
    let mut calls = Vec::new();
    for content in &message.content {
        match content {
            Content::Text { .. } => {}
            Content::ToolCall(call) => calls.push(json!({"function": {"name": call.name, "arguments": draft::object(&call.arguments)}})),
            Content::ToolResult(result) => messages.push(json!({"role": "tool", "tool_name": result.name, "content": result.content})),
        }
    }
    let text = message.text();
    match message.role {
        Role::User if text.is_empty() && messages.last().is_some_and(|last| last["role"] == "tool") => {}
        Role::User => messages.push(json!({"role": "user", "content": text})),
        Role::Assistant if calls.is_empty() => messages.push(json!({"role": "assistant", "content": text})),
        Role::Assistant => messages.push(json!({"role": "assistant", "content": text, "tool_calls": calls})),
    }
}

impl ProviderApi for Ollama {
    fn write<'a>(&'a self, request: &'a ModelRequest) -> WriteFuture<'a> {
        Box::pin(async move { Ok(ProviderCall::json(self.url.clone(), &self.body(request))) })
    }

    fn framing(&self) -> Framing {
        Framing::ndjson()
    }

    fn reader(&self) -> Box<dyn EventReader> {
        Box::new(Lines { called: false })
    }
}

struct Lines {
    called: bool,
}

impl EventReader for Lines {
    fn read(&mut self, event: Event, pieces: &mut Pieces) -> Result<(), EventError> {
        let line: Value = serde_json::from_slice(&event.data).map_err(|_| EventError::Unreadable("a line is not JSON"))?;
        if line.get("error").is_some() {
            return Err(EventError::Reported(line));
        }
        let message = &line["message"];
        if let Some(text) = message["content"].as_str().filter(|text| !text.is_empty()) {
            pieces.push_back(Piece::Text(text.to_owned()));
        }
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            self.called = true;
            pieces.push_back(Piece::ToolCall(ToolCall {
                id: call["id"].as_str().filter(|id| !id.is_empty()).map_or_else(draft::fresh, str::to_owned),
                name: call["function"]["name"].as_str().unwrap_or_default().to_owned(),
                arguments: draft::object(&call["function"]["arguments"]).into_owned(),
                signature: None,
            }));
        }
        if line["done"] == true {
            let count = |field: &str| answer::tokens(&line[field]).unwrap_or_default();
            let usage = Usage { input_tokens: count("prompt_eval_count"), output_tokens: count("eval_count"), cached_input_tokens: 0 };
            // Older versions send no reason.
            let stop = match line["done_reason"].as_str().unwrap_or("stop") {
                "stop" if self.called => Stop::ToolUse,
                "stop" => Stop::EndTurn,
                "length" => Stop::MaxTokens,
                other => Stop::Other(other.to_owned()),
            };
            draft::end(pieces, &mut Drafts::default(), Some(usage), stop);
        }
        Ok(())
    }

    fn finish(&mut self, _pieces: &mut Pieces) -> Result<(), EventError> {
        Err(EventError::Unreadable("it ended before its end"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::ToolResult;

    #[test]
    fn a_request_is_written_as_the_api_takes_it() {
        let model = Ollama::open("llama3.2", 8192, &|_| None).unwrap();
        let call = ToolCall { id: "1".into(), name: "f".into(), arguments: json!({"x": 1}), signature: None };
        let result = ToolResult { id: "1".into(), name: "f".into(), content: "2".into(), is_error: false };
        let request = ModelRequest {
            messages: vec![
                Message::user("hi"),
                Message { role: Role::Assistant, content: vec![Content::ToolCall(call)] },
                Message { role: Role::User, content: vec![Content::ToolResult(result)] },
            ],
            max_output_tokens: Some(9),
            stop: vec!["END".into()],
            ..ModelRequest::default()
        };
        assert_eq!(
            model.body(&request),
            json!({
                "model": "llama3.2", "stream": true, "options": {"num_ctx": 8192, "num_predict": 9, "stop": ["END"]},
                "messages": [
                    {"role": "user", "content": "hi"},
                    {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1}}}]},
                    {"role": "tool", "tool_name": "f", "content": "2"},
                ],
            })
        );
    }
}
