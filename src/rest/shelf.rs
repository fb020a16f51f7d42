//! What lists are made of: of each object only what a list shows, as it will be sent, in the order in which it is
//! listed. So a list is a walk along a shelf, and ten thousand agents take as much memory as their lists have bytes, once
//! somebody has searched them as much again as is searched, and at most `MAX_ALL_LEFT_OUT` for who reads one by itself.

mod abridged;
mod board;
mod present;

use std::collections::{BTreeMap, HashSet};
use std::ops::Bound;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use kube::api::ApiResource;
use slipway_cluster::Key;
use tokio::sync::{Semaphore, watch};

use crate::map::Map;
use crate::relay::Standing;
pub(crate) use abridged::{LeftOut, abridge, cut};
use board::Board;
pub(crate) use board::Words;

/// How many bytes are kept of what lists leave out of all objects together.
const MAX_ALL_LEFT_OUT: usize = 8 * 1024 * 1024;

/// One object as a list shows it.
#[derive(Debug, Default)]
pub(crate) struct Item {
    pub id: String,
    /// The object's own.
    pub version: u64,
    /// Seconds since 1970.
    pub created: i64,
    /// What is searched, in lower case.
    pub search: String,
    /// Its view as JSON.
    pub json: String,
    /// What its view has besides by itself, if that is kept.
    pub left_out: Option<LeftOut>,
    /// What an agent's view says of how it is, once somebody has asked.
    pub standing: OnceLock<Standing>,
}

impl Item {
    /// The object's view by itself, as JSON.
    pub(crate) fn whole(&self) -> Option<String> {
        self.left_out.as_ref().map(|left_out| left_out.put_back(&self.json))
    }

    fn left_out_bytes(&self) -> usize {
        self.left_out.as_ref().map_or(0, LeftOut::bytes)
    }
}

/// Of each part of the cluster that is watched, a namespace or by the empty name all of it, the version that its watch
/// has told of.
#[derive(Debug, Default)]
pub(crate) struct Reached(BTreeMap<String, u64>);

impl Reached {
    /// The version of the cluster that the shelf is at least in a namespace, or by the empty name everywhere.
    pub(crate) fn of(&self, namespace: &str) -> u64 {
        let one = self.0.get(namespace).or_else(|| self.0.get(""));
        one.or_else(|| self.0.values().min()).copied().unwrap_or(0)
    }
}

/// All objects of one kind, by namespace.
pub(crate) struct Shelf {
    boards: RwLock<Boards>,
    reached: watch::Sender<Reached>,
    /// What is on it.
    kind: OnceLock<ApiResource>,
    /// The version that a part was found to be at least, by asking. The empty name stands for the whole.
    proven: Mutex<Map<String, u64>>,
    asking: Semaphore,
}

impl Default for Shelf {
    fn default() -> Self {
        Self {
            boards: RwLock::default(),
            reached: watch::Sender::default(),
            kind: OnceLock::new(),
            proven: Mutex::default(),
            asking: Semaphore::new(1),
        }
    }
}

#[derive(Default)]
struct Boards {
    of: BTreeMap<String, Board>,
    /// Of all items together.
    left_out_bytes: usize,
}

impl Boards {
    fn put(&mut self, key: &Key, mut item: Item) {
        let board = self.of.entry(key.namespace.clone()).or_default();
        let others = self.left_out_bytes - board.items.get(&key.name).map_or(0, |before| before.left_out_bytes());
        if others + item.left_out_bytes() > MAX_ALL_LEFT_OUT {
            item.left_out = None;
        }
        self.left_out_bytes = others + item.left_out_bytes();
        board.put(&key.name, item);
    }

    fn take(&mut self, key: &Key) {
        let taken = self.of.get_mut(&key.namespace).and_then(|board| board.take(&key.name));
        self.left_out_bytes -= taken.map_or(0, |item| item.left_out_bytes());
    }
}

