//! The objects of one group commit, and the pack that they are written to. gix hashes and compresses the objects and
//! makes the pack. The index is computed from the bytes of the finished pack, so that a pack which cannot be read back is
//! never published.

use std::collections::HashSet;
use std::io::{self, Cursor};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use gix::ObjectId;
use gix::hash::Kind as Hash;
use gix::objs::{Data, Kind};
use gix::odb::pack::data::input::{EntriesToBytesIter, Entry};
use gix::odb::pack::data::{EntryRange, File, Version, header};
use gix::odb::pack::index;
use gix::progress::Discard;
use gix::zlib::Compression;

use super::{HistoryFault, disk};

/// From this size on, two threads compress and index the objects of a pack.
const PARALLEL_MIN_BYTES: usize = 256 * 1024;
/// Prefix of unfinished files in the folder of packs. Git removes such files too, once they are old.
pub(super) const TEMPORARY_PREFIX: &str = "tmp_slipway_";

/// The id of an object. Fails if the content was forged to collide with another's.
pub(super) fn object_id(kind: Kind, data: &[u8]) -> Result<ObjectId, HistoryFault> {
    gix::objs::compute_hash(Hash::Sha1, kind, data).map_err(|error| HistoryFault::Refused(format!("the content cannot be stored: {error}")))
}

/// Objects that become one pack.
#[derive(Default)]
pub(super) struct ObjectBatch {
    objects: Vec<(Kind, Vec<u8>)>,
    ids: HashSet<ObjectId>,
}

impl ObjectBatch {
    pub(super) fn insert(&mut self, kind: Kind, data: Vec<u8>) -> Result<ObjectId, HistoryFault> {
        let id = object_id(kind, &data)?;
        if self.ids.insert(id) {
            self.objects.push((kind, data));
        }
        Ok(id)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Writes and syncs the pack and its index, under temporary names.
    pub(super) fn write(&self, folder: &Path) -> Result<TemporaryPack, HistoryFault> {
        let encoded = self.encode().map_err(|error| HistoryFault::disk("pack objects for", folder, io::Error::other(error.to_string())))?;
        let written = TemporaryPack {
            folder: folder.to_owned(),
            name: encoded.name.to_string(),
            bytes: (encoded.pack.len() + encoded.index.len()) as u64,
            is_published: false,
        };
        let path = temporary_path(folder, &written.name, "pack");
        let file = disk::begin(&path, &encoded.pack)?;
        // Both files are synced at the same time, which is one flush of the disk.
        thread::scope(|scope| {
            let pack = scope.spawn(|| disk::sync(&file));
            disk::create(&temporary_path(folder, &written.name, "idx"), &encoded.index)?;
            let synced = pack.join().unwrap_or_else(|_| Err(io::Error::other("the thread that synced it panicked")));
            synced.map_err(|error| HistoryFault::disk("write", &path, error))
        })?;
        Ok(written)
    }

    fn encode(&self) -> gix::Result<EncodedPack> {
        let is_parallel = self.objects.iter().map(|(_, data)| data.len()).sum::<usize>() >= PARALLEL_MIN_BYTES;
        let mut entries = self.compress(is_parallel)?;
        let mut end = header::SIZE as u64;
        for entry in &mut entries {
            entry.pack_offset = end;
            end += entry.bytes_in_pack();
        }
        let mut pack = Cursor::new(Vec::new());
        let entries: Vec<Entry> =
            EntriesToBytesIter::new(entries.into_iter().map(Ok), &mut pack, Version::V2, Hash::Sha1).collect::<gix::Result<_>>()?;
        let pack = pack.into_inner();
        let mut index = Vec::new();
        let outcome = index::write_data_iter_to_stream(
            index::Version::V2,
            || Ok((entry_bytes, pack.as_slice())),
            &mut entries.into_iter().map(Ok),
            Some(if is_parallel { 2 } else { 1 }),
            &mut Discard,
            &mut index,
            &AtomicBool::new(false),
            Hash::Sha1,
            None,
            Version::V2,
        )?;
        Ok(EncodedPack { name: outcome.data_hash, pack, index })
    }

    /// The objects as entries of a pack, in any order.
    fn compress(&self, is_parallel: bool) -> gix::Result<Vec<Entry>> {
        let next = AtomicUsize::new(0);
        let work = || -> gix::Result<Vec<Entry>> {
            let mut entries = Vec::new();
            while let Some((kind, data)) = self.objects.get(next.fetch_add(1, Ordering::Relaxed)) {
                entries.push(Entry::from_data_obj(&Data::new(data, *kind, Hash::Sha1), 0, Compression::BEST_SPEED)?);
            }
            Ok(entries)
        };
        thread::scope(|scope| {
            let other = is_parallel.then(|| scope.spawn(work));
            let mut entries = work()?;
            if let Some(other) = other {
                let panicked = |_| Err(gix::Error::from_error(io::Error::other("the thread that compressed objects panicked")));
                entries.extend(other.join().unwrap_or_else(panicked)?);
            }
            Ok(entries)
        })
    }
}

struct EncodedPack {
    /// The checksum of the pack.
    name: ObjectId,
    pack: Vec<u8>,
    index: Vec<u8>,
}

fn entry_bytes<'pack>(range: EntryRange, pack: &'pack &[u8]) -> Option<&'pack [u8]> {
    pack.get(usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?)
}

