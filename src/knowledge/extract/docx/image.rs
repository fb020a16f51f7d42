//! Reads embedded raster images by OCR, with tesseract as a subprocess and limits of their number and time.

use std::collections::HashMap;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::package::Package;
use super::relations::Relations;
use crate::budget::OCR_BYTES;
use crate::extract::Unreadable;
use crate::extract::program::{Allowance, Running, command};

/// How many images of a document are read.
const IMAGES_MAX: usize = 50;
const IMAGE_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Smaller ones are icons and lines.
const IMAGE_BYTES_MIN: usize = 512;
/// Of one image.
const ALLOWANCE: Allowance = Allowance { memory_bytes: OCR_BYTES, time: Duration::from_secs(20) };
/// For all images of a document.
const TOTAL_TIMEOUT: Duration = Duration::from_mins(2);
const TEXT_BYTES_MAX: u64 = 256 * 1024;

/// The first bytes of raster images that tesseract reads.
const RASTERS: [&[u8]; 7] = [b"\x89PNG\r\n", b"\xff\xd8\xff", b"GIF8", b"II*\0", b"MM\0*", b"BM", b"RIFF"];

pub(super) struct Images<'a> {
    tesseract: Option<&'a Path>,
    file: &'a Path,
    /// A second view of the archive: the first is read as a stream meanwhile.
    package: Option<Package>,
    /// By id; each is read once.
    parts: HashMap<String, String>,
    taken: Duration,
    tried: usize,
    read: usize,
    unread: usize,
    /// Drawings made of lines.
    vectors: usize,
}

impl<'a> Images<'a> {
    pub(super) fn new(tesseract: Option<&'a Path>, file: &'a Path, relations: &Relations) -> Self {
        let parts = relations.images().map(|(id, part)| (id.to_owned(), part.to_owned())).collect();
        Self { tesseract, file, package: None, parts, taken: Duration::ZERO, tried: 0, read: 0, unread: 0, vectors: 0 }
    }

    /// The paragraphs of an image's text, unless it was read before.
    pub(super) fn read(&mut self, id: &str) -> Vec<String> {
        let Some(part) = self.parts.remove(id) else { return Vec::new() };
        // The same image may have several ids.
        self.parts.retain(|_, other| *other != part);
        let Some(bytes) = self.bytes(&part) else {
            self.unread += 1;
            return Vec::new();
        };
        if !RASTERS.iter().any(|magic| bytes.starts_with(magic)) {
            self.vectors += 1;
            return Vec::new();
        }
        if bytes.len() < IMAGE_BYTES_MIN {
            return Vec::new();
        }
        let Some(tesseract) = self.tesseract.filter(|_| self.tried < IMAGES_MAX && self.taken < TOTAL_TIMEOUT) else {
            self.unread += 1;
            return Vec::new();
        };
        self.tried += 1;
        let started = Instant::now();
        let text = recognize(tesseract, &bytes);
        self.taken += started.elapsed();
        let Some(text) = text else {
            self.unread += 1;
            return Vec::new();
        };
        let paragraphs = paragraphs(&text);
        self.read += usize::from(!paragraphs.is_empty());
        paragraphs
    }

    fn bytes(&mut self, part: &str) -> Option<Vec<u8>> {
        if self.package.is_none() {
            self.package = Package::open(self.file).ok();
        }
        let stream = self.package.as_mut()?.part(part).map_err(|_: Unreadable| ()).ok()??;
        let mut bytes = Vec::new();
        stream.take(IMAGE_BYTES_MAX + 1).read_to_end(&mut bytes).ok()?;
        (bytes.len() as u64 <= IMAGE_BYTES_MAX).then_some(bytes)
    }

    pub(super) fn into_notes(self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.read > 0 {
            notes.push(format!("images that were read by OCR: {}", self.read));
        }
        if self.unread > 0 {
            let why = if self.tesseract.is_none() { "there is no tesseract" } else { "too large, too many, or tesseract failed" };
            notes.push(format!("images that were not read: {} ({why})", self.unread));
        }
        if self.vectors > 0 {
            notes.push(format!("drawings that were left out: {}", self.vectors));
        }
        notes
    }
}

/// None if it fails or takes too long.
fn recognize(tesseract: &Path, bytes: &[u8]) -> Option<String> {
    let folder = tempfile::tempdir().ok()?;
    fs::write(folder.path().join("image"), bytes).ok()?;
    let mut command = command(tesseract, ["image", "text", "--psm", "3"]);
    command.current_dir(folder.path()).env("TMPDIR", folder.path()).stdout(Stdio::null());
    let ended = Running::start(command, ALLOWANCE).and_then(|running| running.finish(ALLOWANCE, 0)).ok()?;
    let file = fs::File::open(folder.path().join("text.txt")).ok().filter(|_| ended.status.success())?;
    let mut text = String::new();
    file.take(TEXT_BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

/// What tesseract makes of photographs and ornaments is left out.
fn paragraphs(text: &str) -> Vec<String> {
    let is_text = |paragraph: &&str| {
        let letters = paragraph.chars().filter(|letter| letter.is_alphanumeric()).count();
        let all = paragraph.chars().filter(|letter| !letter.is_whitespace()).count();
        letters >= 3 && letters * 10 >= all * 6
    };
    text.split("\n\n").map(str::trim).filter(is_text).map(|paragraph| paragraph.replace('\u{c}', "").replace('\n', " ")).collect()
}