impl Shelf {
    fn read(&self) -> RwLockReadGuard<'_, Boards> {
        self.boards.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Boards> {
        self.boards.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn put(&self, key: &Key, item: Item) {
        self.write().put(key, item);
    }

    /// What is not listed, or no longer.
    pub(crate) fn take(&self, key: &Key) {
        self.write().take(key);
    }

    /// Notes in which version an object was seen.
    pub(crate) fn note(&self, key: &Key, version: u64) {
        self.write().of.entry(key.namespace.clone()).or_default().versions.insert(key.name.clone(), version);
    }

    /// What is gone from the cluster.
    pub(crate) fn forget(&self, key: &Key) {
        let mut boards = self.write();
        boards.take(key);
        if let Some(board) = boards.of.get_mut(&key.namespace) {
            board.versions.remove(&key.name);
            if board.versions.is_empty() && board.items.is_empty() {
                boards.of.remove(&key.namespace);
            }
        }
    }

    /// Keeps of a scope what a new list of it held.
    pub(crate) fn keep(&self, scope: Option<&str>, listed: &HashSet<Key>) {
        let gone: Vec<Key> = {
            let boards = self.read();
            let inside = boards.of.iter().filter(|(namespace, _)| scope.is_none_or(|scope| scope == *namespace));
            let names = |board: &Board| board.items.keys().chain(board.versions.keys()).cloned().collect::<Vec<_>>();
            let keys = inside.flat_map(|(namespace, board)| names(board).into_iter().map(|name| Key::new(namespace.clone(), name)));
            keys.filter(|key| !listed.contains(key)).collect()
        };
        for key in &gone {
            self.forget(key);
        }
    }

    /// Says what is on the shelf and where from, so that the cluster can be asked for it.
    pub(crate) fn holds(&self, kind: ApiResource, scope: Option<&str>) {
        let _ = self.kind.set(kind);
        self.reach(scope, 0);
    }

    /// Notes that the shelf is as new as `version` in this scope.
    pub(crate) fn reach(&self, scope: Option<&str>, version: u64) {
        self.reached.send_if_modified(|reached| match reached.0.get_mut(scope.unwrap_or_default()) {
            Some(known) => {
                let newer = version > *known;
                *known = version.max(*known);
                newer
            }
            None => reached.0.insert(scope.unwrap_or_default().to_owned(), version).is_none(),
        });
    }

    pub(crate) fn reached(&self) -> watch::Receiver<Reached> {
        self.reached.subscribe()
    }

    /// Whether the shelf is known to be as new as `version` in a namespace.
    pub(crate) fn has_reached(&self, namespace: &str, version: u64) -> bool {
        self.reached.borrow().of(namespace) >= version || self.proven(namespace, version).is_some()
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Arc<Item>> {
        self.read().of.get(&key.namespace)?.items.get(&key.name).cloned()
    }

    /// The name of the object with this id.
    pub(crate) fn name_of(&self, namespace: &str, id: &str) -> Option<String> {
        self.read().of.get(namespace)?.names.get(id).cloned()
    }

    pub(crate) fn names(&self, namespace: &str) -> Vec<String> {
        self.read().of.get(namespace).map(|board| board.items.keys().cloned().collect()).unwrap_or_default()
    }

    pub(crate) fn count(&self, namespace: &str) -> usize {
        self.read().of.get(namespace).map_or(0, |board| board.items.len())
    }

    /// At most `limit` items after `after` in which all words occur and whose names belong, and where to go on if there are
    /// more. Without a namespace: of all, in the order of the namespaces.
    pub(crate) fn walk(
        &self,
        namespace: Option<&str>,
        after: Option<&Cursor>,
        fits: (&Words, impl Fn(&str) -> bool),
        limit: usize,
    ) -> (Vec<Arc<Item>>, Option<Cursor>) {
        let boards = &self.read().of;
        let (words, belongs) = fits;
        let (mut found, mut last) = (Vec::with_capacity(limit.min(64)), None);
        let first = namespace.or(after.map(|after| after.namespace.as_str())).unwrap_or_default();
        for (namespace, board) in boards.range::<str, _>((Bound::Included(first), namespace.map_or(Bound::Unbounded, Bound::Included))) {
            let after = after.filter(|after| after.namespace == *namespace);
            for ((created, name), item) in board.after(after, words).filter(|((_, name), _)| belongs(name)) {
                if found.len() == limit {
                    return (found, last.map(|(namespace, created, name)| Cursor::new(namespace, created, name)));
                }
                found.push(item.clone());
                last = Some((namespace, created.0, name));
            }
        }
        (found, None)
    }
}

/// Versions are numbers that grow over the whole cluster, since 1.35 by promise.
pub(crate) fn number(version: Option<&str>) -> u64 {
    version.and_then(|version| version.parse().ok()).unwrap_or(0)
}

/// The last item of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cursor {
    pub namespace: String,
    pub created: i64,
    pub name: String,
}

impl Cursor {
    fn new(namespace: &str, created: i64, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), created, name: name.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn item(name: &str, created: i64) -> Item {
        Item { id: format!("id-{name}"), created, search: name.to_owned(), ..Item::default() }
    }

    fn shelf(items: &[(&str, &str, i64)]) -> Shelf {
        let shelf = Shelf::default();
        for (namespace, name, created) in items {
            shelf.put(&Key::new(*namespace, *name), item(name, *created));
        }
        shelf
    }

    fn ids(items: &[Arc<Item>]) -> Vec<&str> {
        items.iter().map(|item| item.id.as_str()).collect()
    }

