//! Databricks, played by MiniLake, which checks no token: `hosts` has a server that refuses one.

use serde_json::json;
use slipway_api::integration::IntegrationType;
use slipway_peers::minilake;

use crate::support::{connected, failed, tried};

#[tokio::test]
async fn a_workspace_says_who_the_user_is() {
    let server = minilake();
    let config = json!({"host": server.url(), "warehouseId": "7"});
    connected(&tried(IntegrationType::Databricks, config.clone(), &[("token", "hunter2")]).await, "Databricks takes the token");
    failed(&tried(IntegrationType::Databricks, config, &[]).await, "Invalid", "token");
}
