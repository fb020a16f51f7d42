//! Tests of the platform's configuration, before it is stored: nothing is, and no more is sent than a change would send.

use reqwest::Method;
use serde_json::{Value, json};
use slipway_rest::Authentication;

use crate::{Api, settings};

const ADA: [(&str, &str); 1] = [("authorization", "Bearer ada@example.com")];
const OBJECTS: &str = "/api/v1/namespaces/slipway-system";

/// An API whose configuration has a mirror with a token.
async fn mirrored() -> Api {
    let api = Api::start(settings(), Authentication::On(None)).await;
    let repo = json!({"data": {"state_repo": "https://git.example.com/agents.git"}});
    api.cluster.set(&format!("{OBJECTS}/configmaps/slipway-platform"), repo);
    api.cluster.set(&format!("{OBJECTS}/secrets/slipway-platform"), json!({"data": {"state_token": "aHVudGVyMg=="}}));
    api
}

#[tokio::test]
async fn a_test_is_refused_for_what_a_change_is_refused_for() {
    let api = mirrored().await;
    let evil = "https://evil.example.com/x.git";
    for (body, says) in [
        (json!({"grafana_url": "http://x"}), "unknown field `grafana_url`"),
        (json!({"mlflow_uri": "https://me:hunter2@mlflow"}), "mlflow_uri: it must hold no user and password"),
        (json!({"prometheus_url": "prometheus"}), "prometheus_url: it is no URL"),
        (json!({"state_repo": "http://git.example.com/x.git"}), "state_repo: "),
        (json!({"state_repo": evil}), "state_token: must be given anew"),
        (json!({"state_repo": evil, "state_token": "********"}), "state_token: must be given anew"),
    ] {
        for (method, path) in [(Method::PUT, "/platform/config"), (Method::POST, "/platform/config/test")] {
            let refused = api.call(method, path, &ADA, Some(body.clone())).await;
            let message = refused.body["message"].as_str().unwrap().to_owned();
            assert_eq!(refused.status, 400, "{path} {body}: {message}");
            assert!(message.contains(says) && !message.contains("hunter2"), "{path} {body}: {message}");
        }
    }
    api.cluster.refuse(&[("patch", "secrets")]);
    for body in [json!({"state_token": "other"}), json!({"state_ca": "-----BEGIN CERTIFICATE-----\nYQ==\n"})] {
        let refused = api.call(Method::POST, "/platform/config/test", &ADA, Some(body.clone())).await;
        assert_eq!(refused.status, 403, "{body}: {}", refused.body);
    }
}

#[tokio::test]
async fn what_would_be_is_connected_to_and_nothing_is_stored() {
    let api = mirrored().await;
    let nobody = format!("http://127.0.0.1:{}", slipway_peers::free_port());
    let body = json!({"mlflow_uri": nobody, "state_repo": "https://git.example.com/{team}.git", "state_token": "********"});
    let tested = api.call(Method::POST, "/platform/config/test", &ADA, Some(body)).await;
    assert_eq!(tested.status, 200, "{}", tested.body);
    let found = |name: &str| {
        let found: &Value = &tested.body["data"][name];
        (found["status"].as_str().unwrap().to_owned(), found["message"].as_str().unwrap().to_owned())
    };
    let (status, message) = found("mlflow");
    assert!(status == "error" && message.contains("could not be reached"), "{message}");
    let (status, message) = found("git");
    assert!(status == "error" && message.contains("SLIPWAY_STATE_URL"), "{message}");
    for none in ["prometheus", "database", "knowledge", "state", "workers"] {
        assert_eq!(found(none).0, "not_configured", "{none}");
    }
    // The cluster's stand-in has no such page.
    assert_eq!(found("cluster").0, "error");
    assert!(!tested.body.to_string().contains("hunter2"), "{}", tested.body);
    assert!(api.cluster.writers("slipway-platform").is_empty());
    let config = api.call(Method::GET, "/platform/config", &ADA, None).await.body["data"].clone();
    assert_eq!((&config["mlflow_uri"], &config["state_repo"]), (&Value::Null, &json!("https://git.example.com/agents.git")));
}
