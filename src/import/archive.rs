//! Reads untrusted zip archives. The central directory is checked as a whole before any byte is inflated, and no more is
//! inflated than it declares. Names outside the archive, links and overlapping files are refused.
//!
//! Libraries are written to read as many archives as possible; most of this module is refusals.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

use flate2::Crc;
use flate2::read::DeflateDecoder;
use slipway_http::Error;

use super::folder::{FileEntry, FileKind};

const ENTRIES_MAX: usize = 10_000;
const DIRECTORY_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// The inflated size that an archive may declare.
const EXPANDED_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// The highest compression ratio of a file. Text rarely reaches ten.
const RATIO_MAX: u64 = 200;
/// Files below this size may have any ratio.
const RATIO_EXEMPT_BYTES: u64 = 1024 * 1024;

const END_RECORD_BYTES: usize = 22;
const COMMENT_BYTES_MAX: u64 = 0xffff;
const ENTRY_HEADER_BYTES: usize = 46;
const LOCAL_HEADER_BYTES: u64 = 30;

/// The part of a file that should be a zip archive.
pub(super) struct Archive {
    pub file: File,
    pub start: u64,
    pub length: u64,
}

/// The position of a file's bytes in the archive.
#[derive(Debug, Clone)]
pub(super) struct Location {
    offset: u64,
    packed: u64,
    deflated: bool,
    crc: u32,
}

fn wrong(what: impl Into<String>) -> Error {
    Error::bad_request(format!("the zip archive cannot be used: {}", what.into()))
}

fn truncated(_: &[u8]) -> Error {
    wrong("its directory is cut off")
}

/// Little-endian. Callers have checked the length; beyond it this reads zero.
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).and_then(|two| two.try_into().ok()).map_or(0, u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|four| four.try_into().ok()).map_or(0, u32::from_le_bytes)
}

impl Archive {
    fn bytes(&self, at: u64, length: u64) -> Result<Vec<u8>, Error> {
        if at.checked_add(length).is_none_or(|end| end > self.length) {
            return Err(wrong("it is cut off, or points beyond its end"));
        }
        let mut bytes = vec![0; usize::try_from(length).map_err(Error::internal)?];
        self.file.read_exact_at(&mut bytes, self.start + at).map_err(Error::internal)?;
        Ok(bytes)
    }

    /// All files of the archive, without its folders.
    pub(super) fn entries(&self) -> Result<Vec<FileEntry<Location>>, Error> {
        let (count, directory) = self.directory()?;
        let mut rest = directory.as_slice();
        let (mut entries, mut packed, mut expanded) = (Vec::new(), 0_u64, 0_u64);
        for _ in 0..count {
            let (entry, after) = entry(rest)?;
            rest = after;
            let Some(entry) = entry else { continue };
            packed = packed.saturating_add(entry.location.packed);
            expanded = expanded.saturating_add(entry.size);
            entries.push(entry);
        }
        // Overlapping files let a small archive hold petabytes.
        if packed > self.length {
            return Err(wrong("its files overlap"));
        }
        if expanded > EXPANDED_BYTES_MAX {
            return Err(wrong(format!("it would expand to {expanded} bytes; at most {EXPANDED_BYTES_MAX} are possible")));
        }
        Ok(entries)
    }

    /// The number of entries in the central directory, and its bytes.
    fn directory(&self) -> Result<(usize, Vec<u8>), Error> {
        let tail = self.length.min(COMMENT_BYTES_MAX + END_RECORD_BYTES as u64);
        let from = self.length - tail;
        let bytes = self.bytes(from, tail)?;
        let ends = |at: &usize| {
            bytes[*at..].starts_with(b"PK\x05\x06") && at + END_RECORD_BYTES + usize::from(u16_at(&bytes, at + 20)) == bytes.len()
        };
        let last = bytes.len().checked_sub(END_RECORD_BYTES).ok_or_else(|| wrong("it is too short to be one"))?;
        let at = (0..=last).rev().find(ends).ok_or_else(|| wrong("it has no directory at its end; it is no zip archive or was cut off"))?;
        let end = &bytes[at..];
        let (count, size, offset) = (u16_at(end, 10), u32_at(end, 12), u32_at(end, 16));
        if u16_at(end, 4) != 0 || u16_at(end, 6) != 0 || u16_at(end, 8) != count {
            return Err(wrong("it is one of several parts"));
        }
        if usize::from(count) > ENTRIES_MAX {
            return Err(wrong(format!("it has more than {ENTRIES_MAX} entries")));
        }
        let (size, offset) = (u64::from(size), u64::from(offset));
        if size > DIRECTORY_BYTES_MAX {
            return Err(wrong(format!("its directory has {size} bytes; at most {DIRECTORY_BYTES_MAX} are possible")));
        }
        if offset + size > from + at as u64 {
            return Err(wrong("its directory is not where it says"));
        }
        Ok((usize::from(count), self.bytes(offset, size)?))
    }

