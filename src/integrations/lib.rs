//! Connections to integrations, as a team's worker makes them: one request to see whether the server answers and takes the login, and
//! one message to a webhook. Each login comes with the call and is kept nowhere; no message has a value of it, or of the config.

use slipway_api::worker::{DeliverReply, DeliverRequest, DeliveryOutcome, ProbeReply, ProbeRequest};
use slipway_egress::{Allowed, Egress, EgressProfile};

/// The way out: every redirect ends it, so that a login goes to no other place.
pub fn egress(allow: &[Allowed]) -> Egress {
    let profile = EgressProfile { name: "integrations", setting: "the chart value agents.egressAllow", user_agent: "slipway" };
    Egress::without_redirects(profile, allow, None)
}

/// Connects to the server of an integration.
#[allow(clippy::unused_async, reason = "no type is connected to yet")]
pub async fn probe(request: &ProbeRequest, _egress: &Egress) -> ProbeReply {
    let message = format!("integrations of type {} cannot be tested yet", request.kind.as_str());
    ProbeReply { succeeded: false, reason: "Unexpected".to_owned(), message, latency_ms: None }
}

/// Sends a message once.
#[allow(clippy::unused_async, reason = "nothing is sent yet")]
pub async fn deliver(request: &DeliverRequest, _egress: &Egress) -> DeliverReply {
    let message = format!("integrations of type {} cannot be sent anything yet", request.kind.as_str());
    DeliverReply { outcome: DeliveryOutcome::Again, message, retry_after_seconds: None }
}
