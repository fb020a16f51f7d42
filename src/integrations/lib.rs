//! Connections to integrations, as a team's worker makes them: one look whether the server answers and takes the login, and one
//! message to a webhook. Each login comes with the call and is kept nowhere; no message has a value of it, of the config or of an
//! answer, but scheme, host and port of a URL.
//!
//! `exchange` sends requests over the egress rules, `outcome` has the words for what comes of them, and each other file is a type.

mod deliver;
mod exchange;
mod login;
mod mcp;
mod mlflow;
mod models;
mod outcome;
mod prometheus;
pub mod signature;
mod slack;
mod sources;
mod webhook;

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use slipway_api::IntegrationSpec;
use slipway_api::integration::IntegrationType;
use slipway_api::worker::{DeliverReply, DeliverRequest, ProbeReply, ProbeRequest};
use slipway_egress::{Allowed, Egress, EgressProfile};
use tokio::time::timeout;
use tracing::info;
use url::Url;

use exchange::Line;
use login::IntegrationLogin;
use outcome::{ConnectionFault, Reason};

/// From the first request of a test or a delivery to the last answer.
const LIMIT: Duration = Duration::from_secs(10);
/// The status of an Integration has no more room, and a termination message has 4 KiB.
const MESSAGE_BYTES_MAX: usize = 1000;

/// The way out: which addresses may be reached, and the client of deliveries, which keeps its connections.
#[derive(Clone)]
pub struct Outbound {
    allow: Vec<Allowed>,
    proxy: Option<Url>,
    egress: Egress,
}

impl Outbound {
    /// With `proxy`, all but the requests of sources go through an HTTP proxy, as those of Tools do.
    pub fn new(allow: Vec<Allowed>, proxy: Option<Url>) -> Self {
        let egress = egress(&allow, proxy.clone());
        Self { allow, proxy, egress }
    }

    /// A client of one test. What it may say of addresses depends on the names that it has seen.
    fn fresh(&self) -> Egress {
        egress(&self.allow, self.proxy.clone())
    }
}

/// Every redirect is handed back, so that a login goes to no other place.
fn egress(allow: &[Allowed], proxy: Option<Url>) -> Egress {
    let profile = EgressProfile {
        name: "integrations",
        setting: "the chart value agents.egressAllow",
        user_agent: concat!("slipway/", env!("CARGO_PKG_VERSION")),
    };
    Egress::without_redirects(profile, allow, proxy)
}

/// Connects to the server of an integration.
pub async fn probe(request: &ProbeRequest, outbound: &Outbound) -> ProbeReply {
    let egress = outbound.fresh();
    let line = Line::new(&egress);
    let asked = timeout(LIMIT, Box::pin(ask(request, &line, outbound))).await;
    let outcome = asked.unwrap_or_else(|_| Err(ConnectionFault::late(&line.place())));
    let latency = line.latency();
    told(request.kind, if latency.is_none() { outcome.map_err(ConnectionFault::seen_by_worker) } else { outcome }, latency)
}

/// Looks at the folder of an integration of type `local`, in a pod that mounts the team's volume.
pub async fn probe_local(request: &ProbeRequest, volume: &Path) -> ProbeReply {
    let begun = Instant::now();
    let asked = async { sources::local(&part(spec(request.kind, &request.config)?.local)?, volume).await };
    let outcome = timeout(LIMIT, asked).await.unwrap_or_else(|_| Err(ConnectionFault::late("the volume")));
    let latency = outcome.is_ok().then(|| milliseconds(begun.elapsed()));
    told(request.kind, outcome, latency)
}

/// Sends a message once.
pub async fn deliver(request: &DeliverRequest, outbound: &Outbound) -> DeliverReply {
    let line = Line::new(&outbound.egress);
    let sent = timeout(LIMIT, Box::pin(deliver::send(request, &line))).await;
    let mut reply = deliver::replied(sent.unwrap_or_else(|_| Err(ConnectionFault::late(&line.place()))));
    reply.message = clipped(&reply.message);
    info!(kind = request.kind.as_str(), outcome = reply.outcome.as_str(), "a message was sent to an integration");
    reply
}

