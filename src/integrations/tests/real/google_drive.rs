//! Google Drive, played by Backlot, which knows its service account.

use serde_json::json;
use slipway_api::integration::IntegrationType;
use slipway_peers::backlot;

use crate::support::{connected, drive_key, failed, tried};

#[tokio::test]
async fn a_service_account_is_accepted_or_not() {
    let server = backlot("");
    let config = json!({"endpoint": server.url()});
    let mut key = drive_key(&server);
    let with = async |key: String| tried(IntegrationType::GoogleDrive, config.clone(), &[("service_account.json", &key)]).await;
    connected(&with(key.to_string()).await, "the service account is accepted");
    key["client_email"] = json!("hunter2@acme.iam.gserviceaccount.com");
    failed(&with(key.to_string()).await, "Unauthorized", "Google does not know the service account or its key");
    failed(&with("hunter2".to_owned()).await, "Invalid", "service_account.json is no JSON key");
}
