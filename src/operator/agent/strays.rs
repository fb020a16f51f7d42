//! Orphans: objects with the labels and the owner of an agent's children under names that no track has, left by another version
//! of the operator or copied by hand. Watches record them, because a reconcile looks at known names only. There are none as a
//! rule.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use slipway_cluster::Key;

use crate::caches::ChildKind;

type Objects = BTreeSet<(ChildKind, String)>;

/// Such objects by the agent that owns them.
#[derive(Default)]
pub(super) struct Strays(Mutex<HashMap<Key, Objects>>);

impl Strays {
    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Objects>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn insert(&self, agent: &Key, kind: ChildKind, name: &str) {
        self.lock().entry(agent.clone()).or_default().insert((kind, name.to_owned()));
    }

    /// The strays of an agent that are still there.
    pub(super) fn of(&self, agent: &Key, is_there: impl Fn(ChildKind, &Key) -> bool) -> Objects {
        let mut all = self.lock();
        let Some(strays) = all.get_mut(agent) else { return Objects::new() };
        strays.retain(|(kind, name)| is_there(*kind, &Key::new(&agent.namespace, name)));
        let strays = strays.clone();
        if strays.is_empty() {
            all.remove(agent);
        }
        strays
    }

    pub(super) fn forget(&self, agent: &Key) {
        self.lock().remove(agent);
    }
}
