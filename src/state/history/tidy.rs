//! Puts packs together in the background. Every round of writing makes a small pack with full folders in it; when there
//! are many, they become one, in which only the newest folder of its kind is full. A larger pack is put together with
//! them once they are half of it, so that there are few packs, and an object is copied a handful of times in its life.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use gix::ObjectId;
use gix::objs::Kind;
use gix::odb::pack::data::entry::Header;
use gix::odb::pack::{data, index};

use super::delta::Base;
use super::press::Press;
use super::repository::{self, Repository, locked};
use super::source::Source;
use super::{CURRENT, Fault, STATUS, disk, pack, tree};

/// So many new packs are put together.
const MANY: usize = 24;
/// A pack is left alone that has so many times the objects of all that are smaller.
const STEP: u64 = 2;
/// Objects below this are not worth a delta.
const DELTA_MIN: u64 = 256;
/// How long a reader may take from seeing a pack to opening it.
pub(super) const STAY: Duration = Duration::from_secs(2);
/// How deep folders stand whose successors are looked for: agents, and what is in one of them.
const DEPTH: usize = 3;

/// What there is to put together in one repository.
pub(super) struct Tidy {
    folder: PathBuf,
    /// Packs that came since the last look.
    fresh: AtomicUsize,
    /// Whether readers must look anew.
    pub is_stale: AtomicBool,
    /// Packs that cannot be read whole. They are left alone.
    damaged: Mutex<HashSet<String>>,
    /// Packs whose objects are in another by now, the oldest first, and since when. They stay a while for readers that are
    /// about to open them: Git looks for a successor once, and under many writers that one may have gone too.
    retired: Mutex<VecDeque<(Instant, String)>>,
    work: Mutex<Option<JoinHandle<()>>>,
}

impl Repository {
    /// Looks after the packs once there are many new ones. Nobody waits for it.
    pub(super) fn tidy_if_due(&self) {
        let tidy = &self.tidy;
        tidy.clear();
        if tidy.fresh.fetch_add(1, Ordering::SeqCst) + 1 < MANY {
            return;
        }
        let mut work = locked(&tidy.work);
        if work.as_ref().is_some_and(|work| !work.is_finished()) {
            return;
        }
        tidy.fresh.store(0, Ordering::SeqCst);
        let (ours, path) = (tidy.clone(), self.path().to_owned());
        let spawned = std::thread::Builder::new().name("slipway-tidy".to_owned()).spawn(move || {
            let done = repository::open(&path).and_then(|git| ours.tidy(&Source(git.to_thread_local())));
            if let Err(fault) = done {
                tracing::warn!(repository = %path.display(), "packs could not be put together, which is tried again later: {fault}");
            }
        });
        *work = spawned.ok();
    }
}

