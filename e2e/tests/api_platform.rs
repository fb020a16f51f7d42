//! The platform's configuration over REST: what is kept, what agents are told of it, and what a test of it finds.

use serde_json::{Value, json};
use slipway_e2e::{Api, Team, alone, kubectl, poll};

const NAMESPACE: &str = "slipway-system";

/// Takes the ConfigMap away, before and after.
struct Clean;

impl Clean {
    fn now() -> Self {
        kubectl(format!("-n {NAMESPACE} delete configmap slipway-platform --ignore-not-found")).ok();
        Self
    }
}

impl Drop for Clean {
    fn drop(&mut self) {
        let _ = kubectl(format!("-n {NAMESPACE} delete configmap slipway-platform --ignore-not-found")).run();
    }
}

#[test]
fn what_is_configured_reaches_agents() {
    let team = Team::within(alone(), "api-platform", &json!({}));
    let _clean = Clean::now();
    let api = Api::of(&team);
    assert_eq!(api.call("GET", "/platform/config").expect(200)["data"], json!({"mlflow_uri": null}));
    let agent = team.agent("hello", &json!({"suspend": true}));
    let told = |wanted: Value| {
        poll(30, || {
            let found = agent.config()["data"]["RUNTIME_MLFLOW_URI"].clone();
            if found == wanted { Ok(()) } else { Err(format!("the agent is told {found} and not {wanted}")) }
        });
    };
    agent.until("told", 20, |agent| agent["status"]["phase"] == "Terminated");
    told(Value::Null);

    let put = |body: Value| api.call("PUT", "/platform/config").json(&body);
    assert_eq!(put(json!({"mlflow_uri": "https://mlflow.example.com"})).expect(200)["data"]["mlflow_uri"], "https://mlflow.example.com");
    told(json!("https://mlflow.example.com"));
    assert_eq!(put(json!({})).expect(200)["data"]["mlflow_uri"], "https://mlflow.example.com", "what is not given stays");
    for (body, says) in [
        (json!({"mlflow_uri": "https://me:hunter2@mlflow"}), "mlflow_uri: it must hold no user and password"),
        (json!({"mlflow_uri": "mlflow"}), "mlflow_uri: it is no URL"),
        (json!({"prometheus_url": "http://x"}), "unknown field `prometheus_url`"),
        (json!({"state_token": "x"}), "unknown field `state_token`"),
    ] {
        let reply = put(body.clone()).send();
        let message = reply.json()["message"].as_str().unwrap().to_owned();
        assert!(reply.status == 400 && message.contains(says) && !message.contains("hunter2"), "{body}: {reply:?}");
    }
    assert_eq!(put(json!({"mlflow_uri": null})).expect(200)["data"], json!({"mlflow_uri": null}));
    told(Value::Null);
}

#[test]
fn a_test_really_connects() {
    let team = Team::within(alone(), "api-platform-test", &json!({}));
    let _clean = Clean::now();
    let (postgres, mlflow) = (slipway_peers::Postgres::start(), slipway_peers::mlflow());
    let api = Api::start(&[
        ("AUTH_ENABLED", "false"),
        ("SLIPWAY_DEFAULT_NAMESPACE", &team.namespace),
        ("SLIPWAY_DATABASE_URL", &postgres.url_of("postgres", "hunter2", "postgres")),
        ("SLIPWAY_MLFLOW_URI", mlflow.url()),
    ]);
    let found = api.call("POST", "/platform/config/test").expect(200);
    let status = |part: &str| found["data"][part]["status"].as_str().unwrap_or_default().to_owned();
    assert_eq!(
        (status("mlflow"), status("cluster"), status("database")),
        ("ok".to_owned(), "ok".to_owned(), "error".to_owned()),
        "{found}"
    );
    assert!(!found.to_string().contains("hunter2"), "{found}");
    let none = Api::of(&team).call("POST", "/platform/config/test").expect(200);
    assert_eq!(
        (none["data"]["mlflow"]["status"].as_str(), none["data"]["database"]["status"].as_str()),
        (Some("not_configured"), Some("not_configured"))
    );
}
