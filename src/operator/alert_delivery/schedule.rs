//! The times at which a message is sent again. Pure.

use std::time::Duration;

/// For how long a message is tried.
pub(super) const EXPIRY: Duration = Duration::from_hours(24);
/// A message that was refused waits for a change of its integration, or until it is given up.
pub(super) const REFUSED: Duration = Duration::from_hours(48);
/// All others wait for less, and refused ones for more as long as they are not given up.
pub(super) const LONGEST: Duration = Duration::from_hours(2);
/// A message that could not be sent, for want of a worker or a login, comes up again this soon: nothing was asked of the receiver.
pub(super) const HELD: Duration = Duration::from_secs(10);

/// The waits after the first attempts that fail, in seconds; then it is an hour.
const WAITS: [u64; 5] = [10, 30, 120, 600, 1_800];
const LAST_WAIT: u64 = 3_600;
/// A receiver may ask for an hour.
const MAX_RETRY_AFTER: Duration = Duration::from_hours(1);

const FIRST_PAUSE: Duration = Duration::from_secs(10);
const MAX_PAUSE: Duration = Duration::from_mins(5);

/// How long a message waits that was sent in vain so often before; a fifth longer or shorter by `dice`.
pub(super) fn wait(attempts: i32, retry_after: Option<Duration>, dice: u64) -> Duration {
    let seconds = usize::try_from(attempts).ok().and_then(|attempts| WAITS.get(attempts)).copied().unwrap_or(LAST_WAIT);
    let share = 800 + dice % 401;
    Duration::from_millis(seconds * share).max(asked(retry_after))
}

/// How long an integration is left alone that has failed so often in a row, whatever waits for it.
pub(super) fn pause(failures: u32, retry_after: Option<Duration>) -> Duration {
    let doubled = FIRST_PAUSE.saturating_mul(1 << failures.saturating_sub(1).min(8));
    doubled.min(MAX_PAUSE).max(asked(retry_after))
}

fn asked(retry_after: Option<Duration>) -> Duration {
    retry_after.unwrap_or_default().min(MAX_RETRY_AFTER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_wait_is_longer_and_wavers_by_a_fifth() {
        let seconds = Duration::from_secs;
        for (attempts, middle) in [(0, 10), (1, 30), (2, 120), (3, 600), (4, 1_800), (5, 3_600), (99, 3_600), (-1, 3_600)] {
            let all: Vec<_> = (0..401).map(|dice| wait(attempts, None, dice)).collect();
            assert_eq!(all.iter().min(), Some(&Duration::from_millis(middle * 800)), "{attempts}");
            assert_eq!(all.iter().max(), Some(&Duration::from_millis(middle * 1_200)), "{attempts}");
        }
        assert_eq!(wait(0, None, 200), seconds(10));
        assert_eq!(wait(0, None, 601), wait(0, None, 200));
    }

    #[test]
    fn a_receiver_may_ask_for_an_hour() {
        let seconds = Duration::from_secs;
        assert_eq!(wait(0, Some(seconds(300)), 0), seconds(300));
        assert_eq!(wait(0, Some(seconds(1)), 0), seconds(8), "not for less than there is");
        assert_eq!(wait(0, Some(seconds(100_000)), 0), seconds(3_600));
        assert_eq!(pause(1, Some(seconds(100_000))), seconds(3_600));
    }

    #[test]
    fn a_message_that_was_refused_is_told_from_others_by_its_time() {
        let longest = (0..401).map(|dice| wait(99, Some(Duration::MAX), dice)).max();
        assert!(longest < Some(LONGEST) && HELD < LONGEST, "{longest:?}");
        assert!(REFUSED > EXPIRY + LONGEST);
    }

    #[test]
    fn an_integration_that_fails_is_left_alone_for_minutes() {
        let all: Vec<_> = (0..8).map(|failures| pause(failures, None).as_secs()).collect();
        assert_eq!(all, [10, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(pause(u32::MAX, None), MAX_PAUSE);
    }
}
