//! Lists a folder and its folders in the order of names, a page at a time. A page's token is the path of its last file, so that
//! the next one begins behind it whatever came and went meanwhile.

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{Dir, FileType};
use rustix::io::Errno;

use super::beneath::{Root, entry, subfolder};
use super::{kind, version};
use crate::source::{Item, PageToken, Skipped, SourceError, SourcePage};

/// The most entries of one folder, which are sorted in memory.
const MAX_ENTRIES: usize = 100_000;
const MAX_DEPTH: usize = 64;
/// The most files of a page that are told not to be documents.
const MAX_SKIPPED: usize = 100;

struct Walk<'a> {
    root: &'a Root,
    items: usize,
    page: SourcePage,
}

pub(super) fn page(root: &Root, after: Option<&str>, items: usize) -> Result<SourcePage, SourceError> {
    let after: Vec<&str> = after.map(|path| path.split('/').collect()).unwrap_or_default();
    let mut walk = Walk { root, items, page: SourcePage::default() };
    walk.folder(&root.as_folder(), "", &after, 0)?;
    Ok(walk.page)
}

/// The number of entries that are not hidden, counted up to `most`.
pub(super) fn count(root: &Root, most: usize) -> Result<usize, SourceError> {
    let mut count = 0;
    for entry in Dir::read_from(root.as_folder()).map_err(|error| unreadable("", error))? {
        let entry = entry.map_err(|error| unreadable("", error))?;
        count += usize::from(!entry.file_name().to_bytes().starts_with(b"."));
        if count == most {
            break;
        }
    }
    Ok(count)
}

impl Walk<'_> {
    /// Returns true when the page is full.
    fn folder(&mut self, folder: &impl AsFd, path: &str, after: &[&str], depth: usize) -> Result<bool, SourceError> {
        if depth > MAX_DEPTH {
            self.skip(path, &format!("is a folder more than {MAX_DEPTH} levels deep"));
            return Ok(false);
        }
        for name in self.names(folder, path, after.is_empty())? {
            // Of the folders that lead to the last file, what lies before is behind us.
            let rest = match after.first() {
                Some(first) if name.as_str() < *first => continue,
                Some(first) if name == *first => match &after[1..] {
                    [] => continue,
                    rest => rest,
                },
                _ => &[],
            };
            if self.entry(folder, &name, &join(path, &name), rest, depth)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn entry(&mut self, folder: &impl AsFd, name: &str, path: &str, after: &[&str], depth: usize) -> Result<bool, SourceError> {
        let stat = match entry(folder, OsStr::new(name)) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(false),
            Err(error) => return Err(unreadable(path, error)),
        };
        let stat = match kind(&stat) {
            FileType::RegularFile => stat,
            FileType::Directory => {
                return match subfolder(folder, name) {
                    Ok(inner) => self.folder(&inner, path, after, depth + 1),
                    Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(false),
                    Err(error) => Err(unreadable(path, error)),
                };
            }
            FileType::Symlink => match self.root.behind_link(path) {
                Ok(stat) if kind(&stat) == FileType::RegularFile => stat,
                Ok(_) => return Ok(self.skip(path, "is a link to what is no file")),
                Err(Errno::NOENT) => return Ok(self.skip(path, "is a link that leads nowhere")),
                Err(_) => return Ok(self.skip(path, "is a link that leads out of the folder")),
            },
            _ => return Ok(self.skip(path, "is no regular file")),
        };
        if self.page.items.len() == self.items {
            self.page.next = self.page.items.last().map(|item| PageToken(item.key.clone()));
            return Ok(true);
        }
        self.page.items.push(Item {
            key: path.to_owned(),
            uri: path.to_owned(),
            filename: name.to_owned(),
            content_type: None,
            version: Some(version(&stat)),
            size: u64::try_from(stat.st_size).ok(),
        });
        Ok(false)
    }

    /// The names in a folder, sorted. Without the hidden ones: editors, systems and mounted Secrets keep their own things so.
    fn names(&mut self, folder: &impl AsFd, path: &str, first_visit: bool) -> Result<Vec<String>, SourceError> {
        let mut names = Vec::new();
        for entry in Dir::read_from(folder).map_err(|error| unreadable(path, error))? {
            let entry = entry.map_err(|error| unreadable(path, error))?;
            let name = entry.file_name().to_bytes();
            if name.starts_with(b".") {
                continue;
            }
            match std::str::from_utf8(name) {
                Ok(name) if !name.chars().any(char::is_control) => names.push(name.to_owned()),
                _ if !first_visit => {}
                _ => {
                    let shown = OsStr::from_bytes(name).to_string_lossy().escape_debug().to_string();
                    self.skip(&join(path, &shown), "has a name that is no printable UTF-8");
                }
            }
            if names.len() > MAX_ENTRIES {
                return Err(SourceError::field("path", format!("the folder {path:?} has more than {MAX_ENTRIES} entries")));
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn skip(&mut self, path: &str, why: &str) -> bool {
        if self.page.skipped.len() < MAX_SKIPPED {
            self.page.skipped.push(Skipped { name: path.to_owned(), why: why.to_owned() });
        }
        false
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") }
}

/// A folder that cannot be read ends the traversal: what is in it is not gone.
fn unreadable(path: &str, error: Errno) -> SourceError {
    SourceError::field("path", format!("{path:?} cannot be read: {error}"))
}
