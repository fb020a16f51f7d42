//! What lists are made of: of each object only what a list shows, as it will be sent, in the order in which it is
//! listed. So a list is a walk along a shelf, and ten thousand agents take as much memory as their lists have bytes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use slipway_cluster::Key;
use tokio::sync::watch;

/// One object as a list shows it.
#[derive(Debug)]
pub(crate) struct Item {
    pub id: String,
    /// Seconds since 1970.
    pub created: i64,
    /// What is searched, in lower case.
    pub search: String,
    /// Its view as JSON.
    pub json: String,
}

/// Newest first, and by name among those of one second.
type Place = (Reverse<i64>, String);

#[derive(Default)]
struct Board {
    items: HashMap<String, Arc<Item>>,
    order: BTreeSet<Place>,
    names: HashMap<String, String>,
}

/// All objects of one kind, by namespace.
#[derive(Default)]
pub(crate) struct Shelf {
    boards: RwLock<BTreeMap<String, Board>>,
    /// The version of the cluster that this is at least.
    reached: watch::Sender<u64>,
}

impl Shelf {
    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<String, Board>> {
        self.boards.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<String, Board>> {
        self.boards.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn put(&self, key: &Key, item: Item) {
        let mut boards = self.write();
        let board = boards.entry(key.namespace.clone()).or_default();
        board.take(&key.name);
        board.order.insert((Reverse(item.created), key.name.clone()));
        board.names.insert(item.id.clone(), key.name.clone());
        board.items.insert(key.name.clone(), Arc::new(item));
    }

    pub(crate) fn take(&self, key: &Key) {
        let mut boards = self.write();
        if let Some(board) = boards.get_mut(&key.namespace) {
            board.take(&key.name);
            if board.items.is_empty() {
                boards.remove(&key.namespace);
            }
        }
    }

    /// Keeps of a scope what a new list of it held.
    pub(crate) fn keep(&self, scope: Option<&str>, listed: &HashSet<Key>) {
        let gone: Vec<Key> = {
            let boards = self.read();
            let inside = boards.iter().filter(|(namespace, _)| scope.is_none_or(|scope| scope == *namespace));
            let keys = inside.flat_map(|(namespace, board)| board.items.keys().map(|name| Key::new(namespace.clone(), name.clone())));
            keys.filter(|key| !listed.contains(key)).collect()
        };
        for key in &gone {
            self.take(key);
        }
    }

    /// Notes that the shelf is as new as `version`.
    pub(crate) fn reach(&self, version: u64) {
        self.reached.send_if_modified(|reached| {
            let newer = version > *reached;
            *reached = version.max(*reached);
            newer
        });
    }

    pub(crate) fn reached(&self) -> watch::Receiver<u64> {
        self.reached.subscribe()
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Arc<Item>> {
        self.read().get(&key.namespace)?.items.get(&key.name).cloned()
    }

    /// The name of the object with this id.
    pub(crate) fn name_of(&self, namespace: &str, id: &str) -> Option<String> {
        self.read().get(namespace)?.names.get(id).cloned()
    }

    pub(crate) fn names(&self, namespace: &str) -> Vec<String> {
        self.read().get(namespace).map(|board| board.items.keys().cloned().collect()).unwrap_or_default()
    }

    pub(crate) fn count(&self, namespace: &str) -> usize {
        self.read().get(namespace).map_or(0, |board| board.items.len())
    }

    /// At most `limit` items after `after` that `fits` takes by name and content, and where to go on if there are more. Without
    /// a namespace: of all, in the order of the namespaces.
    pub(crate) fn walk(
        &self,
        namespace: Option<&str>,
        after: Option<&Cursor>,
        fits: impl Fn(&str, &Item) -> bool,
        limit: usize,
    ) -> (Vec<Arc<Item>>, Option<Cursor>) {
        let boards = self.read();
        let mut found: Vec<(Cursor, Arc<Item>)> = Vec::with_capacity(limit.min(64) + 1);
        let first = namespace.or(after.map(|after| after.namespace.as_str())).unwrap_or_default();
        for (namespace, board) in boards.range::<str, _>((Bound::Included(first), namespace.map_or(Bound::Unbounded, Bound::Included))) {
            let from = match after {
                Some(after) if after.namespace == *namespace => Bound::Excluded((Reverse(after.created), after.name.clone())),
                _ => Bound::Unbounded,
            };
            for (created, name) in board.order.range((from, Bound::Unbounded)) {
                let Some(item) = board.items.get(name).filter(|item| fits(name, item)) else { continue };
                found.push((Cursor { namespace: namespace.clone(), created: created.0, name: name.clone() }, item.clone()));
                if found.len() > limit {
                    found.pop();
                    let next = found.last().map(|(cursor, _)| cursor.clone());
                    return (found.into_iter().map(|(_, item)| item).collect(), next);
                }
            }
        }
        (found.into_iter().map(|(_, item)| item).collect(), None)
    }
}

impl Board {
    fn take(&mut self, name: &str) {
        if let Some(item) = self.items.remove(name) {
            self.order.remove(&(Reverse(item.created), name.to_owned()));
            self.names.remove(&item.id);
        }
    }
}

/// The last item of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cursor {
    pub namespace: String,
    pub created: i64,
    pub name: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shelf(items: &[(&str, &str, i64)]) -> Shelf {
        let shelf = Shelf::default();
        for (namespace, name, created) in items {
            let item = Item { id: format!("id-{name}"), created: *created, search: (*name).to_owned(), json: String::new() };
            shelf.put(&Key::new(*namespace, *name), item);
        }
        shelf
    }

    fn ids(items: &[Arc<Item>]) -> Vec<&str> {
        items.iter().map(|item| item.id.as_str()).collect()
    }

    #[test]
    fn pages_follow_each_other_whatever_is_added_or_taken_between_them() {
        let shelf = shelf(&[("a", "one", 1), ("a", "two", 2), ("a", "three", 2), ("b", "other", 9)]);
        let (first, next) = shelf.walk(Some("a"), None, |_, _| true, 2);
        assert_eq!(ids(&first), ["id-three", "id-two"]);
        shelf.take(&Key::new("a", "two"));
        shelf.put(&Key::new("a", "new"), Item { id: "id-new".to_owned(), created: 10, search: String::new(), json: String::new() });
        let (second, end) = shelf.walk(Some("a"), next.as_ref(), |_, _| true, 2);
        assert_eq!((ids(&second), end), (vec!["id-one"], None));
    }

    #[test]
    fn all_namespaces_are_walked_when_none_is_named() {
        let shelf = shelf(&[("a", "one", 1), ("b", "two", 5), ("b", "three", 4)]);
        let (first, next) = shelf.walk(None, None, |_, _| true, 2);
        assert_eq!(ids(&first), ["id-one", "id-two"]);
        let (second, end) = shelf.walk(None, next.as_ref(), |_, _| true, 2);
        assert_eq!((ids(&second), end), (vec!["id-three"], None));
    }

    #[test]
    fn what_does_not_fit_takes_no_place_on_a_page() {
        let shelf = shelf(&[("a", "one", 1), ("a", "two", 2), ("a", "three", 3)]);
        let (found, end) = shelf.walk(Some("a"), None, |name, _| name != "two", 2);
        assert_eq!((ids(&found), end), (vec!["id-three", "id-one"], None));
    }

    #[test]
    fn a_new_list_takes_away_what_it_does_not_hold_within_its_scope() {
        let shelf = shelf(&[("a", "one", 1), ("a", "two", 2), ("b", "three", 3)]);
        shelf.keep(Some("a"), &[Key::new("a", "two")].into());
        assert_eq!((shelf.count("a"), shelf.count("b"), shelf.name_of("a", "id-one")), (1, 1, None));
    }
}