/// A pack that is on the disk under a name that no reader looks for. Removed on drop unless it is published.
pub(super) struct TemporaryPack {
    folder: PathBuf,
    name: String,
    /// Size of the pack with its index.
    pub bytes: u64,
    is_published: bool,
}

impl TemporaryPack {
    /// Renames the pack to its final name. The name is durable once the folder is synced.
    /// The pack goes before its index, from which on readers find it.
    pub(super) fn publish(&mut self) -> Result<(), HistoryFault> {
        for end in ["pack", "idx"] {
            disk::rename(&temporary_path(&self.folder, &self.name, end), &self.folder.join(format!("pack-{}.{end}", self.name)))?;
        }
        self.is_published = true;
        Ok(())
    }
}

impl Drop for TemporaryPack {
    fn drop(&mut self) {
        for end in ["pack", "idx"] {
            if !self.is_published {
                let _ = std::fs::remove_file(temporary_path(&self.folder, &self.name, end));
            }
        }
    }
}

/// Not ending in `.idx`: Git opens any such file.
pub(super) fn temporary_path(folder: &Path, name: &str, end: &str) -> PathBuf {
    folder.join(format!("{TEMPORARY_PREFIX}{name}_{end}"))
}

/// Whether the bytes of a pack match the checksum at its end. A pack that cannot be opened is an error and not damage.
pub(super) fn has_valid_checksum(pack: &Path) -> Result<bool, HistoryFault> {
    drop(std::fs::File::open(pack).map_err(|error| HistoryFault::disk("read", pack, error))?);
    Ok(File::at(pack, Hash::Sha1).is_ok_and(|pack| pack.verify_checksum(&mut Discard, &AtomicBool::new(false)).is_ok()))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn git_reads_every_object_of_a_pack(blobs in prop::collection::vec("(?s).{0,2000}", 1..40), long in 0..600_000usize) {
            let folder = tempfile::tempdir().unwrap();
            let mut batch = ObjectBatch::default();
            let mut ids = HashSet::new();
            let all = blobs.into_iter().chain(["x\n".repeat(long / 2)]).map(String::into_bytes);
            for data in all {
                ids.insert(batch.insert(Kind::Blob, data.clone()).unwrap());
                prop_assert!(ids.contains(&batch.insert(Kind::Blob, data).unwrap()));
            }
            let mut pack = batch.write(folder.path()).unwrap();
            pack.publish().unwrap();
            let path = folder.path().join(format!("pack-{}.idx", pack.name));
            prop_assert!(has_valid_checksum(&path.with_extension("pack")).unwrap());
            let output = Command::new("git").args(["verify-pack", "-v"]).arg(&path).output().unwrap();
            prop_assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let listed = String::from_utf8(output.stdout).unwrap();
            prop_assert_eq!(listed.lines().filter(|line| line.contains(" blob ")).count(), ids.len());
            prop_assert!(ids.iter().all(|id| listed.contains(&id.to_string())));
        }
    }

    #[test]
    fn an_unpublished_pack_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let mut batch = ObjectBatch::default();
        batch.insert(Kind::Blob, b"hello".to_vec()).unwrap();
        let pack = batch.write(folder.path()).unwrap();
        assert_eq!(disk::names(folder.path()).unwrap().len(), 2);
        drop(pack);
        assert_eq!(disk::names(folder.path()).unwrap(), Vec::<String>::new());
    }
}
