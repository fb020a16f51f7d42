//! Background `git repack`. Each group commit adds a pack of full objects; geometric repacking keeps the packs few, copies
//! an object a handful of times in its life, and turns older trees and status files into deltas. Repacks run one at a time
//! in the whole process, as confined children of `crate::git`. A killed repack leaves temporary files and nothing else
//! that matters: git renames the new pack before it removes the old ones.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until};

use super::repository::{PACK_FOLDER, locked};
use super::{HistoryFault, disk, pack};
use crate::git::{Git, GitLimits};

/// A repository with more packs is repacked. Geometric packs alone are some twenty for a million objects.
const MAX_PACKS: usize = 40;
/// A repository is repacked when new packs have this size: few packs, but each with large trees in full.
const MAX_NEW_BYTES: u64 = 4 * 1024 * 1024;
/// Pause between two repacks of one repository. A reader opens the packs that it has seen well within it.
const REPACK_INTERVAL: Duration = Duration::from_secs(1);
/// Pause after a repack that failed.
const RETRY_INTERVAL: Duration = Duration::from_mins(1);
/// New packs after which the repository is opened again, as gix sizes its table of packs when it opens one.
const MAX_PACKS_SINCE_OPEN: usize = 256;
/// Bounds of one `git repack`.
const LIMITS: GitLimits = GitLimits { time: Duration::from_mins(30), bytes: 64 * 1024 };
/// Packs are rolled up until each has at least twice the objects of the next smaller one. Versions of one file follow
/// each other in the order in which git compares objects, so that a small window finds their deltas.
const ARGUMENTS: [&str; 6] = ["repack", "-d", "-q", "-n", "--geometric=2", "--window=4"];
/// One thread and at most some 100 MiB of memory. Files are synced before they are renamed.
const SETTINGS: [(&str, &str); 5] = [
    ("pack.threads", "1"),
    ("pack.windowMemory", "32m"),
    ("pack.deltaCacheSize", "16m"),
    ("pack.writeReverseIndex", "false"),
    ("core.fsync", "all"),
];

/// The thread on which repacks of all repositories are awaited.
pub(super) struct Repacker {
    git: Git,
    permit: Semaphore,
    /// None after shutdown.
    runtime: Mutex<Option<Runtime>>,
}

impl Repacker {
    pub(super) fn new(git: Git) -> std::io::Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(1).thread_name("slipway-repack").enable_all().build()?;
        Ok(Self { git, permit: Semaphore::new(1), runtime: Mutex::new(Some(runtime)) })
    }

    /// Kills running repacks without waiting for their end.
    pub(super) fn shutdown(&self) {
        if let Some(runtime) = locked(&self.runtime).take() {
            runtime.shutdown_background();
        }
    }
}

/// The repacks of one repository.
pub(super) struct Repack {
    repository: PathBuf,
    repacker: Arc<Repacker>,
    state: Mutex<State>,
    finished: Condvar,
    /// Whether readers must open the repository again.
    pub is_stale: AtomicBool,
}

struct State {
    packs: usize,
    new_bytes: u64,
    packs_since_open: usize,
    is_scheduled: bool,
    not_before: Instant,
}

impl State {
    fn is_due(&self) -> bool {
        self.packs > MAX_PACKS || self.new_bytes > MAX_NEW_BYTES
    }
}

impl Repack {
    pub(super) fn new(repository: &Path, repacker: Arc<Repacker>) -> Result<Self, HistoryFault> {
        let packs = pack_names(repository)?.len();
        let state = State { packs, new_bytes: 0, packs_since_open: 0, is_scheduled: false, not_before: Instant::now() };
        Ok(Self {
            repository: repository.to_owned(),
            repacker,
            state: Mutex::new(state),
            finished: Condvar::new(),
            is_stale: AtomicBool::new(false),
        })
    }

    /// Counts a new pack and schedules a repack when it is due.
    pub(super) fn pack_added(self: &Arc<Self>, bytes: u64) {
        let mut state = locked(&self.state);
        state.packs += 1;
        state.new_bytes += bytes;
        state.packs_since_open += 1;
        if state.packs_since_open >= MAX_PACKS_SINCE_OPEN {
            state.packs_since_open = 0;
            self.is_stale.store(true, Ordering::SeqCst);
        }
        // Further away than the pause between repacks: the last one failed.
        let has_failed = state.not_before > Instant::now() + REPACK_INTERVAL;
        if state.is_due()
            && !state.is_scheduled
            && !has_failed
            && let Some(runtime) = &*locked(&self.repacker.runtime)
        {
            state.is_scheduled = true;
            runtime.spawn(Scheduled(self.clone()).run());
        }
    }

