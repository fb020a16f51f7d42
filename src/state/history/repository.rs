//! One repository on the disk: made whole or not at all, and put in order when it is opened after a process was killed.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::press::Press;
use super::source::Source;
use super::tidy::Tidy;
use super::view::View;
use super::writer::{Queue, Tip};
use super::{Fault, branch, disk, pack};

/// What a repository is set to: nothing is moved back or thrown away, whoever pushes, and nobody cleans up beside us.
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
/// How the folder of a repository begins that is not finished.
const UNFINISHED: &str = ".new-";
/// So many packs can be open at once; there are never near as many.
const PACKS_MAX: u16 = 4096;

pub(super) struct Repository {
    path: PathBuf,
    git: Mutex<gix::ThreadSafeRepository>,
    pub queue: Mutex<Queue>,
    pub tip: Mutex<Option<Tip>>,
    pub press: Mutex<Press>,
    pub view: Mutex<View>,
    /// Whether the last move of the branch may not be on the disk.
    pub is_unsure: AtomicBool,
    pub tidy: Arc<Tidy>,
}

impl Repository {
    /// Opens the repository, or makes it.
    pub(super) fn open(root: &Path, namespace: &str, makes: bool) -> Result<Option<Self>, Fault> {
        let path = root.join(format!("{namespace}.git"));
        if !path.is_dir() {
            if !makes {
                return Ok(None);
            }
            create(root, namespace, &path)?;
        }
        mend(&path)?;
        let git = open(&path)?;
        // What was found may have been written, but not synced, by a process that was killed.
        disk::sync_folder(&path.join("objects/pack"))?;
        branch::sync(&path.join(branch::BRANCH))?;
        let tidy = Arc::new(Tidy::new(path.join("objects/pack")));
        let view = View::new(path.clone());
        Ok(Some(Self {
            path,
            git: Mutex::new(git),
            queue: Mutex::default(),
            tip: Mutex::default(),
            press: Mutex::default(),
            view: Mutex::new(view),
            is_unsure: AtomicBool::new(false),
            tidy,
        }))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// A reader for this thread.
    pub(super) fn source(&self) -> Result<Source, Fault> {
        let mut git = locked(&self.git);
        // Packs that were put together are gone soon; their successor is only seen by looking anew.
        if self.tidy.is_stale.swap(false, Ordering::SeqCst) {
            *git = open(&self.path)?;
        }
        Ok(Source(git.to_thread_local()))
    }
}

/// A lock that outlives whoever panicked with it: what it guards is whole between any two statements.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn open(path: &Path) -> Result<gix::ThreadSafeRepository, Fault> {
    let slots = gix::odb::store::init::Slots::Given(PACKS_MAX);
    // Nothing of this machine's configuration counts.
    let options = gix::open::Options::isolated().object_store_slots(slots).open_path_as_is(true);
    gix::ThreadSafeRepository::open_opts(path, options)
        .map_err(|error| Fault::damaged(format!("{} is no repository that can be opened: {error}", path.display())))
}

/// Makes a repository beside its place, and moves it there when it is whole.
fn create(root: &Path, namespace: &str, path: &Path) -> Result<(), Fault> {
    let made = root.join(format!("{UNFINISHED}{namespace}.git"));
    if made.exists() {
        std::fs::remove_dir_all(&made).map_err(|error| Fault::disk("remove", &made, error))?;
    }
    let folders = ["objects/pack", "objects/info", "refs/heads", "refs/tags"];
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
fn mend(path: &Path) -> Result<(), Fault> {
    disk::remove(&path.join(branch::BRANCH).with_extension("lock"))?;
    let folder = path.join("objects/pack");
    save(path, &folder)?;
    let names = disk::names(&folder)?;
    for name in &names {
        let (stem, end) = name.rsplit_once('.').unwrap_or((name, ""));
        let other = |end: &str| names.contains(&format!("{stem}.{end}"));
        let is_torn = match end {
            // Without the other no object in it was ever referred to.
            "pack" => name.starts_with("pack-") && !other("idx"),
            "idx" => name.starts_with("pack-") && !other("pack"),
            _ => false,
        };
        if is_torn || name.starts_with(pack::TEMPORARY) {
            tracing::info!(file = %folder.join(name).display(), "removing what a write that did not end left behind");
            disk::remove(&folder.join(name))?;
        } else if name.starts_with("pack-") && end == "idx" && !is_whole(&folder.join(name)) {
            // Readers of Git stop at such a file. What it may hold is kept, out of their way.
            let aside = path.join("damaged");
            disk::folder(&aside)?;
            for end in ["idx", "pack"] {
                let file = Path::new(name).with_extension(end);
                tracing::error!(file = %folder.join(&file).display(), "a pack is damaged; it was moved to {}", aside.display());
                disk::rename(&folder.join(&file), &aside.join(&file))?;
            }
        }
    }
    Ok(())
}

/// Gives the pack that the branch stands on its name, if the name got lost when the power went.
fn save(path: &Path, folder: &Path) -> Result<(), Fault> {
    let Ok(said) = std::fs::read_to_string(path.join(branch::BRANCH)) else { return Ok(()) };
    let Ok(commit) = gix::ObjectId::from_hex(said.trim().as_bytes()) else { return Ok(()) };
    for file in disk::names(folder)? {
        let Some(name) = file.strip_prefix(pack::TEMPORARY).and_then(|rest| rest.strip_suffix("_idx")) else { continue };
        let index = pack::temporary(folder, name, "idx");
        let has = |index: gix::odb::pack::index::File| index.lookup(commit).is_some();
        let is_ours = gix::odb::pack::index::File::at(&index, gix::hash::Kind::Sha1).is_ok_and(has);
        if is_ours && std::fs::read(pack::temporary(folder, name, "pack")).is_ok_and(|bytes| pack::is_whole(&bytes)) {
            tracing::info!(pack = name, "the newest releases were on the disk without a name, which they have again");
            pack::place(folder, name)?;
        }
    }
    Ok(())
}

/// Whether a pack and its index can be opened and belong together.
fn is_whole(index: &Path) -> bool {
    let kind = gix::hash::Kind::Sha1;
    let Ok(read) = gix::odb::pack::index::File::at(index, kind) else { return false };
    let Ok(pack) = gix::odb::pack::data::File::at(index.with_extension("pack"), kind) else { return false };
    pack.num_objects() == read.num_objects() && pack.checksum() == read.pack_checksum()
}

impl Drop for Repository {
    fn drop(&mut self) {
        self.tidy.wait();
    }
}
