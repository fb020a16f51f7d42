//! MCP servers: one on the project's own SDK that asks for a token, and the reference server.

use std::net::{Ipv4Addr, SocketAddr};

use serde_json::json;
use slipway_api::integration::IntegrationType;
use slipway_peers::{changing_server_with_token, everything, free_port};

use crate::support::{connected, failed, tried};

#[tokio::test]
async fn a_token_is_accepted_or_not() {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let server = changing_server_with_token(address, "hunter2-is-right");
    let config = json!({"url": server.url()});
    let with = async |credentials: &[(&str, &str)]| tried(IntegrationType::Mcp, config.clone(), credentials).await;
    connected(&with(&[("token", "hunter2-is-right")]).await, "offers 4 tools");
    failed(&with(&[("token", "hunter2-is-wrong")]).await, "Unauthorized", "refuses the credentials (status 401)");
    failed(&with(&[]).await, "Unauthorized", "asks for credentials (status 401)");
}

#[tokio::test]
async fn the_reference_server_offers_its_tools() {
    let server = everything();
    let config = json!({"url": server.url(), "header": "X-Api-Key"});
    connected(&tried(IntegrationType::Mcp, config, &[("token", "hunter2")]).await, "tools");
    let elsewhere = json!({"url": server.url().replace("/mcp", "/none")});
    failed(&tried(IntegrationType::Mcp, elsewhere, &[]).await, "Unexpected", "but not as an MCP server does");
}
