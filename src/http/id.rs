//! The request id: the caller's `X-Request-Id` if it is safe in a log line, else a new one. Every reply and every logged
//! cause has it.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use http::{HeaderMap, HeaderName, HeaderValue};
use ulid::Ulid;

pub(crate) const HEADER: HeaderName = HeaderName::from_static("x-request-id");
const MAX_ID_BYTES: usize = 128;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestId(HeaderValue);

impl RequestId {
    pub fn as_str(&self) -> &str {
        self.0.to_str().unwrap_or_default()
    }

    pub(crate) fn echoed(headers: &HeaderMap) -> Option<Self> {
        let fit = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:/+=".contains(byte);
        let value = headers.get(HEADER)?;
        let length = 1..=MAX_ID_BYTES;
        (length.contains(&value.len()) && value.as_bytes().iter().all(fit)).then(|| Self(value.clone()))
    }

    pub(crate) fn made(now: SystemTime, random: u128) -> Self {
        let text = ["req_", ulid(now, random).array_to_str(&mut [0; ulid::ULID_LEN])].concat();
        Self(HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("req_")))
    }

    pub(crate) fn value(&self) -> HeaderValue {
        self.0.clone()
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// 26 characters of Crockford's base 32 that sort by time: 48 bits of milliseconds, then the low
/// 80 bits of `random`.
pub fn ulid(now: SystemTime, random: u128) -> Ulid {
    let elapsed = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ulid::from_parts(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX), random)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_ids_that_are_safe_in_a_log_line_are_echoed() {
        for (sent, echoed) in [
            ("abc-123", true),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", true),
            ("", false),
            ("two words", false),
            ("\"quoted\"", false),
            (&"x".repeat(MAX_ID_BYTES), true),
            (&"x".repeat(MAX_ID_BYTES + 1), false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(HEADER, HeaderValue::from_str(sent).unwrap());
            let id = RequestId::echoed(&headers);
            assert_eq!(id.as_ref().map(RequestId::as_str), echoed.then_some(sent), "{sent:?}");
        }
    }

    #[test]
    fn a_new_one_depends_on_clock_and_randomness_alone() {
        let now = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let id = RequestId::made(now, 7);
        assert_eq!(id, RequestId::made(now, 7));
        assert_eq!(id.as_str(), "req_01HF7YAT000000000000000007");
    }

    proptest! {
        #[test]
        fn an_echo_is_one_word_that_needs_no_quotes(sent in prop::collection::vec(any::<u8>(), 0..140)) {
            let Ok(value) = HeaderValue::from_bytes(&sent) else { return Ok(()) };
            let headers = HeaderMap::from_iter([(HEADER, value)]);
            if let Some(id) = RequestId::echoed(&headers) {
                prop_assert_eq!(id.as_str().as_bytes(), &sent[..]);
                prop_assert!(!sent.is_empty() && sent.len() <= MAX_ID_BYTES && sent.iter().all(u8::is_ascii_graphic) && !sent.contains(&b'"'));
            }
        }
    }
}
