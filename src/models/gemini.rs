//! The API of Google's Gemini models, the same at Google AI and Vertex AI except for URL and credentials. No event ends an
//! answer: a finish reason must have come when the body ends.

use serde_json::{Value, json};

use crate::answer::{self, Piece, Stop, Usage};
use crate::draft::{self, Drafts};
use crate::exchange::{EventError, EventReader, Pieces};
use crate::message::{Content, Message, ModelRequest, Role, ToolCall, ToolSpec};
use crate::wire::Event;

/// The signature for a call of another provider's model, where one is required.
const PLACEHOLDER_SIGNATURE: &str = "skip_thought_signature_validator";

pub(crate) fn body(id: &str, request: &ModelRequest) -> Value {
    let signed = id.contains("gemini-3");
    let mut body = json!({"contents": request.messages.iter().map(|message| write(message, signed)).collect::<Value>()});
    if let Some(system) = request.system.as_deref().filter(|system| !system.is_empty()) {
        body["systemInstruction"] = json!({"parts": [{"text": system}]});
    }
    if !request.tools.is_empty() {
        body["tools"] = json!([{"functionDeclarations": request.tools.iter().map(tool).collect::<Value>()}]);
    }
    let mut config = json!({});
    if let Some(limit) = request.max_output_tokens {
        config["maxOutputTokens"] = limit.into();
    }
    if let Some(temperature) = request.temperature {
        config["temperature"] = temperature.into();
    }
    if !request.stop.is_empty() {
        config["stopSequences"] = json!(request.stop);
    }
    if config != json!({}) {
        body["generationConfig"] = config;
    }
    body
}

fn tool(tool: &ToolSpec) -> Value {
    let mut declaration = json!({"name": tool.name, "description": tool.description});
    // An object without properties is refused; a function without parameters is not.
    if tool.schema["properties"].as_object().is_some_and(|properties| !properties.is_empty()) {
        declaration["parametersJsonSchema"] = tool.schema.clone();
    }
    declaration
}

fn write(message: &Message, signed: bool) -> Value {
    let mut unsigned = signed;
    let mut parts = Vec::new();
    for content in &message.content {
        match content {
            Content::Text { text } if text.is_empty() => {}
            Content::Text { text } => parts.push(json!({"text": text})),
            Content::ToolCall(call) => {
                let mut part = json!({"functionCall": {"name": call.name, "args": draft::object(&call.arguments)}});
                identify(&mut part["functionCall"], &call.id);
                // Only the first of parallel calls has a signature.
                let stand_in = std::mem::take(&mut unsigned).then_some(PLACEHOLDER_SIGNATURE);
                if let Some(signature) = call.signature.as_deref().or(stand_in) {
                    part["thoughtSignature"] = signature.into();
                }
                parts.push(part);
            }
            Content::ToolResult(result) => {
                let field = if result.is_error { "error" } else { "output" };
                let mut part = json!({"functionResponse": {"name": result.name, "response": {field: result.content}}});
                identify(&mut part["functionResponse"], &result.id);
                parts.push(part);
            }
        }
    }
    json!({"role": match message.role { Role::User => "user", Role::Assistant => "model" }, "parts": parts})
}

/// Sets the id of a call, unless it was generated here.
fn identify(part: &mut Value, id: &str) {
    if !id.starts_with("call_") {
        part["id"] = id.into();
    }
}

#[derive(Default)]
pub(crate) struct Candidates {
    called: bool,
    usage: Option<Usage>,
    stop: Option<Stop>,
}

impl EventReader for Candidates {
    fn read(&mut self, event: Event, pieces: &mut Pieces) -> Result<(), EventError> {
        let event: Value = serde_json::from_slice(&event.data).map_err(|_| EventError::Unreadable("an event is not JSON"))?;
        if event.get("error").is_some() {
            return Err(EventError::Reported(event));
        }
        if event["promptFeedback"]["blockReason"].is_string() {
            self.stop = Some(Stop::Filtered);
        }
        let candidate = &event["candidates"][0];
        for part in candidate["content"]["parts"].as_array().into_iter().flatten() {
            self.part(part, pieces);
        }
        if let Some(reason) = candidate["finishReason"].as_str() {
            self.stop = Some(match reason {
                "STOP" => Stop::EndTurn,
                "MAX_TOKENS" => Stop::MaxTokens,
                "SAFETY" | "RECITATION" | "LANGUAGE" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII" => Stop::Filtered,
                other => Stop::Other(other.to_owned()),
            });
        }
        if let Some(usage) = event.get("usageMetadata") {
            let count = |field: &str| answer::tokens(&usage[field]).unwrap_or_default();
            self.usage = Some(Usage {
                input_tokens: count("promptTokenCount") + count("toolUsePromptTokenCount"),
                output_tokens: count("candidatesTokenCount") + count("thoughtsTokenCount"),
                cached_input_tokens: count("cachedContentTokenCount"),
            });
        }
        Ok(())
    }

