//! Errors of objects that cannot be read, by object, so that each is reported once and not at every resync.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, PoisonError};

use slipway_cluster::controller::Failure;
use slipway_cluster::{Key, write};

/// Of how many objects it is remembered. A cluster with more that cannot be read hears some of it twice.
const MAX_OBJECTS: usize = 4096;

#[derive(Default)]
pub(crate) struct ReportedErrors(Mutex<HashMap<(String, Key), u64>>);

impl ReportedErrors {
    /// Whether this differs from what was last reported of the object. From now on it is what was.
    pub(crate) fn is_new(&self, kind: &str, key: &Key, message: &impl Hash) -> bool {
        let mut hasher = DefaultHasher::new();
        message.hash(&mut hasher);
        let message = hasher.finish();
        let mut reported = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let about = (kind.to_owned(), key.clone());
        if reported.len() >= MAX_OBJECTS && !reported.contains_key(&about) {
            reported.clear();
        }
        reported.insert(about, message) != Some(message)
    }

    /// The report could not be written into the status: if it can be later, it is made once more.
    pub(crate) fn failed(&self, kind: &str, key: &Key, error: &write::Error) {
        if error.category() != "invalid" {
            self.forget(kind, key);
        }
    }

    /// The object can be read again, or is gone: should it break once more, that is news.
    pub(crate) fn forget(&self, kind: &str, key: &Key) {
        let mut reported = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !reported.is_empty() {
            reported.remove(&(kind.to_owned(), key.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn each_object_is_reported_once_until_it_has_been_readable() {
        let (reported, key) = (ReportedErrors::default(), Key::new("team-a", "x"));
        assert!(reported.is_new("Agent", &key, &"bad"));
        assert!(!reported.is_new("Agent", &key, &"bad"));
        assert!(reported.is_new("Tool", &key, &"bad"), "another kind's object of that name is another object");
        assert!(!reported.is_new("Agent", &key, &"bad"));
        assert!(reported.is_new("Agent", &key, &"worse"));
        reported.forget("Agent", &key);
        assert!(reported.is_new("Agent", &key, &"worse"));
    }

    #[test]
    fn what_could_not_be_written_for_now_is_new_again() {
        let (reported, key) = (ReportedErrors::default(), Key::new("team-a", "x"));
        for (code, is_new) in [(500, true), (429, true), (422, false)] {
            assert!(reported.is_new("Agent", &key, &code));
            reported.failed("Agent", &key, &kube::Error::Api(Status::failure("", "").with_code(code).boxed()).into());
            assert_eq!(reported.is_new("Agent", &key, &code), is_new, "{code}");
        }
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let reported = ReportedErrors::default();
        for at in 0..3 * MAX_OBJECTS {
            assert!(reported.is_new("Agent", &Key::new("team-a", at.to_string()), &"bad"));
        }
        assert!(reported.0.lock().unwrap().len() <= MAX_OBJECTS);
    }
}
