//! What lists are made of: of each object only what a list shows, as it will be sent, in the order in which it is
//! listed. So a list is a walk along a shelf, and ten thousand agents take as much memory as their lists have bytes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Bound;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::{Client, ResourceExt};
use serde_json::Value;
use slipway_cluster::Key;
use tokio::sync::{Semaphore, watch};

use crate::map::Map;
use crate::relay::Standing;

/// One object as a list shows it.
#[derive(Debug, Default)]
pub(crate) struct Item {
    pub id: String,
    /// Seconds since 1970.
    pub created: i64,
    /// What is searched, in lower case.
    pub search: String,
    /// Its view as JSON.
    pub json: String,
    /// What an agent's view says of how it is, once somebody has asked.
    pub standing: OnceLock<Standing>,
}

/// Of how many objects the cluster is asked at once. Of metadata alone an object may have more than a megabyte.
const MAX_ASKED: u32 = 32;
/// How many bytes the fields of one object may take in a list, as JSON.
const MAX_FIELDS: usize = 16 * 1024;
/// How many bytes of a message a list shows.
const MAX_MESSAGE: usize = 1024;

/// Takes out of the fields of an object what a list leaves out: these always, and of the others the largest until the
/// rest is small enough. `needed` stay.
pub(crate) fn abridge(fields: &mut serde_json::Map<String, Value>, left_out: &[&str], needed: &[&str]) {
    fields.retain(|name, _| !left_out.contains(&name.as_str()));
    let size = |value: &Value| value.to_string().len();
    let mut sizes: Vec<(usize, String)> = fields.iter().map(|(name, value)| (size(value), name.clone())).collect();
    let mut all: usize = sizes.iter().map(|(size, _)| size).sum();
    sizes.sort_unstable();
    while all > MAX_FIELDS {
        let Some((size, name)) = sizes.pop() else { return };
        if !needed.contains(&name.as_str()) {
            fields.remove(&name);
            all -= size;
        }
    }
}

/// A message as a list shows it.
pub(crate) fn cut(message: Option<String>) -> Option<String> {
    message.map(|mut message| {
        if message.len() > MAX_MESSAGE {
            message.truncate(message.floor_char_boundary(MAX_MESSAGE));
            message.push('…');
        }
        message
    })
}

/// Newest first, and by name among those of one second.
type Place = (Reverse<i64>, String);

#[derive(Default)]
struct Board {
    items: Map<String, Arc<Item>>,
    order: BTreeSet<Place>,
    names: Map<String, String>,
    /// Of every object that was seen, listed or not, in which version.
    versions: Map<String, u64>,
}

/// All objects of one kind, by namespace.
pub(crate) struct Shelf {
    boards: RwLock<BTreeMap<String, Board>>,
    /// The version of the cluster that this is at least.
    reached: watch::Sender<u64>,
    /// What is on it.
    kind: OnceLock<ApiResource>,
    /// Where that is watched: namespaces, or the empty name for all of the cluster.
    scopes: Mutex<Vec<String>>,
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
            scopes: Mutex::default(),
            proven: Mutex::default(),
            asking: Semaphore::new(1),
        }
    }
}

/// What the cluster holds of a part of a shelf, at a version.
pub(crate) struct Present {
    pub version: u64,
    objects: Map<Key, u64>,
}

impl Present {
    async fn add(&mut self, api: &Api<DynamicObject>) -> Result<(), kube::Error> {
        let mut page = ListParams::default().limit(MAX_ASKED);
        loop {
            let list = api.list_metadata(&page).await?;
            self.version = self.version.min(number(list.metadata.resource_version.as_deref()));
            for object in &list.items {
                let key = Key::new(object.namespace().unwrap_or_default(), object.name_any());
                self.objects.insert(key, number(object.metadata.resource_version.as_deref()));
            }
            match list.metadata.continue_.filter(|next| !next.is_empty()) {
                Some(next) => page = page.continue_token(&next),
                None => return Ok(()),
            }
        }
    }
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

    /// What is not listed, or no longer.
    pub(crate) fn take(&self, key: &Key) {
        self.change(key, |board| board.take(&key.name));
    }

