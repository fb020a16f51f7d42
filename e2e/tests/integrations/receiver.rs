//! A receiver of messages on the node. Whose messages are meant is judged by the library of Standard Webhooks, and whether those for
//! Slack are as Slack takes them; whatever comes, to other paths too, is kept.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use slipway_e2e::poll;
use slipway_peers::skip;

use crate::tools::on_the_node;

/// Where signed messages go, and those for Slack.
pub(super) const HOOK: &str = "/hook";
pub(super) const SLACK: &str = "/services/T0/B0/good";

/// What messages are signed with.
pub(super) fn signing_secret() -> String {
    format!("whsec_{}", STANDARD.encode([7; 32]))
}

pub(super) struct Receiver {
    place: String,
    server: slipway_peers::Receiver,
}

/// A message, and how it was answered.
#[derive(Debug, Clone)]
pub(super) struct Heard(Value);

impl Receiver {
    /// None, which is told, where pods do not reach this machine.
    #[track_caller]
    pub(super) fn start() -> Option<Self> {
        let Some(address) = on_the_node() else {
            skip("pods reach a server of this test only where the node is this machine");
            return None;
        };
        Some(Self { place: address.to_string(), server: slipway_peers::Receiver::start_at(address, &signing_secret(), None) })
    }

    /// Address and port.
    pub(super) fn place(&self) -> &str {
        &self.place
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.place)
    }

    /// The next message is answered with this status.
    pub(super) fn refuse_one(&self, status: u16) {
        self.server.tell(&json!({"status": status}));
    }

    /// What came to this path so far.
    pub(super) fn heard(&self, path: &str) -> Vec<Heard> {
        self.server.got().into_iter().filter(|heard| heard["path"] == path).map(Heard).collect()
    }

    /// Waits until what came to this path is as wanted.
    #[track_caller]
    pub(super) fn until(&self, path: &str, seconds: u64, what: &str, want: impl Fn(&[Heard]) -> bool) -> Vec<Heard> {
        poll(seconds, || {
            let heard = self.heard(path);
            if want(&heard) { Ok(heard) } else { Err(format!("{path} should hear {what}: {heard:#?}")) }
        })
    }
}

impl Heard {
    /// By its name in small letters.
    pub(super) fn header(&self, name: &str) -> &str {
        self.0["headers"][name].as_str().unwrap_or_default()
    }

    /// The token that it came with.
    pub(super) fn token(&self) -> &str {
        self.header("authorization").trim_start_matches("Bearer ")
    }

    /// The body as JSON.
    #[track_caller]
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(self.0["body"].as_str().unwrap_or_default()).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// The id, by which one message is known that comes again.
    pub(super) fn id(&self) -> &str {
        self.header("webhook-id")
    }

    /// Whether it is what the receiver takes: of a hook, signed with its secret just now.
    pub(super) fn is_good(&self) -> bool {
        self.0["fault"] == ""
    }

    /// Whether it was taken.
    pub(super) fn is_taken(&self) -> bool {
        self.0["status"].as_u64().is_some_and(|status| (200..300).contains(&status))
    }
}
