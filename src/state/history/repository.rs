//! One repository on the disk: created atomically, and recovered when it is opened after a process was killed.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::cache::Cache;
use super::objects::ObjectReader;
use super::repack::{self, Repack, Repacker};
use super::writer::{Head, WriteQueue};
use super::{HistoryFault, branch, disk, pack};

/// Pushes cannot rewrite or delete the branch, and no other process collects garbage.
const CONFIG: &str = "[core]
\trepositoryformatversion = 0
\tfilemode = true
\tbare = true
[receive]
\tdenyNonFastForwards = true
\tdenyDeletes = true
\tfsckObjects = true
[gc]
\tauto = 0
[maintenance]
\tauto = false
";
/// The folder of packs below the repository.
pub(super) const PACK_FOLDER: &str = "objects/pack";
/// Prefix of the folder of a repository that is being created.
const UNFINISHED_PREFIX: &str = ".new-";
/// The table of packs that gix makes room for: twice those on the disk, and at least this many.
const MIN_PACK_SLOTS: usize = 512;

pub(super) struct Repository {
    path: PathBuf,
    git: Mutex<gix::ThreadSafeRepository>,
    pub queue: Mutex<WriteQueue>,
    pub head: Mutex<Option<Head>>,
    pub cache: Mutex<Cache>,
    /// Whether the last move of the branch may not be durable.
    pub is_unsynced: AtomicBool,
    pub repack: Arc<Repack>,
}

impl Repository {
    /// Opens the repository. Creates it if it does not exist and `create` is set.
    pub(super) fn open(root: &Path, namespace: &str, create: bool, repacker: &Arc<Repacker>) -> Result<Option<Self>, HistoryFault> {
        let path = root.join(format!("{namespace}.git"));
        if !path.is_dir() {
            if !create {
                return Ok(None);
            }
            create_at(root, namespace, &path)?;
        }
        recover(&path)?;
        let git = open(&path)?;
        // A process that was killed may have written what is found here without syncing it.
        disk::sync_folder(&path.join(PACK_FOLDER))?;
        branch::sync(&path.join(branch::BRANCH))?;
        Ok(Some(Self {
            git: Mutex::new(git),
            queue: Mutex::default(),
            head: Mutex::default(),
            cache: Mutex::new(Cache::new(path.clone())),
            is_unsynced: AtomicBool::new(false),
            repack: Arc::new(Repack::new(&path, repacker.clone())?),
            path,
        }))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// A reader for this thread.
    pub(super) fn objects(&self) -> Result<ObjectReader, HistoryFault> {
        let mut git = locked(&self.git);
        if self.repack.is_stale.swap(false, Ordering::SeqCst) {
            *git = open(&self.path)?;
        }
        Ok(ObjectReader(git.to_thread_local()))
    }
}

/// Locks a mutex also after a panic: what these guard is consistent after every statement.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn open(path: &Path) -> Result<gix::ThreadSafeRepository, HistoryFault> {
    let slots = gix::odb::store::init::Slots::AsNeededByDiskState { multiplier: 2.0, minimum: MIN_PACK_SLOTS };
    // Without the configuration of the machine and the user.
    let options = gix::open::Options::isolated().object_store_slots(slots).open_path_as_is(true);
    gix::ThreadSafeRepository::open_opts(path, options)
        .map_err(|error| HistoryFault::damaged(format!("{} is no repository that can be opened: {error}", path.display())))
}

/// Creates a repository under a temporary name and renames it when it is complete.
fn create_at(root: &Path, namespace: &str, path: &Path) -> Result<(), HistoryFault> {
    let made = root.join(format!("{UNFINISHED_PREFIX}{namespace}.git"));
    if made.exists() {
        std::fs::remove_dir_all(&made).map_err(|error| HistoryFault::disk("remove", &made, error))?;
    }
    let folders = [PACK_FOLDER, "objects/info", "refs/heads", "refs/tags"];
    let built = (|| {
        for folder in folders {
            disk::folder(&made.join(folder))?;
        }
        disk::create(&made.join("HEAD"), format!("ref: {}\n", branch::BRANCH).as_bytes())?;
        disk::create(&made.join("config"), CONFIG.as_bytes())?;
        for folder in folders.iter().copied().chain(["objects", "refs", ""]) {
            disk::sync_folder(&made.join(folder))?;
        }
        disk::rename(&made, path)
    })();
    built.inspect_err(|_| {
        let _ = std::fs::remove_dir_all(&made);
    })?;
    disk::sync_folder(root)
}

