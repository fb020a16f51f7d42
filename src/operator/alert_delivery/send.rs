//! Messages that are due for one integration, sent one after the other through the team's worker until one does not arrive.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

use jiff::Timestamp;
use kube::Resource;
use serde_json::json;
use slipway_api::worker::{DELIVER_PATH, DeliverReply, DeliverRequest, DeliveryOutcome};
use slipway_api::{Integration, ids};
use slipway_cluster::event::EventSpec;
use slipway_database::{Delivery, Postponed};

use super::receivers::AlertReceiver;
use super::store::DeliveryStore;
use super::{AlertDelivery, schedule};
use crate::context::Context;
use crate::control_port::Sign;
use crate::integrations;
use crate::worker_call::{self, Worker};

/// What is due for an integration.
pub(super) struct Batch {
    pub receiver: AlertReceiver,
    pub messages: Vec<Delivery>,
    /// How often in a row none arrived.
    pub failures: u32,
    /// Whether an Event has told of it today.
    pub has_told: bool,
}

/// What came of it.
pub(super) struct DeliveryReport {
    pub integration: String,
    pub delivered: usize,
    /// Whether the last message did not arrive, and how long the receiver asks to be left alone.
    pub failed: bool,
    pub retry_after: Option<Duration>,
    pub has_told: bool,
    /// Why the database could not be told, and what.
    pub trouble: Option<String>,
    pub unnoted: Option<(Delivery, Sent)>,
}

/// What became of one message.
pub(super) enum Sent {
    Delivered,
    Again {
        why: String,
        retry_after: Option<Duration>,
    },
    /// The receiver refuses it as it is.
    Refused(String),
    /// There is no such receiver any more.
    Gone(String),
    /// It could not be sent.
    Held(String),
}

impl AlertDelivery {
    pub(super) async fn deliver(&self, store: &DeliveryStore<'_>, batch: Batch) -> DeliveryReport {
        let context = &*self.context;
        let Batch { receiver, messages, failures, has_told } = batch;
        let mut report = DeliveryReport {
            integration: receiver.uid.clone(),
            delivered: 0,
            failed: false,
            retry_after: None,
            has_told,
            trouble: None,
            unnoted: None,
        };
        let Some(integration) = receiver.integration() else { return report };
        let way = self.way(&receiver, integration).await;
        for message in &messages {
            // What has changed meanwhile is taken up by the next look.
            if !receiver.is_current(&context.caches) {
                break;
            }
            let sent = match &way {
                Ok(way) => way.send(&receiver, integration, message).await,
                Err(why) => Sent::Held(why.clone()),
            };
            if let Err(why) = self.note(store, &receiver, message, &sent).await {
                (report.trouble, report.unnoted) = (Some(why), Some((message.clone(), sent)));
                break;
            }
            let (why, retry_after, is_told) = match sent {
                Sent::Delivered => {
                    report.delivered += 1;
                    continue;
                }
                // Once may be bad luck.
                Sent::Again { why, retry_after } => (why, retry_after, failures > 0 && report.delivered == 0),
                Sent::Held(why) => (why, None, failures > 0 && report.delivered == 0),
                Sent::Refused(why) => (format!("{why}; nothing is sent again before the Integration or its Secret changes"), None, true),
                Sent::Gone(_) => (String::new(), None, false),
            };
            (report.failed, report.retry_after) = (true, retry_after);
            if is_told && !has_told {
                report.has_told = true;
                tell_of_failure(context, integration, &why).await;
            }
            break;
        }
        report
    }

    /// Finds the way to a receiver, or says why nothing can be sent there.
    async fn way(&self, receiver: &AlertReceiver, integration: &Integration) -> Result<Way<'_>, String> {
        let context = &*self.context;
        let login = login(context, integration).await?;
        let sign = self.sign.as_deref().ok_or("this manager has no key to call workers with")?;
        let team = context.caches.team_of(&receiver.key.namespace).ok_or("its namespace is not a team's")?;
        let worker = worker_call::find(context, &team).await.map_err(|fault| fault.to_string())?;
        Ok(Way { sign, worker, team: ids::team(&team), login })
    }

    async fn note(&self, store: &DeliveryStore<'_>, receiver: &AlertReceiver, message: &Delivery, sent: &Sent) -> Result<(), String> {
        match sent {
            Sent::Delivered => self.count(receiver.kind, "delivered", 1),
            Sent::Again { .. } | Sent::Refused(_) => self.count(receiver.kind, "retried", 1),
            Sent::Gone(_) => self.count(receiver.kind, "given_up", 1),
            Sent::Held(_) => {}
        }
        sent.write(store, message).await?;
        if let (Sent::Gone(why), Some(integration)) = (sent, receiver.integration()) {
            tell_of_end(&self.context, integration, &message.alert_id, 1, why).await;
        }
        Ok(())
    }
}

