//! What happened to one agent, in order, as it is sent. All who listen read the same log, each from a place of its
//! own, so a listener costs its place and nobody waits for a slow one.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use slipway_http::Event;
use tokio::sync::watch;

/// How many happenings are kept. A listener that is further behind has lost some.
pub(super) const KEPT: usize = 256;
/// How many are told again to who comes without saying what they know.
const REPLAYED: usize = 50;

/// An Event of the cluster.
#[derive(Debug, Clone)]
pub(super) struct Noted {
    /// Its name; it is one Event however often it repeats.
    pub name: String,
    /// Which watch told of it.
    pub source: usize,
    /// Its resourceVersion, another with each repetition.
    pub version: u64,
    pub event: Event,
}

/// What listeners wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Told {
    /// The place of what comes next.
    pub next: u64,
    /// When the agent was made, while there is one.
    pub agent: Option<i64>,
}

#[derive(Debug)]
pub(super) struct Feed {
    log: Mutex<Log>,
    told: watch::Sender<Told>,
}

#[derive(Debug, Default)]
struct Log {
    /// By place, which only grows. Places of Events that expired are empty.
    entries: VecDeque<(u64, Noted)>,
    next: u64,
    /// Below this place something was lost to make room.
    lost: u64,
}

/// What is at a place.
#[derive(Debug)]
pub(super) enum Found {
    Event(Event, u64),
    NotYet,
    Lost,
}

impl Default for Feed {
    fn default() -> Self {
        Self { log: Mutex::default(), told: watch::Sender::new(Told { next: 0, agent: None }) }
    }
}

impl Feed {
    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an Event, or its repetition at the end in place of what it was.
    pub(super) fn add(&self, noted: Noted) {
        let mut log = self.log();
        if let Some(at) = log.entries.iter().position(|(_, known)| known.name == noted.name && known.source == noted.source) {
            if log.entries[at].1.version == noted.version {
                return;
            }
            log.entries.remove(at);
        }
        if log.entries.len() == KEPT
            && let Some((place, _)) = log.entries.pop_front()
        {
            log.lost = place + 1;
        }
        let place = log.next;
        log.entries.push_back((place, noted));
        log.next += 1;
        drop(log);
        self.told.send_modify(|told| told.next = place + 1);
    }

    /// Keeps the Events that are still there.
    pub(super) fn keep(&self, keep: impl Fn(&Noted) -> bool) {
        self.log().entries.retain(|(_, noted)| keep(noted));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.log().entries.is_empty() && self.told.receiver_count() == 0
    }

    pub(super) fn is_heard(&self) -> bool {
        self.told.receiver_count() > 0
    }

    /// Tells listeners whether the agent is there.
    pub(super) fn agent(&self, created: Option<i64>) {
        self.told.send_if_modified(|told| {
            let news = told.agent != created;
            told.agent = created;
            news
        });
    }

    pub(super) fn listen(&self) -> watch::Receiver<Told> {
        self.told.subscribe()
    }

    /// Where to begin: after what the listener has, or with the last few.
    pub(super) fn begin(&self, after: Option<u64>) -> u64 {
        let log = self.log();
        let first = match after {
            Some(version) => log.entries.iter().position(|(_, noted)| noted.version > version),
            None => Some(log.entries.len().saturating_sub(REPLAYED)),
        };
        first.and_then(|at| log.entries.get(at)).map_or(log.next, |(place, _)| *place)
    }

    /// What is at `place`, or after it where it is empty.
    pub(super) fn at(&self, place: u64) -> Found {
        let log = self.log();
        if place < log.lost {
            return Found::Lost;
        }
        let at = log.entries.partition_point(|(known, _)| *known < place);
        log.entries.get(at).map_or(Found::NotYet, |(place, noted)| Found::Event(noted.event.clone(), place + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(name: &str, version: u64) -> Noted {
        Noted { name: name.to_owned(), source: 0, version, event: Event::json(&version).unwrap() }
    }

    fn feed(versions: std::ops::Range<u64>) -> Feed {
        let feed = Feed::default();
        versions.for_each(|version| feed.add(noted(&version.to_string(), version)));
        feed
    }

    /// All that can be read from a place.
    fn read(feed: &Feed, mut place: u64) -> Option<Vec<Event>> {
        let mut events = Vec::new();
        loop {
            match feed.at(place) {
                Found::Event(event, next) => (events.push(event), place = next).0,
                Found::NotYet => return Some(events),
                Found::Lost => return None,
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
        feed.add(noted("1", 1));
        assert_eq!(read(&feed, place), Some(events(0..0)), "the same once more is no news");
        feed.add(noted("1", 4));
        assert_eq!(read(&feed, place), Some(events(4..5)));
        assert_eq!(read(&feed, feed.begin(None)), Some(events(2..5)));
    }

    #[test]
    fn who_is_too_far_behind_learns_that_something_was_lost() {
        let kept = KEPT as u64;
        let feed = feed(0..kept);
        assert_eq!(read(&feed, 0).map(|events| events.len()), Some(KEPT));
        feed.add(noted("more", kept));
        assert!(read(&feed, 0).is_none() && read(&feed, 1).is_some());
    }

    #[test]
    fn what_expired_is_passed_over_and_is_no_loss() {
        let feed = feed(1..6);
        feed.keep(|noted| noted.version > 3);
        assert_eq!(read(&feed, 0), Some(events(4..6)));
    }
}
