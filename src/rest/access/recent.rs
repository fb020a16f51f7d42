//! Answers that are believed for a while.

use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::map::Map;

/// More are not kept; whoever asks then asks the cluster.
const MOST: usize = 16_384;

pub(crate) struct Recent<K, V> {
    kept: Mutex<Kept<K, V>>,
    believed: Duration,
}

struct Kept<K, V> {
    answers: Map<K, (Instant, V)>,
    /// When those that are no longer believed were last taken out.
    swept: Option<Instant>,
}

impl<K: Eq + Hash, V: Clone> Recent<K, V> {
    pub(crate) fn new(believed: Duration) -> Self {
        Self { kept: Mutex::new(Kept { answers: Map::default(), swept: None }), believed }
    }

    pub(crate) fn get(&self, key: &K, now: Instant) -> Option<V> {
        let kept = self.kept();
        let (told, answer) = kept.answers.get(key)?;
        (now.saturating_duration_since(*told) < self.believed).then(|| answer.clone())
    }

    pub(crate) fn forget(&self, key: &K) {
        self.kept().answers.remove(key);
    }

    /// Keeps an answer to a question that was asked at `asked`: what is believed counts from then.
    pub(crate) fn put(&self, key: K, answer: V, asked: Instant) {
        let mut kept = self.kept();
        let is_old = |told: Instant| asked.saturating_duration_since(told) >= self.believed;
        if kept.swept.is_none_or(is_old) {
            kept.answers.retain(|_, (told, _)| !is_old(*told));
            kept.swept = Some(asked);
        }
        if kept.answers.len() < MOST {
            kept.answers.insert(key, (asked, answer));
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept<K, V>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_believed_for_its_time_and_no_longer() {
        let recent = Recent::new(Duration::from_secs(5));
        let asked = Instant::now();
        recent.put("question", true, asked);
        assert_eq!(recent.get(&"question", asked + Duration::from_secs(4)), Some(true));
        assert_eq!(recent.get(&"question", asked + Duration::from_secs(5)), None);
        assert_eq!(recent.get(&"other", asked), None);
    }

    #[test]
    fn what_is_kept_is_bounded_and_makes_room_when_it_is_old() {
        let recent = Recent::new(Duration::from_secs(5));
        let asked = Instant::now();
        (0..2 * MOST).for_each(|at| recent.put(at, (), asked));
        assert_eq!(recent.kept().answers.len(), MOST);
        let later = asked + Duration::from_secs(6);
        recent.put(usize::MAX, (), later);
        assert_eq!((recent.get(&usize::MAX, later), recent.kept().answers.len()), (Some(()), 1));
    }
}
