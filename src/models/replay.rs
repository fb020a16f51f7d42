//! Providers played by a server that replays what they are known to send (see testdata/README.md),
//! over real sockets: whole, in splinters, cut off anywhere, too late, or not at all.

mod answers;
mod failures;
mod server;

use std::time::Duration;

use futures::StreamExt;

use crate::answer::{Model, Piece};
use crate::fault::Fault;
use crate::message::{Message, Request};
use crate::provider::{Provider, within};
use crate::transport::Limits;
use server::Server;

/// The key that must never be seen in a message.
const KEY: &str = "key-that-nobody-may-see";

fn limits(attempts: u32) -> Limits {
    Limits {
        connect: Duration::from_secs(5),
        first_byte: Duration::from_secs(5),
        idle: Duration::from_secs(5),
        attempts,
        backoff: Duration::from_millis(2),
        patience: Duration::from_secs(5),
    }
}

/// A model of this provider, which lives at the server.
fn model(provider: Provider, server: &Server, limits: Limits) -> Box<dyn Model> {
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
    within(limits, provider, "some-model", &variables).unwrap()
}

async fn answer(model: &dyn Model) -> Vec<Result<Piece, Fault>> {
    let request = Request { messages: vec![Message::user("What is the weather in Paris?")], ..Request::default() };
    tokio::time::timeout(Duration::from_secs(30), model.answer(request).collect()).await.expect("an answer should end")
}

/// Nothing that was secret is in what comes out.
fn assert_discreet(pieces: &[Result<Piece, Fault>]) {
    assert!(!format!("{pieces:?}").contains(KEY), "{pieces:?}");
}
