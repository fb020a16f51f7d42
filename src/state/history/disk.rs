//! Every change to files of the history, one function each, so that tests can kill the process between any two of
//! them, and in the middle of a write. What must survive a loss of power is synced by name.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use super::Fault;

/// A new file with these bytes, on the disk when this returns. It must not exist.
pub(super) fn create(path: &Path, bytes: &[u8]) -> Result<(), Fault> {
    let file = begin(path, bytes)?;
    sync(&file).map_err(|error| undone("write", path, error))
}

/// A new file with these bytes, which are not on the disk yet. It must not exist.
pub(super) fn begin(path: &Path, bytes: &[u8]) -> Result<File, Fault> {
    step();
    let made = OpenOptions::new().write(true).create_new(true).open(path);
    // Another's file is not ours to remove.
    let mut file = made.map_err(|error| Fault::disk("write", path, error))?;
    append(&mut file, bytes).map_err(|error| undone("write", path, error))?;
    Ok(file)
}

/// What is half written must not take the room that is missing.
fn undone(deed: &str, path: &Path, error: io::Error) -> Fault {
    let _ = fs::remove_file(path);
    Fault::disk(deed, path, error)
}

pub(super) fn append(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    #[cfg(test)]
    if super::tests::dies::is_next() {
        file.write_all(&bytes[..bytes.len() / 2])?;
    }
    step();
    file.write_all(bytes)
}

/// Bytes that may get lost, at their place in a file.
pub(super) fn write_at(file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    #[cfg(test)]
    if super::tests::dies::is_next() {
        file.write_all_at(&bytes[..bytes.len() / 2], at)?;
    }
    step();
    file.write_all_at(bytes, at)
}

pub(super) fn sync(file: &File) -> io::Result<()> {
    step();
    file.sync_all()
}

pub(super) fn rename(from: &Path, to: &Path) -> Result<(), Fault> {
    step();
    fs::rename(from, to).map_err(|error| Fault::disk("write", to, error))
}

/// Gives a temporary file its last name. If that cannot be, it is gone.
pub(super) fn settle(from: &Path, to: &Path) -> Result<(), Fault> {
    rename(from, to).inspect_err(|_| {
        let _ = fs::remove_file(from);
    })
}

/// Names in a folder are on the disk when this returns.
pub(super) fn sync_folder(path: &Path) -> Result<(), Fault> {
    step();
    File::open(path).and_then(|folder| folder.sync_all()).map_err(|error| Fault::disk("write", path, error))
}

pub(super) fn folder(path: &Path) -> Result<(), Fault> {
    step();
    fs::create_dir_all(path).map_err(|error| Fault::disk("create", path, error))
}

/// Removes a file that nobody needs. That it is gone already is as good.
pub(super) fn remove(path: &Path) -> Result<(), Fault> {
    step();
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Fault::disk("remove", path, error)),
        _ => Ok(()),
    }
}

/// The names of the files and folders in a folder.
pub(super) fn names(path: &Path) -> Result<Vec<String>, Fault> {
    let read = || -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(path)? {
            names.extend(entry?.file_name().into_string().ok());
        }
        names.sort_unstable();
        Ok(names)
    };
    read().map_err(|error| Fault::disk("read", path, error))
}

/// A point at which the process may end.
#[inline]
fn step() {
    #[cfg(test)]
    super::tests::dies::step();
}
