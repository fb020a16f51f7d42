//! A bounded cache whose values expire.

use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::fast_map::FastMap;

/// Further values are not stored.
const LEN_MAX: usize = 16_384;

pub(crate) struct TtlCache<K, V> {
    entries: Mutex<Entries<K, V>>,
    ttl: Duration,
}

struct Entries<K, V> {
    values: FastMap<K, (Instant, V)>,
    /// The time of the last sweep of expired values.
    swept: Option<Instant>,
}

impl<K: Eq + Hash, V: Clone> TtlCache<K, V> {
    pub(crate) fn new(ttl: Duration) -> Self {
        Self { entries: Mutex::new(Entries { values: FastMap::default(), swept: None }), ttl }
    }

    pub(crate) fn get(&self, key: &K, now: Instant) -> Option<V> {
        let entries = self.entries();
        let (since, value) = entries.values.get(key)?;
        (now.saturating_duration_since(*since) < self.ttl).then(|| value.clone())
    }

    pub(crate) fn forget(&self, key: &K) {
        self.entries().values.remove(key);
    }

    /// Stores a value that was requested at `asked`; its time to live counts from then.
    pub(crate) fn put(&self, key: K, value: V, asked: Instant) {
        let mut entries = self.entries();
        let is_old = |since: Instant| asked.saturating_duration_since(since) >= self.ttl;
        if entries.swept.is_none_or(is_old) {
            entries.values.retain(|_, (since, _)| !is_old(*since));
            entries.swept = Some(asked);
        }
        if entries.values.len() < LEN_MAX {
            entries.values.insert(key, (asked, value));
        }
    }

    fn entries(&self) -> MutexGuard<'_, Entries<K, V>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_believed_for_its_time_and_no_longer() {
        let ttl_cache = TtlCache::new(Duration::from_secs(5));
        let asked = Instant::now();
        ttl_cache.put("question", true, asked);
        assert_eq!(ttl_cache.get(&"question", asked + Duration::from_secs(4)), Some(true));
        assert_eq!(ttl_cache.get(&"question", asked + Duration::from_secs(5)), None);
        assert_eq!(ttl_cache.get(&"other", asked), None);
    }

    #[test]
    fn what_is_kept_is_bounded_and_makes_room_when_it_is_old() {
        let ttl_cache = TtlCache::new(Duration::from_secs(5));
        let asked = Instant::now();
        (0..2 * LEN_MAX).for_each(|at| ttl_cache.put(at, (), asked));
        assert_eq!(ttl_cache.entries().values.len(), LEN_MAX);
        let later = asked + Duration::from_secs(6);
        ttl_cache.put(usize::MAX, (), later);
        assert_eq!((ttl_cache.get(&usize::MAX, later), ttl_cache.entries().values.len()), (Some(()), 1));
    }
}
