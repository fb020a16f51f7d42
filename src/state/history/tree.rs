//! A folder as Git stores it: one entry after the other, each `mode name\0id`, in Git's own order. Edited in place, as
//! the folder of an agent's releases is long and every release adds one entry.

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

/// Puts a file or folder there, in place of what has its name.
pub(super) fn set(tree: &mut Vec<u8>, name: &str, is_folder: bool, id: ObjectId) -> Result<(), Fault> {
    let mut place = None;
    let mut same = None;
    for span in spans(tree) {
        let (span, entry) = span?;
        if entry.name == name.as_bytes() {
            same = Some((span, entry.is_folder));
            break;
        }
        if place.is_none() && Entry::key(entry.name, entry.is_folder).gt(Entry::key(name.as_bytes(), is_folder)) {
            place = Some(span.start);
        }
        // What has this name but is of another kind may still come, among names that begin like it.
        if place.is_some() && !entry.name.starts_with(name.as_bytes()) {
            break;
        }
    }
    match same {
        Some((span, kind)) if kind == is_folder => {
            tree[span.end - ID..span.end].copy_from_slice(id.as_slice());
            return Ok(());
        }
        Some(_) => {
            remove(tree, name)?;
            return set(tree, name, is_folder, id);
        }
        None => {}
    }
    let mode: &[u8] = if is_folder { b"40000 " } else { b"100644 " };
    let place = place.unwrap_or(tree.len());
    tree.splice(place..place, [mode, name.as_bytes(), b"\0", id.as_slice()].concat());
    Ok(())
}

pub(super) fn remove(tree: &mut Vec<u8>, name: &str) -> Result<(), Fault> {
    let mut found = None;
    for span in spans(tree) {
        let (span, entry) = span?;
        if entry.name == name.as_bytes() {
            found = Some(span);
            break;
        }
    }
    if let Some(span) = found {
        tree.drain(span);
    }
    Ok(())
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
            edits in prop::collection::vec(("[a-c.0-]{1,3}", any::<bool>(), any::<u8>(), any::<bool>()), 0..60)
        ) {
            let mut tree = Vec::new();
            let mut expected = std::collections::BTreeMap::new();
            for (name, is_folder, byte, stays) in &edits {
                if *stays {
                    set(&mut tree, name, *is_folder, id(*byte)).unwrap();
                    expected.insert(name.clone(), (*is_folder, id(*byte)));
                } else {
                    remove(&mut tree, name).unwrap();
                    expected.remove(name);
                }
            }
            let sorted = gix::objs::TreeRef::from_bytes(&tree, gix::hash::Kind::Sha1).unwrap();
            prop_assert!(sorted.entries.is_sorted());
            prop_assert_eq!(sorted.entries.len(), expected.len());
            for (name, entry) in &expected {
                prop_assert_eq!(find(&tree, name).unwrap(), Some(*entry));
            }
        }

        #[test]
        fn no_bytes_break_the_reader(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(entries(&bytes).count() <= bytes.len());
        }
    }
}
