//! Waiting for changes to end: quick edits become one version, and none is held back for long.

use std::time::Duration;

use tokio::time::Instant;

use super::plan::{Patience, Rest};

/// A content that stands so long is recorded.
pub(super) const STILL: Duration = Duration::from_secs(2);
/// Whatever comes, something is recorded after so long.
const LONGEST: Duration = Duration::from_secs(10);
/// A first release waits so long for a pod to tell which image it runs.
const IMAGE: Duration = Duration::from_secs(30);

/// What one agent's changes have been, as far as this process has seen them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Quiet {
    seen: Instant,
    /// The content that is waited for: which it is, since when it stands, and since when there are changes.
    change: Option<(u64, Instant, Instant)>,
    /// Since when the agent is gone.
    pub gone: Option<Instant>,
}

impl Quiet {
    pub(super) fn new(now: Instant) -> Self {
        Self { seen: now, change: None, gone: None }
    }

    pub(super) fn patience(&self, now: Instant) -> Patience {
        let content = self.change.is_some_and(|(_, since, first)| now >= since + STILL || now >= first + LONGEST);
        Patience { content, image: now >= self.seen + IMAGE }
    }

    /// Takes note of why there was nothing to do; says when to look again for that.
    pub(super) fn rest(&mut self, rest: Rest, now: Instant) -> Option<Duration> {
        match rest {
            Rest::Change(content) => {
                let change = match self.change {
                    Some((before, since, first)) if before == content => (content, since, first),
                    Some((_, _, first)) => (content, now, first),
                    None => (content, now, now),
                };
                self.change = Some(change);
                let (_, since, first) = change;
                Some((since + STILL).min(first + LONGEST).saturating_duration_since(now))
            }
            Rest::Image => Some((self.seen + IMAGE).saturating_duration_since(now)),
            Rest::Done | Rest::Unable => {
                self.change = None;
                None
            }
        }
    }

    /// A change was recorded.
    pub(super) fn recorded(&mut self) {
        self.change = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_restarts_the_clock_but_not_for_ever() {
        let start = Instant::now();
        let at = |seconds: f64| start + Duration::from_secs_f64(seconds);
        let mut quiet = Quiet::new(start);
        assert_eq!(quiet.rest(Rest::Change(1), at(0.0)), Some(STILL));
        assert!(!quiet.patience(at(1.9)).content && quiet.patience(at(2.0)).content);
        assert_eq!(quiet.rest(Rest::Change(1), at(1.5)), Some(Duration::from_millis(500)), "the same content is no change");
        for edit in 1..=9_u32 {
            quiet.rest(Rest::Change(u64::from(edit) + 1), at(f64::from(edit)));
            assert!(!quiet.patience(at(f64::from(edit) + 0.9)).content);
        }
        assert_eq!(quiet.rest(Rest::Change(99), at(9.5)), Some(Duration::from_millis(500)));
        assert!(quiet.patience(at(10.0)).content, "ten seconds are the most");
    }

    #[test]
    fn what_is_changed_back_was_no_change() {
        let start = Instant::now();
        let mut quiet = Quiet::new(start);
        quiet.rest(Rest::Change(1), start);
        assert_eq!(quiet.rest(Rest::Done, start + STILL), None);
        assert!(!quiet.patience(start + Duration::from_mins(1)).content);
        assert_eq!(quiet.rest(Rest::Change(1), start + Duration::from_mins(1)), Some(STILL));
    }

    #[test]
    fn an_image_is_waited_for_half_a_minute() {
        let start = Instant::now();
        let mut quiet = Quiet::new(start);
        assert_eq!(quiet.rest(Rest::Image, start + Duration::from_secs(10)), Some(Duration::from_secs(20)));
        assert!(!quiet.patience(start + Duration::from_secs(29)).image && quiet.patience(start + IMAGE).image);
    }
}
