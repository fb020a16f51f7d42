//! One message to a webhook or to Slack, sent once. Whether it is tried again is the sender's to decide, by the outcome.

use reqwest::header::HeaderMap;
use slipway_api::integration::IntegrationType;
use slipway_api::worker::{DeliverReply, DeliverRequest, DeliveryOutcome};
use slipway_knowledge::source::retry_after;

use crate::exchange::{Line, ServerAnswer};
use crate::login::IntegrationLogin;
use crate::outcome::{ConnectionFault, Reason};
use crate::{part, slack, spec, webhook};

pub(crate) async fn send(request: &DeliverRequest, line: &Line<'_>) -> Result<ServerAnswer, ConnectionFault> {
    let spec = spec(request.kind, &request.config)?;
    let login = IntegrationLogin::new(&request.credentials);
    let call = match request.kind {
        IntegrationType::Webhook => webhook::message(&part(spec.webhook)?, &login, &request.message_id, &request.body)?,
        IntegrationType::Slack => slack::message(&part(spec.slack)?, &login, &request.body)?,
        kind => return Err(ConnectionFault::new(Reason::Invalid, format!("integrations of type {} are sent no messages", kind.as_str()))),
    };
    line.send(call).await
}

pub(crate) fn replied(sent: Result<ServerAnswer, ConnectionFault>) -> DeliverReply {
    match sent {
        Ok(ServerAnswer { status, headers, place, .. }) => of_status(status.as_u16(), &headers, &place),
        Err(fault) => {
            let is_passing = matches!(fault.reason, Reason::Unreachable | Reason::TimedOut);
            let outcome = if is_passing { DeliveryOutcome::Again } else { DeliveryOutcome::Permanent };
            DeliverReply { outcome, message: fault.message, retry_after_seconds: None }
        }
    }
}

fn of_status(status: u16, headers: &HeaderMap, place: &str) -> DeliverReply {
    let outcome = match status {
        200..=299 => DeliveryOutcome::Delivered,
        408 | 425 | 429 | 500..=599 => DeliveryOutcome::Again,
        410 => DeliveryOutcome::Gone,
        _ => DeliveryOutcome::Permanent,
    };
    let message = match status {
        300..=399 => format!("{place} redirects to another place, which is not followed"),
        _ => format!("{place} answers with status {status}"),
    };
    let wait = retry_after(headers).filter(|_| outcome == DeliveryOutcome::Again);
    DeliverReply { outcome, message, retry_after_seconds: wait.map(|wait| wait.as_secs()) }
}

#[cfg(test)]
mod tests {
    use reqwest::header::{HeaderValue, RETRY_AFTER};

    use super::*;

    #[test]
    fn a_status_decides_what_becomes_of_a_message() {
        let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static("7"))]);
        for (outcome, statuses) in [
            (DeliveryOutcome::Delivered, &[200, 202, 204][..]),
            (DeliveryOutcome::Again, &[408, 425, 429, 500, 502, 503, 504, 599]),
            (DeliveryOutcome::Gone, &[410]),
            (DeliveryOutcome::Permanent, &[301, 302, 307, 400, 401, 403, 404, 413, 422]),
        ] {
            for status in statuses {
                let reply = of_status(*status, &headers, "https://a.example");
                let wait = (outcome == DeliveryOutcome::Again).then_some(7);
                assert_eq!((reply.outcome, reply.retry_after_seconds), (outcome, wait), "{status}");
            }
        }
        for (reason, outcome) in [
            (Reason::Unreachable, DeliveryOutcome::Again),
            (Reason::TimedOut, DeliveryOutcome::Again),
            (Reason::AddressNotAllowed, DeliveryOutcome::Permanent),
            (Reason::Invalid, DeliveryOutcome::Permanent),
            (Reason::SecretKeyMissing, DeliveryOutcome::Permanent),
        ] {
            assert_eq!(replied(Err(ConnectionFault::new(reason, "x"))).outcome, outcome, "{reason:?}");
        }
    }
}
