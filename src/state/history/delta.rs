//! What changes one object into another that is much like it, in the form that Git's packs have. Folders and lists
//! keep nearly all of their entries from one release to the next, so that entries are what is compared.

use std::collections::HashMap;

use super::press::same_ends;

/// The most that one instruction copies.
const COPY_MAX: usize = 0xff_ffff;
/// The most that one instruction inserts.
const INSERT_MAX: usize = 127;

/// An object that others are expressed by.
pub(super) struct Base<'a> {
    bytes: &'a [u8],
    is_folder: bool,
    /// Where each record begins. Made when the middle of an object must be searched for the first time.
    records: Option<HashMap<&'a [u8], usize>>,
}

impl<'a> Base<'a> {
    pub(super) fn new(bytes: &'a [u8], is_folder: bool) -> Self {
        Self { bytes, is_folder, records: None }
    }

    /// The instructions that make `target` of this object.
    pub(super) fn delta(&mut self, target: &[u8]) -> Vec<u8> {
        let bytes = self.bytes;
        let mut out = Out { bytes: Vec::with_capacity(64), copied: 0..0, inserted: Vec::new() };
        size(&mut out.bytes, bytes.len());
        size(&mut out.bytes, target.len());
        let (head, tail) = same_ends(bytes, target);
        out.copy(0, head);
        let middle = &target[head..target.len() - tail];
        if middle.len() > 64 && bytes.len() - head - tail > 64 {
            let is_folder = self.is_folder;
            let known = self.records.get_or_insert_with(|| {
                let mut at = 0;
                let place = |record: &'a [u8]| {
                    at += record.len();
                    (record, at - record.len())
                };
                records(bytes, is_folder).map(place).collect()
            });
            // The middle may begin or end within a record: what is left of that one is inserted.
            let mut at = 0;
            for record in records(target, is_folder) {
                let (start, end) = (at, at + record.len());
                at = end;
                if end <= head || start >= target.len() - tail {
                    continue;
                }
                let whole = start >= head && end <= target.len() - tail;
                match known.get(record).filter(|_| whole) {
                    Some(found) => out.copy(*found, record.len()),
                    None => out.insert(&target[start.max(head)..end.min(target.len() - tail)]),
                }
            }
        } else {
            out.insert(middle);
        }
        out.copy(bytes.len() - tail, tail);
        out.flush();
        out.bytes
    }
}

/// The entries of a folder, or the lines of anything else.
fn records(mut bytes: &[u8], is_folder: bool) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let end = if is_folder {
            bytes.iter().position(|byte| *byte == 0).map_or(bytes.len(), |end| (end + 21).min(bytes.len()))
        } else {
            bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |end| end + 1)
        };
        let (record, rest) = bytes.split_at(end);
        bytes = rest;
        Some(record)
    })
}

/// Instructions, of which neighbours are joined.
struct Out {
    bytes: Vec<u8>,
    copied: std::ops::Range<usize>,
    inserted: Vec<u8>,
}

impl Out {
    fn copy(&mut self, from: usize, length: usize) {
        if length == 0 {
            return;
        }
        if !self.inserted.is_empty() || self.copied.end != from || self.copied.is_empty() {
            self.flush();
            self.copied = from..from;
        }
        self.copied.end += length;
    }

    fn insert(&mut self, bytes: &[u8]) {
        if !self.copied.is_empty() {
            self.flush();
        }
        self.inserted.extend_from_slice(bytes);
    }

    fn flush(&mut self) {
        for chunk in self.inserted.chunks(INSERT_MAX) {
            self.bytes.push(low(chunk.len()));
            self.bytes.extend_from_slice(chunk);
        }
        self.inserted.clear();
        while !self.copied.is_empty() {
            let length = self.copied.len().min(COPY_MAX);
            let place = self.bytes.len();
            self.bytes.push(0x80);
            for (bit, byte) in
                self.copied.start.to_le_bytes().into_iter().take(4).chain(length.to_le_bytes().into_iter().take(3)).enumerate()
            {
                if byte != 0 {
                    self.bytes[place] |= 1 << bit;
                    self.bytes.push(byte);
                }
            }
            self.copied.start += length;
        }
        self.copied = 0..0;
    }
}

/// A length in groups of seven bits, the lowest first.
fn size(out: &mut Vec<u8>, mut value: usize) {
    while value > 0x7f {
        out.push(low(value) | 0x80);
        value >>= 7;
    }
    out.push(low(value));
}

fn low(value: usize) -> u8 {
    value.to_le_bytes()[0]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Git's own rules, read the other way round.
    fn apply(base: &[u8], delta: &[u8]) -> Vec<u8> {
        let mut bytes = delta.iter().copied();
        let mut size = || {
            let (mut value, mut shift) = (0usize, 0);
            loop {
                let byte = bytes.next().unwrap();
                value |= usize::from(byte & 0x7f) << shift;
                shift += 7;
                if byte < 0x80 {
                    return value;
                }
            }
        };
        assert_eq!(size(), base.len());
        let length = size();
        let mut out = Vec::new();
        while let Some(first) = bytes.next() {
            if first < 0x80 {
                assert!(first > 0);
                out.extend(bytes.by_ref().take(usize::from(first)));
                continue;
            }
            let mut number = |from: u8, count: u8| {
                (0..count)
                    .filter(|bit| first & (1 << (from + bit)) != 0)
                    .map(|bit| usize::from(bytes.next().unwrap()) << (8 * bit))
                    .sum::<usize>()
            };
            let (offset, copied) = (number(0, 4), number(4, 3));
            out.extend_from_slice(&base[offset..offset + copied]);
        }
        assert_eq!(out.len(), length);
        out
    }

    fn folder(versions: impl Iterator<Item = u64>) -> Vec<u8> {
        let mut tree = super::super::tree::Tree::default();
        for version in versions {
            let id = gix::objs::compute_hash(gix::hash::Kind::Sha1, gix::objs::Kind::Blob, &version.to_le_bytes()).unwrap();
            tree.set(&format!("v{version}.yaml"), false, id).unwrap();
        }
        tree.bytes().to_vec()
    }

    proptest! {
        #[test]
        fn a_delta_makes_its_target(base in "([a-e]{0,9}\n){0,60}", target in "([a-e]{0,9}\n){0,60}", is_folder in any::<bool>()) {
            let mut from = Base::new(base.as_bytes(), is_folder);
            for target in [&target, &base, &String::new(), &format!("{base}{target}"), &format!("x{target}{base}")] {
                prop_assert_eq!(apply(base.as_bytes(), &from.delta(target.as_bytes())), target.as_bytes());
            }
        }
    }

    #[test]
    fn an_older_folder_of_releases_costs_some_bytes() {
        let newest = folder(1..=3000);
        let mut base = Base::new(&newest, true);
        assert!(base.delta(&folder(1..=2999)).len() < 30);
        for older in [2999, 2500, 1000, 100, 1] {
            let target = folder(1..=older);
            let delta = base.delta(&target);
            assert_eq!(apply(&newest, &delta), target);
            assert!(delta.len() * 50 < newest.len(), "{older}: {} of {} bytes", delta.len(), newest.len());
        }
    }
}
