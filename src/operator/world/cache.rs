//! What one kind of object looks like in the cluster, as far as we have heard.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use crate::queue::Key;

/// Objects of one kind by key. Several watches may fill one cache, each its own scope: a namespace, or all.
pub struct Cache<T> {
    objects: RwLock<HashMap<Key, Arc<T>>>,
}

impl<T> Default for Cache<T> {
    fn default() -> Self {
        Self { objects: RwLock::default() }
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

    /// Forgets what a new list of `scope` did not hold, and says what that was.
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
    fn a_new_list_forgets_only_within_its_scope() {
        let cache = Cache::default();
        for (namespace, name) in [("a", "1"), ("a", "2"), ("b", "1")] {
            cache.insert(Key::new(namespace, name), ());
        }
        let gone = cache.retain(Some("a"), &[Key::new("a", "1")].into());
        assert_eq!(gone, [Key::new("a", "2")]);
        assert!(cache.get(&Key::new("b", "1")).is_some());
    }
}