async fn ask(request: &ProbeRequest, line: &Line<'_>, outbound: &Outbound) -> Result<String, ConnectionFault> {
    let spec = spec(request.kind, &request.config)?;
    let login = IntegrationLogin::new(&request.credentials);
    match request.kind {
        IntegrationType::Local => {
            Err(ConnectionFault::new(Reason::Invalid, "a folder of the team's volume is looked at by a Job, not by the worker"))
        }
        IntegrationType::GoogleDrive
        | IntegrationType::S3
        | IntegrationType::Confluence
        | IntegrationType::Jira
        | IntegrationType::Databricks => sources::ask(&spec, &login, line, &outbound.allow).await,
        IntegrationType::Mlflow => mlflow::ask(&server(&spec)?, &login, line).await,
        IntegrationType::Prometheus => prometheus::ask(&server(&spec)?, &login, line).await,
        IntegrationType::Webhook => webhook::ask(&part(spec.webhook)?, &login, line).await,
        IntegrationType::Slack => slack::ask(&part(spec.slack)?, &login, line).await,
        IntegrationType::Openai => models::openai(&server(&spec)?, &part(spec.openai)?, &login, line).await,
        IntegrationType::Anthropic => models::anthropic(&server(&spec)?, &part(spec.anthropic)?, &login, line).await,
        IntegrationType::Mcp => mcp::ask(&part(spec.mcp)?, &login, line).await,
    }
}

/// The spec that a part of it makes.
fn spec(kind: IntegrationType, config: &Value) -> Result<IntegrationSpec, ConnectionFault> {
    // The parser's words could quote a value.
    let wrong = |_| ConnectionFault::new(Reason::Invalid, "the integration is not as its type is");
    serde_json::from_value(json!({"name": "", (kind.field()): config})).map_err(wrong)
}

fn part<T>(part: Option<T>) -> Result<T, ConnectionFault> {
    part.ok_or_else(|| ConnectionFault::new(Reason::Invalid, "the integration is not as its type is"))
}

/// The server's URL, which ends with a slash.
fn server(spec: &IntegrationSpec) -> Result<Url, ConnectionFault> {
    let server = spec.server().unwrap_or_default();
    exchange::url(&format!("{}/", server.trim_end_matches('/')))
        .ok_or_else(|| ConnectionFault::new(Reason::Invalid, "the server's URL is none"))
}

fn told(kind: IntegrationType, outcome: Result<String, ConnectionFault>, latency_ms: Option<i64>) -> ProbeReply {
    let (reason, message) = match outcome {
        Ok(message) => (Reason::Connected, message),
        Err(ConnectionFault { reason, message }) => (reason, message),
    };
    info!(kind = kind.as_str(), reason = reason.as_str(), latency_ms, "an integration was tested");
    ProbeReply { succeeded: reason == Reason::Connected, reason: reason.as_str().to_owned(), message: clipped(&message), latency_ms }
}

fn milliseconds(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// On one line, and no longer than there is room.
fn clipped(message: &str) -> String {
    let cut = message.floor_char_boundary(MESSAGE_BYTES_MAX);
    message[..cut].chars().map(|character| if character.is_control() { ' ' } else { character }).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn every_type_has_a_part_of_the_spec() {
        for kind in IntegrationType::ALL {
            let config = json!({"url": "https://a.example", "baseUrl": "https://a.example/x", "host": "a.example"});
            let spec = spec(*kind, &config).unwrap();
            assert_eq!((spec.kind(), spec.config().is_object()), (Some(*kind), true), "{kind:?}");
            assert!(super::spec(*kind, &json!("hunter2")).unwrap_err().message.contains("not as its type is"), "{kind:?}");
        }
        let llm = spec(IntegrationType::Openai, &json!({})).unwrap();
        assert_eq!(server(&llm).unwrap().as_str(), "https://api.openai.com/v1/");
    }

    #[tokio::test]
    async fn what_is_missing_is_told_before_anything_is_sent() {
        let outbound = Outbound::new(Vec::new(), None);
        for (kind, config, reason, word) in [
            (IntegrationType::Slack, json!({}), "SecretKeyMissing", "webhook_url"),
            (IntegrationType::Webhook, json!({"url": "https://a.example"}), "SecretKeyMissing", "signing_secret"),
            (IntegrationType::Anthropic, json!({}), "SecretKeyMissing", "api_key"),
            (IntegrationType::Databricks, json!({"host": "a.example"}), "Invalid", "token"),
            (IntegrationType::Mlflow, json!({"url": "ftp://a.example"}), "Invalid", "URL"),
            (IntegrationType::Local, json!({}), "Invalid", "Job"),
        ] {
            let reply = probe(&ProbeRequest { kind, config, credentials: BTreeMap::new() }, &outbound).await;
            assert_eq!((reply.succeeded, &*reply.reason, reply.latency_ms), (false, reason, None), "{kind:?}: {}", reply.message);
            assert!(reply.message.contains(word), "{kind:?}: {}", reply.message);
        }
    }

    #[test]
    fn a_message_is_one_line_with_bounds() {
        assert_eq!(clipped("a\nb"), "a b");
        assert!(clipped(&"é".repeat(MESSAGE_BYTES_MAX)).len() <= MESSAGE_BYTES_MAX);
    }
}
