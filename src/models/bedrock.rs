//! Models on Amazon Bedrock, by its ConverseStream API.

use http::{HeaderName, HeaderValue};
use jiff::Timestamp;
use serde_json::{Value, json};
use url::Url;

use crate::answer::{self, Piece, Stop, Usage};
use crate::aws::{self, AwsCredentials, Scope};
use crate::draft::{self, Drafts};
use crate::exchange::{EventError, EventReader, Pieces, ProviderApi, WriteFuture};
use crate::fault::{FaultKind, ModelFault};
use crate::message::{Content, Message, ModelRequest, Role, ToolSpec};
use crate::provider_settings::{self, Variables};
use crate::transport::ProviderCall;
use crate::wire::{Event, Framing};

const NO_CREDENTIALS: &str = "the pod has no AWS identity (IRSA or EKS Pod Identity), and neither AWS_BEARER_TOKEN_BEDROCK nor AWS_ACCESS_KEY_ID \
                    with AWS_SECRET_ACCESS_KEY";
/// Replaces blank text, which the API refuses.
const BLANK_RESULT: &str = "(no output)";

pub(crate) struct Bedrock {
    /// `None` without a region.
    place: Option<(Url, String)>,
    access: Option<Access>,
}

enum Access {
    Token(HeaderValue),
    Signed(AwsCredentials),
}

impl Bedrock {
    pub(crate) fn open(id: &str, variables: Variables<'_>) -> Result<Self, ModelFault> {
        let place = match provider_settings::first(variables, &["AWS_REGION", "AWS_DEFAULT_REGION"]) {
            None => None,
            Some((_, region)) => {
                let default = format!("https://bedrock-runtime.{}.amazonaws.com", provider_settings::segment(&region));
                let base = provider_settings::base(variables, "AWS_ENDPOINT_URL_BEDROCK_RUNTIME", &default)?;
                Some((provider_settings::under(&base, &format!("model/{}/converse-stream", provider_settings::segment(id)))?, region))
            }
        };
        let access = match provider_settings::key(variables, &["AWS_BEARER_TOKEN_BEDROCK"], "Bearer ")? {
            Some(token) => Some(Access::Token(token)),
            None => AwsCredentials::of(variables)?.map(Access::Signed),
        };
        Ok(Self { place, access })
    }
}

fn body(request: &ModelRequest) -> Value {
    let mut body = json!({"messages": request.messages.iter().map(write).collect::<Value>()});
    if let Some(system) = request.system.as_deref().filter(|system| !system.trim().is_empty()) {
        body["system"] = json!([{"text": system}]);
    }
    // ValidationException without: "The toolConfig field must be defined when using toolUse and toolResult content blocks."
    // No `toolChoice` forbids calls.
    let tools = request.declared();
    if !tools.is_empty() {
        body["toolConfig"] = json!({"tools": tools.iter().map(tool).collect::<Value>()});
    }
    let mut config = json!({});
    if let Some(limit) = request.max_output_tokens {
        config["maxTokens"] = limit.into();
    }
    if let Some(temperature) = request.temperature {
        config["temperature"] = temperature.into();
    }
    if !request.stop.is_empty() {
        config["stopSequences"] = json!(request.stop);
    }
    if config != json!({}) {
        body["inferenceConfig"] = config;
    }
    body
}

fn tool(tool: &ToolSpec) -> Value {
    let mut spec = json!({"name": tool.name, "inputSchema": {"json": tool.schema}});
    if !tool.description.is_empty() {
        spec["description"] = tool.description.as_str().into();
    }
    json!({"toolSpec": spec})
}

fn write(message: &Message) -> Value {
    let (mut results, mut others) = (Vec::new(), Vec::new());
    for content in &message.content {
        match content {
            Content::Text { text } if text.trim().is_empty() => {}
            Content::Text { text } => others.push(json!({"text": text})),
            Content::ToolCall(call) => others.push(
                json!({"toolUse": {"toolUseId": draft::portable(&call.id), "name": call.name, "input": draft::object(&call.arguments)}}),
            ),
            Content::ToolResult(result) => {
                let text = if result.content.trim().is_empty() { BLANK_RESULT } else { &result.content };
                let status = if result.is_error { "error" } else { "success" };
                results
                    .push(json!({"toolResult": {"toolUseId": draft::portable(&result.id), "content": [{"text": text}], "status": status}}));
            }
        }
    }
    results.append(&mut others);
    json!({"role": match message.role { Role::User => "user", Role::Assistant => "assistant" }, "content": results})
}

impl ProviderApi for Bedrock {
    fn write<'a>(&'a self, request: &'a ModelRequest) -> WriteFuture<'a> {
        Box::pin(async move {
            let (url, region) = self.place.as_ref().ok_or_else(|| {
                ModelFault::new(
                    FaultKind::Misconfigured,
                    "AWS_REGION is not set; it names the region whose models are used, such as us-east-1",
                )
            })?;
            let mut call = ProviderCall::json(url.clone(), &body(request));
            match &self.access {
                None => return Err(provider_settings::missing(NO_CREDENTIALS)),
                Some(Access::Token(token)) => call = call.header("authorization", token.clone()),
                Some(Access::Signed(credentials)) => {
                    let keys = credentials.keys().await?;
                    let time = Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
                    let scope = Scope { region, service: "bedrock", time: &time };
                    for (name, value) in aws::sign(url, &call.body, &keys, &scope) {
                        let mut value = provider_settings::secret(&value, "the AWS credentials")?;
                        value.set_sensitive(matches!(name, "authorization" | "x-amz-security-token"));
                        call.headers.insert(HeaderName::from_static(name), value);
                    }
                }
            }
            Ok(call)
        })
    }

    fn framing(&self) -> Framing {
        Framing::event_stream()
    }