impl Tidy {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            // A process that ends often must not leave more and more packs.
            fresh: AtomicUsize::new(MANY / 2),
            is_stale: AtomicBool::new(false),
            damaged: Mutex::default(),
            retired: Mutex::default(),
            work: Mutex::default(),
        }
    }

    /// Waits for the work in the background.
    pub(super) fn wait(&self) {
        let work = locked(&self.work).take();
        if let Some(work) = work {
            let _ = work.join();
        }
    }

    /// Puts together what there is too much of.
    pub(super) fn tidy(&self, source: &Source) -> Result<(), Fault> {
        let mut packs = self.packs()?;
        packs.sort_by_key(|pack| pack.index.num_objects());
        let sizes: Vec<u64> = packs.iter().map(|pack| u64::from(pack.index.num_objects())).collect();
        packs.truncate(together(&sizes));
        if packs.len() > 1 { self.join(&packs, source) } else { Ok(()) }
    }

    fn packs(&self) -> Result<Vec<Pack>, Fault> {
        let names = disk::names(&self.folder)?;
        let (damaged, retired) = (locked(&self.damaged), locked(&self.retired));
        let mut packs = Vec::new();
        for name in names.iter().filter_map(|name| name.strip_suffix(".idx")) {
            let has = |end: &str| names.contains(&format!("{name}.{end}"));
            if !has("pack")
                || has("keep")
                || has("promisor")
                || damaged.contains(name)
                || retired.iter().any(|(_, retired)| retired == name)
            {
                continue;
            }
            packs.extend(Pack::open(&self.folder, name));
        }
        Ok(packs)
    }

    /// Makes one pack of several.
    fn join(&self, packs: &[Pack], source: &Source) -> Result<(), Fault> {
        let mut pieces = Pieces::default();
        for pack in packs {
            if pieces.take(pack).is_none() {
                locked(&self.damaged).insert(pack.name.clone());
                return Err(Fault::damaged(format!("{} is not what was written; it is left as it is", pack.name)));
            }
        }
        let deltas = pieces.deltas(source)?;
        let name = self.write(&pieces, &deltas, source)?;
        self.is_stale.store(true, Ordering::SeqCst);
        let joined = format!("pack-{name}");
        let old = packs.iter().filter(|pack| pack.name != joined).map(|pack| (Instant::now(), pack.name.clone()));
        locked(&self.retired).extend(old);
        Ok(())
    }

    /// Removes the packs that no reader is about to open any more.
    fn clear(&self) {
        let mut retired = locked(&self.retired);
        while let Some((_, name)) = retired.pop_front_if(|(since, _)| since.elapsed() > STAY) {
            // Without its index a pack is nothing; the other way round readers would stumble.
            for end in ["idx", "pack"] {
                if let Err(fault) = disk::remove(&self.folder.join(format!("{name}.{end}"))) {
                    tracing::warn!("a pack whose objects are in another stays: {fault}");
                }
            }
        }
    }

    fn write(&self, pieces: &Pieces, deltas: &HashMap<ObjectId, (ObjectId, Vec<u8>)>, source: &Source) -> Result<String, Fault> {
        let path = pack::temporary(&self.folder, "joined", "pack");
        let failed = |error| {
            let _ = std::fs::remove_file(&path);
            Fault::disk("write", &path, error)
        };
        disk::remove(&path)?;
        let file = File::create_new(&path).map_err(failed)?;
        let mut writer = pack::Writer::new(BufWriter::with_capacity(1 << 20, file), pieces.order.len());
        let mut places = HashMap::with_capacity(pieces.order.len());
        let mut above: HashMap<ObjectId, Vec<ObjectId>> = HashMap::new();
        let mut press = Press::default();
        let base = |id: &ObjectId| deltas.get(id).map(|(base, _)| *base).or_else(|| pieces.all[id].base());
        for id in &pieces.order {
            if let Some(base) = base(id) {
                above.entry(base).or_default().push(*id);
            }
        }
        // What is full comes first, and after each object what is expressed by it. Should nothing lead to an object, as
        // its base went round in a circle or is elsewhere, it becomes full.
        for full in [true, false] {
            for first in &pieces.order {
                if places.contains_key(first) || (full && base(first).is_some()) {
                    continue;
                }
                let mut next = vec![*first];
                while let Some(id) = next.pop() {
                    let piece = &pieces.all[&id];
                    let under = base(&id).and_then(|base| places.get(&base).copied());
                    let place = match (under, deltas.get(&id)) {
                        (Some(under), Some((_, instructions))) => {
                            press.once(instructions).and_then(|compressed| writer.delta(id, under, instructions.len() as u64, &compressed))
                        }
                        (Some(under), None) => {
                            let head = writer.delta_head(under, piece.size);
                            writer.entry(id, &head, piece.compressed)
                        }
                        (None, _) if piece.base().is_none() => {
                            writer.entry(id, &pack::head(piece.header.as_type_id(), piece.size), piece.compressed)
                        }
                        (None, _) => {
                            let object = source.0.find_object(id).map_err(|error| Fault::object(id, &error))?;
                            press
                                .once(&object.data)
                                .and_then(|compressed| writer.full(id, object.kind, object.data.len() as u64, &compressed))
                        }
                    };
                    places.insert(id, place.map_err(failed)?);
                    next.extend(above.get(&id).into_iter().flatten().filter(|id| !places.contains_key(*id)));
                }
            }
        }
        let (out, index, name) = writer.finish().map_err(failed)?;
        let file = out.into_inner().map_err(|error| failed(error.into_error()))?;
        disk::sync(&file).map_err(failed)?;
        disk::settle(&path, &pack::temporary(&self.folder, &name, "pack"))?;
        disk::create(&pack::temporary(&self.folder, &name, "idx"), &index)?;
        pack::place(&self.folder, &name)?;
        disk::sync_folder(&self.folder)?;
        Ok(name)
    }
}

