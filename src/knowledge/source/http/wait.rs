//! How long to wait before a request is repeated.

use std::time::Duration;

use jiff::Timestamp;
use reqwest::header::{HeaderMap, RETRY_AFTER};

/// The longest wait that a source is believed to mean.
const MAX_RETRY_AFTER: Duration = Duration::from_hours(1);

/// How long an answer asks to be left alone, in seconds or as a date; an hour at most.
pub fn asked(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?;
    let wait = if let Ok(seconds) = value.trim().parse() {
        Duration::from_secs(seconds)
    } else {
        let until = jiff::fmt::rfc2822::parse(value).ok()?.timestamp();
        Duration::try_from(until.duration_since(Timestamp::now())).unwrap_or_default()
    };
    Some(wait.min(MAX_RETRY_AFTER))
}

/// Between half of and the whole of a time that doubles, so that workers do not come back together.
pub(super) fn backoff(first: Duration, sent: u32) -> Duration {
    let whole = first.saturating_mul(1 << sent.saturating_sub(1).min(10));
    let share = getrandom::u32().unwrap_or(u32::MAX);
    whole / 2 + (whole / 2).mul_f64(f64::from(share) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_read_as_seconds_and_as_a_date() {
        for (value, least, most) in [
            ("0", 0, 0),
            ("7", 7, 7),
            ("99999999", 3600, 3600),
            ("Wed, 21 Oct 2015 07:28:00 GMT", 0, 0),
            ("Wed, 21 Oct 2099 07:28:00 GMT", 3600, 3600),
        ] {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, value.parse().unwrap())]);
            let wait = asked(&headers).unwrap().as_secs();
            assert!((least..=most).contains(&wait), "{value}: {wait}");
        }
        assert_eq!(asked(&HeaderMap::from_iter([(RETRY_AFTER, "soon".parse().unwrap())])), None);
    }

    #[test]
    fn waits_double_within_their_bounds() {
        for sent in 1..=40 {
            let wait = backoff(Duration::from_millis(100), sent).as_millis();
            let whole = 100 * (1 << (sent - 1).min(10));
            assert!((whole / 2..=whole).contains(&wait), "{sent}: {wait}");
        }
    }
}
