//! A cache of one kind of object, filled by watches.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crate::key::Key;

/// Objects of one kind by key. Several watches may fill one cache, each for its own scope: one namespace, or all of them.
pub struct Cache<T> {
    objects: RwLock<HashMap<Key, Arc<T>>>,
    /// The highest resource version of a deletion seen so far. Written under the lock of `objects`.
    last_deleted: AtomicU64,
}

impl<T> Default for Cache<T> {
    fn default() -> Self {
        Self { objects: RwLock::default(), last_deleted: AtomicU64::new(0) }
    }
}

impl<T> Cache<T> {
    fn read(&self) -> std::sync::RwLockReadGuard<'_, HashMap<Key, Arc<T>>> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, HashMap<Key, Arc<T>>> {
        self.objects.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn get(&self, key: &Key) -> Option<Arc<T>> {
        self.read().get(key).cloned()
    }

    pub fn insert(&self, key: Key, object: T) -> Option<Arc<T>> {
        self.write().insert(key, Arc::new(object))
    }

    /// Inserts `object` if `is_outdated` returns true for the present object and the version of the last deletion. Check and
    /// insertion happen under one lock. Returns whether the object was inserted.
    pub fn replace(&self, key: Key, object: T, is_outdated: impl FnOnce(Option<&T>, u64) -> bool) -> bool {
        let mut objects = self.write();
        let replaces = is_outdated(objects.get(&key).map(AsRef::as_ref), self.last_deleted.load(Ordering::Relaxed));
        if replaces {
            objects.insert(key, Arc::new(object));
        }
        replaces
    }

    /// Removes an object that was deleted at `version`.
    pub fn forget(&self, key: &Key, version: u64) -> Option<Arc<T>> {
        let mut objects = self.write();
        self.last_deleted.fetch_max(version, Ordering::Relaxed);
        objects.remove(key)
    }

    pub fn remove(&self, key: &Key) -> Option<Arc<T>> {
        self.write().remove(key)
    }

    pub fn keys(&self) -> Vec<Key> {
        self.read().keys().cloned().collect()
    }

    pub fn in_namespace(&self, namespace: &str) -> Vec<(Key, Arc<T>)> {
        let objects = self.read();
        objects.iter().filter(|(key, _)| key.namespace == namespace).map(|(key, object)| (key.clone(), object.clone())).collect()
    }

    /// Removes the objects of `scope` that a new list did not contain, and returns their keys.
    pub fn retain(&self, scope: Option<&str>, listed: &std::collections::HashSet<Key>) -> Vec<Key> {
        let mut objects = self.write();
        let inside = |key: &Key| scope.is_none_or(|namespace| key.namespace == namespace);
        let gone: Vec<Key> = objects.keys().filter(|key| inside(key) && !listed.contains(*key)).cloned().collect();
        for key in &gone {
            objects.remove(key);
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_object_does_not_replace_a_newer_one() {
        let cache = Cache::default();
        let key = Key::new("a", "1");
        assert!(cache.replace(key.clone(), 2, |present, _| present.is_none()));
        assert!(!cache.replace(key.clone(), 1, |present, _| present.is_none_or(|present| *present <= 1)));
        assert!(cache.replace(key.clone(), 3, |present, _| present.is_none_or(|present| *present <= 3)));
        assert_eq!(cache.get(&key).as_deref(), Some(&3));
        cache.forget(&key, 4);
        assert!(!cache.replace(key, 3, |_, last_deleted| last_deleted < 3), "an answer older than the deletion is stale");
    }

    #[test]
    fn a_new_list_removes_only_objects_of_its_scope() {
        let cache = Cache::default();
        for (namespace, name) in [("a", "1"), ("a", "2"), ("b", "1")] {
            cache.insert(Key::new(namespace, name), ());
        }
        let gone = cache.retain(Some("a"), &[Key::new("a", "1")].into());
        assert_eq!(gone, [Key::new("a", "2")]);
        assert!(cache.get(&Key::new("b", "1")).is_some());
    }
}
