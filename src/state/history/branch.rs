//! The branch of a repository. It is moved by Git's protocol: a lock file, which excludes concurrent pushes, receives the
//! new commit and is renamed to the branch.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use gix::ObjectId;

use super::{HistoryFault, disk};

/// Path of the branch below the repository.
pub(super) const BRANCH: &str = "refs/heads/main";
/// Attempts to take a lock that another program holds, and the pause between them.
const LOCK_ATTEMPTS: u32 = 50;
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// The lock of the branch. Released on drop unless the branch was moved.
pub(super) struct Lock {
    file: File,
    path: PathBuf,
    branch: PathBuf,
    is_held: bool,
}

impl Lock {
    /// Takes the lock and writes the new commit to it, without syncing it.
    pub(super) fn take(repository: &Path, commit: ObjectId) -> Result<Self, HistoryFault> {
        let branch = repository.join(BRANCH);
        let path = branch.with_extension("lock");
        // Git removes empty folders of branches.
        if let Some(folder) = branch.parent()
            && !folder.is_dir()
        {
            disk::folder(folder)?;
        }
        for _ in 0..LOCK_ATTEMPTS {
            match disk::begin(&path, format!("{commit}\n").as_bytes()) {
                Ok(file) => return Ok(Self { file, path, branch, is_held: true }),
                Err(HistoryFault::Disk { source, .. }) if source.kind() == std::io::ErrorKind::AlreadyExists => {
                    thread::sleep(LOCK_RETRY_INTERVAL);
                }
                Err(fault) => return Err(fault),
            }
        }
        Err(HistoryFault::Busy(format!(
            "{BRANCH} is locked by another program; if none is at work, remove {} and try again",
            path.display()
        )))
    }

    pub(super) fn sync(&self) -> Result<(), HistoryFault> {
        disk::sync(&self.file).map_err(|error| HistoryFault::disk("write", &self.path, error))
    }

    /// Moves the branch. The move is durable once the folder is synced.
    pub(super) fn commit(mut self) -> Result<(), HistoryFault> {
        self.is_held = false;
        disk::rename_or_remove(&self.path, &self.branch)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if self.is_held {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Makes the last move of the branch durable.
pub(super) fn sync(branch: &Path) -> Result<(), HistoryFault> {
    branch.parent().map_or(Ok(()), disk::sync_folder)
}
