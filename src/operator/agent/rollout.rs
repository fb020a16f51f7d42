//! How many agents may change their pods at once because the platform changed: another image of the runtime, other
//! defaults, a manager that builds pods differently. What an agent's own author changes goes at once.
//!
//! A new leader has yet to see each agent. One that is found as it should be is done with. One that is not was
//! changed by nobody but the platform, unless its spec changes while it waits. An agent whose new pods do not become
//! ready keeps its place until its Deployment gives up, after five minutes; its old pods serve all the while.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use slipway_cluster::Key;

pub(crate) struct Rollout {
    most: usize,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// Agents that were not seen in order since the platform last changed, with the generation that they had then.
    unseen: HashMap<Key, Option<i64>>,
    /// Those of them whose pods are being replaced.
    rolling: HashSet<Key>,
    /// Those that were told to wait.
    waiting: BTreeSet<Key>,
}

impl Rollout {
    pub(crate) fn new(most: usize) -> Self {
        Self { most: most.max(1), inner: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The platform has changed, or may have while somebody else led. Agents are given with their generation.
    pub(crate) fn begin(&self, agents: impl IntoIterator<Item = (Key, Option<i64>)>) {
        let mut inner = self.lock();
        inner.unseen = agents.into_iter().collect();
        inner.waiting.clear();
    }

    /// This agent's pods are being replaced already.
    pub(crate) fn resume(&self, agent: Key) {
        self.lock().rolling.insert(agent);
    }

    /// Whether an agent that serves, and whose pods would be replaced, has to wait for others.
    pub(crate) fn holds_back(&self, agent: &Key, generation: Option<i64>) -> bool {
        let mut inner = self.lock();
        let platforms_doing = inner.unseen.get(agent).is_some_and(|then| *then == generation);
        if platforms_doing && inner.rolling.len() >= self.most && !inner.rolling.contains(agent) {
            inner.waiting.insert(agent.clone());
            return true;
        }
        if platforms_doing {
            inner.rolling.insert(agent.clone());
        }
        inner.unseen.remove(agent);
        inner.waiting.remove(agent);
        false
    }

    /// The agent was found in order, or is not this one's matter: it needs no place. Whose turn it may be now.
    pub(crate) fn settle(&self, agent: &Key) -> Option<Key> {
        let mut inner = self.lock();
        inner.unseen.remove(agent);
        inner.waiting.remove(agent);
        if inner.rolling.remove(agent) { inner.waiting.pop_first() } else { None }
    }

    /// Whether it was told to wait.
    pub(crate) fn waits(&self, agent: &Key) -> bool {
        self.lock().waiting.contains(agent)
    }

    /// Whether nothing is being replaced or waits, so that there is nothing to ask about.
    pub(crate) fn is_over(&self) -> bool {
        let inner = self.lock();
        inner.unseen.is_empty() && inner.rolling.is_empty()
    }

    /// How many are being replaced, and how many wait.
    pub(crate) fn count(&self) -> (usize, usize) {
        let inner = self.lock();
        (inner.rolling.len(), inner.waiting.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(names: &[&str]) -> Vec<Key> {
        names.iter().map(|name| Key::new("team-a", *name)).collect()
    }

    fn begun(most: usize, names: &[&str]) -> (Rollout, Vec<Key>) {
        let (rollout, keys) = (Rollout::new(most), keys(names));
        rollout.begin(keys.iter().map(|key| (key.clone(), Some(1))));
        (rollout, keys)
    }

    #[test]
    fn so_many_roll_and_each_that_is_done_lets_the_next_one_in() {
        let (rollout, keys) = begun(2, &["a", "b", "c", "d"]);
        let held: Vec<bool> = keys.iter().map(|key| rollout.holds_back(key, Some(1))).collect();
        assert_eq!(held, [false, false, true, true]);
        assert_eq!(rollout.count(), (2, 2));
        assert_eq!(keys.iter().map(|key| rollout.waits(key)).collect::<Vec<_>>(), held);
        assert!(!rollout.holds_back(&keys[0], Some(1)), "an agent that has a place keeps it until it is done");
        assert_eq!(rollout.settle(&keys[1]), Some(keys[2].clone()));
        assert!(!rollout.holds_back(&keys[2], Some(1)) && rollout.holds_back(&keys[3], Some(1)));
        assert_eq!(rollout.settle(&keys[0]), Some(keys[3].clone()));
        assert!(!rollout.holds_back(&keys[3], Some(1)));
        assert_eq!((rollout.settle(&keys[2]), rollout.settle(&keys[3])), (None, None));
        assert!(rollout.is_over());
    }

    #[test]
    fn what_an_author_changes_goes_at_once_and_takes_nobodys_place() {
        let (rollout, keys) = begun(1, &["a", "b", "c"]);
        assert!(!rollout.holds_back(&keys[0], Some(1)) && rollout.holds_back(&keys[1], Some(1)));
        assert!(!rollout.holds_back(&keys[1], Some(2)), "its spec was changed while it waited");
        assert_eq!(rollout.count(), (1, 0));
        assert!(!rollout.holds_back(&Key::new("team-a", "new"), Some(1)), "it was made since");
        assert_eq!(rollout.settle(&keys[2]), None, "it was in order, and had no place to give away");
        assert!(!rollout.holds_back(&keys[2], Some(1)), "what was in order once was changed by its author");
        assert_eq!(rollout.count(), (1, 0));
    }

    #[test]
    fn who_does_not_become_ready_keeps_the_place_until_it_is_mended_or_gone() {
        let (rollout, keys) = begun(1, &["a", "b"]);
        assert!(!rollout.holds_back(&keys[0], Some(1)) && rollout.holds_back(&keys[1], Some(1)));
        assert!(!rollout.holds_back(&keys[0], Some(2)), "its author mends it");
        assert!(rollout.holds_back(&keys[1], Some(1)));
        assert_eq!(rollout.settle(&keys[0]), Some(keys[1].clone()));
    }

    #[test]
    fn what_rolls_when_somebody_else_begins_to_lead_has_its_place() {
        let (rollout, keys) = begun(1, &["a", "b"]);
        rollout.resume(keys[0].clone());
        assert!(rollout.holds_back(&keys[1], Some(1)));
        rollout.begin(keys.iter().map(|key| (key.clone(), Some(1))));
        assert!(rollout.holds_back(&keys[1], Some(1)), "another change of the platform gives nobody a second place");
    }
}
