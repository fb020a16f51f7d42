//! A folder as Git stores it: one entry after the other, each `mode name\0id`, in Git's own order. Edited in place, as
//! the folder of an agent's releases is long and every release adds one entry.

use std::cmp::Ordering;
use std::ops::Range;

use gix::ObjectId;

use super::Fault;

/// The bytes of an id.
const ID: usize = 20;

/// What a name in a folder stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry<'a> {
    pub name: &'a [u8],
    pub is_folder: bool,
    pub id: ObjectId,
}

impl Entry<'_> {
    /// Git compares folders as if their names ended with a slash.
    fn key(name: &[u8], is_folder: bool) -> impl Iterator<Item = u8> + '_ {
        name.iter().copied().chain(is_folder.then_some(b'/'))
    }
}

/// All entries with the bytes they stand in.
pub(super) fn spans(tree: &[u8]) -> impl Iterator<Item = Result<(Range<usize>, Entry<'_>), Fault>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        if at >= tree.len() {
            return None;
        }
        let entry = read(&tree[at..]).map(|(length, entry)| {
            let span = at..at + length;
            at = span.end;
            (span, entry)
        });
        if entry.is_none() {
            at = tree.len();
        }
        Some(entry.ok_or_else(|| Fault::damaged("a folder in the repository is not written as Git writes folders")))
    })
}

pub(super) fn entries(tree: &[u8]) -> impl Iterator<Item = Result<Entry<'_>, Fault>> {
    spans(tree).map(|entry| entry.map(|(_, entry)| entry))
}

fn read(bytes: &[u8]) -> Option<(usize, Entry<'_>)> {
    let space = bytes.iter().take(8).position(|byte| *byte == b' ')?;
    let name = &bytes[space + 1..];
    let end = name.iter().position(|byte| *byte == 0)?;
    let id = name.get(end + 1..end + 1 + ID)?;
    let id = ObjectId::try_from(id).ok()?;
    Some((space + 1 + end + 1 + ID, Entry { name: &name[..end], is_folder: &bytes[..space] == b"40000", id }))
}

pub(super) fn find(tree: &[u8], name: &str) -> Result<Option<(bool, ObjectId)>, Fault> {
    for entry in entries(tree) {
        let entry = entry?;
        if entry.name == name.as_bytes() {
            return Ok(Some((entry.is_folder, entry.id)));
        }
    }
    Ok(None)
}

/// A folder that something is found in and put into quickly, however long it is.
#[derive(Default)]
pub(super) struct Tree {
    bytes: Vec<u8>,
    /// Where some of the entries begin, in order.
    marks: Vec<usize>,
    /// How many entries came since the marks were set.
    fresh: usize,
}

/// An entry is marked each so many.
const EACH: usize = 64;

