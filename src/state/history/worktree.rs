//! The trees of the newest commit, loaded as far as they are needed and edited in memory. A release writes its trees
//! without reading those of the release before.

use std::collections::{BTreeMap, BTreeSet};

use gix::ObjectId;
use gix::objs::tree::{Entry, EntryKind, name_order};
use gix::objs::{Kind, Tree, WriteTo as _};

use super::HistoryFault;
use super::objects::ObjectReader;
use super::pack::ObjectBatch;

/// Loaded subdirectories of one directory. Beyond that they are dropped and read again.
const MAX_LOADED_SUBDIRECTORIES: usize = 256;
/// Estimated memory of a tree entry.
const ENTRY_BYTES: usize = 96;

/// A tree with those of its subdirectories that are loaded.
#[derive(Default)]
pub(super) struct Directory {
    tree: Tree,
    /// None once anything in it has changed.
    id: Option<ObjectId>,
    subdirectories: BTreeMap<String, Directory>,
    /// Subdirectories that may have changed since the last write.
    touched: BTreeSet<String>,
}

impl Directory {
    pub(super) fn load(objects: &ObjectReader, id: ObjectId) -> Result<Self, HistoryFault> {
        Ok(Self { tree: objects.tree(id)?, id: Some(id), ..Self::default() })
    }

    /// A subdirectory, empty if it does not exist.
    pub(super) fn subdirectory(&mut self, name: &str, objects: &ObjectReader) -> Result<&mut Self, HistoryFault> {
        if !self.subdirectories.contains_key(name) {
            let directory = match self.entry(name) {
                Some(entry) if entry.mode.is_tree() => Self::load(objects, entry.oid)?,
                Some(_) => return Err(HistoryFault::damaged(format!("{name} is a file in the repository; it must be a directory"))),
                None => Self::default(),
            };
            self.subdirectories.insert(name.to_owned(), directory);
        }
        if !self.touched.contains(name) {
            self.touched.insert(name.to_owned());
        }
        // Present, or just inserted.
        Ok(self.subdirectories.entry(name.to_owned()).or_default())
    }

    pub(super) fn file(&self, name: &str) -> Option<ObjectId> {
        self.entry(name).filter(|entry| !entry.mode.is_tree()).map(|entry| entry.oid)
    }

    pub(super) fn entries(&self) -> &[Entry] {
        &self.tree.entries
    }

    /// Inserts or replaces a file.
    pub(super) fn put(&mut self, name: &str, id: ObjectId) {
        if self.file(name) != Some(id) {
            self.set(name, EntryKind::Blob, id);
        }
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.id = None;
        for is_tree in [false, true] {
            if let Ok(at) = self.position(name, is_tree) {
                self.tree.entries.remove(at);
            }
        }
    }

    fn entry(&self, name: &str) -> Option<&Entry> {
        [false, true].into_iter().find_map(|is_tree| self.tree.entries.get(self.position(name, is_tree).ok()?))
    }

    /// The index of an entry, or the one at which it would be inserted.
    fn position(&self, name: &str, is_tree: bool) -> Result<usize, usize> {
        self.tree.entries.binary_search_by(|entry| name_order(&entry.filename, entry.mode.is_tree(), name.as_bytes(), is_tree))
    }

    fn set(&mut self, name: &str, kind: EntryKind, oid: ObjectId) {
        self.id = None;
        let is_tree = kind == EntryKind::Tree;
        if let Ok(at) = self.position(name, !is_tree) {
            self.tree.entries.remove(at);
        }
        match self.position(name, is_tree) {
            // The mode of an executable stays.
            Ok(at) => self.tree.entries[at].oid = oid,
            Err(at) => self.tree.entries.insert(at, Entry { mode: kind.into(), filename: name.into(), oid }),
        }
    }

    /// Adds all changed trees to the batch and returns the id of this one.
    pub(super) fn write(&mut self, batch: &mut ObjectBatch) -> Result<ObjectId, HistoryFault> {
        for name in std::mem::take(&mut self.touched) {
            let Some(directory) = self.subdirectories.get_mut(&name) else { continue };
            let before = directory.id;
            if before.is_none() && directory.is_empty() {
                // Git has no empty directories.
                if self.entry(&name).is_some() {
                    self.remove(&name);
                }
                continue;
            }
            let id = directory.write(batch)?;
            if before != Some(id) {
                self.set(&name, EntryKind::Tree, id);
            }
        }
        if let Some(id) = self.id {
            return Ok(id);
        }
        let mut bytes = Vec::new();
        self.tree.write_to(&mut bytes).map_err(|error| HistoryFault::Refused(format!("a tree cannot be written: {error}")))?;
        let id = batch.insert(Kind::Tree, bytes)?;
        self.id = Some(id);
        Ok(id)
    }

    /// Whether neither this directory nor its subdirectories have entries.
    fn is_empty(&self) -> bool {
        self.tree.entries.is_empty() && self.subdirectories.values().all(|directory| directory.tree.entries.is_empty())
    }

    /// Drops subdirectories, once everything is written, if too many are loaded.
    pub(super) fn trim(&mut self) {
        if self.subdirectories.len() > MAX_LOADED_SUBDIRECTORIES {
            self.subdirectories.clear();
        }
        self.subdirectories.values_mut().for_each(Self::trim);
    }

    /// Estimated memory.
    pub(super) fn bytes(&self) -> usize {
        self.tree.entries.len() * ENTRY_BYTES + self.subdirectories.values().map(Self::bytes).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use gix::objs::TreeRef;
    use proptest::prelude::*;

    use super::*;

    fn id(byte: u8) -> ObjectId {
        ObjectId::from([byte; 20])
    }

    proptest! {
        #[test]
        fn entries_stay_sorted_whatever_the_order_of_edits(
            edits in prop::collection::vec(("[a-c.0-]{1,4}", any::<bool>(), any::<u8>(), prop::bool::weighted(0.8)), 0..300)
        ) {
            let mut directory = Directory::default();
            let mut expected = BTreeMap::new();
            for (name, is_tree, byte, stays) in &edits {
                if *stays {
                    directory.set(name, if *is_tree { EntryKind::Tree } else { EntryKind::Blob }, id(*byte));
                    expected.insert(name.clone(), (*is_tree, id(*byte)));
                } else {
                    directory.remove(name);
                    expected.remove(name);
                }
            }
            for (name, (is_tree, id)) in &expected {
                let entry = directory.entry(name).unwrap();
                prop_assert_eq!((entry.mode.is_tree(), entry.oid), (*is_tree, *id));
                prop_assert_eq!(directory.file(name), (!is_tree).then_some(*id));
            }
            let mut bytes = Vec::new();
            directory.tree.write_to(&mut bytes).unwrap();
            let read = TreeRef::from_bytes(&bytes, gix::hash::Kind::Sha1).unwrap();
            prop_assert!(read.entries.is_sorted_by(|one, next| one < next));
            prop_assert_eq!(read.entries.len(), expected.len());
            // The same content has the same id.
            let (mut one, mut other) = (ObjectBatch::default(), ObjectBatch::default());
            let mut again = Directory { tree: read.into(), ..Directory::default() };
            prop_assert_eq!(directory.write(&mut one).unwrap(), again.write(&mut other).unwrap());
        }
    }
}