    fn all(shelf: &Shelf, namespace: Option<&str>, after: Option<&Cursor>) -> (Vec<Arc<Item>>, Option<Cursor>) {
        shelf.walk(namespace, after, (&Words::of(""), |_| true), 2)
    }

    #[test]
    fn pages_follow_each_other_whatever_is_added_or_taken_between_them() {
        let shelf = shelf(&[("a", "one", 1), ("a", "two", 2), ("a", "three", 2), ("b", "other", 9)]);
        let (first, next) = all(&shelf, Some("a"), None);
        assert_eq!(ids(&first), ["id-three", "id-two"]);
        shelf.take(&Key::new("a", "two"));
        shelf.put(&Key::new("a", "new"), item("new", 10));
        let (second, end) = all(&shelf, Some("a"), next.as_ref());
        assert_eq!((ids(&second), end), (vec!["id-one"], None));
    }

    #[test]
    fn all_namespaces_are_walked_when_none_is_named() {
        let shelf = shelf(&[("a", "one", 1), ("b", "two", 5), ("b", "three", 4)]);
        let (first, next) = all(&shelf, None, None);
        assert_eq!(ids(&first), ["id-one", "id-two"]);
        let (second, end) = all(&shelf, None, next.as_ref());
        assert_eq!((ids(&second), end), (vec!["id-three"], None));
    }

    #[test]
    fn what_does_not_fit_takes_no_place_on_a_page() {
        let shelf = shelf(&[("a", "one", 1), ("a", "two", 2), ("a", "three", 3)]);
        let (found, end) = shelf.walk(Some("a"), None, (&Words::of(""), |name| name != "two"), 2);
        assert_eq!((ids(&found), end), (vec!["id-three", "id-one"], None));
        let (found, end) = shelf.walk(Some("a"), None, (&Words::of("E O"), |_| true), 2);
        assert_eq!((ids(&found), end), (vec!["id-one"], None));
    }

    #[test]
    fn a_shelf_is_as_new_as_the_watch_of_the_place_that_is_asked_for() {
        let shelf = Shelf::default();
        assert!(!shelf.has_reached("a", 1), "nothing is watched yet");
        for (scope, version) in [(Some("a"), 7), (Some("b"), 5), (Some("a"), 6)] {
            shelf.reach(scope, version);
        }
        for (namespace, version) in [("a", 7), ("b", 5), ("", 5), ("elsewhere", 5)] {
            assert!(shelf.has_reached(namespace, version) && !shelf.has_reached(namespace, version + 1), "{namespace:?}");
        }
        shelf.prove("b", 6);
        assert!(shelf.has_reached("b", 6) && !shelf.has_reached("b", 7) && !shelf.has_reached("", 6));
        let whole = Shelf::default();
        whole.reach(None, 9);
        assert!(whole.has_reached("a", 9) && !whole.has_reached("a", 10));
    }

    #[test]
    fn no_more_is_kept_of_what_lists_leave_out_than_there_is_room_for() {
        const LENGTH: usize = 16_000;
        let shelf = Shelf::default();
        let large = |name: &str| {
            let json = r#"{"config":{}}"#.to_owned();
            let fields = json!({"system_prompt": "x".repeat(LENGTH)});
            let left_out = LeftOut::of(&json, "config", fields.as_object().unwrap());
            Item { json, left_out, ..item(name, 1) }
        };
        let put = |at: usize| shelf.put(&Key::new("a", at.to_string()), large(&at.to_string()));
        let is_kept = |at: usize| shelf.get(&Key::new("a", at.to_string())).unwrap().whole().is_some();
        let many = 2 * MAX_ALL_LEFT_OUT / LENGTH;
        (0..many).for_each(put);
        let kept = (0..many).filter(|at| is_kept(*at)).count();
        assert!((many / 2 - 2..=many / 2).contains(&kept), "{kept} of {many}");
        // What changes and what goes makes room for nothing but itself.
        (0..many).for_each(put);
        assert_eq!((0..many).filter(|at| is_kept(*at)).count(), kept);
        shelf.take(&Key::new("a", "0"));
        shelf.forget(&Key::new("a", "1"));
        (many - 3..many).for_each(put);
        assert_eq!((many - 3..many).filter(|at| is_kept(*at)).count(), 2);
        (2..many).for_each(|at| shelf.take(&Key::new("a", at.to_string())));
        assert_eq!(shelf.read().left_out_bytes, 0);
    }

    #[test]
    fn a_new_list_takes_away_what_it_does_not_hold_within_its_scope() {
        let shelf = shelf(&[("a", "one", 1), ("a", "two", 2), ("b", "three", 3)]);
        shelf.keep(Some("a"), &[Key::new("a", "two")].into());
        assert_eq!((shelf.count("a"), shelf.count("b"), shelf.name_of("a", "id-one")), (1, 1, None));
    }
}