    fn finish(&mut self, pieces: &mut Pieces) -> Result<(), EventError> {
        let stop = self.stop.take().ok_or(EventError::Unreadable("it ended without a reason to stop"))?;
        // A call may come after the finish reason.
        let stop = if self.called && stop == Stop::EndTurn { Stop::ToolUse } else { stop };
        draft::end(pieces, &mut Drafts::default(), self.usage.take(), stop);
        Ok(())
    }
}

impl Candidates {
    fn part(&mut self, part: &Value, pieces: &mut Pieces) {
        if part["thought"] == true {
            return;
        }
        if let Some(text) = part["text"].as_str().filter(|text| !text.is_empty()) {
            pieces.push_back(Piece::Text(text.to_owned()));
        }
        let call = &part["functionCall"];
        if call.is_object() {
            self.called = true;
            pieces.push_back(Piece::ToolCall(ToolCall {
                id: call["id"].as_str().filter(|id| !id.is_empty()).map_or_else(draft::fresh, str::to_owned),
                name: call["name"].as_str().unwrap_or_default().to_owned(),
                arguments: draft::object(&call["args"]).into_owned(),
                signature: part["thoughtSignature"].as_str().map(str::to_owned),
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::ToolResult;

    #[test]
    fn a_call_is_one_to_be_made_wherever_the_reason_to_stop_stands() {
        let call = json!({"candidates": [{"content": {"parts": [{"functionCall": {"id": "a", "name": "f", "args": {}}}]}}]});
        let end = json!({"candidates": [{"finishReason": "STOP"}]});
        for events in [[&call, &end], [&end, &call]] {
            let (mut reader, mut pieces) = (Candidates::default(), Pieces::new());
            for event in events {
                assert!(reader.read(Event { data: event.to_string().into_bytes(), ..Event::default() }, &mut pieces).is_ok());
            }
            assert!(reader.finish(&mut pieces).is_ok());
            assert_eq!(pieces.back(), Some(&Piece::Stopped(Stop::ToolUse)), "{events:?}");
        }
    }

    #[test]
    fn a_request_is_written_as_the_api_takes_it() {
        let call = |id: &str, signature: Option<&str>| {
            Content::ToolCall(ToolCall {
                id: id.into(),
                name: "f".into(),
                arguments: json!({"x": 1}),
                signature: signature.map(str::to_owned),
            })
        };
        let result = ToolResult { id: "g1".into(), name: "f".into(), content: "2".into(), is_error: false };
        let request = ModelRequest {
            system: Some("s".into()),
            messages: vec![
                Message::user("hi"),
                Message { role: Role::Assistant, content: vec![call("g1", Some("sig")), call("call_2", None)] },
                Message { role: Role::User, content: vec![Content::ToolResult(result)] },
                Message { role: Role::Assistant, content: vec![call("call_3", None)] },
            ],
            tools: vec![
                ToolSpec { name: "f".into(), description: "d".into(), schema: json!({"type": "object", "properties": {"x": {}}}) },
                ToolSpec { name: "g".into(), description: "d".into(), schema: json!({"type": "object"}) },
            ],
            max_output_tokens: Some(9),
            ..ModelRequest::default()
        };
        let unsigned = json!({"functionCall": {"name": "f", "args": {"x": 1}}});
        let mut expected = json!({
            "systemInstruction": {"parts": [{"text": "s"}]},
            "generationConfig": {"maxOutputTokens": 9},
            "tools": [{"functionDeclarations": [
                {"name": "f", "description": "d", "parametersJsonSchema": {"type": "object", "properties": {"x": {}}}},
                {"name": "g", "description": "d"},
            ]}],
            "contents": [
                {"role": "user", "parts": [{"text": "hi"}]},
                {"role": "model", "parts": [
                    {"functionCall": {"name": "f", "args": {"x": 1}, "id": "g1"}, "thoughtSignature": "sig"},
                    unsigned,
                ]},
                {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"output": "2"}, "id": "g1"}}]},
                {"role": "model", "parts": [unsigned]},
            ],
        });
        assert_eq!(body("gemini-2.5-flash", &request), expected);
        expected["contents"][3]["parts"][0]["thoughtSignature"] = PLACEHOLDER_SIGNATURE.into();
        assert_eq!(body("gemini-3-pro-preview", &request), expected);
    }
}