impl Tree {
    pub(super) fn new(bytes: Vec<u8>) -> Result<Self, Fault> {
        let mut tree = Self { bytes, ..Self::default() };
        tree.mark()?;
        Ok(tree)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn find(&self, name: &str) -> Result<Option<(bool, ObjectId)>, Fault> {
        for is_folder in [false, true] {
            if let (span, Some(id)) = self.place(name, is_folder)?
                && !span.is_empty()
            {
                return Ok(Some((is_folder, id)));
            }
        }
        Ok(None)
    }

    /// Where the id of a name stands.
    pub(super) fn place_of_id(&self, name: &str) -> Result<Option<usize>, Fault> {
        for is_folder in [false, true] {
            let (span, _) = self.place(name, is_folder)?;
            if !span.is_empty() {
                return Ok(Some(span.end - ID));
            }
        }
        Ok(None)
    }

    /// Puts a file or folder there, in place of what has its name.
    pub(super) fn set(&mut self, name: &str, is_folder: bool, id: ObjectId) -> Result<(), Fault> {
        let (span, _) = self.place(name, is_folder)?;
        if !span.is_empty() {
            self.bytes[span.end - ID..span.end].copy_from_slice(id.as_slice());
            return Ok(());
        }
        let (other, _) = self.place(name, !is_folder)?;
        if !other.is_empty() {
            self.cut(other);
            return self.set(name, is_folder, id);
        }
        let mode: &[u8] = if is_folder { b"40000 " } else { b"100644 " };
        let entry = [mode, name.as_bytes(), b"\0", id.as_slice()].concat();
        for mark in self.marks.iter_mut().rev().take_while(|mark| **mark > span.start) {
            *mark += entry.len();
        }
        self.bytes.splice(span, entry);
        self.fresh += 1;
        if self.fresh > EACH + self.marks.len() * EACH / 4 { self.mark() } else { Ok(()) }
    }

    pub(super) fn remove(&mut self, name: &str) -> Result<(), Fault> {
        for is_folder in [false, true] {
            let (span, _) = self.place(name, is_folder)?;
            self.cut(span);
        }
        Ok(())
    }

    fn cut(&mut self, span: Range<usize>) {
        // What follows begins where this did.
        for mark in self.marks.iter_mut().rev().take_while(|mark| **mark > span.start) {
            *mark -= span.len();
        }
        self.bytes.drain(span);
        self.marks.dedup();
        let end = self.bytes.len();
        self.marks.retain(|mark| *mark < end);
    }

    /// The entry, or where it belongs.
    fn place(&self, name: &str, is_folder: bool) -> Result<(Range<usize>, Option<ObjectId>), Fault> {
        let key = || Entry::key(name.as_bytes(), is_folder);
        let after = self
            .marks
            .partition_point(|mark| read(&self.bytes[*mark..]).is_some_and(|(_, entry)| Entry::key(entry.name, entry.is_folder).le(key())));
        let start = after.checked_sub(1).map_or(0, |before| self.marks[before]);
        for span in spans(&self.bytes[start..]) {
            let (span, entry) = span?;
            let span = span.start + start..span.end + start;
            match Entry::key(entry.name, entry.is_folder).cmp(key()) {
                Ordering::Less => {}
                // A folder's key is no file's, as no name has a slash.
                Ordering::Equal => return Ok((span, Some(entry.id))),
                Ordering::Greater => return Ok((span.start..span.start, None)),
            }
        }
        Ok((self.bytes.len()..self.bytes.len(), None))
    }

    /// Sets the marks anew. Fails if the entries are not in order.
    fn mark(&mut self) -> Result<(), Fault> {
        let mut marks = Vec::new();
        let mut last: Option<Entry> = None;
        for (at, span) in spans(&self.bytes).enumerate() {
            let (span, entry) = span?;
            if at % EACH == 0 {
                marks.push(span.start);
            }
            if last.is_some_and(|last| Entry::key(last.name, last.is_folder).ge(Entry::key(entry.name, entry.is_folder))) {
                return Err(Fault::damaged("a folder in the repository is not sorted as Git sorts folders"));
            }
            last = Some(entry);
        }
        (self.marks, self.fresh) = (marks, 0);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn id(byte: u8) -> ObjectId {
        ObjectId::from([byte; ID])
    }

    proptest! {
        #[test]
        fn whatever_the_order_of_edits_the_folder_is_as_git_sorts_it(
            edits in prop::collection::vec(("[a-c.0-]{1,4}", any::<bool>(), any::<u8>(), prop::bool::weighted(0.8)), 0..600)
        ) {
            let mut tree = Tree::default();
            let mut expected = std::collections::BTreeMap::new();
            for (name, is_folder, byte, stays) in &edits {
                if *stays {
                    tree.set(name, *is_folder, id(*byte)).unwrap();
                    expected.insert(name.clone(), (*is_folder, id(*byte)));
                } else {
                    tree.remove(name).unwrap();
                    expected.remove(name);
                }
            }
            let sorted = gix::objs::TreeRef::from_bytes(tree.bytes(), gix::hash::Kind::Sha1).unwrap();
            prop_assert!(sorted.entries.is_sorted());
            prop_assert_eq!(sorted.entries.len(), expected.len());
            for (name, entry) in &expected {
                prop_assert_eq!(tree.find(name).unwrap(), Some(*entry));
                prop_assert_eq!(find(tree.bytes(), name).unwrap(), Some(*entry));
                let at = tree.place_of_id(name).unwrap().unwrap();
                prop_assert_eq!(&tree.bytes()[at..at + ID], entry.1.as_slice());
            }
            prop_assert!(Tree::new(tree.bytes().to_vec()).is_ok());
        }

        #[test]
        fn no_bytes_break_the_reader(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(entries(&bytes).count() <= bytes.len());
            drop(Tree::new(bytes));
        }
    }
}
