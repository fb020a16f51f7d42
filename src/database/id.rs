//! Identifiers: a prefix and a ULID, whose order is that of time: to the millisecond between processes, exactly within one.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use ulid::Ulid;

use crate::Fault;

static LAST: Mutex<Ulid> = Mutex::new(Ulid::nil());

/// `prefix_` and a fresh ULID, above every earlier one of this process, in the same millisecond and when the clock
/// steps back, too.
pub(crate) fn new(prefix: &str) -> String {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let milliseconds = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    *last = Ulid::from_parts(milliseconds, random()).max(Ulid(last.0.saturating_add(1)));
    // Text of known length, without the formatter: a turn makes five of them.
    [prefix, "_", last.array_to_str(&mut [0; ulid::ULID_LEN])].concat()
}

/// Unique, not secret. The keys of hash maps cost no system call each time, which five of a turn would feel.
fn random() -> u128 {
    let half = || u128::from(RandomState::new().hash_one(()));
    half() << 64 | half()
}

/// What a caller chose, as part of a key: 1 to 64 letters, digits, `-` or `_`.
pub(crate) fn check(what: &str, id: &str) -> Result<(), Fault> {
    let fits = (1..=64).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    if fits { Ok(()) } else { Err(Fault::Refused(format!("a {what} has 1 to 64 letters, digits, '-' or '_'"))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_differ_and_their_prefix_says_what_they_are() {
        let (one, two) = (new("msg"), new("msg"));
        assert_ne!(one, two);
        assert!(one.starts_with("msg_") && one.len() == 30, "{one}");
        check("message id", &one).unwrap();
    }

    #[test]
    fn later_ids_are_greater() {
        let ids: Vec<_> = (0..1000).map(|_| new("mem")).collect();
        assert!(ids.is_sorted_by(|one, next| one < next));
    }

    #[test]
    fn a_strangers_id_is_refused() {
        for id in ["", "a b", "ü", "x'; drop table", "a\0b", &"x".repeat(65)] {
            assert!(check("conversation id", id).is_err(), "{id:?}");
        }
    }
}
