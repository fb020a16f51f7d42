//! The cache behind lists: for each object its list view as JSON, ready to be sent, in list order. A list is a walk along
//! the cache. Ten thousand agents take as much memory as their lists have bytes, the same again for searched text after the
//! first search, and at most `TOTAL_OMITTED_BYTES_MAX` for reads of one agent.

mod namespace;
mod omitted;
mod snapshot;

use std::collections::{BTreeMap, HashSet};
use std::ops::Bound;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use kube::api::ApiResource;
use slipway_cluster::Key;
use tokio::sync::{Semaphore, watch};

use crate::fast_map::FastMap;
use namespace::NamespaceList;
pub(crate) use namespace::SearchTerms;
pub(crate) use omitted::{OmittedFields, omit_large, truncate};

/// The bytes of omitted fields that are kept for all objects together.
const TOTAL_OMITTED_BYTES_MAX: usize = 8 * 1024 * 1024;

/// One object in a list. `T` is what other code reads of it, so that nothing parses its JSON again.
#[derive(Debug, Default)]
pub(crate) struct ListEntry<T = ()> {
    pub id: String,
    /// The object's own resource version.
    pub version: u64,
    /// Seconds since 1970.
    pub created: i64,
    /// The searched text, in lower case.
    pub search: Box<str>,
    /// The list view as JSON.
    pub json: Box<str>,
    /// The fields that the list view omits, if they are kept.
    pub omitted: Option<OmittedFields>,
    pub data: T,
}

impl<T> ListEntry<T> {
    /// The view of the object by itself, as JSON.
    pub(crate) fn whole(&self) -> Option<String> {
        self.omitted.as_ref().map(|omitted| omitted.restore(&self.json))
    }

    fn omitted_bytes(&self) -> usize {
        self.omitted.as_ref().map_or(0, OmittedFields::bytes)
    }
}

/// The newest resource version of each watch, by the namespace that it watches. The empty name is a watch of all
/// namespaces.
#[derive(Debug, Default)]
pub(crate) struct ObservedVersions(BTreeMap<String, u64>);

impl ObservedVersions {
    /// The minimum version of the cache in a namespace; the empty name asks for all namespaces.
    pub(crate) fn of(&self, namespace: &str) -> u64 {
        let one = self.0.get(namespace).or_else(|| self.0.get(""));
        one.or_else(|| self.0.values().min()).copied().unwrap_or(0)
    }
}

/// All objects of one kind, by namespace.
pub(crate) struct ListCache<T = ()> {
    lists: RwLock<NamespaceLists<T>>,
    observed: watch::Sender<ObservedVersions>,
    /// The cached kind.
    kind: OnceLock<ApiResource>,
    /// Versions that were confirmed by a snapshot, by namespace. The empty name is all namespaces.
    confirmed: Mutex<FastMap<String, u64>>,
    fetch_turn: Semaphore,
}

impl<T> Default for ListCache<T> {
    fn default() -> Self {
        Self {
            lists: RwLock::default(),
            observed: watch::Sender::default(),
            kind: OnceLock::new(),
            confirmed: Mutex::default(),
            fetch_turn: Semaphore::new(1),
        }
    }
}

struct NamespaceLists<T> {
    of: BTreeMap<String, NamespaceList<T>>,
    /// The bytes of the omitted fields of all entries.
    omitted_bytes: usize,
}

impl<T> Default for NamespaceLists<T> {
    fn default() -> Self {
        Self { of: BTreeMap::new(), omitted_bytes: 0 }
    }
}

impl<T> NamespaceLists<T> {
    fn insert(&mut self, key: &Key, mut item: ListEntry<T>) {
        let list = self.of.entry(key.namespace.clone()).or_default();
        let others = self.omitted_bytes - list.items.get(&key.name).map_or(0, |before| before.omitted_bytes());
        if others + item.omitted_bytes() > TOTAL_OMITTED_BYTES_MAX {
            item.omitted = None;
        }
        self.omitted_bytes = others + item.omitted_bytes();
        list.insert(&key.name, item);
    }

    fn remove(&mut self, key: &Key) {
        let taken = self.of.get_mut(&key.namespace).and_then(|list| list.remove(&key.name));
        self.omitted_bytes -= taken.map_or(0, |item| item.omitted_bytes());
    }
}

