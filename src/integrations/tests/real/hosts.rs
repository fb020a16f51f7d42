//! What holds for the servers of all types: nobody there, an answer that never comes, addresses that are not public, redirects, faults,
//! and servers that say again what they were sent.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use slipway_api::integration::IntegrationType;
use slipway_api::worker::ProbeRequest;
use slipway_integrations::Outbound;
use slipway_peers::{Prometheus, free_port, mock_llm};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::support::{SIGNING_SECRET, drive_key, failed, login, outbound, scripted, tried_with};

static KEY: LazyLock<Value> = LazyLock::new(|| drive_key(&slipway_peers::backlot("")));

/// All types that connect to a server.
fn types() -> impl Iterator<Item = IntegrationType> {
    IntegrationType::ALL.iter().copied().filter(|kind| *kind != IntegrationType::Local)
}

/// An integration whose server is at this URL, with a login that is planted.
fn at(kind: IntegrationType, url: &str) -> ProbeRequest {
    let mut key = KEY.clone();
    key["token_uri"] = json!(format!("{url}/oauth2/hunter2"));
    let (key, hook) = (key.to_string(), format!("{url}/services/hunter2"));
    let (key, hook) = (key.as_str(), hook.as_str());
    let (config, credentials): (Value, Vec<(&str, &str)>) = match kind {
        IntegrationType::Local => (json!({}), vec![]),
        IntegrationType::GoogleDrive => (json!({"endpoint": url}), vec![("service_account.json", key)]),
        IntegrationType::S3 => {
            (json!({"endpoint": url, "bucket": "docs"}), vec![("access_key_id", "hunter2"), ("secret_access_key", "hunter2")])
        }
        IntegrationType::Confluence => (json!({"baseUrl": url}), vec![("token", "hunter2")]),
        IntegrationType::Jira => (json!({"baseUrl": url}), vec![("email", "a@example.com"), ("api_token", "hunter2")]),
        IntegrationType::Databricks => (json!({"host": url}), vec![("token", "hunter2")]),
        IntegrationType::Mlflow => (json!({"url": url}), vec![("token", "hunter2")]),
        IntegrationType::Prometheus => (json!({"url": url}), vec![("username", "me"), ("password", "hunter2")]),
        IntegrationType::Webhook => {
            (json!({"url": format!("{url}/hook?hunter2")}), vec![("signing_secret", SIGNING_SECRET), ("token", "hunter2")])
        }
        IntegrationType::Slack => (json!({}), vec![("webhook_url", hook)]),
        IntegrationType::Openai | IntegrationType::Anthropic => (json!({"baseUrl": url}), vec![("api_key", "hunter2")]),
        IntegrationType::Mcp => (json!({"url": format!("{url}/mcp?hunter2")}), vec![("token", "hunter2")]),
    };
    ProbeRequest { kind, config, credentials: login(&credentials) }
}

#[tokio::test]
async fn a_port_where_nobody_listens_is_unreachable() {
    let url = format!("http://127.0.0.1:{}", free_port());
    for kind in types() {
        let reply = tried_with(&outbound(), at(kind, &url)).await;
        failed(&reply, "Unreachable", "could not be reached");
        assert!(reply.latency_ms.is_none() && reply.message.ends_with("(from the team's worker; chart value worker.egress)"), "{reply:?}");
    }
}

#[tokio::test]
async fn a_server_that_never_answers_is_given_up_after_10_s() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let mut tries = JoinSet::new();
    for kind in types() {
        let request = at(kind, &url);
        tries.spawn(async move {
            let begun = Instant::now();
            (kind, tried_with(&outbound(), request).await, begun.elapsed())
        });
    }
    while let Some(tried) = tries.join_next().await {
        let (kind, reply, time) = tried.unwrap();
        failed(&reply, "TimedOut", "did not answer within 10 s");
        assert!(reply.latency_ms.is_none() && reply.message.ends_with("chart value worker.egress)"), "{kind:?}: {reply:?}");
        // A machine that is busy with other things takes longer; one that waited for a server's own limits, minutes.
        assert!((Duration::from_secs(9)..Duration::from_secs(30)).contains(&time), "{kind:?}: {time:?}");
    }
}

#[tokio::test]
async fn addresses_that_are_not_public_take_an_entry() {
    let inside = [
        "http://10.0.0.1",
        "http://127.0.0.1:9",
        "http://localhost:80",
        "http://169.254.169.254",
        "http://[::1]",
        "http://metadata.google.internal",
    ];
    let outbound = Outbound::new(Vec::new(), None);
    for kind in types() {
        for url in inside {
            let reply = tried_with(&outbound, at(kind, url)).await;
            failed(&reply, "AddressNotAllowed", "agents.egressAllow");
            assert_eq!(reply.latency_ms, None, "{kind:?} {url}");
        }
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let elsewhere = scripted(|_| ("200 OK".to_owned(), "{}".to_owned())).await;
    let target = format!("302 Found\r\nlocation: {}/stolen", elsewhere.url);
    let server = scripted(move |_| (target.clone(), String::new())).await;
    for kind in types() {
        let reply = tried_with(&outbound(), at(kind, &server.url)).await;
        failed(&reply, "Unexpected", "127.0.0.1");
        assert!(reply.latency_ms.is_some(), "{kind:?}: {reply:?}");
    }
    assert!(elsewhere.asked().is_empty(), "nothing went there, and no login");
}

#[tokio::test]
async fn a_server_that_is_ill_may_be_well_again() {
    let server = scripted(|_| ("503 Service Unavailable".to_owned(), String::new())).await;
    for kind in types() {
        let reply = tried_with(&outbound(), at(kind, &server.url)).await;
        failed(&reply, "Unreachable", "answers with status 503");
        assert!(reply.latency_ms.is_some() && !reply.message.contains("worker.egress"), "{kind:?}: {reply:?}");
    }
    assert_eq!(server.asked().len(), types().count(), "each is asked once");
}

#[tokio::test]
async fn what_a_server_says_again_is_in_no_message() {
    // `tried_with` looks for what is planted.
    let refusing = scripted(|request| ("401 Unauthorized".to_owned(), request.to_owned())).await;
    for kind in types() {
        let reply = tried_with(&outbound(), at(kind, &refusing.url)).await;
        failed(&reply, "Unauthorized", "");
        assert!(reply.latency_ms.is_some(), "{kind:?}: {reply:?}");
    }
    let asked = refusing.asked();
    assert!(asked.iter().filter(|asked| asked.whole.contains("hunter2")).count() >= 6, "the logins were sent: {asked:#?}");
    let echo = scripted(|request| ("200 OK\r\ncontent-type: text/plain".to_owned(), request.to_owned())).await;
    for kind in types().filter(|kind| !takes_any_success(*kind)) {
        failed(&tried_with(&outbound(), at(kind, &echo.url)).await, "Unexpected", "");
    }
}

#[tokio::test]
async fn another_server_than_the_types_is_told() {
    let (prometheus, llm) = (Prometheus::start(&[], &[]), mock_llm("{}"));
    for kind in types().filter(|kind| !takes_any_success(*kind)) {
        let url = if kind == IntegrationType::Prometheus { llm.url().to_owned() } else { prometheus.url() };
        let reply = tried_with(&outbound(), at(kind, &url)).await;
        failed(&reply, "Unexpected", "127.0.0.1");
        assert!(reply.latency_ms.is_some(), "{kind:?}: {reply:?}");
    }
}

/// Receivers of messages say no more than that they have them.
fn takes_any_success(kind: IntegrationType) -> bool {
    matches!(kind, IntegrationType::Webhook | IntegrationType::Slack)
}