/// How many packs of these sizes, the smallest first, are to become one.
fn together(sizes: &[u64]) -> usize {
    let mut count = sizes.windows(2).rposition(|pair| pair[1] < STEP * pair[0]).map_or(0, |at| at + 2);
    let mut sum: u64 = sizes[..count].iter().sum();
    // What they become must not be too large for its neighbour either.
    while let Some(next) = sizes.get(count).filter(|next| count > 0 && **next < STEP * sum) {
        sum += next;
        count += 1;
    }
    count
}

/// A pack that is open.
struct Pack {
    name: String,
    index: index::File,
    data: data::File,
}

impl Pack {
    fn open(folder: &std::path::Path, name: &str) -> Option<Self> {
        let path = |end: &str| folder.join(format!("{name}.{end}"));
        let index = index::File::at(path("idx"), gix::hash::Kind::Sha1).ok()?;
        let data = data::File::at(path("pack"), gix::hash::Kind::Sha1).ok()?;
        Some(Self { name: name.to_owned(), index, data })
    }
}

/// An object as it lies in one of the packs.
struct Piece<'a> {
    header: Header,
    under: Option<ObjectId>,
    size: u64,
    compressed: &'a [u8],
}

impl Piece<'_> {
    fn base(&self) -> Option<ObjectId> {
        self.under
    }
}

#[derive(Default)]
struct Pieces<'a> {
    all: HashMap<ObjectId, Piece<'a>>,
    order: Vec<ObjectId>,
}

impl<'a> Pieces<'a> {
    /// Takes the objects of a pack. None if it is not what was written.
    fn take(&mut self, pack: &'a Pack) -> Option<()> {
        let mut entries: Vec<_> = pack.index.iter().map(|entry| (entry.pack_offset, entry.oid, entry.crc32)).collect();
        entries.sort_unstable_by_key(|(offset, ..)| *offset);
        let end = pack.data.pack_end() as u64;
        for (at, (offset, id, crc)) in entries.iter().enumerate() {
            let next = entries.get(at + 1).map_or(end, |(next, ..)| *next);
            let slice = pack.data.entry_slice(*offset..next)?;
            if crc.is_some_and(|crc| crc != pack.data.entry_crc32(*offset, slice.len())) {
                return None;
            }
            let entry = data::Entry::from_bytes(slice, *offset, gix::hash::Kind::Sha1).ok()?;
            let under = match entry.header {
                Header::OfsDelta { base_distance } => {
                    let base = Header::verified_base_pack_offset(*offset, base_distance)?;
                    let found = entries.binary_search_by_key(&base, |(offset, ..)| *offset).ok()?;
                    Some(entries[found].1)
                }
                Header::RefDelta { base_id } => Some(base_id),
                _ => None,
            };
            let compressed = slice.get(usize::try_from(entry.data_offset - offset).ok()?..)?;
            let piece = Piece { header: entry.header, under, size: entry.decompressed_size, compressed };
            match self.all.get(id) {
                // Of two the full one is taken.
                Some(known) if known.under.is_some() && under.is_none() => {
                    self.all.insert(*id, piece);
                }
                Some(_) => {}
                None => {
                    self.all.insert(*id, piece);
                    self.order.push(*id);
                }
            }
        }
        Some(())
    }

    /// Of full objects that followed each other at one path, all but the newest, expressed by the newest.
    fn deltas(&self, source: &Source) -> Result<HashMap<ObjectId, (ObjectId, Vec<u8>)>, Fault> {
        let mut walk =
            Walk { pieces: self, source, last: HashMap::new(), newest: HashMap::new(), older: HashMap::new(), bases: HashSet::new() };
        for commit in self.commits(source)? {
            walk.visit("", source.root(commit)?, 0)?;
        }
        let mut by_base: HashMap<ObjectId, Vec<ObjectId>> = HashMap::new();
        for (older, base) in walk.older {
            by_base.entry(base).or_default().push(older);
        }
        let mut deltas = HashMap::new();
        for (base, olders) in by_base {
            let object = source.0.find_object(base).map_err(|error| Fault::object(base, &error))?.detach();
            let mut from = Base::new(&object.data, object.kind == Kind::Tree);
            for id in olders {
                let older = source.0.find_object(id).map_err(|error| Fault::object(id, &error))?;
                if older.kind != object.kind {
                    continue;
                }
                let instructions = from.delta(&older.data);
                if instructions.len() < older.data.len() / 2 {
                    deltas.insert(id, (base, instructions));
                }
            }
        }
        Ok(deltas)
    }

