//! A pack and its index as Git has them. What one round of writing makes becomes one pack: two files to sync, however
//! many objects there are. What follows at one path is full once a pack, and deltas of that beyond.
//!
//! What one commit changes does not wait for the ids that the one before it led to: folders, lists and commits of a round
//! refer to each other by open ids, and get their own all together when the round is closed.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use flate2::Crc;
use gix::ObjectId;
use gix::hash::{Hasher, Kind as Hash};
use gix::objs::Kind;

use super::delta::Base;
use super::message::Commit;
use super::press::Press;
use super::{Fault, disk, lanes};

/// Below this a delta saves nothing.
const DELTA_MIN: usize = 256;
/// How an id begins that stands for an object of the batch, by its number. No other begins so: it would take chance
/// more years than there are.
const OPEN: [u8; 12] = *b"\0an open id\0";

struct Object {
    /// Open until the batch is closed.
    id: ObjectId,
    kind: Kind,
    data: Vec<u8>,
    /// Where it stands, if others of the same kind follow it there.
    path: Option<String>,
    /// Where others are referred to that had no id yet.
    holes: Vec<Hole>,
}

struct Hole {
    at: usize,
    object: usize,
    is_hex: bool,
}

/// Objects on their way into one pack.
#[derive(Default)]
pub(super) struct Batch {
    objects: Vec<Object>,
    known: HashMap<ObjectId, usize>,
}

/// What open ids stand for.
pub(super) struct Closed(Vec<ObjectId>);

impl Closed {
    pub(super) fn id(&self, id: ObjectId) -> ObjectId {
        number(&id).and_then(|at| self.0.get(at).copied()).unwrap_or(id)
    }
}

pub(super) fn is_open(id: &ObjectId) -> bool {
    number(id).is_some()
}

fn number(id: &ObjectId) -> Option<usize> {
    let number = id.as_slice().strip_prefix(&OPEN)?;
    usize::try_from(u64::from_be_bytes(number.try_into().ok()?)).ok()
}

fn open(number: usize) -> ObjectId {
    let mut bytes = [0; 20];
    bytes[..OPEN.len()].copy_from_slice(&OPEN);
    bytes[OPEN.len()..].copy_from_slice(&(number as u64).to_be_bytes());
    ObjectId::from(bytes)
}

impl Batch {
    /// Takes what a caller wrote. Its id is known at once.
    pub(super) fn text(&mut self, data: Vec<u8>) -> Result<ObjectId, Fault> {
        let id = lanes::id((Kind::Blob, &data))?;
        self.known.entry(id).or_insert_with(|| {
            self.objects.push(Object { id, kind: Kind::Blob, data, path: None, holes: Vec::new() });
            self.objects.len() - 1
        });
        Ok(id)
    }

    /// Takes what is much like what stood at the path before. `open` says where open ids stand in it. Answers one.
    pub(super) fn growing(&mut self, kind: Kind, data: Vec<u8>, path: &str, open: &[usize]) -> ObjectId {
        let hole = |at: &usize| {
            let id = ObjectId::try_from(data.get(*at..at + 20)?).ok()?;
            Some(Hole { at: *at, object: number(&id)?, is_hex: false })
        };
        let holes = open.iter().filter_map(hole).collect();
        self.add(Object { id: ObjectId::null(Hash::Sha1), kind, data, path: Some(path.to_owned()), holes })
    }

    pub(super) fn commit(&mut self, commit: &Commit) -> ObjectId {
        const TREE: usize = "tree ".len();
        const PARENT: usize = TREE + 40 + "\nparent ".len();
        let places = [(TREE, Some(commit.tree)), (PARENT, commit.parent)];
        let holes = places.into_iter().filter_map(|(at, id)| Some(Hole { at, object: number(&id?)?, is_hex: true })).collect();
        self.add(Object { id: ObjectId::null(Hash::Sha1), kind: Kind::Commit, data: commit.bytes(), path: None, holes })
    }

