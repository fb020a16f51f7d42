//! Opens what lies beneath a folder, and nothing else. `openat2` where the kernel and its filters allow it; elsewhere each part
//! of the path is opened by itself, and links are refused.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, Stat, openat, openat2, statat};
use rustix::io::Errno;

pub(in crate::source) struct Root(OwnedFd);

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// A FIFO that has taken a file's name does not block.
const FILE: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

impl Root {
    pub(in crate::source) fn open(path: &Path) -> Result<Self, Errno> {
        openat(CWD, path, FOLDER, Mode::empty()).map(Self)
    }

    /// A folder beneath this one, to which links may lead.
    pub(super) fn folder(&self, path: &str) -> Result<Self, Errno> {
        self.beneath(path, FOLDER).map(Self)
    }

    pub(super) fn open_file(&self, path: &str) -> Result<OwnedFd, Errno> {
        self.beneath(path, FILE)
    }

    /// What a link leads to, if it is beneath the folder.
    pub(super) fn behind_link(&self, path: &str) -> Result<Stat, Errno> {
        rustix::fs::fstat(self.beneath(path, OFlags::PATH | OFlags::CLOEXEC)?)
    }

    pub(super) fn as_folder(&self) -> impl AsFd + '_ {
        self.0.as_fd()
    }

    fn beneath(&self, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        match openat2(&self.0, path, flags, Mode::empty(), resolve) {
            // Seccomp filters of old container runtimes answer with one of these.
            Err(Errno::NOSYS | Errno::PERM) => self.part_by_part(path, flags),
            outcome => outcome,
        }
    }

    pub(in crate::source) fn part_by_part(&self, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let mut parts = path.split('/').peekable();
        let mut folder = openat(&self.0, ".", FOLDER, Mode::empty())?;
        while let Some(part) = parts.next() {
            if matches!(part, "" | "." | "..") {
                return Err(Errno::XDEV);
            }
            if parts.peek().is_none() {
                return openat(&folder, part, flags | OFlags::NOFOLLOW, Mode::empty());
            }
            folder = openat(&folder, part, FOLDER | OFlags::NOFOLLOW, Mode::empty())?;
        }
        Err(Errno::NOENT)
    }
}

/// A folder's own folder, never through a link.
pub(super) fn subfolder(folder: &impl AsFd, name: &str) -> Result<OwnedFd, Errno> {
    openat(folder, name, FOLDER | OFlags::NOFOLLOW, Mode::empty())
}

pub(super) fn entry(folder: &impl AsFd, name: &OsStr) -> Result<Stat, Errno> {
    statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)
}
