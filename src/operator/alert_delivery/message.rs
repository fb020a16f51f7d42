//! The message about an alert. Pure. The body is the same in each attempt; the worker makes of it what the integration takes.

use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use slipway_api::ids;
use slipway_cluster::Key;
use slipway_database::{AlertStage, MAX_PAYLOAD_BYTES, MAX_TRACES, RaisedAlert};

/// How long an alert's words are where all of it would be too long.
const SHORT_BYTES: usize = 256;

/// What has become of an alert, and when.
pub(crate) struct AlertTurn<'a> {
    pub stage: AlertStage,
    pub id: &'a str,
    pub alert: &'a RaisedAlert,
    /// When the alert began.
    pub created_at: Timestamp,
    pub now: Timestamp,
}

/// The same from each manager, for each attempt.
pub(crate) fn id(integration: &str, alert: &str, stage: AlertStage) -> String {
    let identity = json!([integration, alert, stage.as_str()]).to_string();
    format!("msg_{}", &hex::encode(Sha256::digest(identity))[..26])
}

/// The body, as JSON that the queue has room for.
pub(crate) fn payload(agent: &Key, turn: &AlertTurn<'_>) -> String {
    let whole = body(agent, turn, &turn.alert.message, &turn.alert.traces).to_string();
    if whole.len() <= MAX_PAYLOAD_BYTES {
        return whole;
    }
    let message = &turn.alert.message;
    body(agent, turn, &message[..message.floor_char_boundary(SHORT_BYTES)], &[]).to_string()
}

fn body(agent: &Key, turn: &AlertTurn<'_>, message: &str, traces: &[String]) -> Value {
    let AlertTurn { stage, id, alert, created_at, now } = turn;
    let resolved_at = (*stage == AlertStage::Resolved).then(|| now.to_string());
    json!({
        "type": format!("alert.{}", stage.as_str()),
        "timestamp": now.to_string(),
        "data": {
            "id": id,
            "team": ids::team_slug(&alert.agent.team),
            "agent_id": alert.agent.agent_id,
            "agent": agent.name,
            "severity": alert.severity,
            "metric": alert.metric,
            "policy": Some(&alert.policy).filter(|policy| !policy.is_empty()),
            "value": alert.value,
            "threshold": alert.threshold,
            "message": message,
            "trace_ids": traces.iter().take(MAX_TRACES).collect::<Vec<_>>(),
            "created_at": created_at.to_string(),
            "resolved_at": resolved_at,
        },
    })
}

#[cfg(test)]
mod tests {
    use slipway_database::AgentKey;

    use super::*;

    fn alert(message: &str, traces: Vec<String>) -> RaisedAlert {
        RaisedAlert {
            agent: AgentKey { team: "tk_a".to_owned(), agent_id: "ag_1".to_owned(), uid: "u".to_owned() },
            metric: "error_rate_pct".to_owned(),
            policy: String::new(),
            severity: "critical".to_owned(),
            message: message.to_owned(),
            value: Some(34.0),
            threshold: Some(20.0),
            traces,
        }
    }

    fn sent(stage: AlertStage, alert: &RaisedAlert) -> String {
        let at = |text: &str| text.parse().unwrap();
        let (created_at, now) = (at("2026-01-02T03:04:05Z"), at("2026-01-02T03:09:05Z"));
        payload(&Key::new("team-a", "helper"), &AlertTurn { stage, id: "al_1", alert, created_at, now })
    }

    #[test]
    fn a_message_says_what_the_radar_says() {
        let alert = alert("errors", vec!["tr_1".to_owned()]);
        let body: Value = serde_json::from_str(&sent(AlertStage::Raised, &alert)).unwrap();
        let data = json!({"id": "al_1", "team": "a", "agent_id": "ag_1", "agent": "helper", "severity": "critical", "metric": "error_rate_pct",
            "policy": null, "value": 34.0, "threshold": 20.0, "message": "errors", "trace_ids": ["tr_1"],
            "created_at": "2026-01-02T03:04:05Z", "resolved_at": null});
        assert_eq!(body, json!({"type": "alert.raised", "timestamp": "2026-01-02T03:09:05Z", "data": data}));
        let end: Value = serde_json::from_str(&sent(AlertStage::Resolved, &alert)).unwrap();
        assert_eq!((&end["type"], &end["data"]["resolved_at"]), (&json!("alert.resolved"), &json!("2026-01-02T03:09:05Z")));
        let policy = RaisedAlert { policy: "gp_cap".to_owned(), value: None, ..alert };
        let risen: Value = serde_json::from_str(&sent(AlertStage::Risen, &policy)).unwrap();
        assert_eq!((&risen["data"]["policy"], &risen["data"]["value"]), (&json!("gp_cap"), &Value::Null));
    }

    #[test]
    fn the_longest_message_fits_into_the_queue() {
        for character in ["\u{1}", "é", "\"", "x"] {
            let alert = alert(&character.repeat(1_024 / character.len()), vec![character.repeat(128 / character.len()); 50]);
            let body = sent(AlertStage::Raised, &alert);
            assert!(body.len() <= MAX_PAYLOAD_BYTES, "{character:?}: {}", body.len());
            assert!(serde_json::from_str::<Value>(&body).unwrap()["data"]["message"].as_str().unwrap().len() >= 255);
        }
    }

    #[test]
    fn an_id_tells_integrations_alerts_and_stages_apart() {
        let one = id("uid", "al_1", AlertStage::Raised);
        assert_eq!(one, id("uid", "al_1", AlertStage::Raised));
        assert!(one.starts_with("msg_") && one.len() == 30, "{one}");
        for other in [id("uid2", "al_1", AlertStage::Raised), id("uid", "al_2", AlertStage::Raised), id("uid", "al_1", AlertStage::Risen)] {
            assert_ne!(one, other);
        }
    }
}
