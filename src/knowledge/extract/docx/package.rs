//! The zip archive that a DOCX is, with limits: a part is never held in memory, and no archive expands without end.

use std::cell::Cell;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::rc::Rc;

use memchr::memmem;
use zip::ZipArchive;
use zip::result::ZipError;

use crate::extract::Unreadable;

const ENTRIES_MAX: usize = 10_000;
/// What all parts that are read may expand to.
const EXPANDED_BYTES_MAX: u64 = 512 * 1024 * 1024;
/// How many times its packed size a part may have. Text rarely has ten times, and long tables fifty.
const RATIO_MAX: u64 = 200;
/// Parts up to this size may have any ratio.
const RATIO_EXEMPT_BYTES: u64 = 8 * 1024 * 1024;
const BUFFER_BYTES: usize = 64 * 1024;

pub(super) struct Package {
    archive: ZipArchive<BufReader<File>>,
    /// What may still be expanded.
    left: Rc<Cell<u64>>,
    size: u64,
}

/// Tells a limit from a broken archive, within an I/O error.
#[derive(Debug)]
struct TooMuch(String);

impl fmt::Display for TooMuch {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        text.write_str(&self.0)
    }
}

impl std::error::Error for TooMuch {}

/// The fault that an I/O error of a part stands for.
pub(super) fn fault(part: &str, error: &io::Error) -> Unreadable {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<TooMuch>()) {
        Some(TooMuch(what)) => Unreadable::TooLarge(what.clone()),
        None => Unreadable::Broken(format!("its part {part} cannot be unpacked: {error}")),
    }
}

impl Package {
    pub(super) fn open(file: &Path) -> Result<Self, Unreadable> {
        let file = File::open(file)?;
        let size = file.metadata()?.len();
        let archive =
            ZipArchive::new(BufReader::new(file)).map_err(|error| Unreadable::Broken(format!("its zip archive is broken: {error}")))?;
        if archive.len() > ENTRIES_MAX {
            return Err(Unreadable::TooLarge(format!("its zip archive has {} entries; at most {ENTRIES_MAX} are read", archive.len())));
        }
        // Text is an eighth of the markup that a document of it has, or less.
        Ok(Self { archive, left: Rc::new(Cell::new(EXPANDED_BYTES_MAX)), size: size.saturating_mul(RATIO_MAX).min(EXPANDED_BYTES_MAX) / 8 })
    }

    /// A bound of what its text could be, in bytes.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    pub(super) fn has(&self, part: &str) -> bool {
        self.name(part).is_some()
    }

    pub(super) fn has_prefix(&self, prefix: &str) -> bool {
        self.archive.file_names_raw().any(|name| name.starts_with(prefix.as_bytes()))
    }

    /// Names of parts are the same in capitals and small letters, and some programs write backslashes.
    fn name(&self, part: &str) -> Option<usize> {
        let same = |name: &[u8]| {
            let plain = |byte: &u8| if *byte == b'\\' { b'/' } else { byte.to_ascii_lowercase() };
            name.iter().map(plain).eq(part.as_bytes().iter().map(plain))
        };
        self.archive.index_for_name(part).or_else(|| {
            (0..self.archive.len())
                .find(|at| self.archive.name_for_index(*at).is_some_and(|name| name.is_ok_and(|name| same(name.as_bytes()))))
        })
    }

    /// A part as a stream; none if there is no such part.
    pub(super) fn part(&mut self, part: &str) -> Result<Option<impl BufRead + use<'_>>, Unreadable> {
        let Some(index) = self.name(part) else { return Ok(None) };
        let entry = self.archive.by_index(index).map_err(|error| match error {
            ZipError::UnsupportedArchive(ZipError::PASSWORD_REQUIRED) => Unreadable::Encrypted,
            error => Unreadable::Broken(format!("its part {part} cannot be unpacked: {error}")),
        })?;
        let most = entry.compressed_size().saturating_mul(RATIO_MAX).max(RATIO_EXEMPT_BYTES);
        let limited = Limited { entry, most, read: 0, left: self.left.clone() };
        Ok(Some(BufReader::with_capacity(BUFFER_BYTES, limited)))
    }

    pub(super) fn contains(&mut self, part: &str, what: &[u8]) -> Result<bool, Unreadable> {
        let left = self.left.get();
        let found = match self.part(part)? {
            Some(stream) => stream_contains(stream, what).map_err(|error| fault(part, &error)),
            None => Ok(false),
        };
        // It is read again.
        self.left.set(left);
        found
    }
}

fn stream_contains(mut stream: impl Read, what: &[u8]) -> io::Result<bool> {
    let finder = memmem::Finder::new(what);
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut kept = 0;
    loop {
        let read = stream.read(&mut buffer[kept..])?;
        if read == 0 {
            return Ok(false);
        }
        let filled = kept + read;
        if finder.find(&buffer[..filled]).is_some() {
            return Ok(true);
        }
        kept = filled.min(what.len().saturating_sub(1));
        buffer.copy_within(filled - kept..filled, 0);
    }
}

struct Limited<R> {
    entry: R,
    /// How far this part may expand.
    most: u64,
    read: u64,
    left: Rc<Cell<u64>>,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.entry.read(buffer)?;
        self.read += read as u64;
        if self.read > self.most {
            let what = format!("a part expands to more than {RATIO_MAX} times its packed size");
            return Err(io::Error::other(TooMuch(what)));
        }
        let Some(left) = self.left.get().checked_sub(read as u64) else {
            return Err(io::Error::other(TooMuch(format!("it expands to more than {} MiB", EXPANDED_BYTES_MAX >> 20))));
        };
        self.left.set(left);
        Ok(read)
    }
}
