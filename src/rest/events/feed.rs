//! The event log of one agent. All listeners read the same log, each from its own position: a listener costs little, and a
//! slow one delays nobody.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use slipway_http::Event;
use tokio::sync::watch;

/// The length of the log. A listener further behind has lost events.
pub(super) const LOG_LEN_MAX: usize = 256;
/// The number of events that a new listener receives.
const REPLAY_LEN: usize = 50;

/// An Event of the cluster.
#[derive(Debug, Clone)]
pub(super) struct FeedEvent {
    /// The Event's name; repetitions keep it.
    pub name: String,
    /// The index of the watch that reported it.
    pub source: usize,
    /// The resourceVersion, which changes with each repetition.
    pub version: u64,
    pub event: Event,
}

/// The state that listeners wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FeedState {
    /// The position of the next event.
    pub next: u64,
    /// The creation time of the agent, while it exists.
    pub agent: Option<i64>,
}

#[derive(Debug)]
pub(super) struct Feed {
    log: Mutex<Log>,
    told: watch::Sender<FeedState>,
}

#[derive(Debug, Default)]
struct Log {
    /// By position. Positions only grow, and those of expired Events are empty.
    entries: VecDeque<(u64, FeedEvent)>,
    next: u64,
    /// Events below this position were dropped.
    lost: u64,
}

/// The result of a read.
#[derive(Debug)]
pub(super) enum FeedRead {
    Event(Event, u64),
    NotYet,
    Lost,
}

impl Default for Feed {
    fn default() -> Self {
        Self { log: Mutex::default(), told: watch::Sender::new(FeedState { next: 0, agent: None }) }
    }
}

impl Feed {
    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends an Event. A repetition replaces its earlier entry.
    pub(super) fn add(&self, logged: FeedEvent) {
        let mut log = self.log();
        if let Some(at) = log.entries.iter().position(|(_, known)| known.name == logged.name && known.source == logged.source) {
            if log.entries[at].1.version == logged.version {
                return;
            }
            log.entries.remove(at);
        }
        if log.entries.len() == LOG_LEN_MAX
            && let Some((place, _)) = log.entries.pop_front()
        {
            log.lost = place + 1;
        }
        let place = log.next;
        log.entries.push_back((place, logged));
        log.next += 1;
        drop(log);
        self.told.send_modify(|told| told.next = place + 1);
    }

    /// Retains the Events that still exist.
    pub(super) fn keep(&self, keep: impl Fn(&FeedEvent) -> bool) {
        self.log().entries.retain(|(_, logged)| keep(logged));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.log().entries.is_empty() && self.told.receiver_count() == 0
    }

    pub(super) fn is_heard(&self) -> bool {
        self.told.receiver_count() > 0
    }

    /// Tells listeners whether the agent exists.
    pub(super) fn agent(&self, created: Option<i64>) {
        self.told.send_if_modified(|told| {
            let news = told.agent != created;
            told.agent = created;
            news
        });
    }

    pub(super) fn listen(&self) -> watch::Receiver<FeedState> {
        self.told.subscribe()
    }

    /// The first position of a listener: behind the last event that it has, or the start of the replay.
    pub(super) fn begin(&self, after: Option<u64>) -> u64 {
        let log = self.log();
        let first = match after {
            Some(version) => log.entries.iter().position(|(_, logged)| logged.version > version),
            None => Some(log.entries.len().saturating_sub(REPLAY_LEN)),
        };
        first.and_then(|at| log.entries.get(at)).map_or(log.next, |(place, _)| *place)
    }

    /// The event at `place` or the next one behind it.
    pub(super) fn at(&self, place: u64) -> FeedRead {
        let log = self.log();
        if place < log.lost {
            return FeedRead::Lost;
        }
        let at = log.entries.partition_point(|(known, _)| *known < place);
        log.entries.get(at).map_or(FeedRead::NotYet, |(place, logged)| FeedRead::Event(logged.event.clone(), place + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logged(name: &str, version: u64) -> FeedEvent {
        FeedEvent { name: name.to_owned(), source: 0, version, event: Event::json(&version).unwrap() }
    }

    fn feed(versions: std::ops::Range<u64>) -> Feed {
        let feed = Feed::default();
        versions.for_each(|version| feed.add(logged(&version.to_string(), version)));
        feed
    }

    /// All events from a position on.
    fn read(feed: &Feed, mut place: u64) -> Option<Vec<Event>> {
        let mut events = Vec::new();
        loop {
            match feed.at(place) {
                FeedRead::Event(event, next) => (events.push(event), place = next).0,
                FeedRead::NotYet => return Some(events),
                FeedRead::Lost => return None,
            }
        }
    }

    fn events(versions: std::ops::Range<u64>) -> Vec<Event> {
        versions.map(|version| Event::json(&version).unwrap()).collect()
    }

    #[test]
    fn who_comes_anew_is_told_the_last_fifty_and_who_comes_back_what_is_missing() {
        let feed = feed(100..200);
        assert_eq!(read(&feed, feed.begin(None)), Some(events(150..200)));
        assert_eq!(read(&feed, feed.begin(Some(109))), Some(events(110..200)));
        assert_eq!(read(&feed, feed.begin(Some(199))), Some(events(0..0)));
        assert_eq!(read(&feed, feed.begin(Some(9999))), Some(events(0..0)));
        assert_eq!(read(&Feed::default(), Feed::default().begin(None)), Some(events(0..0)));
    }

    #[test]
    fn an_event_that_repeats_is_told_again_and_kept_once() {
        let feed = feed(1..4);
        let place = feed.begin(Some(3));
        feed.add(logged("1", 1));
        assert_eq!(read(&feed, place), Some(events(0..0)), "the same once more is no news");
        feed.add(logged("1", 4));
        assert_eq!(read(&feed, place), Some(events(4..5)));
        assert_eq!(read(&feed, feed.begin(None)), Some(events(2..5)));
    }

    #[test]
    fn who_is_too_far_behind_learns_that_something_was_lost() {
        let kept = LOG_LEN_MAX as u64;
        let feed = feed(0..kept);
        assert_eq!(read(&feed, 0).map(|events| events.len()), Some(LOG_LEN_MAX));
        feed.add(logged("more", kept));
        assert!(read(&feed, 0).is_none() && read(&feed, 1).is_some());
    }

    #[test]
    fn what_expired_is_passed_over_and_is_no_loss() {
        let feed = feed(1..6);
        feed.keep(|logged| logged.version > 3);
        assert_eq!(read(&feed, 0), Some(events(4..6)));
    }
}
