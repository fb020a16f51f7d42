//! The OpenAI adapter with a third-party server, `@dwmkerr/mock-llm`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use futures::StreamExt;
use serde_json::json;
use slipway_models::{Content, FaultKind, Message, Model, ModelRequest, Piece, Provider, Role, Stop, ToolCall, ToolResult, ToolSpec, open};
use slipway_peers::{Server, mock_llm};

const RULES: &str = r#"
streaming:
  chunkSize: 7
  chunkIntervalMs: 1
rules:
  - path: "/v1/chat/completions"
    match: "@"
    response:
      status: 200
      content: |
        {"id": "chatcmpl-1", "object": "chat.completion", "model": "{{jmes request body.model}}",
         "choices": [{"index": 0, "message": {"role": "assistant", "content": "You said: {{jmes request body.messages[-1].content}}"}, "finish_reason": "stop"}],
         "usage": {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}}
  - path: "/v1/chat/completions"
    match: "contains(body.messages[-1].content, 'error-401')"
    response:
      status: 401
      content: '{"error": {"message": "Incorrect API key provided.", "type": "invalid_request_error", "param": null, "code": "invalid_api_key"}}'
  - path: "/v1/chat/completions"
    match: "contains(body.messages[-1].content, 'error-404')"
    response:
      status: 404
      content: '{"error": {"message": "The model does not exist or you do not have access to it.", "type": "invalid_request_error", "param": null, "code": "model_not_found"}}'
  - path: "/v1/chat/completions"
    match: "contains(body.messages[-1].content, 'error-400')"
    response:
      status: 400
      content: '{"error": {"message": "The maximum context length is exceeded.", "type": "invalid_request_error", "param": "messages", "code": "context_length_exceeded"}}'
"#;

fn model(server: &Server) -> Box<dyn Model> {
    rustls::crypto::ring::default_provider().install_default().ok();
    let base = format!("{}/v1", server.url());
    let variables = |name: &str| match name {
        "OPENAI_BASE_URL" => Some(base.clone()),
        "OPENAI_API_KEY" => Some("sk-example".to_owned()),
        _ => None,
    };
    open(Provider::OpenAi, "gpt-4o", &variables).unwrap()
}

async fn ask(model: &dyn Model, request: ModelRequest) -> Vec<Result<Piece, slipway_models::ModelFault>> {
    model.answer(request).collect().await
}

fn user(text: &str) -> ModelRequest {
    ModelRequest { messages: vec![Message::user(text)], ..ModelRequest::default() }
}

fn text(pieces: &[Result<Piece, slipway_models::ModelFault>]) -> String {
    pieces.iter().filter_map(|piece| if let Ok(Piece::Text(text)) = piece { Some(text.as_str()) } else { None }).collect()
}

#[tokio::test]
async fn an_answer_is_streamed() {
    let server = mock_llm(RULES);
    let pieces = ask(&*model(&server), user("a sentence that is long enough for several chunks")).await;
    assert_eq!(text(&pieces), "You said: a sentence that is long enough for several chunks", "{pieces:?}");
    assert!(pieces.len() > 5, "{pieces:?}");
    assert_eq!(pieces.last(), Some(&Ok(Piece::Stopped(Stop::EndTurn))));
}

/// The server streams no calls, but accepts a conversation with calls.
#[tokio::test]
async fn calls_and_results_are_taken_as_history() {
    let server = mock_llm(RULES);
    let model = model(&server);
    let tool = ToolSpec { name: "get_weather".into(), description: "The weather.".into(), schema: json!({"type": "object"}) };
    let call = ToolCall { id: "call_1".into(), name: "get_weather".into(), arguments: json!({"city": "Paris"}), signature: None };
    let result = ToolResult { id: "call_1".into(), name: "get_weather".into(), content: "it is sunny".into(), is_error: false };
    let mut request = ModelRequest { tools: vec![tool], ..user("What is the weather in Paris?") };
    request.messages.push(Message { role: Role::Assistant, content: vec![Content::ToolCall(call)] });
    request.messages.push(Message { role: Role::User, content: vec![Content::ToolResult(result)] });
    assert_eq!(text(&ask(&*model, request).await), "You said: it is sunny");
}

#[tokio::test]
async fn errors_that_come_as_events_are_told_apart() {
    let server = mock_llm(RULES);
    let model = model(&server);
    for (said, kind) in
        [("error-401", FaultKind::Unauthorized), ("error-404", FaultKind::UnknownModel), ("error-400", FaultKind::ContextOverflow)]
    {
        let pieces = ask(&*model, user(said)).await;
        let [Err(fault)] = &pieces[..] else { panic!("{pieces:?}") };
        assert_eq!(*fault.kind(), kind, "{fault}");
    }
}
