//! The queue of a platform without a database: in memory, so that it ends with the process. Pure; it behaves as the table does.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use slipway_database::{AlertStage, Delivery, GivenUp, NewDelivery, Postponed, Waiting};

/// How many messages wait at most, of all teams together, and as many ends of alerts.
const MAX_WAITING: usize = 1_000;
/// How many of them are one team's at most, which so leaves room for others.
const MAX_OF_TEAM: usize = 250;
/// How many alerts are remembered, of which integrations have heard and that have not ended. Those of agents that are deleted never end:
/// the oldest are forgotten.
const MAX_BEGUN: usize = 20_000;
/// As many are due at once of one integration, and in all, as of the table.
const DUE_OF_ONE: usize = 20;
const DUE: usize = 160;

#[derive(Default)]
pub(crate) struct Queue {
    /// In the order in which they came.
    waiting: Vec<Entry>,
    /// Integrations and the alerts that they have heard of, and when they last did.
    begun: HashMap<(String, String), Timestamp>,
    ended: HashMap<String, Ended>,
}

struct Entry {
    message: Delivery,
    due_at: Timestamp,
    failed_at: Option<Timestamp>,
    tried_at: Option<Timestamp>,
    last_error: Option<String>,
}

#[derive(Default, Clone, Copy)]
struct Ended {
    arrived: Option<Timestamp>,
    given_up: Option<Timestamp>,
}

impl Entry {
    fn is_about(&self, integration: &str, alert: &str) -> bool {
        self.message.integration == integration && self.message.alert_id == alert
    }

    fn is(&self, message: &Delivery) -> bool {
        self.message.message_id == message.message_id
    }
}

impl Queue {
    /// Says how many messages there was no room for, by integration.
    pub(crate) fn enqueue(&mut self, messages: &[NewDelivery], now: Timestamp) -> Vec<(String, i64)> {
        let mut dropped = Vec::new();
        for message in messages {
            let NewDelivery { integration, alert_id, stage, .. } = message;
            let alert = (integration.clone(), alert_id.clone());
            let has_begun = self.begun.contains_key(&alert);
            let waits = self.waiting.iter().any(|entry| entry.is_about(integration, alert_id) && entry.message.stage == *stage);
            let is_wanted = match stage {
                AlertStage::Raised => !has_begun,
                AlertStage::Risen => true,
                AlertStage::Resolved => has_begun,
            };
            if waits || !is_wanted {
                continue;
            }
            let is_end = *stage == AlertStage::Resolved;
            if is_end {
                self.begun.remove(&alert);
            }
            let of_it = self.waiting.iter().filter(|entry| entry.message.integration == *integration).count();
            // Who has heard of an alert is to hear of its end: ends have room of their own, as in the table.
            let alike: Vec<&Entry> = self.waiting.iter().filter(|entry| (entry.message.stage == AlertStage::Resolved) == is_end).collect();
            let of_team = alike.iter().filter(|entry| entry.message.team == message.team).count();
            let is_full = alike.len() >= MAX_WAITING || of_team >= MAX_OF_TEAM;
            if is_full || i64::try_from(of_it).is_ok_and(|count| count >= message.most) {
                dropped.push((integration.clone(), 1));
                continue;
            }
            if !is_end {
                self.remember(alert, now);
            }
            self.waiting.push(Entry { message: waits_since(message, now), due_at: now, failed_at: None, tried_at: None, last_error: None });
        }
        dropped
    }

    fn remember(&mut self, alert: (String, String), now: Timestamp) {
        if self.begun.len() >= MAX_BEGUN && !self.begun.contains_key(&alert) {
            let oldest = self.begun.iter().min_by_key(|(_, heard_at)| **heard_at).map(|(alert, _)| alert.clone());
            if let Some(oldest) = oldest {
                self.begun.remove(&oldest);
            }
        }
        self.begun.insert(alert, now);
    }

