//! A work queue of keys: each key is worked on by one worker at a time, is in the queue at most once,
//! and keeps the earliest time that anybody asked for.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

pub(crate) use slipway_cluster::Key;
use tokio::sync::Notify;
use tokio::time::Instant;

pub struct Queue<T> {
    inner: Mutex<Inner<T>>,
    wake: Notify,
}

struct Inner<T> {
    order: BTreeSet<(Instant, T)>,
    due: HashMap<T, Instant>,
    busy: HashSet<T>,
    failures: HashMap<T, u32>,
    closed: bool,
}

impl<T: Clone + Eq + Hash + Ord> Default for Queue<T> {
    fn default() -> Self {
        let inner = Inner { order: BTreeSet::new(), due: HashMap::new(), busy: HashSet::new(), failures: HashMap::new(), closed: false };
        Self { inner: Mutex::new(inner), wake: Notify::new() }
    }
}

impl<T: Clone + Eq + Hash + Ord> Queue<T> {
    fn lock(&self) -> std::sync::MutexGuard<'_, Inner<T>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for `key` to be worked on now.
    pub fn add(&self, key: T) {
        self.add_after(key, Duration::ZERO);
    }

    /// Asks for `key` to be worked on after `delay`, or earlier if somebody else asks for that.
    pub fn add_after(&self, key: T, delay: Duration) {
        let at = Instant::now() + delay;
        {
            let mut inner = self.lock();
            match inner.due.get(&key).copied() {
                Some(earlier) if earlier <= at => return,
                Some(later) => {
                    inner.order.remove(&(later, key.clone()));
                }
                None => {}
            }
            inner.due.insert(key.clone(), at);
            inner.order.insert((at, key));
        }
        self.wake.notify_waiters();
    }

    /// The next key that is due and that no other worker has. `None` once the queue is closed.
    pub async fn next(&self) -> Option<T> {
        loop {
            let wake = self.wake.notified();
            tokio::pin!(wake);
            wake.as_mut().enable();
            let wait = {
                let mut inner = self.lock();
                if inner.closed {
                    return None;
                }
                let now = Instant::now();
                let found = inner.order.iter().take_while(|(at, _)| *at <= now).find(|(_, key)| !inner.busy.contains(key)).cloned();
                if let Some((at, key)) = found {
                    inner.order.remove(&(at, key.clone()));
                    inner.due.remove(&key);
                    inner.busy.insert(key.clone());
                    return Some(key);
                }
                inner.order.iter().map(|(at, _)| *at).find(|at| *at > now)
            };
            match wait {
                Some(at) => {
                    let _ = tokio::time::timeout_at(at, wake).await;
                }
                None => wake.await,
            }
        }
    }

    /// Says that the work on `key` went well.
    pub fn done(&self, key: &T) {
        let mut inner = self.lock();
        inner.busy.remove(key);
        inner.failures.remove(key);
        drop(inner);
        self.wake.notify_waiters();
    }

    /// Says that the work on `key` failed; it comes again after a pause that doubles each time, up to a minute.
    pub fn failed(&self, key: &T) {
        let pause = {
            let mut inner = self.lock();
            inner.busy.remove(key);
            let failures = inner.failures.entry(key.clone()).or_insert(0);
            *failures = failures.saturating_add(1);
            Duration::from_millis(250 << (*failures).min(8)).min(Duration::from_mins(1))
        };
        self.add_after(key.clone(), pause);
        self.wake.notify_waiters();
    }

    /// How many keys are due and wait for a worker.
    pub fn depth(&self) -> usize {
        let now = Instant::now();
        self.lock().order.iter().take_while(|(at, _)| *at <= now).count()
    }

    /// Ends the queue: workers finish what they have and get no more.
    pub fn close(&self) {
        self.lock().closed = true;
        self.wake.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_key_is_queued_once_and_has_one_worker() {
        let queue = Queue::default();
        queue.add("a");
        queue.add("a");
        assert_eq!(queue.depth(), 1);
        assert_eq!(queue.next().await, Some("a"));
        queue.add("a");
        let second = tokio::time::timeout(Duration::from_secs(5), queue.next()).await;
        assert!(second.is_err(), "a key must not have two workers");
        queue.done(&"a");
        assert_eq!(queue.next().await, Some("a"));
    }

    #[tokio::test(start_paused = true)]
    async fn the_earliest_time_wins() {
        let queue = Queue::default();
        queue.add_after("a", Duration::from_secs(30));
        queue.add_after("a", Duration::from_secs(1));
        queue.add_after("a", Duration::from_mins(1));
        let start = Instant::now();
        assert_eq!(queue.next().await, Some("a"));
        assert!(start.elapsed() < Duration::from_secs(2));
    }

    #[tokio::test(start_paused = true)]
    async fn failures_come_again_later_and_later() {
        let queue = Queue::default();
        queue.add("a");
        let mut last = Duration::ZERO;
        for _ in 0..5 {
            queue.next().await;
            queue.failed(&"a");
            let start = Instant::now();
            queue.next().await;
            let pause = start.elapsed();
            assert!(pause > last, "{pause:?} after {last:?}");
            last = pause;
            queue.lock().busy.clear();
            queue.add("a");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_closed_queue_gives_nothing() {
        let queue = Queue::default();
        queue.add("a");
        queue.close();
        assert_eq!(queue.next().await, None);
    }
}