    fn reader(&self) -> Box<dyn EventReader> {
        Box::new(Frames::default())
    }
}

#[derive(Default)]
struct Frames {
    drafts: Drafts,
    usage: Option<Usage>,
    stop: Option<Stop>,
}

impl EventReader for Frames {
    fn read(&mut self, event: Event, pieces: &mut Pieces) -> Result<(), EventError> {
        let data: Value = serde_json::from_slice(&event.data).map_err(|_| EventError::Unreadable("an event is not JSON"))?;
        if event.error {
            return Err(EventError::Reported(json!({"error": {"type": event.name, "message": data["message"]}})));
        }
        let index = data["contentBlockIndex"].as_u64().unwrap_or_default();
        match event.name.as_str() {
            "contentBlockStart" if data["start"]["toolUse"].is_object() => {
                let text = |field: &str| data["start"]["toolUse"][field].as_str().unwrap_or_default();
                self.drafts.begin(index, text("toolUseId"), text("name"));
            }
            "contentBlockDelta" => {
                if let Some(text) = data["delta"]["text"].as_str().filter(|text| !text.is_empty()) {
                    pieces.push_back(Piece::Text(text.to_owned()));
                }
                if let Some(input) = data["delta"]["toolUse"]["input"].as_str()
                    && !self.drafts.add(index, input)
                {
                    return Err(EventError::Unreadable("arguments came before their call"));
                }
            }
            "messageStop" => {
                self.stop = data["stopReason"].as_str().map(|reason| match reason {
                    "end_turn" | "stop_sequence" => Stop::EndTurn,
                    "tool_use" => Stop::ToolUse,
                    "max_tokens" | "model_context_window_exceeded" => Stop::MaxTokens,
                    "guardrail_intervened" | "content_filtered" => Stop::Filtered,
                    other => Stop::Other(other.to_owned()),
                });
            }
            "metadata" => {
                let count = |field: &str| answer::tokens(&data["usage"][field]).unwrap_or_default();
                let cached = count("cacheReadInputTokens");
                self.usage = Some(Usage {
                    input_tokens: count("inputTokens") + cached + count("cacheWriteInputTokens"),
                    output_tokens: count("outputTokens"),
                    cached_input_tokens: cached,
                });
            }
            _ => {}
        }
        Ok(())
    }

    /// Usage comes after the stop reason, without an event that ends the stream.
    fn finish(&mut self, pieces: &mut Pieces) -> Result<(), EventError> {
        let stop = self.stop.take().ok_or(EventError::Unreadable("it ended without a reason to stop"))?;
        draft::end(pieces, &mut self.drafts, self.usage.take(), stop);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{ToolCall, ToolResult};

    #[test]
    fn a_request_is_written_as_the_api_takes_it() {
        let call = ToolCall { id: "1".into(), name: "f".into(), arguments: json!({"x": 1}), signature: None };
        let result = ToolResult { id: "1".into(), name: "f".into(), content: String::new(), is_error: true };
        let request = ModelRequest {
            system: Some("s".into()),
            messages: vec![
                Message::user("hi"),
                Message { role: Role::Assistant, content: vec![Content::ToolCall(call)] },
                Message { role: Role::User, content: vec![Content::ToolResult(result)] },
            ],
            tools: vec![ToolSpec { name: "f".into(), description: String::new(), schema: json!({"type": "object"}) }],
            max_output_tokens: Some(9),
            ..ModelRequest::default()
        };
        assert_eq!(
            body(&request),
            json!({
                "system": [{"text": "s"}],
                "inferenceConfig": {"maxTokens": 9},
                "toolConfig": {"tools": [{"toolSpec": {"name": "f", "inputSchema": {"json": {"type": "object"}}}}]},
                "messages": [
                    {"role": "user", "content": [{"text": "hi"}]},
                    {"role": "assistant", "content": [{"toolUse": {"toolUseId": "1", "name": "f", "input": {"x": 1}}}]},
                    {"role": "user", "content": [{"toolResult": {"toolUseId": "1", "content": [{"text": BLANK_RESULT}], "status": "error"}}]},
                ],
            })
        );
        // The last round of an agent, where it has to answer: its calls are still there, its tools are not offered.
        let last = body(&ModelRequest { tools: Vec::new(), ..request });
        let declared = &last["toolConfig"]["tools"];
        assert_eq!((&declared[0]["toolSpec"]["name"], declared.as_array().unwrap().len()), (&json!("f"), 1));
        assert_eq!(declared[0]["toolSpec"]["inputSchema"], json!({"json": {"type": "object"}}));
        let plain = body(&ModelRequest { messages: vec![Message::user("hi")], ..ModelRequest::default() });
        assert!(plain.get("toolConfig").is_none(), "{plain}");
    }

    #[tokio::test]
    async fn an_id_with_colons_and_slashes_is_one_segment_of_the_path() {
        let variables = |name: &str| match name {
            "AWS_REGION" => Some("eu-west-1".to_owned()),
            "AWS_BEARER_TOKEN_BEDROCK" => Some("hunter2".to_owned()),
            _ => None,
        };
        let model = Bedrock::open("arn:aws:bedrock:eu-west-1:1:inference-profile/eu.x-v1:0", &variables).unwrap();
        let request = ModelRequest::default();
        let call = model.write(&request).await.unwrap_or_else(|fault| panic!("{fault}"));
        assert_eq!(
            call.url.as_str(),
            "https://bedrock-runtime.eu-west-1.amazonaws.com/model/arn%3Aaws%3Abedrock%3Aeu-west-1%3A1%3Ainference-profile%2Feu.x-v1%3A0/converse-stream"
        );
        assert!(call.headers["authorization"].is_sensitive());
    }
}