impl<T> ListCache<T> {
    fn read(&self) -> RwLockReadGuard<'_, NamespaceLists<T>> {
        self.lists.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, NamespaceLists<T>> {
        self.lists.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn insert(&self, key: &Key, item: ListEntry<T>) {
        self.write().insert(key, item);
    }

    /// Removes an entry that is not listed, or no longer.
    pub(crate) fn remove(&self, key: &Key) {
        self.write().remove(key);
    }

    /// Records the version of an object, listed or not.
    pub(crate) fn set_version(&self, key: &Key, version: u64) {
        self.write().of.entry(key.namespace.clone()).or_default().versions.insert(key.name.clone(), version);
    }

    /// Removes an object that is gone from the cluster.
    pub(crate) fn forget(&self, key: &Key) {
        let mut lists = self.write();
        lists.remove(key);
        if let Some(list) = lists.of.get_mut(&key.namespace) {
            list.versions.remove(&key.name);
            if list.versions.is_empty() && list.items.is_empty() {
                lists.of.remove(&key.namespace);
            }
        }
    }

    /// Removes the objects of a scope that a new list does not contain.
    pub(crate) fn retain(&self, scope: Option<&str>, listed: &HashSet<Key>) {
        let gone: Vec<Key> = {
            let lists = self.read();
            let inside = lists.of.iter().filter(|(namespace, _)| scope.is_none_or(|scope| scope == *namespace));
            let names = |list: &NamespaceList<T>| list.items.keys().chain(list.versions.keys()).cloned().collect::<Vec<_>>();
            let keys = inside.flat_map(|(namespace, list)| names(list).into_iter().map(|name| Key::new(namespace.clone(), name)));
            keys.filter(|key| !listed.contains(key)).collect()
        };
        for key in &gone {
            self.forget(key);
        }
    }

    /// Sets the kind and a watched scope, for snapshots.
    pub(crate) fn set_source(&self, kind: ApiResource, scope: Option<&str>) {
        let _ = self.kind.set(kind);
        self.observe(scope, 0);
    }

    /// Records that the cache is as new as `version` in this scope.
    pub(crate) fn observe(&self, scope: Option<&str>, version: u64) {
        self.observed.send_if_modified(|observed| match observed.0.get_mut(scope.unwrap_or_default()) {
            Some(known) => {
                let newer = version > *known;
                *known = version.max(*known);
                newer
            }
            None => observed.0.insert(scope.unwrap_or_default().to_owned(), version).is_none(),
        });
    }

    pub(crate) fn observed(&self) -> watch::Receiver<ObservedVersions> {
        self.observed.subscribe()
    }

    /// Whether the cache is at least as new as `version` in a namespace.
    pub(crate) fn has_observed(&self, namespace: &str, version: u64) -> bool {
        self.observed.borrow().of(namespace) >= version || self.confirmed(namespace, version).is_some()
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Arc<ListEntry<T>>> {
        self.read().of.get(&key.namespace)?.items.get(&key.name).cloned()
    }

    /// The name of the object with this id.
    pub(crate) fn name_of(&self, namespace: &str, id: &str) -> Option<String> {
        self.read().of.get(namespace)?.names.get(id).cloned()
    }

    pub(crate) fn names(&self, namespace: &str) -> Vec<String> {
        self.read().of.get(namespace).map(|list| list.items.keys().cloned().collect()).unwrap_or_default()
    }

    pub(crate) fn count(&self, namespace: &str) -> usize {
        self.read().of.get(namespace).map_or(0, |list| list.items.len())
    }

    /// What `take` makes of the entries of a namespace, or of all, by namespace and name, in no order.
    pub(crate) fn collect<R>(&self, namespace: Option<&str>, mut take: impl FnMut(&str, &str, &ListEntry<T>) -> Option<R>) -> Vec<R> {
        let lists = &self.read().of;
        let lists = lists.iter().filter(|(within, _)| namespace.is_none_or(|namespace| namespace == *within));
        lists
            .flat_map(|(within, list)| list.items.iter().map(move |(name, item)| (within, name, item)))
            .filter_map(|(within, name, item)| take(within, name, item))
            .collect()
    }

    /// At most `limit` entries after `after` that contain all terms and pass the filter, and the cursor of the next page. Without a namespace: all namespaces, in order.
    pub(crate) fn page(
        &self,
        namespace: Option<&str>,
        after: Option<&Cursor>,
        filter: (&SearchTerms, impl Fn(&str, &ListEntry<T>) -> bool),
        limit: usize,
    ) -> (Vec<Arc<ListEntry<T>>>, Option<Cursor>) {
        let lists = &self.read().of;
        let (terms, is_member) = filter;
        let (mut found, mut last) = (Vec::with_capacity(limit.min(64)), None);
        let first = namespace.or(after.map(|after| after.namespace.as_str())).unwrap_or_default();
        for (namespace, list) in lists.range::<str, _>((Bound::Included(first), namespace.map_or(Bound::Unbounded, Bound::Included))) {
            let after = after.filter(|after| after.namespace == *namespace);
            for ((created, name), item) in list.after(after, terms).filter(|((_, name), item)| is_member(name, item)) {
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

/// Resource versions are numbers that grow over the whole cluster; Kubernetes promises it since 1.35.
pub(crate) fn parse_version(version: Option<&str>) -> u64 {
    version.and_then(|version| version.parse().ok()).unwrap_or(0)
}

/// The last entry of a page.
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

    fn item(name: &str, created: i64) -> ListEntry {
        ListEntry { id: format!("id-{name}"), created, search: name.into(), ..ListEntry::default() }
    }

    fn cache(items: &[(&str, &str, i64)]) -> ListCache {
        let cache = ListCache::default();
        for (namespace, name, created) in items {
            cache.insert(&Key::new(*namespace, *name), item(name, *created));
        }
        cache
    }

    fn ids(items: &[Arc<ListEntry>]) -> Vec<&str> {
        items.iter().map(|item| item.id.as_str()).collect()
    }

    fn all(cache: &ListCache, namespace: Option<&str>, after: Option<&Cursor>) -> (Vec<Arc<ListEntry>>, Option<Cursor>) {
        cache.page(namespace, after, (&SearchTerms::of(""), |_, _| true), 2)
    }

    #[test]
    fn pages_follow_each_other_whatever_is_added_or_taken_between_them() {
        let cache = cache(&[("a", "one", 1), ("a", "two", 2), ("a", "three", 2), ("b", "other", 9)]);
        let (first, next) = all(&cache, Some("a"), None);
        assert_eq!(ids(&first), ["id-three", "id-two"]);
        cache.remove(&Key::new("a", "two"));
        cache.insert(&Key::new("a", "new"), item("new", 10));
        let (second, end) = all(&cache, Some("a"), next.as_ref());
        assert_eq!((ids(&second), end), (vec!["id-one"], None));
    }

    #[test]
    fn all_namespaces_are_walked_when_none_is_named() {
        let cache = cache(&[("a", "one", 1), ("b", "two", 5), ("b", "three", 4)]);
        let (first, next) = all(&cache, None, None);
        assert_eq!(ids(&first), ["id-one", "id-two"]);
        let (second, end) = all(&cache, None, next.as_ref());
        assert_eq!((ids(&second), end), (vec!["id-three"], None));
    }

    #[test]
    fn what_does_not_fit_takes_no_place_on_a_page() {
        let cache = cache(&[("a", "one", 1), ("a", "two", 2), ("a", "three", 3)]);
        let (found, end) = cache.page(Some("a"), None, (&SearchTerms::of(""), |name, _| name != "two"), 2);
        assert_eq!((ids(&found), end), (vec!["id-three", "id-one"], None));
        let (found, end) = cache.page(Some("a"), None, (&SearchTerms::of("E O"), |_, _| true), 2);
        assert_eq!((ids(&found), end), (vec!["id-one"], None));
    }

    #[test]
    fn a_shelf_is_as_new_as_the_watch_of_the_place_that_is_asked_for() {
        let cache = ListCache::<()>::default();
        assert!(!cache.has_observed("a", 1), "nothing is watched yet");
        for (scope, version) in [(Some("a"), 7), (Some("b"), 5), (Some("a"), 6)] {
            cache.observe(scope, version);
        }
        for (namespace, version) in [("a", 7), ("b", 5), ("", 5), ("elsewhere", 5)] {
            assert!(cache.has_observed(namespace, version) && !cache.has_observed(namespace, version + 1), "{namespace:?}");
        }
        cache.confirm("b", 6);
        assert!(cache.has_observed("b", 6) && !cache.has_observed("b", 7) && !cache.has_observed("", 6));
        let whole = ListCache::<()>::default();
        whole.observe(None, 9);
        assert!(whole.has_observed("a", 9) && !whole.has_observed("a", 10));
    }

    #[test]
    fn no_more_is_kept_of_what_lists_leave_out_than_there_is_room_for() {
        const LENGTH: usize = 16_000;
        let cache = ListCache::<()>::default();
        let large = |name: &str| {
            let json: Box<str> = r#"{"config":{}}"#.into();
            let fields = json!({"system_prompt": "x".repeat(LENGTH)});
            let omitted = OmittedFields::of(&json, "config", fields.as_object().unwrap());
            ListEntry { json, omitted, ..item(name, 1) }
        };
        let put = |at: usize| cache.insert(&Key::new("a", at.to_string()), large(&at.to_string()));
        let is_kept = |at: usize| cache.get(&Key::new("a", at.to_string())).unwrap().whole().is_some();
        let many = 2 * TOTAL_OMITTED_BYTES_MAX / LENGTH;
        (0..many).for_each(put);
        let kept = (0..many).filter(|at| is_kept(*at)).count();
        assert!((many / 2 - 2..=many / 2).contains(&kept), "{kept} of {many}");
        // Changed and deleted objects free their own bytes only.
        (0..many).for_each(put);
        assert_eq!((0..many).filter(|at| is_kept(*at)).count(), kept);
        cache.remove(&Key::new("a", "0"));
        cache.forget(&Key::new("a", "1"));
        (many - 3..many).for_each(put);
        assert_eq!((many - 3..many).filter(|at| is_kept(*at)).count(), 2);
        (2..many).for_each(|at| cache.remove(&Key::new("a", at.to_string())));
        assert_eq!(cache.read().omitted_bytes, 0);
    }

    #[test]
    fn a_new_list_takes_away_what_it_does_not_hold_within_its_scope() {
        let cache = cache(&[("a", "one", 1), ("a", "two", 2), ("b", "three", 3)]);
        cache.retain(Some("a"), &[Key::new("a", "two")].into());
        assert_eq!((cache.count("a"), cache.count("b"), cache.name_of("a", "id-one")), (1, 1, None));
    }
}
