//! Waiting for changes to end: quick edits become one version, and none is held back for long.

use std::time::Duration;

use tokio::time::Instant;

use super::seen::Patience;
use super::step::Wait;

/// A content that stands so long is recorded.
pub(super) const QUIET_PERIOD: Duration = Duration::from_secs(2);
/// Whatever comes, something is recorded after so long.
const MAX_DELAY: Duration = Duration::from_secs(10);
/// A first release waits so long for a pod to tell which image it runs.
const IMAGE_TIMEOUT: Duration = Duration::from_secs(30);

/// What one agent's changes have been, as far as this process has seen them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Debounce {
    seen: Instant,
    /// The content that is waited for: which it is, since when it stands, and since when there are changes.
    change: Option<(u64, Instant, Instant)>,
    /// Since when the agent is gone.
    pub gone: Option<Instant>,
}

impl Debounce {
    pub(super) fn new(now: Instant) -> Self {
        Self { seen: now, change: None, gone: None }
    }

    pub(super) fn patience(&self, now: Instant) -> Patience {
        let content = self.change.is_some_and(|(_, since, first)| now >= since + QUIET_PERIOD || now >= first + MAX_DELAY);
        Patience { content, image: now >= self.seen + IMAGE_TIMEOUT }
    }

    /// Takes note of why there was nothing to do; says when to look again for that.
    pub(super) fn rest(&mut self, rest: Wait, now: Instant) -> Option<Duration> {
        match rest {
            Wait::Change(content) => {
                let change = match self.change {
                    Some((before, since, first)) if before == content => (content, since, first),
                    Some((_, _, first)) => (content, now, first),
                    None => (content, now, now),
                };
                self.change = Some(change);
                let (_, since, first) = change;
                Some((since + QUIET_PERIOD).min(first + MAX_DELAY).saturating_duration_since(now))
            }
            Wait::Image => Some((self.seen + IMAGE_TIMEOUT).saturating_duration_since(now)),
            Wait::Done | Wait::Unable => {
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
        let mut debounce = Debounce::new(start);
        assert_eq!(debounce.rest(Wait::Change(1), at(0.0)), Some(QUIET_PERIOD));
        assert!(!debounce.patience(at(1.9)).content && debounce.patience(at(2.0)).content);
        assert_eq!(debounce.rest(Wait::Change(1), at(1.5)), Some(Duration::from_millis(500)), "the same content is no change");
        for edit in 1..=9_u32 {
            debounce.rest(Wait::Change(u64::from(edit) + 1), at(f64::from(edit)));
            assert!(!debounce.patience(at(f64::from(edit) + 0.9)).content);
        }
        assert_eq!(debounce.rest(Wait::Change(99), at(9.5)), Some(Duration::from_millis(500)));
        assert!(debounce.patience(at(10.0)).content, "ten seconds are the most");
    }

    #[test]
    fn what_is_changed_back_was_no_change() {
        let start = Instant::now();
        let mut debounce = Debounce::new(start);
        debounce.rest(Wait::Change(1), start);
        assert_eq!(debounce.rest(Wait::Done, start + QUIET_PERIOD), None);
        assert!(!debounce.patience(start + Duration::from_mins(1)).content);
        assert_eq!(debounce.rest(Wait::Change(1), start + Duration::from_mins(1)), Some(QUIET_PERIOD));
    }

    #[test]
    fn an_image_is_waited_for_half_a_minute() {
        let start = Instant::now();
        let mut debounce = Debounce::new(start);
        assert_eq!(debounce.rest(Wait::Image, start + Duration::from_secs(10)), Some(Duration::from_secs(20)));
        assert!(!debounce.patience(start + Duration::from_secs(29)).image && debounce.patience(start + IMAGE_TIMEOUT).image);
    }
}
