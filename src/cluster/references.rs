//! A reverse index from objects to the agents that name them, so that a change requeues exactly these agents.

use std::any::TypeId;
use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use crate::Key;

/// A kind of object, identified by its Rust type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Kind(TypeId);

impl Kind {
    pub fn of<K: 'static>() -> Self {
        Self(TypeId::of::<K>())
    }
}

#[derive(Default)]
pub struct References {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    by_target: HashMap<(Kind, Key), HashSet<Key>>,
    by_agent: HashMap<Key, HashSet<(Kind, Key)>>,
}

impl References {
    /// Replaces the targets of `agent`. Call it before reading the targets: a change between the two would be missed.
    pub fn set(&self, agent: &Key, targets: HashSet<(Kind, Key)>) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.by_agent.get(agent) == Some(&targets) {
            return;
        }
        for target in inner.by_agent.remove(agent).unwrap_or_default() {
            if let Some(agents) = inner.by_target.get_mut(&target) {
                agents.remove(agent);
                if agents.is_empty() {
                    inner.by_target.remove(&target);
                }
            }
        }
        for target in &targets {
            inner.by_target.entry(target.clone()).or_default().insert(agent.clone());
        }
        if !targets.is_empty() {
            inner.by_agent.insert(agent.clone(), targets);
        }
    }

    /// The agents that name an object.
    pub fn to(&self, kind: Kind, key: &Key) -> Vec<Key> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.by_target.get(&(kind, key.clone())).into_iter().flatten().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ConfigMap, Secret};

    use super::*;

    #[test]
    fn a_new_set_replaces_the_old_one() {
        let (references, kind) = (References::default(), Kind::of::<Secret>());
        let (agent, tool, other) = (Key::new("n", "a"), Key::new("n", "t"), Key::new("n", "u"));
        references.set(&agent, [(kind, tool.clone())].into());
        assert_eq!(references.to(kind, &tool), vec![agent.clone()]);
        references.set(&agent, [(kind, other.clone())].into());
        assert_eq!(references.to(kind, &tool), Vec::<Key>::new());
        assert_eq!(references.to(kind, &other), vec![agent.clone()]);
        assert!(references.to(Kind::of::<ConfigMap>(), &other).is_empty(), "an object of another kind is another object");
        references.set(&agent, HashSet::new());
        assert_eq!(references.to(kind, &other), Vec::<Key>::new());
    }
}
