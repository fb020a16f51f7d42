//! Warnings that wait until their cause has lasted for a while: an Agent that is applied together with its Team, its Tools and
//! its Secrets is at fault for a moment, and nobody needs to hear of that.
//!
//! They are kept in memory alone. A manager that ends within that while takes the Event with it; the status has said it.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use slipway_cluster::Key;
use tokio::time::Instant;

/// How long trouble stands before it is worth a Warning.
pub(crate) const GRACE: Duration = Duration::from_secs(5);

/// Since when objects are in trouble that nobody has been told of.
#[derive(Default)]
pub(crate) struct PendingWarnings(Mutex<HashMap<(&'static str, Key), Instant>>);

/// What to do about a warning.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Now,
    In(Duration),
    Never,
}

impl PendingWarnings {
    /// `is_news` says whether the trouble differs from what was said of the object before.
    pub(crate) fn weigh(&self, kind: &'static str, key: &Key, in_trouble: bool, is_news: bool, now: Instant) -> Due {
        let mut since = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let about = (kind, key.clone());
        if !in_trouble {
            since.remove(&about);
            return Due::Never;
        }
        let begun = match since.get(&about) {
            Some(begun) => *begun,
            None if is_news => *since.entry(about.clone()).or_insert(now),
            None => return Due::Never,
        };
        let left = (begun + GRACE).saturating_duration_since(now);
        if left.is_zero() {
            since.remove(&about);
            return Due::Now;
        }
        Due::In(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trouble_is_told_once_it_has_stood_for_a_while() {
        let (pending, key, start) = (PendingWarnings::default(), Key::new("team-a", "x"), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let weigh = |in_trouble, is_news, now| pending.weigh("Agent", &key, in_trouble, is_news, now);
        assert_eq!(weigh(true, false, at(0)), Due::Never, "the leader before has published it");
        assert_eq!(weigh(true, true, at(0)), Due::In(GRACE));
        assert_eq!(weigh(true, false, at(2)), Due::In(Duration::from_secs(3)));
        assert_eq!(weigh(true, true, at(4)), Due::In(Duration::from_secs(1)), "other words are the same trouble");
        assert_eq!(pending.weigh("Tool", &key, true, false, at(9)), Due::Never, "another kind's object is another object");
        assert_eq!(weigh(true, false, at(5)), Due::Now);
        assert_eq!(weigh(true, false, at(6)), Due::Never, "it has been told");
        assert_eq!(weigh(true, true, at(7)), Due::In(GRACE), "something else is wrong now");
        assert_eq!(weigh(false, true, at(8)), Due::Never, "and has healed");
        assert_eq!(weigh(true, false, at(20)), Due::Never);
    }
}