    fn add(&mut self, object: Object) -> ObjectId {
        let id = open(self.objects.len());
        self.objects.push(Object { id, ..object });
        id
    }

    pub(super) fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Gives every object its id: first to those that refer to no other, then to those that refer to these, and so on.
    pub(super) fn close(&mut self) -> Result<Closed, Fault> {
        let mut left: Vec<usize> = (0..self.objects.len()).filter(|at| is_open(&self.objects[*at].id)).collect();
        while !left.is_empty() {
            let is_ready = |at: &usize| self.objects[*at].holes.iter().all(|hole| !is_open(&self.objects[hole.object].id));
            let (ready, rest): (Vec<usize>, Vec<usize>) = left.into_iter().partition(is_ready);
            if ready.is_empty() {
                return Err(Fault::damaged("what is to be written refers to itself; nothing was written"));
            }
            for at in &ready {
                self.fill(*at);
            }
            let objects: Vec<_> = ready.iter().map(|at| (self.objects[*at].kind, self.objects[*at].data.as_slice())).collect();
            let ids = lanes::ids(&objects)?;
            for (at, id) in ready.into_iter().zip(ids) {
                self.objects[at].id = id;
                self.known.entry(id).or_insert(at);
            }
            left = rest;
        }
        Ok(Closed(self.objects.iter().map(|object| object.id).collect()))
    }

    /// Puts the ids of others where they belong.
    fn fill(&mut self, at: usize) {
        for hole in std::mem::take(&mut self.objects[at].holes) {
            let id = self.objects[hole.object].id;
            let data = &mut self.objects[at].data;
            if hole.is_hex {
                data[hole.at..hole.at + 40].copy_from_slice(id.to_string().as_bytes());
            } else {
                data[hole.at..hole.at + 20].copy_from_slice(id.as_slice());
            }
        }
    }

    /// Writes the pack into the folder and syncs it, but for the names of its files. Nobody sees it before it is placed.
    pub(super) fn write(mut self, folder: &Path, press: &mut Press) -> Result<Written, Fault> {
        let (bytes, index, name) = self.packed(press).map_err(|error| Fault::disk("pack objects for", folder, error))?;
        let written = Written { folder: folder.to_owned(), name, is_placed: false };
        let path = temporary(folder, &written.name, "pack");
        let file = disk::begin(&path, &bytes)?;
        // Both files at the same time, so that the disk is asked once.
        std::thread::scope(|scope| {
            let pack = scope.spawn(|| disk::sync(&file));
            disk::create(&temporary(folder, &written.name, "idx"), &index)?;
            let synced = pack.join().unwrap_or_else(|_| Err(io::Error::other("the thread that synced it panicked")));
            synced.map_err(|error| Fault::disk("write", &path, error))
        })?;
        Ok(written)
    }

    /// The pack, its index, and the name of both.
    fn packed(&mut self, press: &mut Press) -> io::Result<(Vec<u8>, Vec<u8>, String)> {
        let mut newest: HashMap<&str, usize> = HashMap::new();
        for object in &self.objects {
            if let Some(path) = &object.path {
                newest.insert(path, self.known[&object.id]);
            }
        }
        let bases: HashMap<usize, &str> = newest.iter().map(|(path, base)| (*base, *path)).collect();
        let mut deltas = HashMap::new();
        for (path, at) in &newest {
            let mut base = Base::new(&self.objects[*at].data, self.objects[*at].kind == Kind::Tree);
            for (older, object) in self.objects.iter().enumerate() {
                // The same may have stood there twice, or at two places.
                let is_full = bases.contains_key(&older) || self.known[&object.id] != older || object.data.len() < DELTA_MIN;
                if object.path.as_deref() != Some(path) || is_full {
                    continue;
                }
                let instructions = base.delta(&object.data);
                if instructions.len() < object.data.len() / 2 {
                    deltas.insert(older, (*at, instructions));
                }
            }
        }
        let bases: HashMap<usize, String> = bases.into_iter().map(|(at, path)| (at, path.to_owned())).collect();
        let mut writer = Writer::new(Vec::new(), self.known.len());
        let mut offsets = vec![0; self.objects.len()];
        for (at, object) in self.objects.iter_mut().enumerate() {
            if self.known[&object.id] == at && !deltas.contains_key(&at) {
                let (size, path) = (object.data.len() as u64, bases.get(&at).map(String::as_str));
                let compressed = press.press(std::mem::take(&mut object.data), path)?;
                offsets[at] = writer.full(object.id, object.kind, size, &compressed)?;
            }
        }
        for (at, (base, instructions)) in deltas {
            writer.delta(self.objects[at].id, offsets[base], instructions.len() as u64, &press.once(&instructions)?)?;
        }
        writer.finish()
    }
}