    pub(crate) fn due(&self, integrations: &[String], now: Timestamp) -> Vec<Delivery> {
        let is_first = |entry: &Entry| {
            let Delivery { integration, alert_id, stage, .. } = &entry.message;
            !self.waiting.iter().any(|other| other.is_about(integration, alert_id) && other.message.stage < *stage)
        };
        let mut due: Vec<&Entry> = self.waiting.iter().filter(|entry| entry.due_at <= now && is_first(entry)).collect();
        due.sort_by_key(|entry| entry.due_at);
        let mut counts: HashMap<&str, usize> = integrations.iter().map(|integration| (integration.as_str(), 0)).collect();
        due.retain(|entry| {
            let Some(count) = counts.get_mut(entry.message.integration.as_str()) else { return false };
            *count += 1;
            *count <= DUE_OF_ONE
        });
        due.into_iter().take(DUE).map(|entry| entry.message.clone()).collect()
    }

    pub(crate) fn delivered(&mut self, message: &Delivery, now: Timestamp) {
        if self.end(message) {
            self.ended.entry(message.integration.clone()).or_default().arrived = Some(now);
        }
    }

    pub(crate) fn give_up(&mut self, message: &Delivery, now: Timestamp) {
        if self.end(message) {
            self.ended.entry(message.integration.clone()).or_default().given_up = Some(now);
        }
    }

    fn end(&mut self, message: &Delivery) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|entry| !entry.is(message));
        self.waiting.len() < before
    }

    pub(crate) fn failed(&mut self, message: &Delivery, postponed: &Postponed, now: Timestamp) {
        let Some(entry) = self.waiting.iter_mut().find(|entry| entry.is(message)) else { return };
        entry.message.attempts = entry.message.attempts.saturating_add(i32::from(postponed.is_attempt));
        entry.failed_at.get_or_insert(now);
        entry.tried_at = Some(now);
        entry.last_error = Some(postponed.error.clone());
        entry.due_at = now.saturating_add(postponed.wait).unwrap_or(now);
    }

    pub(crate) fn give_up_older(&mut self, integrations: &[String], than: Duration, now: Timestamp) -> Vec<GivenUp> {
        let before = now.saturating_sub(than).unwrap_or(Timestamp::MIN);
        let is_old = |entry: &Entry| entry.message.created_at < before && integrations.contains(&entry.message.integration);
        let (old, rest): (Vec<Entry>, Vec<Entry>) = std::mem::take(&mut self.waiting).into_iter().partition(is_old);
        self.waiting = rest;
        let end = |entry: Entry| {
            let Delivery { integration, agent_id, alert_id, stage, .. } = entry.message;
            self.ended.entry(integration.clone()).or_default().given_up = Some(now);
            GivenUp { integration, agent_id, alert_id, stage, last_error: entry.last_error }
        };
        old.into_iter().map(end).collect()
    }

    pub(crate) fn hasten(&mut self, integrations: &[String], within: Duration, now: Timestamp) {
        let end = now.saturating_add(within).unwrap_or(Timestamp::MAX);
        let is_meant = |entry: &&mut Entry| integrations.contains(&entry.message.integration) && entry.due_at <= end;
        for entry in self.waiting.iter_mut().filter(is_meant) {
            entry.due_at = entry.due_at.min(now);
        }
    }

    pub(crate) fn waiting(&self, integrations: &[String]) -> Vec<Waiting> {
        integrations.iter().map(|integration| self.of(integration)).collect()
    }

    fn of(&self, integration: &str) -> Waiting {
        let Ended { arrived, given_up } = self.ended.get(integration).copied().unwrap_or_default();
        let entries: Vec<&Entry> = self.waiting.iter().filter(|entry| entry.message.integration == integration).collect();
        let last = entries.iter().filter(|entry| entry.tried_at.is_some()).max_by_key(|entry| entry.tried_at);
        let is_failing = last.is_some_and(|last| last.tried_at > arrived);
        let failed = entries.iter().filter_map(|entry| entry.failed_at).min();
        Waiting {
            integration: integration.to_owned(),
            count: i64::try_from(entries.len()).unwrap_or(i64::MAX),
            oldest: entries.iter().map(|entry| entry.message.created_at).min(),
            failing_since: failed.max(arrived).filter(|_| is_failing),
            last_error: last.and_then(|last| last.last_error.clone()),
            arrived,
            given_up,
        }
    }

    #[cfg(test)]
    pub(crate) fn stages(&self) -> Vec<(String, AlertStage)> {
        self.waiting.iter().map(|entry| (entry.message.integration.clone(), entry.message.stage)).collect()
    }

    pub(crate) fn forget(&mut self, integrations: &[String]) {
        self.waiting.retain(|entry| !integrations.contains(&entry.message.integration));
        self.begun.retain(|(integration, _), _| !integrations.contains(integration));
        self.ended.retain(|integration, _| !integrations.contains(integration));
    }
}