/// Removes what a killed process left behind. Only one process works in the folder, so that none of it is in use.
fn recover(path: &Path) -> Result<(), HistoryFault> {
    disk::remove(&path.join(branch::BRANCH).with_extension("lock"))?;
    repack::remove_temporary(path)?;
    let folder = path.join(PACK_FOLDER);
    recover_newest_pack(path, &folder)?;
    let names = disk::names(&folder)?;
    let exists = |stem: &str, end: &str| names.binary_search(&format!("{stem}.{end}")).is_ok();
    for name in &names {
        let (stem, end) = name.rsplit_once('.').unwrap_or((name, ""));
        // Without its index no object of a pack was ever referred to.
        let is_incomplete = name.starts_with("pack-") && !(exists(stem, "idx") && exists(stem, "pack"));
        if is_incomplete || name.starts_with(pack::TEMPORARY_PREFIX) {
            tracing::info!(file = %folder.join(name).display(), "removing the file of an interrupted write");
            disk::remove(&folder.join(name))?;
        } else if name.starts_with("pack-") && end == "idx" && !is_readable(&folder.join(name)) {
            // Git fails on such a file. It is kept in a folder of its own.
            let aside = path.join("damaged");
            disk::folder(&aside)?;
            for file in names.iter().filter(|file| file.rsplit_once('.').is_some_and(|(other, _)| other == stem)) {
                tracing::error!(file = %folder.join(file).display(), "a pack is damaged; it was moved to {}", aside.display());
                disk::rename(&folder.join(file), &aside.join(file))?;
            }
        }
    }
    Ok(())
}

/// Publishes the pack of the newest commit if a power failure undid a rename of the pack or its index, but not that of the branch.
fn recover_newest_pack(path: &Path, folder: &Path) -> Result<(), HistoryFault> {
    let Ok(branch) = std::fs::read_to_string(path.join(branch::BRANCH)) else { return Ok(()) };
    let Ok(commit) = gix::ObjectId::from_hex(branch.trim().as_bytes()) else { return Ok(()) };
    for file in disk::names(folder)? {
        let Some(name) = file.strip_prefix(pack::TEMPORARY_PREFIX).and_then(|rest| rest.strip_suffix("_idx")) else { continue };
        let index = pack::temporary_path(folder, name, "idx");
        let has_commit = |index: gix::odb::pack::index::File| index.lookup(commit).is_some();
        let is_newest = gix::odb::pack::index::File::at(&index, gix::hash::Kind::Sha1).is_ok_and(has_commit);
        let (temporary, named) = (pack::temporary_path(folder, name, "pack"), folder.join(format!("pack-{name}.pack")));
        if is_newest && (is_whole(&temporary)? || is_whole(&named)?) {
            tracing::info!(pack = name, "the pack of the newest releases has lost its name and is renamed again");
            if temporary.exists() {
                disk::rename(&temporary, &named)?;
            }
            disk::rename(&index, &named.with_extension("idx"))?;
        }
    }
    Ok(())
}

fn is_whole(pack: &Path) -> Result<bool, HistoryFault> {
    Ok(pack.exists() && pack::has_valid_checksum(pack)?)
}

/// Whether a pack and its index can be opened and belong together.
fn is_readable(index: &Path) -> bool {
    let kind = gix::hash::Kind::Sha1;
    let Ok(read) = gix::odb::pack::index::File::at(index, kind) else { return false };
    let Ok(pack) = gix::odb::pack::data::File::at(index.with_extension("pack"), kind) else { return false };
    pack.num_objects() == read.num_objects() && pack.checksum() == read.pack_checksum()
}