    /// The bytes of one file, of exactly the declared size.
    pub(super) fn read(&self, entry: &FileEntry<Location>) -> Result<Vec<u8>, Error> {
        let location = &entry.location;
        let wrong_here = |what: &str| wrong(format!("{}: {what}", entry.path));
        let local = self.bytes(location.offset, LOCAL_HEADER_BYTES)?;
        if !local.starts_with(b"PK\x03\x04") {
            return Err(wrong_here("is not where the directory says"));
        }
        let start = location.offset + LOCAL_HEADER_BYTES + u64::from(u16_at(&local, 26)) + u64::from(u16_at(&local, 28));
        let packed = self.bytes(start, location.packed)?;
        let bytes = if location.deflated {
            let mut bytes = Vec::new();
            let inflated = DeflateDecoder::new(packed.as_slice()).take(entry.size + 1).read_to_end(&mut bytes);
            inflated.map_err(|error: io::Error| wrong_here("cannot be inflated").because(error))?;
            bytes
        } else {
            packed
        };
        let mut crc = Crc::new();
        crc.update(&bytes);
        if bytes.len() as u64 != entry.size || crc.sum() != location.crc {
            return Err(wrong_here("is not what the directory says"));
        }
        Ok(bytes)
    }
}

/// The first entry of the directory, none if it is a folder, and the bytes behind it.
fn entry(bytes: &[u8]) -> Result<(Option<FileEntry<Location>>, &[u8]), Error> {
    if bytes.len() < ENTRY_HEADER_BYTES || !bytes.starts_with(b"PK\x01\x02") {
        return Err(truncated(bytes));
    }
    let lengths = [28, 30, 32].map(|at| usize::from(u16_at(bytes, at)));
    let all = ENTRY_HEADER_BYTES + lengths.iter().sum::<usize>();
    if bytes.len() < all {
        return Err(truncated(bytes));
    }
    let rest = &bytes[all..];
    let name =
        std::str::from_utf8(&bytes[ENTRY_HEADER_BYTES..ENTRY_HEADER_BYTES + lengths[0]]).map_err(|_| wrong("a name in it is not UTF-8"))?;
    let path = name.strip_prefix("./").unwrap_or(name);
    let path = path.strip_suffix('/').unwrap_or(path);
    if !is_contained(path) && name != "./" {
        return Err(wrong(format!("{name:?} leads out of it, or is no relative path with forward slashes")));
    }
    let (flags, method, offset) = (u16_at(bytes, 8), u16_at(bytes, 10), u32_at(bytes, 42));
    let (packed, size) = (u32_at(bytes, 20), u32_at(bytes, 24));
    if [packed, size, offset].contains(&u32::MAX) {
        return Err(wrong(format!("{path} takes the 64-bit form, which no skill needs")));
    }
    // The file type, if the archive was made on Unix.
    let unix_type = if bytes[5] == 3 { u32_at(bytes, 38) >> 28 } else { 0 };
    let kind = match unix_type {
        0 | 0o10 | 0o4 => FileKind::File,
        0o12 => FileKind::Other("a symbolic link"),
        _ => FileKind::Other("no plain file"),
    };
    if name.ends_with('/') {
        return Ok((None, rest));
    }
    if flags & 1 != 0 {
        return Err(wrong(format!("{path} is encrypted")));
    }
    let deflated = match method {
        0 if packed == size => false,
        8 => true,
        _ => return Err(wrong(format!("{path} is packed in a way other than stored or deflated"))),
    };
    let (packed, size) = (u64::from(packed), u64::from(size));
    if size > RATIO_EXEMPT_BYTES && size / packed.max(1) > RATIO_MAX {
        return Err(wrong(format!("{path} would expand to {size} bytes, more than {RATIO_MAX} times what it has")));
    }
    // Incompressible data grows by a few bytes in 64 KiB.
    if packed > size + size / 1024 + 64 {
        return Err(wrong(format!("{path} has {packed} bytes for {size}")));
    }
    let location = Location { offset: u64::from(offset), packed, deflated, crc: u32_at(bytes, 16) };
    Ok((Some(FileEntry { path: path.to_owned(), kind, size, location }), rest))
}

/// Whether a name stays within the folder that it is unpacked to, on any system.
fn is_contained(path: &str) -> bool {
    let plain = |step: &str| !matches!(step, "" | "." | "..");
    let forbidden = |letter: char| letter.is_control() || matches!(letter, '\\' | ':');
    path.len() <= 1024 && !path.contains(forbidden) && path.split('/').all(plain)
}

#[cfg(test)]
mod tests;