/// A pack that is on the disk, and has no name yet that anybody looks for.
pub(super) struct Written {
    folder: PathBuf,
    name: String,
    is_placed: bool,
}

impl Written {
    /// Gives it its name. The name is on the disk once the folder is synced.
    pub(super) fn place(mut self) -> Result<(), Fault> {
        place(&self.folder, &self.name)?;
        self.is_placed = true;
        Ok(())
    }
}

impl Drop for Written {
    /// What nobody gets to see must not take room.
    fn drop(&mut self) {
        for end in ["pack", "idx"] {
            if !self.is_placed {
                let _ = std::fs::remove_file(temporary(&self.folder, &self.name, end));
            }
        }
    }
}

/// How files begin that are not finished. Git removes them too, once they are old.
pub(super) const TEMPORARY: &str = "tmp_slipway_";

/// Where a file stands until it is finished. Git opens whatever ends in `.idx`.
pub(super) fn temporary(folder: &Path, name: &str, end: &str) -> PathBuf {
    folder.join(format!("{TEMPORARY}{name}_{end}"))
}

/// Gives a finished pack its name, then its index, which makes it count.
pub(super) fn place(folder: &Path, name: &str) -> Result<(), Fault> {
    for end in ["pack", "idx"] {
        disk::rename(&temporary(folder, name, end), &folder.join(format!("pack-{name}.{end}")))?;
    }
    Ok(())
}

/// Whether a pack ends with what it comes to.
pub(super) fn is_whole(bytes: &[u8]) -> bool {
    let Some((body, checksum)) = bytes.split_last_chunk::<20>() else { return false };
    let mut hash = gix::hash::hasher(Hash::Sha1);
    hash.update(body);
    hash.try_finalize().is_ok_and(|found| found.as_slice() == checksum)
}

/// Writes entries one after the other, and remembers what the index needs.
pub(super) struct Writer<W> {
    out: W,
    hash: Hasher,
    at: u64,
    objects: usize,
    places: Vec<(ObjectId, u32, u64)>,
    failed: Option<io::Error>,
}

impl<W: io::Write> Writer<W> {
    pub(super) fn new(out: W, objects: usize) -> Self {
        let mut writer =
            Self { out, hash: gix::hash::hasher(Hash::Sha1), at: 0, objects, places: Vec::with_capacity(objects), failed: None };
        let count = u32::try_from(objects).map_err(io::Error::other);
        let begun = count.and_then(|count| writer.put(&[b"PACK".as_slice(), &2u32.to_be_bytes(), &count.to_be_bytes()].concat()));
        writer.failed = begun.err();
        writer
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hash.update(bytes);
        self.at += bytes.len() as u64;
        self.out.write_all(bytes)
    }

    /// An object in full, of that size and compressed. Answers where it stands.
    pub(super) fn full(&mut self, id: ObjectId, kind: Kind, size: u64, compressed: &[u8]) -> io::Result<u64> {
        let number = match kind {
            Kind::Commit => 1,
            Kind::Tree => 2,
            Kind::Blob => 3,
            Kind::Tag => 4,
        };
        self.entry(id, &head(number, size), compressed)
    }

