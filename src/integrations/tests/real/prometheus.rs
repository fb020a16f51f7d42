//! Prometheus, with the login that its web configuration gives it, and without one.

use serde_json::json;
use slipway_api::integration::IntegrationType;
use slipway_peers::Prometheus;

use crate::support::{connected, failed, tried};

#[tokio::test]
async fn a_password_is_accepted_or_not() {
    let server = Prometheus::with_login();
    let config = json!({"url": server.url()});
    let with = async |credentials: &[(&str, &str)]| tried(IntegrationType::Prometheus, config.clone(), credentials).await;
    connected(&with(&[("username", Prometheus::USER), ("password", Prometheus::PASSWORD)]).await, "answers queries");
    let wrong = with(&[("username", Prometheus::USER), ("password", "hunter2-is-wrong")]).await;
    failed(&wrong, "Unauthorized", "refuses the credentials (status 401)");
    failed(&with(&[]).await, "Unauthorized", "asks for credentials (status 401)");
}

#[tokio::test]
async fn a_server_without_a_login_takes_none() {
    let server = Prometheus::start(&[], &[]);
    server.until("vector(1)", |found| !found.is_empty());
    connected(&tried(IntegrationType::Prometheus, json!({"url": format!("{}/", server.url())}), &[]).await, "answers queries");
}
