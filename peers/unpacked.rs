//! Servers of Debian's that `hack/peers` unpacked without installing them.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::repository;

/// A program of the unpacked packages, which finds its libraries there.
pub(crate) fn program(path: &str) -> Command {
    let folder = servers();
    let mut command = Command::new(folder.join(path));
    command.env("LD_LIBRARY_PATH", libraries(&folder));
    command
}

/// The folder of the unpacked packages.
pub(crate) fn servers() -> PathBuf {
    let link = repository().join(".local/servers");
    link.canonicalize().unwrap_or_else(|_| panic!("{} does not exist: run hack/peers", link.display()))
}

pub(crate) fn libraries(folder: &Path) -> String {
    let mut found = Vec::new();
    for place in ["lib", "usr/lib"] {
        let entries = std::fs::read_dir(folder.join(place)).into_iter().flatten().flatten();
        // Folders of an architecture, such as x86_64-linux-gnu.
        found.extend(entries.map(|entry| entry.path()).filter(|path| path.to_string_lossy().contains("-linux-")));
    }
    found.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(":")
}
