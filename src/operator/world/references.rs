//! Which agents name which objects, so that a change reaches exactly those.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use slipway_cluster::Key;

/// Something that an agent may name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    Tool,
    KnowledgeBase,
    Skill,
    Secret,
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
    /// Says what `agent` names now. Call it before reading what is named, lest a change fall between the two.
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
    use super::*;

    #[test]
    fn a_new_set_replaces_the_old_one() {
        let references = References::default();
        let (agent, tool, other) = (Key::new("n", "a"), Key::new("n", "t"), Key::new("n", "u"));
        references.set(&agent, [(Kind::Tool, tool.clone())].into());
        assert_eq!(references.to(Kind::Tool, &tool), vec![agent.clone()]);
        references.set(&agent, [(Kind::Tool, other.clone())].into());
        assert_eq!(references.to(Kind::Tool, &tool), Vec::<Key>::new());
        assert_eq!(references.to(Kind::Tool, &other), vec![agent.clone()]);
        references.set(&agent, HashSet::new());
        assert_eq!(references.to(Kind::Tool, &other), Vec::<Key>::new());
    }
}