    /// The commits among the objects, the newest of a line first.
    fn commits(&self, source: &Source) -> Result<Vec<ObjectId>, Fault> {
        let mut parents = HashMap::new();
        for id in &self.order {
            if self.all[id].header == Header::Commit {
                parents.insert(*id, source.commit(*id)?.0);
            }
        }
        let followed: HashSet<ObjectId> = parents.values().flatten().copied().collect();
        let mut commits = Vec::with_capacity(parents.len());
        let mut seen = HashSet::new();
        for last in self.order.iter().filter(|id| parents.contains_key(*id) && !followed.contains(*id)) {
            let mut next = Some(*last);
            while let Some(id) = next.filter(|id| parents.contains_key(id) && seen.insert(*id)) {
                commits.push(id);
                next = parents[&id].first().copied();
            }
        }
        Ok(commits)
    }
}

/// A walk through the folders of commits, from the newest back.
struct Walk<'a> {
    pieces: &'a Pieces<'a>,
    source: &'a Source,
    /// What stood at each path in the commit before.
    last: HashMap<String, ObjectId>,
    newest: HashMap<String, ObjectId>,
    older: HashMap<ObjectId, ObjectId>,
    bases: HashSet<ObjectId>,
}

impl Walk<'_> {
    fn visit(&mut self, path: &str, id: ObjectId, depth: usize) -> Result<(), Fault> {
        if !self.is_news(path, id) {
            return Ok(());
        }
        if depth == DEPTH {
            return Ok(());
        }
        for entry in tree::entries(&self.source.read(id, Kind::Tree)?) {
            let entry = entry?;
            let inner = format!("{path}/{}", String::from_utf8_lossy(entry.name));
            if entry.is_folder {
                self.visit(&inner, entry.id, depth + 1)?;
            } else if entry.name == STATUS.as_bytes() || entry.name == CURRENT.as_bytes() || depth == 1 {
                self.is_news(&inner, entry.id);
            }
        }
        Ok(())
    }

    /// Notes what stands at a path. False when it is what stood there before.
    fn is_news(&mut self, path: &str, id: ObjectId) -> bool {
        if self.last.get(path) == Some(&id) {
            return false;
        }
        self.last.insert(path.to_owned(), id);
        let is_full = self.pieces.all.get(&id).is_some_and(|piece| piece.under.is_none() && piece.size >= DELTA_MIN);
        if !is_full || self.bases.contains(&id) || self.older.contains_key(&id) {
            return true;
        }
        if let Some(newest) = self.newest.get(path) {
            self.older.insert(id, *newest);
        } else {
            self.newest.insert(path.to_owned(), id);
            self.bases.insert(id);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_packs_become_few_and_objects_are_not_copied_often() {
        for (sizes, expected) in [
            (&[][..], 0),
            (&[10], 0),
            (&[10, 20], 0),
            (&[10, 19], 2),
            (&[10, 10, 1000], 2),
            (&[10, 10, 39, 1000], 3),
            (&[10, 10, 40, 1000], 2),
            (&[1, 2, 4, 8, 9, 100], 5),
        ] {
            assert_eq!(together(sizes), expected, "{sizes:?}");
        }
        let (mut sizes, mut copied, mut most) = (Vec::new(), 0, 0);
        for at in 1..=24_000u64 {
            sizes.push(9);
            if at % MANY as u64 != 0 {
                continue;
            }
            sizes.sort_unstable();
            let count = together(&sizes);
            let joined: u64 = sizes.drain(..count).sum();
            copied += joined;
            sizes.push(joined);
            most = most.max(sizes.len());
        }
        assert!(most < 20 && copied < 9 * 24_000 * 12, "{most} packs, each object copied {} times", copied / 9 / 24_000);
    }
}