/// The way to a receiver, which all messages of a batch go.
struct Way<'a> {
    sign: &'a Sign,
    worker: Worker,
    /// By id.
    team: String,
    login: BTreeMap<String, String>,
}

impl Way<'_> {
    async fn send(&self, receiver: &AlertReceiver, integration: &Integration, message: &Delivery) -> Sent {
        if message.team != self.team {
            return Sent::Gone("the message is another team's".to_owned());
        }
        let Ok(body) = serde_json::from_str(&message.payload) else { return Sent::Gone("the message cannot be read".to_owned()) };
        let request = DeliverRequest {
            kind: receiver.kind,
            config: integration.spec.config(),
            credentials: self.login.clone(),
            message_id: message.message_id.clone(),
            body,
        };
        let answer: Result<DeliverReply, _> = self.worker.post(self.sign, (DELIVER_PATH, &request)).await;
        let DeliverReply { outcome, message: why, retry_after_seconds } = match answer {
            Ok(reply) => reply,
            Err(fault) => return Sent::Held(fault.to_string()),
        };
        match outcome {
            DeliveryOutcome::Delivered => Sent::Delivered,
            DeliveryOutcome::Again => Sent::Again { why, retry_after: retry_after_seconds.map(Duration::from_secs) },
            DeliveryOutcome::Permanent => Sent::Refused(why),
            DeliveryOutcome::Gone => Sent::Gone(why),
        }
    }
}

impl Sent {
    pub(super) async fn write(&self, store: &DeliveryStore<'_>, message: &Delivery) -> Result<(), String> {
        let postponed = |error: &String, wait, is_attempt| Postponed { error: error.clone(), wait, is_attempt };
        match self {
            Self::Delivered => store.delivered(message).await,
            Self::Again { why, retry_after } => {
                let wait = schedule::wait(message.attempts, *retry_after, RandomState::new().build_hasher().finish());
                store.failed(message, &postponed(why, wait, true)).await
            }
            Self::Refused(why) => store.failed(message, &postponed(why, schedule::REFUSED, true)).await,
            Self::Held(why) => store.failed(message, &postponed(why, schedule::HELD, false)).await,
            Self::Gone(why) => store.give_up(message, why).await,
        }
    }
}

/// The login, if it is for the server that the Integration names now.
async fn login(context: &Context, integration: &Integration) -> Result<BTreeMap<String, String>, String> {
    integration.receiver().map_err(|fault| fault.message)?;
    integrations::login(context, integration).await.map_err(|fault| fault.message)
}

/// Once a day.
async fn tell_of_failure(context: &Context, integration: &Integration, why: &str) {
    let day: String = Timestamp::now().to_string().chars().take(10).collect();
    let note = format!("alerts do not arrive; they are tried for 24 hours: {why}");
    let event = EventSpec { warning: true, reason: "AlertDeliveryFailed".to_owned(), action: "Deliver", note };
    context.events.publish_once(&integration.object_ref(&()), event, &json!({"error": why}), &[day.as_str()]).await;
}

/// Of one alert, or of several of which this is one.
pub(super) async fn tell_of_end(context: &Context, integration: &Integration, alert: &str, count: usize, why: &str) {
    let others = count.saturating_sub(1);
    let what = if others == 0 { format!("alert {alert} did") } else { format!("alert {alert} and {others} more did") };
    let note = format!("{what} not arrive and will not be sent again: {why}");
    let event = EventSpec { warning: true, reason: "AlertDeliveryGivenUp".to_owned(), action: "Deliver", note };
    let payload = json!({"alert_id": alert, "messages": count, "error": why});
    context.events.publish_once(&integration.object_ref(&()), event, &payload, &[alert]).await;
}
