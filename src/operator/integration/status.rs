//! The statuses of an Integration, pure: each step makes the next one from the one before, and what changed becomes an Event. What is
//! known of the login stands in every one of them.

#[cfg(test)]
mod tests;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use slipway_api::Integration;
use slipway_api::condition::{self, DELIVERING, Finding, READY, RECONCILING, STALLED};
use slipway_api::integration::{DeliveryStatus, IntegrationPhase, IntegrationStatus, IntegrationTest};
use slipway_api::worker::ProbeReply;
use slipway_cluster::event::EventSpec;

use super::plan::{LoginStatus, WORKER_UNAVAILABLE};
use crate::caches::integration::Delivered;
use crate::fault::ConditionFault;

pub(super) const CONNECTED: &str = "Connected";
/// The reason of a failure in whose words there is none that can be used.
const UNEXPECTED: &str = "Unexpected";
/// Reasons without a test, or without the login for one.
const DISCONNECTED: [&str; 4] = [WORKER_UNAVAILABLE, "SecretUnread", "SecretMissing", "SecretKeyMissing"];
/// Reasons that may pass without anybody doing something.
const PASSING: [&str; 4] = [WORKER_UNAVAILABLE, "SecretUnread", "TimedOut", "Unreachable"];
/// The most characters of a reason, of a message and of what a receiver said.
const REASON_MAX: usize = 64;
const MESSAGE_MAX: usize = 1024;
const ERROR_MAX: usize = 512;
const SEE_READY: &str = "see the condition Ready";

/// The status that an Integration has, and what is known now.
pub(super) struct Steps<'a> {
    pub integration: &'a Integration,
    pub before: &'a IntegrationStatus,
    pub login: &'a LoginStatus,
    /// Of all that a test depends on.
    pub digest: &'a str,
    /// None while nobody has looked; what was said before stands then.
    #[expect(clippy::option_option, reason = "nobody has looked, nothing was found, and what was found")]
    pub delivered: Option<Option<&'a Delivered>>,
    pub now: Timestamp,
}

/// Whether the server was reached.
struct Verdict<'a> {
    /// None while it is not known.
    holds: Option<bool>,
    reason: &'a str,
    message: &'a str,
}

impl Steps<'_> {
    /// The result of the last test, if that was a test of the present configuration.
    pub(super) fn standing(&self, is_under_way: bool) -> IntegrationStatus {
        let last = self.before.last_test.clone();
        match self.before.last_test.as_ref().filter(|test| test.digest == self.digest) {
            Some(test) => self.with(&Verdict { holds: Some(test.succeeded), reason: word(test), message: &test.message }, last),
            None if is_under_way => self.with(&Verdict { holds: None, reason: "Testing", message: "its server is asked" }, last),
            None => self.with(&Verdict { holds: None, reason: "NotTested", message: "it has not been tested yet as it is now" }, last),
        }
    }

    /// It cannot be tested, or the test was not carried out. A test that was asked for counts as answered; the answer says nothing of
    /// the Integration once its fault is mended.
    pub(super) fn settled(&self, fault: &ConditionFault) -> IntegrationStatus {
        let last = self.before.last_test.as_ref();
        let asked = self.integration.asked_test().filter(|asked| last.is_none_or(|last| last.id != *asked));
        let answer = asked.map(|asked| IntegrationTest {
            id: asked.to_owned(),
            digest: String::new(),
            succeeded: false,
            reason: fault.reason.to_owned(),
            message: cut(&fault.message, MESSAGE_MAX),
            latency_ms: None,
            at: Some(self.time()),
        });
        let verdict = Verdict { holds: Some(false), reason: fault.reason, message: &fault.message };
        self.with(&verdict, answer.or_else(|| last.cloned()))
    }

    /// What the worker found.
    pub(super) fn tested(&self, id: &str, reply: &ProbeReply) -> IntegrationStatus {
        let test = IntegrationTest {
            id: id.to_owned(),
            digest: self.digest.to_owned(),
            succeeded: reply.succeeded,
            reason: reason(reply),
            message: cut(&reply.message, MESSAGE_MAX),
            latency_ms: reply.latency_ms.filter(|latency| *latency >= 0),
            at: Some(self.time()),
        };
        let verdict = Verdict { holds: Some(test.succeeded), reason: &test.reason, message: &test.message };
        self.with(&verdict, Some(test.clone()))
    }

    fn time(&self) -> Time {
        Time(condition::whole_seconds(self.now))
    }

    fn with(&self, verdict: &Verdict<'_>, last_test: Option<IntegrationTest>) -> IntegrationStatus {
        let Verdict { holds, reason, message } = *verdict;
        let generation = self.integration.metadata.generation;
        let is_stalled = holds == Some(false) && !PASSING.contains(&reason);
        let ready = Finding { kind: READY, holds, reason: reason.to_owned(), message: message.to_owned() };
        let mut findings = vec![
            ready,
            Finding::new(RECONCILING, holds.is_none(), reason, SEE_READY),
            Finding::new(STALLED, is_stalled, reason, SEE_READY),
        ];
        let (delivery, delivering) = self.delivery();
        findings.extend(delivering);
        IntegrationStatus {
            phase: Some(match holds {
                Some(true) => IntegrationPhase::Connected,
                Some(false) if !DISCONNECTED.contains(&reason) => IntegrationPhase::Error,
                _ => IntegrationPhase::Disconnected,
            }),
            type_: self.integration.spec.kind(),
            id: Some(self.integration.id()),
            credential_keys: self.login.keys.clone(),
            credentials: self.login.credentials.clone(),
            origin: self.login.origin.clone(),
            last_test,
            delivery,
            observed_generation: generation,
            conditions: condition::conditions(findings, &self.before.conditions, generation, self.now),
        }
    }

    /// How alerts get there, where some are asked for.
    fn delivery(&self) -> (Option<DeliveryStatus>, Option<Finding>) {
        if self.integration.spec.alerts.is_none() {
            return (None, None);
        }
        let said = self.before.conditions.iter().find(|condition| condition.type_ == DELIVERING);
        match self.delivered {
            None => (self.before.delivery.clone(), Some(said.map_or_else(nothing_yet, as_before))),
            Some(None) => (None, Some(nothing_yet())),
            Some(Some(delivered)) => {
                let status = DeliveryStatus {
                    waiting: delivered.waiting,
                    failing_since: delivered.failing_since.map(|since| Time(condition::whole_seconds(since))),
                    last_error: delivered.last_error.as_deref().map(|error| cut(error, ERROR_MAX)),
                };
                (Some(status), Some(delivering(delivered, said)))
            }
        }
    }
}