    /// Waits until no repack is scheduled.
    pub(super) fn wait(&self) {
        let mut state = locked(&self.state);
        while state.is_scheduled {
            state = self.finished.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Runs `git repack` once.
    pub(super) async fn run(&self) -> Result<(), HistoryFault> {
        let failed = |why: String| HistoryFault::Busy(format!("git repack failed in {}: {why}", self.repository.display()));
        let call = self.repacker.git.call(ARGUMENTS).map_err(|fault| failed(fault.to_string()))?.within(&self.repository);
        let call = SETTINGS.into_iter().fold(call, |call, (key, value)| call.set(key, value));
        let finished = call.run(LIMITS).await.map_err(|fault| failed(fault.to_string()))?;
        if !finished.status.success() {
            return Err(failed(format!("{}: {}", finished.status, finished.stderr.line())));
        }
        disk::sync_folder(&self.repository.join(PACK_FOLDER))
    }
}

/// A scheduled repack. It counts as finished when it is dropped.
struct Scheduled(Arc<Repack>);

impl Drop for Scheduled {
    fn drop(&mut self) {
        locked(&self.0.state).is_scheduled = false;
        self.0.finished.notify_all();
    }
}

impl Scheduled {
    /// Repacks until no repack is due.
    async fn run(self) {
        let repack = &*self.0;
        loop {
            let not_before = locked(&repack.state).not_before;
            sleep_until(not_before).await;
            let Ok(_permit) = repack.repacker.permit.acquire().await else { return };
            let new_bytes = std::mem::take(&mut locked(&repack.state).new_bytes);
            let result = repack.run().await;
            repack.is_stale.store(true, Ordering::SeqCst);
            let packs = pack_names(&repack.repository);
            let mut state = locked(&repack.state);
            state.packs_since_open = 0;
            match result.and(packs) {
                Ok(packs) => {
                    state.packs = packs.len();
                    state.not_before = Instant::now() + REPACK_INTERVAL;
                    if !state.is_due() {
                        return;
                    }
                }
                Err(fault) => {
                    state.new_bytes += new_bytes;
                    drop(state);
                    tracing::warn!("{fault}");
                    match clean_up(&repack.repository) {
                        // Tried again at once without the damaged packs.
                        Ok(1..) => {}
                        result => {
                            if let Err(fault) = result {
                                tracing::warn!("{fault}");
                            }
                            locked(&repack.state).not_before = Instant::now() + RETRY_INTERVAL;
                            return;
                        }
                    }
                }
            }
        }
    }
}

/// Removes what a failed repack left and marks damaged packs, which git leaves alone from then on. Returns how many.
fn clean_up(repository: &Path) -> Result<usize, HistoryFault> {
    remove_temporary(repository)?;
    let folder = repository.join(PACK_FOLDER);
    let mut damaged = 0;
    for name in pack_names(repository)? {
        let path = folder.join(format!("{name}.pack"));
        if path.exists() && !pack::has_valid_checksum(&path)? {
            tracing::error!(pack = %path.display(), "the pack is damaged; it stays as it is and is not repacked");
            disk::create(&folder.join(format!("{name}.keep")), b"damaged\n")?;
            damaged += 1;
        }
    }
    Ok(damaged)
}

/// Removes temporary files of git.
pub(super) fn remove_temporary(repository: &Path) -> Result<(), HistoryFault> {
    let folder = repository.join(PACK_FOLDER);
    for name in disk::names(&folder)? {
        if ["tmp_pack_", "tmp_idx_", "tmp_rev_", ".tmp-"].iter().any(|prefix| name.starts_with(prefix)) {
            disk::remove(&folder.join(name))?;
        }
    }
    Ok(())
}

/// The names of the packs that can be repacked.
fn pack_names(repository: &Path) -> Result<Vec<String>, HistoryFault> {
    let names = disk::names(&repository.join(PACK_FOLDER))?;
    let is_kept = |name: &str| names.binary_search(&format!("{name}.keep")).is_ok();
    Ok(names.iter().filter_map(|name| name.strip_suffix(".idx")).filter(|name| !is_kept(name)).map(str::to_owned).collect())
}
