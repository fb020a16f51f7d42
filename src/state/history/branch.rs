//! The branch that the history stands on. It moves by Git's own protocol: a lock file beside it, which keeps pushes by
//! hand and us apart, holds the new commit and takes the branch's place.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use gix::ObjectId;

use super::{Fault, disk};

/// The branch's place below the repository.
pub(super) const BRANCH: &str = "refs/heads/main";
/// How often a lock that somebody else has is asked for, and how long is waited in between.
const ATTEMPTS: u32 = 50;
const PAUSE: Duration = Duration::from_millis(20);

/// The right to move the branch.
pub(super) struct Lock {
    file: File,
    path: PathBuf,
    branch: PathBuf,
    is_held: bool,
}

impl Lock {
    /// Takes the lock, with the commit in it that the branch is meant to have. It is not on the disk yet.
    pub(super) fn take(repository: &Path, commit: ObjectId) -> Result<Self, Fault> {
        let branch = repository.join(BRANCH);
        let path = branch.with_extension("lock");
        // Git removes folders of branches that became empty.
        if let Some(folder) = branch.parent()
            && !folder.is_dir()
        {
            disk::folder(folder)?;
        }
        for _ in 0..ATTEMPTS {
            match disk::begin(&path, format!("{commit}\n").as_bytes()) {
                Ok(file) => return Ok(Self { file, path, branch, is_held: true }),
                Err(Fault::Disk { source, .. }) if source.kind() == std::io::ErrorKind::AlreadyExists => thread::sleep(PAUSE),
                Err(fault) => return Err(fault),
            }
        }
        Err(Fault::Busy(format!("{BRANCH} is locked by another program; if none is at work, remove {} and try again", path.display())))
    }

    /// What the branch will hold is on the disk when this returns.
    pub(super) fn sync(&self) -> Result<(), Fault> {
        disk::sync(&self.file).map_err(|error| Fault::disk("write", &self.path, error))
    }

    /// Moves the branch, which is on the disk once its folder is synced.
    pub(super) fn commit(mut self) -> Result<(), Fault> {
        self.is_held = false;
        disk::settle(&self.path, &self.branch)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if self.is_held {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// The branch's name is on the disk when this returns.
pub(super) fn sync(branch: &Path) -> Result<(), Fault> {
    branch.parent().map_or(Ok(()), disk::sync_folder)
}