/// The reason of a test, in the words of a condition.
fn word(test: &IntegrationTest) -> &str {
    if test.succeeded { CONNECTED } else { &test.reason }
}

/// A condition's reason is one word. A status with another would be refused, and say nothing.
fn reason(reply: &ProbeReply) -> String {
    let is_word = (1..=REASON_MAX).contains(&reply.reason.len()) && reply.reason.bytes().all(|byte| byte.is_ascii_alphabetic());
    match (reply.succeeded, is_word && reply.reason != CONNECTED) {
        (true, _) => CONNECTED.to_owned(),
        (false, true) => reply.reason.clone(),
        (false, false) => UNEXPECTED.to_owned(),
    }
}

fn cut(text: &str, most: usize) -> String {
    text.chars().take(most).collect()
}

fn nothing_yet() -> Finding {
    Finding::unknown(DELIVERING, "NothingYet", "no alert was to be sent yet")
}

fn as_before(condition: &Condition) -> Finding {
    let holds = match condition.status.as_str() {
        "True" => Some(true),
        "False" => Some(false),
        _ => None,
    };
    Finding { kind: DELIVERING, holds, reason: condition.reason.clone(), message: condition.message.clone() }
}

fn delivering(delivered: &Delivered, before: Option<&Condition>) -> Finding {
    let said = delivered.last_error.as_deref().map(|error| format!(": {}", cut(error, ERROR_MAX))).unwrap_or_default();
    if let Some(since) = delivered.failing_since {
        let waiting = match delivered.waiting {
            0 => "none waits".to_owned(),
            1 => "at least one waits".to_owned(),
            many => format!("at least {many} wait"),
        };
        let message = format!("no alert has arrived since {}, and {waiting}{said}", condition::whole_seconds(since));
        return Finding::new(DELIVERING, false, "Failing", message);
    }
    if delivered.gave_up {
        return Finding::new(DELIVERING, false, "GivenUp", format!("the last alert did not arrive, and is not sent any more{said}"));
    }
    // Messages that have arrived are deleted with their agents, and after their time.
    let has_arrived = delivered.has_arrived || before.is_some_and(|before| before.reason == "Delivered");
    if has_arrived { Finding::new(DELIVERING, true, "Delivered", "alerts arrive") } else { nothing_yet() }
}

/// The Event of a server that answers and did not before.
pub(super) fn connected(before: &IntegrationStatus, now: &IntegrationStatus) -> Option<EventSpec> {
    let is_connected = |status: &IntegrationStatus| status.phase == Some(IntegrationPhase::Connected);
    (is_connected(now) && !is_connected(before)).then(|| {
        let note = ready(now).map(|ready| ready.message.clone()).unwrap_or_default();
        EventSpec { warning: false, reason: "IntegrationConnected".to_owned(), action: "Test", note }
    })
}

/// The Event of one that is in trouble, and whether that is another trouble than before.
pub(super) fn trouble(before: &IntegrationStatus, now: &IntegrationStatus) -> (Option<EventSpec>, bool) {
    let Some(ready) = ready(now).filter(|ready| ready.status == "False") else { return (None, false) };
    let note = format!("{}: {}", ready.reason, ready.message);
    let event = EventSpec { warning: true, reason: "IntegrationFailed".to_owned(), action: "Test", note };
    (Some(event), self::ready(before).is_none_or(|old| (&old.status, &old.reason) != (&ready.status, &ready.reason)))
}

fn ready(status: &IntegrationStatus) -> Option<&Condition> {
    status.conditions.iter().find(|condition| condition.type_ == READY)
}