    /// An object as what changes the one at `base` into it, of that size and compressed.
    pub(super) fn delta(&mut self, id: ObjectId, base: u64, size: u64, compressed: &[u8]) -> io::Result<u64> {
        let head = self.delta_head(base, size);
        self.entry(id, &head, compressed)
    }

    /// The beginning of an entry that refers to the one at `base`.
    pub(super) fn delta_head(&self, base: u64, size: u64) -> Vec<u8> {
        let mut head = head(6, size);
        let mut distance = self.at - base;
        let mut bytes = vec![distance.to_le_bytes()[0] & 0x7f];
        while distance > 0x7f {
            distance = (distance >> 7) - 1;
            bytes.push(distance.to_le_bytes()[0] | 0x80);
        }
        bytes.reverse();
        // All but the last say that another follows.
        head.append(&mut bytes);
        head
    }

    /// An entry whose data are compressed already.
    pub(super) fn entry(&mut self, id: ObjectId, head: &[u8], compressed: &[u8]) -> io::Result<u64> {
        let place = self.at;
        let mut crc = Crc::new();
        crc.update(head);
        crc.update(compressed);
        self.put(head)?;
        self.put(compressed)?;
        self.places.push((id, crc.sum(), place));
        Ok(place)
    }

    /// The end of the pack: what it was written to, its index, and the name of both.
    pub(super) fn finish(mut self) -> io::Result<(W, Vec<u8>, String)> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        // No reader would open it.
        if self.places.len() != self.objects {
            return Err(io::Error::other(format!("{} objects were to be packed, and {} were", self.objects, self.places.len())));
        }
        let checksum = self.hash.try_finalize().map_err(io::Error::other)?;
        self.out.write_all(checksum.as_slice())?;
        self.places.sort_unstable();
        let index = index(&self.places, checksum)?;
        Ok((self.out, index, checksum.to_string()))
    }
}

/// The kind and the size in front of an entry's data.
pub(super) fn head(kind: u8, size: u64) -> Vec<u8> {
    let mut rest = size >> 4;
    let mut bytes = vec![kind << 4 | (size.to_le_bytes()[0] & 0x0f)];
    while rest > 0 {
        if let Some(last) = bytes.last_mut() {
            *last |= 0x80;
        }
        bytes.push(rest.to_le_bytes()[0] & 0x7f);
        rest >>= 7;
    }
    bytes
}

/// The index of a pack: ids in order, with where each stands.
fn index(places: &[(ObjectId, u32, u64)], pack: ObjectId) -> io::Result<Vec<u8>> {
    const FAR: u64 = 0x8000_0000;
    let mut out = b"\xfftOc\0\0\0\x02".to_vec();
    for first in 0..=u8::MAX {
        let count = places.partition_point(|(id, ..)| id.as_slice()[0] <= first);
        out.extend(u32::try_from(count).map_err(io::Error::other)?.to_be_bytes());
    }
    out.extend(places.iter().flat_map(|(id, ..)| id.as_slice()));
    out.extend(places.iter().flat_map(|(_, crc, _)| crc.to_be_bytes()));
    let far: Vec<u64> = places.iter().map(|(.., place)| *place).filter(|place| *place >= FAR).collect();
    let mut seen = 0u64;
    for (.., place) in places {
        let near = if *place < FAR {
            *place
        } else {
            seen += 1;
            FAR | (seen - 1)
        };
        out.extend(u32::try_from(near).map_err(io::Error::other)?.to_be_bytes());
    }
    out.extend(far.iter().flat_map(|place| place.to_be_bytes()));
    out.extend_from_slice(pack.as_slice());
    let mut hash = gix::hash::hasher(Hash::Sha1);
    hash.update(&out);
    out.extend_from_slice(hash.try_finalize().map_err(io::Error::other)?.as_slice());
    Ok(out)
}
