//! MLflow's own server, with its own login.

use serde_json::json;
use slipway_api::integration::IntegrationType;
use slipway_peers::mlflow_with_login;

use crate::support::{connected, failed, tried};

#[tokio::test]
async fn a_password_is_accepted_or_not() {
    let server = mlflow_with_login("hunter2-is-right");
    let config = json!({"url": server.url()});
    let with = async |credentials: &[(&str, &str)]| tried(IntegrationType::Mlflow, config.clone(), credentials).await;
    let reply = with(&[("username", "admin"), ("password", "hunter2-is-right\n")]).await;
    connected(&reply, "answers as MLflow 3.");
    failed(&with(&[("username", "admin"), ("password", "hunter2-is-wrong")]).await, "Unauthorized", "refuses the credentials (status 401)");
    failed(&with(&[("token", "hunter2")]).await, "Unauthorized", "refuses the credentials (status 401)");
    failed(&with(&[]).await, "Unauthorized", "asks for credentials (status 401)");
    failed(&with(&[("username", "admin")]).await, "SecretKeyMissing", "password");
}
