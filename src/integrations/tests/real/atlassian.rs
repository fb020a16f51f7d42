//! Jira and Confluence. Backlot refuses as they do, and serves neither who the user is nor REST v2 of Confluence: answers to good logins
//! come from a script.

use serde_json::json;
use slipway_api::integration::IntegrationType;
use slipway_peers::backlot;

use crate::support::{connected, failed, scripted, tried};

#[tokio::test]
async fn jira_says_who_the_user_is() {
    let server = scripted(|request| {
        let is_known = request.starts_with("GET /rest/api/3/myself ") && request.contains("Basic YUBleGFtcGxlLmNvbTpodW50ZXIy\r\n");
        if is_known { ok(r#"{"accountId": "5b10", "displayName": "hunter2"}"#) } else { ("401 Unauthorized".to_owned(), String::new()) }
    })
    .await;
    let config = json!({"baseUrl": server.url});
    let with = async |token: &str| tried(IntegrationType::Jira, config.clone(), &[("email", "a@example.com"), ("api_token", token)]).await;
    connected(&with("hunter2").await, "Jira takes the login");
    failed(&with("hunter2-is-wrong").await, "Unauthorized", "Jira refuses email and api_token");
}

#[tokio::test]
async fn confluence_lists_a_space() {
    let server = scripted(|request| {
        let is_known = request.starts_with("GET /wiki/api/v2/spaces?limit=1 ") && request.contains("Bearer hunter2\r\n");
        if is_known { ok(r#"{"results": [], "_links": {}}"#) } else { ("401 Unauthorized".to_owned(), String::new()) }
    })
    .await;
    let config = json!({"baseUrl": server.url});
    let with = async |token: &str| tried(IntegrationType::Confluence, config.clone(), &[("token", token)]).await;
    connected(&with("hunter2").await, "Confluence takes the login");
    failed(&with("hunter2-is-wrong").await, "Unauthorized", "Confluence refuses");
}

#[tokio::test]
async fn backlot_refuses_as_atlassian_does() {
    let server = backlot("");
    let config = json!({"baseUrl": format!("{}/atlassian", server.url())});
    for login in [&[("email", "a@example.com"), ("api_token", "hunter2")][..], &[("token", "hunter2")]] {
        failed(&tried(IntegrationType::Jira, config.clone(), login).await, "Unauthorized", "");
    }
    // A site without REST v2.
    let login = [("token", "admin-service-token")];
    failed(&tried(IntegrationType::Confluence, config, &login).await, "Unexpected", "is no site of Confluence Cloud");
}

fn ok(body: &str) -> (String, String) {
    ("200 OK\r\ncontent-type: application/json".to_owned(), body.to_owned())
}
