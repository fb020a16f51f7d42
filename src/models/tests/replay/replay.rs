//! Tests with a server that replays recorded answers of providers (see testdata/README.md) over real sockets: whole, in
//! fragments, cut off, late, or not at all.

mod answers;
mod failures;
mod server;

use std::time::Duration;

use futures::StreamExt;

use crate::answer::{Model, Piece};
use crate::fault::ModelFault;
use crate::message::{Message, ModelRequest};
use crate::provider::{Provider, open_with_limits};
use crate::transport::TransportLimits;
use server::Server;

/// A key that must not occur in any message.
const KEY: &str = "key-that-nobody-may-see";

fn limits(attempts: u32) -> TransportLimits {
    TransportLimits {
        connect: Duration::from_secs(5),
        first_byte: Duration::from_secs(5),
        idle: Duration::from_secs(5),
        attempts,
        backoff: Duration::from_millis(2),
        max_wait: Duration::from_secs(5),
    }
}

/// A model of this provider at the server.
fn model(provider: Provider, server: &Server, limits: TransportLimits) -> Box<dyn Model> {
    rustls::crypto::ring::default_provider().install_default().ok();
    let url = server.url();
    let host = server.host();
    let variables = |name: &str| match name {
        "OPENAI_BASE_URL" => Some(format!("{url}/v1")),
        name if name.contains("_BASE_URL") || name == "AWS_ENDPOINT_URL_BEDROCK_RUNTIME" => Some(url.clone()),
        "GCE_METADATA_HOST" => Some(host.clone()),
        "GOOGLE_CLOUD_PROJECT" => Some("my-project".to_owned()),
        "AWS_REGION" => Some("us-east-1".to_owned()),
        "AWS_ACCESS_KEY_ID" => Some("AKIDEXAMPLE".to_owned()),
        "OPENAI_API_KEY" | "ANTHROPIC_API_KEY" | "GOOGLE_API_KEY" | "AWS_SECRET_ACCESS_KEY" | "AWS_SESSION_TOKEN" => Some(KEY.to_owned()),
        _ => None,
    };
    open_with_limits(limits, provider, "some-model", &variables).unwrap()
}

async fn answer(model: &dyn Model) -> Vec<Result<Piece, ModelFault>> {
    let request = ModelRequest { messages: vec![Message::user("What is the weather in Paris?")], ..ModelRequest::default() };
    tokio::time::timeout(Duration::from_secs(30), model.answer(request).collect()).await.expect("an answer should end")
}

/// Asserts that no piece contains a secret.
fn assert_discreet(pieces: &[Result<Piece, ModelFault>]) {
    assert!(!format!("{pieces:?}").contains(KEY), "{pieces:?}");
}
