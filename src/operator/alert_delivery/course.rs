//! State of deliveries while this process leads: integrations that are being sent something, integrations that are left alone for
//! a while, and how Integrations were when their messages were tried. It may be lost: all is tried again then.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use slipway_database::{Delivery, Waiting};
use tokio::time::Instant;

use super::receivers::{AlertReceiver, ReceiverState};
use super::send::{Batch, DeliveryReport, Sent};
use super::{AT_ONCE, AT_ONCE_OF_TEAM, schedule};
use crate::caches::Caches;

/// How often it is looked for what has waited for too long.
const GIVE_UP_INTERVAL: Duration = Duration::from_mins(1);
/// How often it is told how those stand that have something to wait for, and at most while messages are being sent.
const TELL_INTERVAL: Duration = Duration::from_secs(30);
const MIN_TELL_INTERVAL: Duration = Duration::from_secs(1);

pub(super) struct Course {
    /// By UID, as are all.
    seen: HashMap<String, ReceiverState>,
    /// With their namespaces.
    busy: HashMap<String, String>,
    /// What became of messages where it could not be noted: of one batch one.
    unnoted: Vec<(Delivery, Sent)>,
    pauses: HashMap<String, Pause>,
    /// The day on which an Event last told that nothing arrives.
    told: HashMap<String, String>,
    /// Something has been sent or added since it was last told how they stand.
    is_dirty: bool,
    /// Something waited then.
    has_waiting: bool,
    next_giving_up: Instant,
    told_at: Instant,
}

struct Pause {
    failures: u32,
    until: Instant,
}

/// How Integrations differ from what they were.
pub(super) struct ReceiverChanges {
    pub gone: Vec<String>,
    /// New ones too: who led before may have missed their change.
    pub other: Vec<String>,
    present: HashMap<String, ReceiverState>,
}

impl Course {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            seen: HashMap::new(),
            busy: HashMap::new(),
            unnoted: Vec::new(),
            pauses: HashMap::new(),
            told: HashMap::new(),
            is_dirty: true,
            has_waiting: true,
            next_giving_up: now,
            told_at: now,
        }
    }

    pub(super) fn compare(&self, caches: &Caches, receivers: &[AlertReceiver]) -> ReceiverChanges {
        let present: HashMap<String, ReceiverState> =
            receivers.iter().map(|receiver| (receiver.uid.clone(), receiver.state(caches))).collect();
        let is_gone = |(uid, state): &(&String, &ReceiverState)| !present.contains_key(*uid) && state.is_gone(uid, caches);
        let gone = self.seen.iter().filter(is_gone).map(|(uid, _)| uid.clone()).collect();
        let is_other = |(uid, state): &(&String, &ReceiverState)| self.seen.get(*uid) != Some(*state);
        let other = present.iter().filter(is_other).map(|(uid, _)| uid.clone()).collect();
        ReceiverChanges { gone, other, present }
    }

    /// What was to be done about the changes is done.
    pub(super) fn take(&mut self, changes: ReceiverChanges) {
        let ReceiverChanges { gone, other, present } = changes;
        self.is_dirty |= !(gone.is_empty() && other.is_empty());
        self.pauses.retain(|uid, _| present.contains_key(uid) && !other.contains(uid));
        self.told.retain(|uid, _| present.contains_key(uid));
        self.seen = present;
    }

    pub(super) fn has_more(&mut self) {
        self.is_dirty = true;
    }

    pub(super) fn is_time_to_give_up(&mut self, now: Instant) -> bool {
        let is_time = self.has_waiting && now >= self.next_giving_up;
        if is_time {
            self.next_giving_up = now + GIVE_UP_INTERVAL;
        }
        is_time
    }

    pub(super) fn is_time_to_tell(&self, now: Instant) -> bool {
        let is_calm = self.busy.is_empty() || now >= self.told_at + MIN_TELL_INTERVAL;
        (self.is_dirty && is_calm) || (self.has_waiting && now >= self.told_at + TELL_INTERVAL)
    }

    pub(super) fn told(&mut self, waiting: &[Waiting], now: Instant) {
        self.is_dirty = false;
        self.has_waiting = waiting.iter().any(|waiting| waiting.count > 0);
        self.told_at = now;
    }

    pub(super) fn may_send(&self, integration: &str, now: Instant) -> bool {
        !self.busy.contains_key(integration) && self.pauses.get(integration).is_none_or(|pause| pause.until <= now)
    }

    /// Whether as many are being sent something as may be.
    pub(super) fn is_busy(&self) -> bool {
        self.busy.len() >= AT_ONCE
    }

    fn is_free(&self, receiver: &AlertReceiver) -> bool {
        let of_team = self.busy.values().filter(|namespace| **namespace == receiver.key.namespace).count();
        !self.busy.contains_key(&receiver.uid) && !self.is_busy() && of_team < AT_ONCE_OF_TEAM
    }

    /// What of a message is to be noted before any other is sent.
    pub(super) fn unnoted(&self) -> Option<&(Delivery, Sent)> {
        self.unnoted.last()
    }

    pub(super) fn noted(&mut self) {
        self.unnoted.pop();
        self.is_dirty = true;
    }

    /// What is due, by integration, as far as there are hands for it.
    pub(super) fn batches(&mut self, receivers: &[AlertReceiver], due: Vec<Delivery>) -> Vec<Batch> {
        let mut batches: Vec<Batch> = Vec::new();
        for message in due {
            if let Some(batch) = batches.iter_mut().find(|batch| batch.receiver.uid == message.integration) {
                batch.messages.push(message);
                continue;
            }
            let receiver = receivers.iter().find(|receiver| receiver.uid == message.integration);
            let Some(receiver) = receiver.filter(|receiver| self.is_free(receiver)) else { continue };
            self.busy.insert(receiver.uid.clone(), receiver.key.namespace.clone());
            let failures = self.pauses.get(&receiver.uid).map_or(0, |pause| pause.failures);
            let has_told = self.told.get(&receiver.uid) == Some(&today());
            batches.push(Batch { receiver: receiver.clone(), messages: vec![message], failures, has_told });
        }
        batches
    }

    /// Whether messages arrive again after some did not.
    pub(super) fn note(&mut self, report: DeliveryReport, now: Instant) -> bool {
        let uid = &report.integration;
        self.busy.remove(uid);
        self.is_dirty = true;
        self.unnoted.extend(report.unnoted);
        if report.has_told {
            self.told.insert(uid.clone(), today());
        }
        let before = if report.delivered > 0 { self.pauses.remove(uid) } else { None };
        if report.failed {
            let pause = self.pauses.entry(uid.clone()).or_insert(Pause { failures: 0, until: now });
            pause.failures = pause.failures.saturating_add(1);
            pause.until = now + schedule::pause(pause.failures, report.retry_after);
        }
        before.is_some()
    }

    /// As if the time were over for which integrations are left alone.
    #[cfg(test)]
    pub(super) fn end_pauses(&mut self, now: Instant) {
        self.pauses.values_mut().for_each(|pause| pause.until = now);
    }
}

/// Of UTC.
fn today() -> String {
    Timestamp::now().to_string().chars().take(10).collect()
}