    /// Notes in which version an object was seen.
    pub(crate) fn note(&self, key: &Key, version: u64) {
        self.write().entry(key.namespace.clone()).or_default().versions.insert(key.name.clone(), version);
    }

    /// What is gone from the cluster.
    pub(crate) fn forget(&self, key: &Key) {
        self.change(key, |board| {
            board.take(&key.name);
            board.versions.remove(&key.name);
        });
    }

    fn change(&self, key: &Key, change: impl FnOnce(&mut Board)) {
        let mut boards = self.write();
        if let Some(board) = boards.get_mut(&key.namespace) {
            change(board);
            if board.items.is_empty() && board.versions.is_empty() {
                boards.remove(&key.namespace);
            }
        }
    }

    /// Keeps of a scope what a new list of it held.
    pub(crate) fn keep(&self, scope: Option<&str>, listed: &HashSet<Key>) {
        let gone: Vec<Key> = {
            let boards = self.read();
            let inside = boards.iter().filter(|(namespace, _)| scope.is_none_or(|scope| scope == *namespace));
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
        self.scopes.lock().unwrap_or_else(PoisonError::into_inner).push(scope.unwrap_or_default().to_owned());
    }

    /// One at a time asks the cluster.
    pub(crate) fn asking(&self) -> &Semaphore {
        &self.asking
    }

    /// Whether a part was found to be at least as new as `version`, and how new.
    pub(crate) fn proven(&self, namespace: &str, version: u64) -> Option<u64> {
        let proven = self.proven.lock().unwrap_or_else(PoisonError::into_inner);
        let newest = [namespace, ""].iter().filter_map(|part| proven.get(*part)).max()?;
        (*newest >= version).then_some(*newest)
    }

    pub(crate) fn prove(&self, namespace: &str, version: u64) {
        let mut proven = self.proven.lock().unwrap_or_else(PoisonError::into_inner);
        let known = proven.entry(namespace.to_owned()).or_default();
        *known = version.max(*known);
    }

    /// What the cluster holds of a namespace now, or of all that is watched.
    pub(crate) async fn ask(&self, client: &Client, namespace: &str) -> Result<Present, kube::Error> {
        let scopes = match namespace {
            "" => self.scopes.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            namespace => vec![namespace.to_owned()],
        };
        let mut present = Present { version: u64::MAX, objects: Map::default() };
        let Some(kind) = self.kind.get() else { return Ok(present) };
        for scope in scopes {
            let api: Api<DynamicObject> = match scope.as_str() {
                "" => Api::all_with(client.clone(), kind),
                namespace => Api::namespaced_with(client.clone(), namespace, kind),
            };
            present.add(&api).await?;
        }
        Ok(present)
    }

    /// Whether the shelf is as new as what the cluster was found to hold.
    pub(crate) fn is_as_new_as(&self, present: &Present, namespace: &str) -> bool {
        let boards = self.read();
        let version = |key: &Key| boards.get(&key.namespace)?.versions.get(&key.name).copied();
        // What is known and not present came later, or is gone and not yet taken away.
        let later = |namespace: &str, name: &String, version: u64| {
            version > present.version || present.objects.contains_key(&Key::new(namespace, name.clone()))
        };
        present.objects.iter().all(|(key, wanted)| version(key).is_some_and(|known| known >= *wanted))
            && boards
                .iter()
                .filter(|(within, _)| namespace.is_empty() || *within == namespace)
                .all(|(within, board)| board.versions.iter().all(|(name, version)| later(within, name, *version)))
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

/// Versions are numbers that grow over the whole cluster, since 1.35 by promise.
pub(crate) fn number(version: Option<&str>) -> u64 {
    version.and_then(|version| version.parse().ok()).unwrap_or(0)
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
    use serde_json::json;

    use super::*;

    fn shelf(items: &[(&str, &str, i64)]) -> Shelf {
        let shelf = Shelf::default();
        for (namespace, name, created) in items {
            let item = Item { id: format!("id-{name}"), created: *created, search: (*name).to_owned(), ..Item::default() };
            shelf.put(&Key::new(*namespace, *name), item);
        }
        shelf
    }

    fn ids(items: &[Arc<Item>]) -> Vec<&str> {
        items.iter().map(|item| item.id.as_str()).collect()
    }

    #[test]
    fn a_list_leaves_out_what_is_large() {
        let fields = |value: Value| value.as_object().cloned().unwrap_or_default();
        let mut small = fields(json!({"system_prompt": "x", "a": 1, "b": [2]}));
        abridge(&mut small, &["system_prompt"], &[]);
        assert_eq!(Value::Object(small), json!({"a": 1, "b": [2]}));
        let mut large = fields(json!({"name": "n".repeat(9000), "a": ["x".repeat(9000)], "b": "y".repeat(8000), "c": "z".repeat(6000)}));
        abridge(&mut large, &[], &["name"]);
        assert_eq!(large.keys().collect::<Vec<_>>(), ["c", "name"]);
        let mut needed = fields(json!({"name": "n".repeat(20_000), "a": 1}));
        abridge(&mut needed, &[], &["name"]);
        assert_eq!(needed.keys().collect::<Vec<_>>(), ["name"]);
        assert_eq!(cut(Some("é".repeat(2000))).map(|cut| cut.chars().count()), Some(513));
        assert_eq!(cut(Some("short".to_owned())).as_deref(), Some("short"));
    }

    #[test]
    fn pages_follow_each_other_whatever_is_added_or_taken_between_them() {
        let shelf = shelf(&[("a", "one", 1), ("a", "two", 2), ("a", "three", 2), ("b", "other", 9)]);
        let (first, next) = shelf.walk(Some("a"), None, |_, _| true, 2);
        assert_eq!(ids(&first), ["id-three", "id-two"]);
        shelf.take(&Key::new("a", "two"));
        shelf.put(&Key::new("a", "new"), Item { id: "id-new".to_owned(), created: 10, ..Item::default() });
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
    fn a_shelf_is_as_new_as_the_cluster_when_it_has_all_of_it_and_nothing_that_is_gone() {
        let present = |objects: &[(&str, u64)]| Present {
            version: 20,
            objects: objects.iter().map(|(name, version)| (Key::new("a", *name), *version)).collect(),
        };
        for (known, there, as_new) in [
            (&[("one", 10)][..], &[("one", 10)][..], true),
            (&[("one", 11)], &[("one", 10)], true),
            (&[("one", 9)], &[("one", 10)], false),
            (&[], &[("one", 10)], false),
            (&[("one", 10), ("two", 12)], &[("one", 10)], false),
            (&[("one", 10), ("two", 21)], &[("one", 10)], true),
            (&[], &[], true),
        ] {
            let shelf = Shelf::default();
            for (name, version) in known {
                shelf.note(&Key::new("a", *name), *version);
            }
            shelf.note(&Key::new("elsewhere", "old"), 1);
            assert_eq!(shelf.is_as_new_as(&present(there), "a"), as_new, "{known:?} {there:?}");
        }
    }

    #[test]
    fn what_was_found_for_a_part_holds_for_it_and_what_was_found_for_all_for_each() {
        let shelf = Shelf::default();
        shelf.prove("a", 10);
        shelf.prove("a", 5);
        assert_eq!((shelf.proven("a", 10), shelf.proven("a", 11), shelf.proven("b", 1), shelf.proven("", 1)), (Some(10), None, None, None));
        shelf.prove("", 12);
        assert_eq!((shelf.proven("a", 11), shelf.proven("b", 1)), (Some(12), Some(12)));
    }

    #[test]
    fn a_new_list_takes_away_what_it_does_not_hold_within_its_scope() {
        let shelf = shelf(&[("a", "one", 1), ("a", "two", 2), ("b", "three", 3)]);
        shelf.keep(Some("a"), &[Key::new("a", "two")].into());
        assert_eq!((shelf.count("a"), shelf.count("b"), shelf.name_of("a", "id-one")), (1, 1, None));
    }
}
