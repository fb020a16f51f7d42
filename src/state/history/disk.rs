//! All writes to files of the history, so that tests can kill the process between any two of them and in the middle of
//! one. A file is durable once it is synced, its name once its folder is synced.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use super::HistoryFault;

/// Creates a file and syncs it. It must not exist.
pub(super) fn create(path: &Path, bytes: &[u8]) -> Result<(), HistoryFault> {
    let file = begin(path, bytes)?;
    sync(&file).map_err(|error| undone("write", path, error))
}

/// Creates a file without syncing it. It must not exist.
pub(super) fn begin(path: &Path, bytes: &[u8]) -> Result<File, HistoryFault> {
    step();
    let made = OpenOptions::new().write(true).create_new(true).open(path);
    // A file that existed before is not removed.
    let mut file = made.map_err(|error| HistoryFault::disk("write", path, error))?;
    append(&mut file, bytes).map_err(|error| undone("write", path, error))?;
    Ok(file)
}

/// Removes an incomplete file, which may have filled the disk.
fn undone(action: &str, path: &Path, error: io::Error) -> HistoryFault {
    let _ = fs::remove_file(path);
    HistoryFault::disk(action, path, error)
}

pub(super) fn append(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    #[cfg(test)]
    if super::tests::crash::is_next() {
        file.write_all(&bytes[..bytes.len() / 2])?;
    }
    step();
    file.write_all(bytes)
}

/// Writes at a position of a file without syncing it.
pub(super) fn write_at(file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    #[cfg(test)]
    if super::tests::crash::is_next() {
        file.write_all_at(&bytes[..bytes.len() / 2], at)?;
    }
    step();
    file.write_all_at(bytes, at)
}

pub(super) fn sync(file: &File) -> io::Result<()> {
    step();
    file.sync_all()
}

pub(super) fn rename(from: &Path, to: &Path) -> Result<(), HistoryFault> {
    step();
    fs::rename(from, to).map_err(|error| HistoryFault::disk("write", to, error))
}

/// Renames a temporary file, or removes it if that fails.
pub(super) fn rename_or_remove(from: &Path, to: &Path) -> Result<(), HistoryFault> {
    rename(from, to).inspect_err(|_| {
        let _ = fs::remove_file(from);
    })
}

/// Makes the names in a folder durable.
pub(super) fn sync_folder(path: &Path) -> Result<(), HistoryFault> {
    step();
    File::open(path).and_then(|folder| folder.sync_all()).map_err(|error| HistoryFault::disk("write", path, error))
}

pub(super) fn folder(path: &Path) -> Result<(), HistoryFault> {
    step();
    fs::create_dir_all(path).map_err(|error| HistoryFault::disk("create", path, error))
}

/// Removes a file, if it exists.
pub(super) fn remove(path: &Path) -> Result<(), HistoryFault> {
    step();
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(HistoryFault::disk("remove", path, error)),
        _ => Ok(()),
    }
}

/// The sorted names of the files and folders in a folder.
pub(super) fn names(path: &Path) -> Result<Vec<String>, HistoryFault> {
    let read = || -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(path)? {
            names.extend(entry?.file_name().into_string().ok());
        }
        names.sort_unstable();
        Ok(names)
    };
    read().map_err(|error| HistoryFault::disk("read", path, error))
}

/// A point at which a test may kill the process.
#[inline]
fn step() {
    #[cfg(test)]
    super::tests::crash::step();
}
