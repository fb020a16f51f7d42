//! What objects that cannot be read were last told, so that each is told once and not at every resync.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, PoisonError};

use crate::write;
use slipway_cluster::Key;
use slipway_cluster::controller::Failure;

/// Of how many objects it is remembered. A cluster with more that cannot be read hears some of it twice.
const MOST: usize = 4096;

#[derive(Default)]
pub(super) struct Told(Mutex<HashMap<(String, Key), u64>>);

impl Told {
    /// Whether `words` differ from what the object was last told; from now on they are what it was told.
    pub(super) fn is_news(&self, kind: &str, key: &Key, words: &impl Hash) -> bool {
        let mut hasher = DefaultHasher::new();
        words.hash(&mut hasher);
        let words = hasher.finish();
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let about = (kind.to_owned(), key.clone());
        if told.len() >= MOST && !told.contains_key(&about) {
            told.clear();
        }
        told.insert(about, words) != Some(words)
    }

    /// What it was told could not be written into its status: if it can be later, it is told once more.
    pub(super) fn unsaid(&self, kind: &str, key: &Key, error: &write::Error) {
        if error.category() != "invalid" {
            self.forget(kind, key);
        }
    }

    /// The object can be read again, or is gone: should it break once more, that is news.
    pub(super) fn forget(&self, kind: &str, key: &Key) {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !told.is_empty() {
            told.remove(&(kind.to_owned(), key.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn each_object_is_told_once_until_it_has_been_readable() {
        let (told, key) = (Told::default(), Key::new("team-a", "x"));
        assert!(told.is_news("Agent", &key, &"bad"));
        assert!(!told.is_news("Agent", &key, &"bad"));
        assert!(told.is_news("Tool", &key, &"bad"), "another kind's object of that name is another object");
        assert!(!told.is_news("Agent", &key, &"bad"));
        assert!(told.is_news("Agent", &key, &"worse"));
        told.forget("Agent", &key);
        assert!(told.is_news("Agent", &key, &"worse"));
    }

    #[test]
    fn what_could_not_be_written_for_now_is_news_again() {
        let (told, key) = (Told::default(), Key::new("team-a", "x"));
        for (code, is_news) in [(500, true), (429, true), (422, false)] {
            assert!(told.is_news("Agent", &key, &code));
            told.unsaid("Agent", &key, &kube::Error::Api(Status::failure("", "").with_code(code).boxed()).into());
            assert_eq!(told.is_news("Agent", &key, &code), is_news, "{code}");
        }
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let told = Told::default();
        for at in 0..3 * MOST {
            assert!(told.is_news("Agent", &Key::new("team-a", at.to_string()), &"bad"));
        }
        assert!(told.0.lock().unwrap().len() <= MOST);
    }
}
