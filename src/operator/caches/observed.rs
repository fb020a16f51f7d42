//! Findings of one part of the manager about many objects, for the controller that writes their statuses.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use slipway_cluster::Key;

/// Findings by object, all of them given at once. A new leader has none, and leaves what a status says as it is.
pub(crate) struct Observed<T>(RwLock<Option<HashMap<Key, T>>>);

impl<T> Default for Observed<T> {
    fn default() -> Self {
        Self(RwLock::new(None))
    }
}

impl<T: Clone + PartialEq> Observed<T> {
    /// Takes the place of what was found before; says of which objects something else is found now.
    pub(crate) fn set(&self, all: HashMap<Key, T>) -> Vec<Key> {
        let mut present = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let before = present.take().unwrap_or_default();
        let gone = before.keys().filter(|key| !all.contains_key(*key));
        let other = all.iter().filter(|(key, found)| before.get(*key) != Some(*found)).map(|(key, _)| key);
        let changed = gone.chain(other).cloned().collect();
        *present = Some(all);
        changed
    }

    /// Nobody has looked since: what statuses say stands.
    pub(crate) fn forget(&self) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// None while nobody has looked; then what was found of the object, if anything was.
    #[expect(clippy::option_option, reason = "nobody has looked, nothing was found, and what was found")]
    pub(crate) fn of(&self, key: &Key) -> Option<Option<T>> {
        let present = self.0.read().unwrap_or_else(PoisonError::into_inner);
        present.as_ref().map(|all| all.get(key).cloned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_name_the_objects_that_differ() {
        let key = |name: &str| Key::new("team-a", name);
        let all = |found: &[(&str, i32)]| found.iter().map(|(name, value)| (key(name), *value)).collect();
        let observed = Observed::default();
        assert_eq!(observed.of(&key("a")), None, "nobody has looked");
        assert_eq!(observed.set(all(&[("a", 1)])), [key("a")]);
        assert_eq!((observed.of(&key("a")), observed.of(&key("b"))), (Some(Some(1)), Some(None)));
        assert!(observed.set(all(&[("a", 1)])).is_empty(), "the same again");
        let mut changed = observed.set(all(&[("b", 1)]));
        changed.sort();
        assert_eq!(changed, [key("a"), key("b")]);
        observed.forget();
        assert_eq!(observed.of(&key("b")), None);
    }
}
