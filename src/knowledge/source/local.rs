//! `local`: files in a folder of a mounted volume. Paths are resolved by the kernel beneath the folder, so that neither `..` nor
//! a link leads out of it, whatever changes while it is read. Hidden files are left out; what is no regular file is told.

mod beneath;
mod walk;

use std::fs::File;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::{FileType, Stat};
use rustix::io::Errno;

use super::config::LocalConfig;
use super::http::{too_large, unwritable};
use super::{Fetched, Item, MAX_DOCUMENT_BYTES, PageToken, Pending, Source, SourceError, SourcePage, Surroundings};
pub(super) use beneath::Root;

const PAGE_ITEMS: usize = 1000;

pub(super) struct Local(Arc<Place>);

struct Place {
    volume: PathBuf,
    /// Relative to the volume, without surrounding slashes.
    path: String,
}

impl Local {
    pub(super) fn new(config: &LocalConfig, surroundings: &Surroundings) -> Result<Self, SourceError> {
        let volume = surroundings.volume.clone().ok_or_else(|| SourceError::field("path", "the team has no volume for documents"))?;
        let parts: Vec<&str> = config.path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
        Ok(Self(Arc::new(Place { volume, path: parts.join("/") })))
    }

    /// Opens the folder and counts what it shows, up to a page.
    pub(super) async fn check_server(self) -> Result<String, SourceError> {
        let place = self.0;
        let count = blocking(move || walk::count(&place.open()?, PAGE_ITEMS)).await?;
        let more = if count < PAGE_ITEMS { "" } else { "at least " };
        Ok(format!("the folder has {more}{count} entries"))
    }
}

impl Source for Local {
    fn page<'a>(&'a self, after: Option<&'a PageToken>) -> Pending<'a, SourcePage> {
        let (place, after) = (self.0.clone(), after.map(|token| token.0.clone()));
        Box::pin(blocking(move || walk::page(&place.open()?, after.as_deref(), PAGE_ITEMS)))
    }

    fn fetch<'a>(&'a self, item: &'a Item, file: &'a mut File) -> Pending<'a, Fetched> {
        let (place, key, copy) = (self.0.clone(), item.key.clone(), file.try_clone());
        Box::pin(blocking(move || {
            let root = place.open()?;
            let open = root.open_file(&key).map_err(|error| match error {
                Errno::NOENT | Errno::NOTDIR => SourceError::gone("the file is gone"),
                error => SourceError::unfetchable(format!("the file cannot be opened: {error}")),
            })?;
            let stat = rustix::fs::fstat(&open).map_err(|error| SourceError::unfetchable(format!("the file cannot be read: {error}")))?;
            if kind(&stat) != FileType::RegularFile {
                return Err(SourceError::gone("the file is gone; something else has its name"));
            }
            copy_bounded(File::from(open), copy.map_err(|error| unwritable(&error))?)
        }))
    }
}

impl Place {
    fn open(&self) -> Result<Root, SourceError> {
        let unusable = |what: String| SourceError::field("path", what);
        let volume = Root::open(&self.volume).map_err(|error| unusable(format!("the volume cannot be opened: {error}")))?;
        if self.path.is_empty() {
            return Ok(volume);
        }
        volume.folder(&self.path).map_err(|error| match error {
            Errno::NOENT => unusable("the volume has no such folder".to_owned()),
            Errno::NOTDIR => unusable("is no folder".to_owned()),
            Errno::XDEV | Errno::LOOP => unusable("leads out of the volume".to_owned()),
            error => unusable(format!("the folder cannot be opened: {error}")),
        })
    }
}

fn copy_bounded(from: File, mut to: File) -> Result<Fetched, SourceError> {
    let mut from = from.take(MAX_DOCUMENT_BYTES + 1);
    let (mut buffer, mut bytes) = (vec![0; 64 * 1024], 0_u64);
    loop {
        let read = match from.read(&mut buffer) {
            Ok(0) => return Ok(Fetched { bytes, content_type: None }),
            Ok(read) => read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(SourceError::unavailable(format!("the file could not be read: {error}"))),
        };
        bytes += read as u64;
        if bytes > MAX_DOCUMENT_BYTES {
            return Err(too_large());
        }
        to.write_all(&buffer[..read]).map_err(|error| unwritable(&error))?;
    }
}

fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// The inode tells a file from another one of the same name, size and time.
fn version(stat: &Stat) -> String {
    format!("{}.{:09}-{}-{}", stat.st_mtime, stat.st_mtime_nsec, stat.st_size, stat.st_ino)
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, SourceError> + Send + 'static) -> Result<T, SourceError> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| Err(SourceError::unavailable("the volume's reader was stopped")))
}
