//! Snapshots of the API server, for versions that no watch may ever report.

use std::sync::{MutexGuard, PoisonError};

use kube::api::{Api, DynamicObject, ListParams};
use kube::{Client, ResourceExt};
use slipway_cluster::Key;
use tokio::sync::Semaphore;

use super::{ListCache, parse_version};
use crate::fast_map::FastMap;

/// The page size. The metadata of one object may exceed a megabyte.
const PAGE_SIZE: u32 = 32;

/// The versions of objects, at a version of the cluster.
pub(crate) struct Snapshot {
    pub version: u64,
    objects: FastMap<Key, u64>,
}

impl Snapshot {
    async fn add(&mut self, api: &Api<DynamicObject>) -> Result<(), kube::Error> {
        let mut page = ListParams::default().limit(PAGE_SIZE);
        loop {
            let list = api.list_metadata(&page).await?;
            self.version = self.version.min(parse_version(list.metadata.resource_version.as_deref()));
            for object in &list.items {
                let key = Key::new(object.namespace().unwrap_or_default(), object.name_any());
                self.objects.insert(key, parse_version(object.metadata.resource_version.as_deref()));
            }
            match list.metadata.continue_.filter(|next| !next.is_empty()) {
                Some(next) => page = page.continue_token(&next),
                None => return Ok(()),
            }
        }
    }
}

impl<T> ListCache<T> {
    /// Held while a snapshot is fetched: one at a time.
    pub(crate) fn fetch_turn(&self) -> &Semaphore {
        &self.fetch_turn
    }

    /// The confirmed version of a namespace, if it is at least `version`.
    pub(crate) fn confirmed(&self, namespace: &str, version: u64) -> Option<u64> {
        let confirmed = self.all_confirmed();
        let newest = [namespace, ""].iter().filter_map(|part| confirmed.get(*part)).max()?;
        (*newest >= version).then_some(*newest)
    }

    pub(crate) fn confirm(&self, namespace: &str, version: u64) {
        let mut confirmed = self.all_confirmed();
        let known = confirmed.entry(namespace.to_owned()).or_default();
        *known = version.max(*known);
    }

    fn all_confirmed(&self) -> MutexGuard<'_, FastMap<String, u64>> {
        self.confirmed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fetches the versions of a namespace, or of everything that is watched.
    pub(crate) async fn snapshot(&self, client: &Client, namespace: &str) -> Result<Snapshot, kube::Error> {
        let scopes = match namespace {
            "" => self.observed.borrow().0.keys().cloned().collect(),
            namespace => vec![namespace.to_owned()],
        };
        let mut snapshot = Snapshot { version: u64::MAX, objects: FastMap::default() };
        let Some(kind) = self.kind.get() else { return Ok(snapshot) };
        for scope in scopes {
            let api: Api<DynamicObject> = match scope.as_str() {
                "" => Api::all_with(client.clone(), kind),
                namespace => Api::namespaced_with(client.clone(), namespace, kind),
            };
            snapshot.add(&api).await?;
        }
        Ok(snapshot)
    }

    /// Whether the cache is as new as the snapshot.
    pub(crate) fn covers(&self, snapshot: &Snapshot, namespace: &str) -> bool {
        let lists = &self.read().of;
        let version = |key: &Key| lists.get(&key.namespace)?.versions.get(&key.name).copied();
        // An object that the snapshot lacks is newer, or deleted and not yet removed.
        let later = |namespace: &str, name: &String, version: u64| {
            version > snapshot.version || snapshot.objects.contains_key(&Key::new(namespace, name.clone()))
        };
        snapshot.objects.iter().all(|(key, wanted)| version(key).is_some_and(|known| known >= *wanted))
            && lists
                .iter()
                .filter(|(within, _)| namespace.is_empty() || *within == namespace)
                .all(|(within, list)| list.versions.iter().all(|(name, version)| later(within, name, *version)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shelf_is_as_new_as_the_cluster_when_it_has_all_of_it_and_nothing_that_is_gone() {
        let snapshot = |objects: &[(&str, u64)]| Snapshot {
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
            let cache = ListCache::<()>::default();
            for (name, version) in known {
                cache.set_version(&Key::new("a", *name), *version);
            }
            cache.set_version(&Key::new("elsewhere", "old"), 1);
            assert_eq!(cache.covers(&snapshot(there), "a"), as_new, "{known:?} {there:?}");
        }
    }

    #[test]
    fn what_was_found_for_a_part_holds_for_it_and_what_was_found_for_all_for_each() {
        let cache = ListCache::<()>::default();
        cache.confirm("a", 10);
        cache.confirm("a", 5);
        assert_eq!(
            (cache.confirmed("a", 10), cache.confirmed("a", 11), cache.confirmed("b", 1), cache.confirmed("", 1)),
            (Some(10), None, None, None)
        );
        cache.confirm("", 12);
        assert_eq!((cache.confirmed("a", 11), cache.confirmed("b", 1)), (Some(12), Some(12)));
    }
}