fn waits_since(message: &NewDelivery, now: Timestamp) -> Delivery {
    let NewDelivery { team, agent_id, integration, alert_id, stage, message_id, payload, most: _ } = message.clone();
    Delivery { team, agent_id, integration, alert_id, stage, message_id, payload: payload.to_string(), created_at: now, attempts: 0 }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use slipway_database::AlertStage::{Raised, Resolved};

    use super::*;

    fn message(integration: &str, alert: &str, stage: AlertStage) -> NewDelivery {
        NewDelivery {
            team: "tk_a".to_owned(),
            agent_id: "ag_1".to_owned(),
            integration: integration.to_owned(),
            alert_id: alert.to_owned(),
            stage,
            message_id: format!("msg_{integration}_{alert}_{}", stage.as_str()),
            payload: "{}".into(),
            most: 1_000,
        }
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn start() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    fn later(seconds: i64) -> Timestamp {
        start() + SignedDuration::from_secs(seconds)
    }

    fn shown(due: &[Delivery]) -> Vec<(&str, AlertStage, i32)> {
        due.iter().map(|one| (one.alert_id.as_str(), one.stage, one.attempts)).collect()
    }

    #[test]
    fn messages_come_once_in_their_order_and_by_their_time() {
        let (mut queue, one) = (Queue::default(), names(&["one"]));
        let all = [message("one", "a", Raised), message("one", "b", Raised), message("one", "a", Resolved), message("two", "a", Resolved)];
        assert_eq!(queue.enqueue(&all, start()), []);
        assert_eq!(queue.enqueue(&all, later(1)), [], "they are there");
        let due = queue.due(&one, later(1));
        assert_eq!(shown(&due), [("a", Raised, 0), ("b", Raised, 0)]);
        assert_eq!(queue.due(&names(&["two"]), later(1)), [], "it has not heard of the alert");
        queue.failed(&due[0], &Postponed { error: "no".to_owned(), wait: Duration::from_secs(10), is_attempt: true }, later(2));
        assert_eq!(shown(&queue.due(&one, later(11))), [("b", Raised, 0)]);
        let again = queue.due(&one, later(12));
        assert_eq!(shown(&again), [("b", Raised, 0), ("a", Raised, 1)]);
        assert_eq!(again[1].message_id, due[0].message_id);
        queue.delivered(&again[1], later(13));
        assert_eq!(shown(&queue.due(&one, later(13))), [("b", Raised, 0), ("a", Resolved, 0)]);
        queue.delivered(&again[1], later(14));
        assert_eq!(queue.waiting(&one)[0].count, 2, "what has ended ends once");
    }

    #[test]
    fn a_thousand_messages_wait_and_no_more() {
        let mut queue = Queue::default();
        let of_team =
            |n: usize| NewDelivery { team: format!("tk_{}", n % 5), ..message(&format!("i{}", n % 5), &format!("al_{n}"), Raised) };
        let all: Vec<_> = (0..1_100).map(of_team).collect();
        let dropped = queue.enqueue(&all, start());
        assert_eq!((dropped.len(), queue.waiting.len()), (100, MAX_WAITING));
        assert_eq!(queue.due(&names(&["i0", "i1"]), start()).len(), 2 * DUE_OF_ONE);
        let few = NewDelivery { most: 1, ..message("few", "al_1", Raised) };
        let first = queue.due(&names(&["i0"]), start());
        for one in &first {
            queue.delivered(one, start());
        }
        let more = [few.clone(), NewDelivery { alert_id: "al_2".to_owned(), message_id: "msg_2".to_owned(), ..few }];
        assert_eq!(queue.enqueue(&more, start()), [("few".to_owned(), 1)]);
    }

    #[test]
    fn one_team_leaves_room_for_the_others() {
        let mut queue = Queue::default();
        let all: Vec<_> = (0..MAX_WAITING).map(|n| message(&format!("i{}", n % 2), &format!("al_{n}"), Raised)).collect();
        assert_eq!(queue.enqueue(&all, start()).len(), MAX_WAITING - MAX_OF_TEAM);
        let other = NewDelivery { team: "tk_b".to_owned(), ..message("other", "al_b", Raised) };
        assert_eq!(queue.enqueue(&[other], start()), []);
        assert_eq!(queue.due(&names(&["other"]), start()).len(), 1);
        let first = queue.due(&names(&["i0"]), start());
        queue.delivered(&first[0], start());
        assert_eq!(queue.enqueue(&[message("i0", "al_more", Raised), message("i1", "al_most", Raised)], start()), [("i1".to_owned(), 1)]);
        let ends: Vec<_> = (1..MAX_OF_TEAM).map(|n| message(&format!("i{}", n % 2), &format!("al_{n}"), Resolved)).collect();
        assert_eq!(queue.enqueue(&ends, start()), [], "of each that it has heard of");
    }

    #[test]
    fn alerts_that_never_end_are_in_the_way_of_none() {
        let mut queue = Queue::default();
        queue.begun.extend((0..MAX_BEGUN).map(|n| (("one".to_owned(), format!("old_{n}")), start())));
        assert_eq!(queue.enqueue(&[message("one", "new", Raised)], later(1)), []);
        assert_eq!(queue.begun.len(), MAX_BEGUN);
        assert_eq!(queue.enqueue(&[message("one", "new", Resolved)], later(2)), []);
        assert_eq!((queue.begun.len(), queue.waiting.len()), (MAX_BEGUN - 1, 2));
    }

    #[test]
    fn it_is_told_since_when_none_arrives_and_what_was_given_up() {
        let (mut queue, one) = (Queue::default(), names(&["one"]));
        queue.enqueue(&[message("one", "a", Raised), message("one", "b", Raised)], start());
        let due = queue.due(&one, start());
        let no = |error: &str| Postponed { error: error.to_owned(), wait: Duration::ZERO, is_attempt: false };
        assert_eq!(queue.waiting(&one)[0].failing_since, None);
        queue.failed(&due[0], &no("first"), later(1));
        queue.failed(&due[1], &no("second"), later(2));
        let found = queue.waiting(&one).remove(0);
        assert_eq!((found.failing_since, found.last_error.as_deref(), found.oldest), (Some(later(1)), Some("second"), Some(start())));
        queue.delivered(&due[1], later(3));
        let found = queue.waiting(&one).remove(0);
        assert_eq!((found.failing_since, found.arrived, found.count), (None, Some(later(3)), 1));
        queue.failed(&due[0], &no("third"), later(4));
        assert_eq!(queue.waiting(&one)[0].failing_since, Some(later(3)));
        let day = Duration::from_hours(24);
        assert_eq!(queue.give_up_older(&one, day, later(86_400)), []);
        assert_eq!(queue.give_up_older(&names(&["two"]), day, later(86_401)), []);
        let given_up = queue.give_up_older(&one, day, later(86_401));
        assert_eq!((given_up.len(), given_up[0].alert_id.as_str(), given_up[0].last_error.as_deref()), (1, "a", Some("third")));
        let found = queue.waiting(&one).remove(0);
        assert_eq!((found.count, found.given_up, found.failing_since), (0, Some(later(86_401)), None));
    }

    #[test]
    fn nothing_is_left_of_an_integration_that_is_gone() {
        let mut queue = Queue::default();
        queue.enqueue(&[message("one", "a", Raised), message("two", "a", Raised)], start());
        queue.forget(&names(&["one"]));
        assert_eq!(queue.enqueue(&[message("one", "a", Resolved)], start()), []);
        assert_eq!((queue.waiting(&names(&["one"]))[0].count, queue.waiting(&names(&["two"]))[0].count), (0, 1));
    }
}
