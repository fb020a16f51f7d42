//! A pack and its index as Git has them. What one round of writing makes becomes one pack: two files to sync, however
//! many objects there are. Folders and lists that grow are full once a pack, and deltas of that beyond.

use std::collections::HashMap;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use flate2::{Compression, Crc, write::ZlibEncoder};
use gix::ObjectId;
use gix::hash::{Hasher, Kind as Hash};
use gix::objs::Kind;

use super::delta::Base;
use super::{Fault, disk};

/// Below this a delta saves nothing.
const DELTA_MIN: usize = 256;
/// Objects that grow are stored as they are once they are this large: they are full in a new pack only until packs are
/// put together, and compressing them would take longer than all the rest.
const STORED_MIN: usize = 32 * 1024;

enum Body {
    Full { data: Vec<u8>, grows: bool },
    Delta { base: usize, instructions: Vec<u8> },
}

struct Object {
    id: ObjectId,
    kind: Kind,
    body: Body,
}

/// Objects on their way into one pack.
#[derive(Default)]
pub(super) struct Batch {
    objects: Vec<Object>,
    known: HashMap<ObjectId, usize>,
    /// By path, the newest of objects that follow each other.
    newest: HashMap<String, usize>,
}

impl Batch {
    /// Takes an object. Of those with the same path, each is much like the one before.
    pub(super) fn add(&mut self, kind: Kind, data: Vec<u8>, path: Option<&str>) -> Result<ObjectId, Fault> {
        let id = gix::objs::compute_hash(Hash::Sha1, kind, &data)
            .map_err(|error| Fault::Refused(format!("the text cannot be stored under a name of its own: {error}")))?;
        if self.known.contains_key(&id) {
            return Ok(id);
        }
        let at = self.objects.len();
        if let Some(path) = path
            && let Some(before) = self.newest.insert(path.to_owned(), at)
            && let Body::Full { data: old, .. } = &self.objects[before].body
            && old.len() >= DELTA_MIN
        {
            let instructions = Base::new(&data, kind == Kind::Tree).delta(old);
            if instructions.len() < old.len() / 2 {
                self.objects[before].body = Body::Delta { base: at, instructions };
            }
        }
        self.known.insert(id, at);
        self.objects.push(Object { id, kind, body: Body::Full { data, grows: path.is_some() } });
        Ok(id)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Writes the pack into the folder and syncs it. It is there for readers once this returns.
    pub(super) fn write(&self, folder: &Path) -> Result<(), Fault> {
        let mut writer = Writer::new(Vec::new(), self.objects.len());
        let packed = (|| -> io::Result<_> {
            let mut offsets = vec![0; self.objects.len()];
            // A base has come later than what is expressed by it, and must stand before it.
            for (at, object) in self.objects.iter().enumerate().rev() {
                offsets[at] = match &object.body {
                    Body::Full { data, grows } => {
                        let level = if *grows && data.len() >= STORED_MIN { Compression::none() } else { Compression::fast() };
                        writer.full(object.id, object.kind, data, level)?
                    }
                    Body::Delta { base, instructions } => writer.delta(object.id, offsets[*base], instructions)?,
                };
            }
            writer.finish()
        })();
        let (bytes, index, name) = packed.map_err(|error| Fault::disk("pack objects for", folder, error))?;
        let path = temporary(folder, &name, "pack");
        let file = disk::begin(&path, &bytes)?;
        // Both files at the same time, so that the disk is asked once.
        let done = std::thread::scope(|scope| {
            let pack = scope.spawn(|| disk::sync(&file));
            disk::create(&temporary(folder, &name, "idx"), &index)?;
            let synced = pack.join().unwrap_or_else(|_| Err(io::Error::other("the thread that synced it panicked")));
            synced.map_err(|error| Fault::disk("write", &path, error))
        });
        done.and_then(|()| place(folder, &name)).inspect_err(|_| {
            for end in ["pack", "idx"] {
                let _ = std::fs::remove_file(temporary(folder, &name, end));
            }
        })
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
    disk::sync_folder(folder)
}

/// Writes entries one after the other, and remembers what the index needs.
pub(super) struct Writer<W> {
    out: W,
    hash: Hasher,
    at: u64,
    places: Vec<(ObjectId, u32, u64)>,
    failed: Option<io::Error>,
}

impl<W: io::Write> Writer<W> {
    pub(super) fn new(out: W, objects: usize) -> Self {
        let mut writer = Self { out, hash: gix::hash::hasher(Hash::Sha1), at: 0, places: Vec::with_capacity(objects), failed: None };
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

    /// An object in full. Answers where it stands.
    pub(super) fn full(&mut self, id: ObjectId, kind: Kind, data: &[u8], level: Compression) -> io::Result<u64> {
        let number = match kind {
            Kind::Commit => 1,
            Kind::Tree => 2,
            Kind::Blob => 3,
            Kind::Tag => 4,
        };
        self.entry(id, &head(number, data.len() as u64), &compressed(data, level)?)
    }

    /// An object as what changes the one at `base` into it.
    pub(super) fn delta(&mut self, id: ObjectId, base: u64, instructions: &[u8]) -> io::Result<u64> {
        let head = self.delta_head(base, instructions.len() as u64);
        self.entry(id, &head, &compressed(instructions, Compression::fast())?)
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

pub(super) fn compressed(data: &[u8], level: Compression) -> io::Result<Vec<u8>> {
    let mut encoder = ZlibEncoder::new(Vec::with_capacity(data.len() / 2 + 64), level);
    encoder.write_all(data)?;
    encoder.finish()
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
