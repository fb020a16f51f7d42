//! What the manager sends a team's worker of the team's integrations: a server to try, or a message for it. The login comes with
//! each request, from the one Secret; the worker keeps none.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::integration::IntegrationType;
use crate::words::words;

pub const TEST_PATH: &str = "/integrations/test";
pub const DELIVER_PATH: &str = "/integrations/deliver";

/// A server to connect to.
#[derive(Serialize, Deserialize, Clone, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct ProbeRequest {
    #[serde(rename = "type")]
    pub kind: IntegrationType,
    /// The part of the spec.
    pub config: Value,
    /// The Secret's data, as text.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub credentials: BTreeMap<String, String>,
}

/// What came of it.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
pub struct ProbeReply {
    pub succeeded: bool,
    /// Connected, or why not, in one word: the reason of the condition Ready.
    pub reason: String,
    pub message: String,
    /// From the first byte sent to the head of the last answer. None when nothing came.
    pub latency_ms: Option<i64>,
}

/// A message for a webhook or for Slack.
#[derive(Serialize, Deserialize, Clone, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct DeliverRequest {
    #[serde(rename = "type")]
    pub kind: IntegrationType,
    /// The part of the spec.
    pub config: Value,
    /// The Secret's data, as text.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub credentials: BTreeMap<String, String>,
    /// The same for each attempt, so that a receiver can tell a repetition.
    pub message_id: String,
    /// What is sent: `type`, `timestamp` and `data`.
    pub body: Value,
}

/// What became of a message.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
pub struct DeliverReply {
    pub outcome: DeliveryOutcome,
    pub message: String,
    /// What the receiver asks for.
    pub retry_after_seconds: Option<u64>,
}

words!(
    /// What becomes of a message next: again is tried again, permanent waits for a change, gone is given up.
    DeliveryOutcome { Again = "again", Delivered = "delivered", Permanent = "permanent", Gone = "gone" }
);

impl fmt::Debug for ProbeRequest {
    /// Without config and login: either could say more than a log may.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProbeRequest").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl fmt::Debug for DeliverRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeliverRequest").field("kind", &self.kind).field("message_id", &self.message_id).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_login_is_in_no_debug_output() {
        let credentials = BTreeMap::from([("token".to_owned(), "hunter2".to_owned())]);
        let config = json!({"url": "https://hunter2.example"});
        let probe = ProbeRequest { kind: IntegrationType::Webhook, config: config.clone(), credentials: credentials.clone() };
        let message = DeliverRequest {
            kind: IntegrationType::Webhook,
            config,
            credentials,
            message_id: "msg_1".to_owned(),
            body: json!({"data": "hunter2"}),
        };
        let said = format!("{probe:?} {message:?}");
        assert!(said.contains("msg_1") && !said.contains("hunter2"), "{said}");
        let sent = serde_json::to_value(&probe).unwrap();
        assert_eq!(sent["type"], "webhook");
        assert_eq!(serde_json::from_value::<ProbeRequest>(sent).unwrap(), probe);
    }
}
