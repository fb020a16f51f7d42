//! Tests of integrations with servers of this machine, and a server that answers as a test says.

use std::collections::BTreeMap;

use serde_json::Value;
use slipway_api::integration::IntegrationType;
use slipway_api::worker::{DeliverReply, DeliverRequest, ProbeReply, ProbeRequest};
use slipway_integrations::{Outbound, deliver, probe};
use slipway_peers::scripted::{Scripted, ScriptedAnswer};
use slipway_peers::{Server, plain_http};

/// What every login of these tests has in it, and no message may have.
pub(crate) const PLANTED: &str = "hunter2";
/// What receivers of webhooks verify with.
pub(crate) const SIGNING_SECRET: &str = "whsec_aHVudGVyMi1odW50ZXIyLWh1bnRlcjItaHVudGVyMg==";

/// As a worker has it whose operator lets it reach servers of this machine.
pub(crate) fn outbound() -> Outbound {
    Outbound::new(vec!["127.0.0.0/8".parse().unwrap()], None)
}

pub(crate) fn login(credentials: &[(&str, &str)]) -> BTreeMap<String, String> {
    credentials.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// What comes of a test.
pub(crate) async fn tried(kind: IntegrationType, config: Value, credentials: &[(&str, &str)]) -> ProbeReply {
    tried_with(&outbound(), ProbeRequest { kind, config, credentials: login(credentials) }).await
}

pub(crate) async fn tried_with(outbound: &Outbound, request: ProbeRequest) -> ProbeReply {
    let reply = probe(&request, outbound).await;
    assert!(!format!("{reply:?}").contains(PLANTED), "{reply:?}");
    assert!(reply.message.len() <= 1100 && !reply.message.contains('\n'), "{reply:?}");
    reply
}

/// What becomes of a message.
pub(crate) async fn sent(request: &DeliverRequest) -> DeliverReply {
    let reply = deliver(request, &outbound()).await;
    assert!(!format!("{reply:?}").contains(PLANTED), "{reply:?}");
    reply
}

/// The server was reached and takes the login.
#[track_caller]
pub(crate) fn connected(reply: &ProbeReply, words: &str) {
    assert!(reply.succeeded && reply.reason == "Connected" && reply.message.contains(words), "{reply:?}");
    assert!(reply.latency_ms.is_some_and(|latency| (0..10_000).contains(&latency)), "{reply:?}");
}

/// An answer came, or none where latencies are none.
#[track_caller]
pub(crate) fn failed(reply: &ProbeReply, reason: &str, words: &str) {
    assert!(!reply.succeeded && reply.reason == reason && reply.message.contains(words), "{reason}, {words}: {reply:?}");
}

/// Backlot's key of a service account, with an address of the token service that needs no name.
pub(crate) fn drive_key(backlot: &Server) -> Value {
    let (_, answer) = plain_http("GET", &format!("{}/_meta/credentials", backlot.url()), &[], "");
    let mut key = serde_json::from_str::<Value>(&answer).unwrap()["service_account"].clone();
    key["token_uri"] = format!("{}/oauth2/token", backlot.url()).into();
    key
}

/// A server that answers as a function of the whole request says: the status line and headers without the last line break, and the body.
pub(crate) async fn scripted(answer: impl Fn(&str) -> (String, String) + Send + Sync + 'static) -> Scripted {
    Scripted::start(move |asked, _| {
        let (head, body) = answer(&asked.whole);
        ScriptedAnswer(head, body.into_bytes())
    })
    .await
}
