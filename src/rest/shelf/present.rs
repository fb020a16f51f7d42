//! What the cluster holds of a part of a shelf, by asking it: where a version is waited for that no watch may ever tell of.

use std::sync::{MutexGuard, PoisonError};

use kube::api::{Api, DynamicObject, ListParams};
use kube::{Client, ResourceExt};
use slipway_cluster::Key;
use tokio::sync::Semaphore;

use super::{Shelf, number};
use crate::map::Map;

/// Of how many objects the cluster is asked at once. Of metadata alone an object may have more than a megabyte.
const MAX_ASKED: u32 = 32;

/// Objects with their versions, at a version of the cluster.
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
    /// One at a time asks the cluster.
    pub(crate) fn asking(&self) -> &Semaphore {
        &self.asking
    }

    /// Whether a part was found to be at least as new as `version`, and how new.
    pub(crate) fn proven(&self, namespace: &str, version: u64) -> Option<u64> {
        let proven = self.all_proven();
        let newest = [namespace, ""].iter().filter_map(|part| proven.get(*part)).max()?;
        (*newest >= version).then_some(*newest)
    }

    pub(crate) fn prove(&self, namespace: &str, version: u64) {
        let mut proven = self.all_proven();
        let known = proven.entry(namespace.to_owned()).or_default();
        *known = version.max(*known);
    }

    fn all_proven(&self) -> MutexGuard<'_, Map<String, u64>> {
        self.proven.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the cluster holds of a namespace now, or of all that is watched.
    pub(crate) async fn ask(&self, client: &Client, namespace: &str) -> Result<Present, kube::Error> {
        let scopes = match namespace {
            "" => self.reached.borrow().0.keys().cloned().collect(),
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
        let boards = &self.read().of;
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
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
