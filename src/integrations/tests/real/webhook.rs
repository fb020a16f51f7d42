//! Webhooks, at a receiver that verifies them with the library of Standard Webhooks.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use slipway_api::integration::IntegrationType;
use slipway_api::worker::{DeliverRequest, DeliveryOutcome};
use slipway_peers::{Receiver, free_port};

use crate::support::{SIGNING_SECRET, connected, failed, login, scripted, sent, tried};

const TOKEN: &str = "hunter2-is-right";

fn receiver() -> Receiver {
    Receiver::start_at(([127, 0, 0, 1], free_port()).into(), SIGNING_SECRET, Some(TOKEN))
}

fn alert(url: &str) -> DeliverRequest {
    DeliverRequest {
        kind: IntegrationType::Webhook,
        config: json!({"url": url, "headers": {"X-Kind": "alerts"}}),
        credentials: login(&[("signing_secret", SIGNING_SECRET), ("token", TOKEN)]),
        message_id: "msg_0123456789abcdef0123456789".to_owned(),
        body: json!({"type": "alert.raised", "timestamp": "2026-03-01T10:00:00Z", "data": {"id": "al_1", "agent": "größer <b>"}}),
    }
}

#[tokio::test]
async fn a_test_is_a_signed_message() {
    let receiver = receiver();
    let config = json!({"url": receiver.hook()});
    let with = async |secret: &str, token: &str| {
        tried(IntegrationType::Webhook, config.clone(), &[("signing_secret", secret), ("token", token)]).await
    };
    connected(&with(SIGNING_SECRET, TOKEN).await, "takes messages (status 204)");
    let got = receiver.got();
    let body: Value = serde_json::from_str(got[0]["body"].as_str().unwrap()).unwrap();
    assert!(got.len() == 1 && got[0]["fault"] == "" && body["type"] == "test" && body["data"] == json!({}), "{got:?}");
    failed(&with(SIGNING_SECRET, "hunter2-is-wrong").await, "Unauthorized", "refuses the credentials (status 401)");
    failed(&with("whsec_bm90LWh1bnRlcjItbm90LWh1bnRlcjIt", TOKEN).await, "Unauthorized", "refuses the credentials (status 401)");
    failed(&with("hunter2", TOKEN).await, "Invalid", "signing_secret must be whsec_");
    receiver.tell(&json!({"status": 404}));
    failed(&with(SIGNING_SECRET, TOKEN).await, "NotFound", "nothing that takes messages");
}

#[tokio::test]
async fn a_message_arrives_as_it_is() {
    let receiver = receiver();
    let message = alert(&receiver.hook());
    for _ in 0..2 {
        let reply = sent(&message).await;
        assert_eq!((reply.outcome, reply.retry_after_seconds), (DeliveryOutcome::Delivered, None), "{reply:?}");
    }
    let got = receiver.got();
    assert_eq!(got.len(), 2, "{got:?}");
    for one in &got {
        let headers = &one["headers"];
        assert!(one["fault"] == "" && one["status"] == 204, "{one}");
        assert_eq!(serde_json::from_str::<Value>(one["body"].as_str().unwrap()).unwrap(), message.body);
        assert_eq!(
            (&headers["webhook-id"], &headers["x-kind"], &headers["content-type"]),
            (&json!(message.message_id), &json!("alerts"), &json!("application/json"))
        );
        assert!(headers["user-agent"].as_str().unwrap().starts_with("slipway/"), "{headers}");
    }
}

#[tokio::test]
async fn an_answer_decides_what_becomes_of_a_message() {
    let receiver = receiver();
    for (how, outcome, wait) in [
        (json!({"status": 503, "headers": {"Retry-After": "7"}}), DeliveryOutcome::Again, Some(7)),
        (json!({"status": 429, "headers": {"Retry-After": "86400"}}), DeliveryOutcome::Again, Some(3600)),
        (json!({"status": 500}), DeliveryOutcome::Again, None),
        (json!({"status": 408}), DeliveryOutcome::Again, None),
        (json!({"status": 425}), DeliveryOutcome::Again, None),
        (json!({"status": 410}), DeliveryOutcome::Gone, None),
        (json!({"status": 400, "headers": {"Retry-After": "7"}}), DeliveryOutcome::Permanent, None),
        (json!({"status": 302, "headers": {"Location": "http://127.0.0.1:9/"}}), DeliveryOutcome::Permanent, None),
        (json!({"status": 200}), DeliveryOutcome::Delivered, None),
    ] {
        receiver.tell(&how);
        let reply = sent(&alert(&receiver.hook())).await;
        assert_eq!((reply.outcome, reply.retry_after_seconds), (outcome, wait), "{how}: {reply:?}");
    }
    let wrong = DeliverRequest { credentials: login(&[("signing_secret", SIGNING_SECRET)]), ..alert(&receiver.hook()) };
    assert_eq!(sent(&wrong).await.outcome, DeliveryOutcome::Permanent, "401: without the token");
}

#[tokio::test]
async fn no_answer_is_waited_for_again() {
    let receiver = receiver();
    receiver.tell(&json!({"delay": 60}));
    let begun = Instant::now();
    let reply = sent(&alert(&receiver.hook())).await;
    assert!(reply.outcome == DeliveryOutcome::Again && reply.message.contains("within 10 s"), "{reply:?}");
    assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", begun.elapsed());
    let nobody = sent(&alert(&format!("http://127.0.0.1:{}/hook", free_port()))).await;
    assert!(nobody.outcome == DeliveryOutcome::Again && nobody.message.contains("could not be reached"), "{nobody:?}");
}

#[tokio::test]
async fn what_no_repetition_mends_is_permanent() {
    let elsewhere = scripted(|_| ("200 OK".to_owned(), String::new())).await;
    let mut inside = alert("http://10.0.0.1/hook");
    assert_eq!(sent(&inside).await.outcome, DeliveryOutcome::Permanent, "its address is not allowed");
    inside.config = json!({"url": "no URL"});
    assert_eq!(sent(&inside).await.outcome, DeliveryOutcome::Permanent);
    let other = DeliverRequest { kind: IntegrationType::Prometheus, config: json!({"url": elsewhere.url}), ..alert("") };
    let reply = sent(&other).await;
    assert!(reply.outcome == DeliveryOutcome::Permanent && reply.message.contains("are sent no messages"), "{reply:?}");
    let split = DeliverRequest { message_id: "a\r\nx: y".to_owned(), ..alert(&elsewhere.url) };
    assert_eq!(sent(&split).await.outcome, DeliveryOutcome::Permanent);
    assert!(elsewhere.asked().is_empty(), "nothing is sent");
}
