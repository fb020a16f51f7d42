//! Servers of models, played by a mock LLM that looks at keys.

use serde_json::{Value, json};
use slipway_api::integration::IntegrationType;
use slipway_peers::mock_llm;

use crate::support::{connected, failed, tried};

/// Lists its models to those with the key, in the header of either protocol.
const KEYED: &str = r#"
rules:
  - {path: /v1/models, method: GET, response: {status: 401, content: '{"error": {"message": "no"}}'}}
  - path: /v1/models
    method: GET
    match: headers."x-api-key" == 'hunter2-is-right' || headers.authorization == 'Bearer hunter2-is-right'
    response: {status: 200, content: '{"object": "list", "data": [{"id": "m"}]}'}
"#;

/// Lists none, and has one model.
const UNLISTED: &str = r#"
rules:
  - {path: /v1/chat/completions, method: POST, response: {status: 404, content: '{"error": {"message": "no"}}'}}
  - path: /v1/chat/completions
    method: POST
    match: body.model == 'small' && body.max_tokens == `1`
    response: {status: 200, content: '{"choices": [{"message": {"role": "assistant", "content": "Hi"}}]}'}
  - path: /v1/messages
    method: POST
    match: body.model == 'small' && headers."anthropic-version" == '2023-06-01'
    response: {status: 200, content: '{"type": "message", "content": [{"type": "text", "text": "Hi"}]}'}
"#;

#[tokio::test]
async fn a_key_is_accepted_or_not() {
    let server = mock_llm(KEYED);
    for (kind, base) in [(IntegrationType::Openai, format!("{}/v1", server.url())), (IntegrationType::Anthropic, server.url().to_owned())] {
        let with = async |key: &str| tried(kind, json!({"baseUrl": base}), &[("api_key", key)]).await;
        connected(&with("hunter2-is-right\n").await, "lists its models");
        failed(&with("hunter2-is-wrong").await, "Unauthorized", "refuses the credentials (status 401)");
    }
    let base = json!({"baseUrl": format!("{}/v1/", server.url())});
    failed(&tried(IntegrationType::Openai, base, &[]).await, "Unauthorized", "asks for credentials");
}

#[tokio::test]
async fn a_server_that_lists_no_models_is_asked_by_one() {
    let server = mock_llm(UNLISTED);
    for (kind, base) in [(IntegrationType::Openai, format!("{}/v1", server.url())), (IntegrationType::Anthropic, server.url().to_owned())] {
        let with = async |config: Value| tried(kind, config, &[("api_key", "hunter2")]).await;
        connected(&with(json!({"baseUrl": base, "model": "small"})).await, "answers by model small");
        failed(&with(json!({"baseUrl": base})).await, "Unexpected", "but not as an");
    }
    let large = json!({"baseUrl": format!("{}/v1", server.url()), "model": "large"});
    failed(&tried(IntegrationType::Openai, large, &[]).await, "NotFound", "there is no model large");
}
