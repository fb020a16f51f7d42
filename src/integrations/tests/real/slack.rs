//! Incoming webhooks, at a receiver that looks at the form that Slack documents.

use serde_json::{Value, json};
use slipway_api::integration::IntegrationType;
use slipway_api::worker::{DeliverRequest, DeliveryOutcome};
use slipway_peers::Receiver;

use crate::support::{SIGNING_SECRET, connected, failed, login, sent, tried};

#[tokio::test]
async fn a_test_posts_a_line() {
    let receiver = Receiver::start(SIGNING_SECRET);
    let config = json!({"username": "Slipway", "channel": "#alerts"});
    connected(&tried(IntegrationType::Slack, config.clone(), &[("webhook_url", &receiver.slack())]).await, "takes messages (status 200)");
    let got = receiver.got();
    let body: Value = serde_json::from_str(got[0]["body"].as_str().unwrap()).unwrap();
    assert_eq!(body, json!({"text": "Slipway tests this integration.", "username": "Slipway", "channel": "#alerts"}));
    let wrong = receiver.slack().replace("good", "hunter2");
    failed(
        &tried(IntegrationType::Slack, config.clone(), &[("webhook_url", &wrong)]).await,
        "Unauthorized",
        "refuses webhook_url (status 404)",
    );
    failed(&tried(IntegrationType::Slack, config, &[("webhook_url", "hunter2")]).await, "Invalid", "webhook_url is no http or https URL");
}

#[tokio::test]
async fn an_alert_has_the_documented_form() {
    let receiver = Receiver::start(SIGNING_SECRET);
    for kind in ["alert.raised", "alert.risen", "alert.resolved", "test"] {
        let data = json!({
            "id": "al_1", "team": "a", "agent_id": "ag_1", "agent": "<!channel> & co", "severity": "critical", "metric": "error_rate_pct",
            "policy": null, "value": 34.5, "threshold": 20, "message": "34.5 % failed, see <http://evil.example|here>", "trace_ids": ["t"],
            "created_at": "2026-03-01T10:00:00Z", "resolved_at": null,
        });
        let message = DeliverRequest {
            kind: IntegrationType::Slack,
            config: json!({}),
            credentials: login(&[("webhook_url", &receiver.slack())]),
            message_id: "msg_1".to_owned(),
            body: json!({"type": kind, "timestamp": "2026-03-01T10:00:00Z", "data": data}),
        };
        let reply = sent(&message).await;
        assert_eq!(reply.outcome, DeliveryOutcome::Delivered, "{kind}: {reply:?}");
    }
    let got = receiver.got();
    assert!(got.len() == 4 && got.iter().all(|one| one["fault"] == ""), "{got:#?}");
    let first: Value = serde_json::from_str(got[0]["body"].as_str().unwrap()).unwrap();
    assert_eq!(first["text"], "critical: &lt;!channel&gt; &amp; co (team a): error_rate_pct is 34.5, from 20 on");
}
