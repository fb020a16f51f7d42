//! Reads pages that are pictures: `pdftoppm` rasters one page at a time into a file, which tesseract reads once that has ended, so
//! that only one of them takes memory.

use std::collections::{BTreeMap, HashSet};
use std::io::{self, ErrorKind, Seek};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::page::PdfPage;
use crate::budget::{OCR_BYTES, RASTER_BYTES};
use crate::extract::program::{Allowance, Running, command, find, told};

const RESOLUTION: f32 = 300.0;
/// A page larger than this at that resolution is rastered with less: some 550 mm square.
const MAX_PIXELS: f32 = 40e6;
const MAX_OUTPUT_BYTES: u64 = 4 << 20;
/// A page with fewer words may be a picture with a number below it.
const FEW_WORDS: usize = 12;
/// A picture that may hold a page's text, in pixels of each side.
const PICTURE_SIDE: u32 = 500;
/// The most pages that are looked at for pictures at once. It begins with one page and doubles, as a document of text has a
/// short page here and there, and one that was scanned has nothing else.
const PICTURE_PAGES: u32 = 500;
/// The longest side of the small picture by which an empty page is told.
const GLANCE_PIXELS: &str = "200";
const GLANCE_TIME: Duration = Duration::from_secs(20);
/// Words that tesseract is less sure of, in percent, are left out: specks and lines.
const MIN_CONFIDENCE: f32 = 20.0;

#[derive(Debug)]
pub(super) struct Ocr {
    pub(super) rasterer: Option<PathBuf>,
    lister: Option<PathBuf>,
    pub(super) reader: Option<PathBuf>,
    /// As tesseract takes them: `eng+deu`.
    languages: String,
    time: Duration,
}

/// Pages with large pictures, of the stretch of pages that was looked at last.
#[derive(Debug, Default)]
pub(super) struct Pictures {
    looked_at: Range<u32>,
    pages: HashSet<u32>,
}

impl Pictures {
    /// The pages to look at when `page` is not among those that were.
    fn next(&self, page: u32) -> Range<u32> {
        let before = self.looked_at.end - self.looked_at.start;
        page..page.saturating_add((before * 2).clamp(1, PICTURE_PAGES))
    }
}

/// What OCR made of a page.
#[derive(Debug, PartialEq)]
pub(super) enum OcrOutcome {
    Text {
        paragraphs: Vec<String>,
        /// The mean over words, in percent.
        confidence: u32,
    },
    /// There are no words in the picture.
    Nothing,
    /// Why it could not be read.
    Failed(String),
}

impl Ocr {
    pub(super) fn new(languages: &str, time: Duration) -> Self {
        Self { rasterer: find("pdftoppm"), lister: find("pdfimages"), reader: find("tesseract"), languages: languages.to_owned(), time }
    }

    /// Whether the page's text is in a picture: it has next to none and is not empty.
    pub(super) fn is_picture(&self, file: &Path, page: &PdfPage, pictures: &mut Pictures) -> bool {
        match page.words() {
            0 => self.has_ink(file, page.number).unwrap_or(true),
            1..FEW_WORDS => {
                if !pictures.looked_at.contains(&page.number) {
                    let looked_at = pictures.next(page.number);
                    *pictures = Pictures { pages: self.with_pictures(file, &looked_at).unwrap_or_default(), looked_at };
                }
                pictures.pages.contains(&page.number)
            }
            _ => false,
        }
    }

    /// Whether not all of the page has the same colour, whatever it is drawn with.
    fn has_ink(&self, file: &Path, page: u32) -> Option<bool> {
        let number = page.to_string();
        let mut command =
            command(self.rasterer.as_ref()?, ["-q", "-gray", "-scale-to", GLANCE_PIXELS, "-singlefile", "-f", &number, "-l", &number]);
        command.arg(file);
        let glance = Allowance { memory_bytes: RASTER_BYTES, time: GLANCE_TIME };
        let ended = Running::start(command, glance).and_then(|running| running.finish(glance, MAX_OUTPUT_BYTES)).ok()?;
        // Three lines of a header come before the bytes: `P5`, the sides, the largest value.
        let pixels = ended.output.splitn(4, |byte| *byte == b'\n').nth(3)?;
        Some(pixels.windows(2).any(|pair| pair[0] != pair[1]))
    }

    /// The pages with a picture that may hold a page's text. A program for each page would take longer than all the rest.
    fn with_pictures(&self, file: &Path, pages: &Range<u32>) -> Option<HashSet<u32>> {
        let (first, last) = (pages.start.to_string(), (pages.end - 1).to_string());
        let mut command = command(self.lister.as_ref()?, ["-list", "-f", &first, "-l", &last]);
        command.arg(file);
        let glance = Allowance { memory_bytes: RASTER_BYTES, time: GLANCE_TIME };
        let ended = Running::start(command, glance).and_then(|running| running.finish(glance, MAX_OUTPUT_BYTES)).ok()?;
        let output = String::from_utf8_lossy(&ended.output).into_owned();
        let large = |row: &str| {
            let number = |at| row.split_whitespace().nth(at).and_then(|number| number.parse::<u32>().ok());
            (number(3)? >= PICTURE_SIDE && number(4)? >= PICTURE_SIDE).then(|| number(0)).flatten()
        };
        Some(output.lines().filter_map(large).collect())
    }

    pub(super) fn read(&self, file: &Path, page: &PdfPage) -> OcrOutcome {
        match self.try_read(file, page) {
            Ok(seen) => seen,
            Err(error) => OcrOutcome::Failed(error.to_string()),
        }
    }

    fn try_read(&self, file: &Path, page: &PdfPage) -> io::Result<OcrOutcome> {
        let missing = |name| io::Error::new(ErrorKind::NotFound, format!("{name} is not installed"));
        let reader = self.reader.as_ref().ok_or_else(|| missing("tesseract"))?;
        let rasterer = self.rasterer.as_ref().ok_or_else(|| missing("pdftoppm"))?;
        let inches = (page.width.max(1.0) / 72.0) * (page.height.max(1.0) / 72.0);
        let resolution = RESOLUTION.min((MAX_PIXELS / inches).sqrt()).floor().max(1.0).to_string();
        let number = page.number.to_string();

        let mut raster = command(rasterer, ["-q", "-gray", "-r", &resolution, "-singlefile", "-f", &number, "-l", &number]);
        let (began, mut picture) = (Instant::now(), tempfile::tempfile()?);
        raster.arg(file).stdout(picture.try_clone()?);
        let allowance = Allowance { memory_bytes: RASTER_BYTES, time: self.time };
        let ended = Running::start(raster, allowance)?.finish(allowance, 0)?;
        if picture.metadata()?.len() == 0 {
            return Err(io::Error::other(told(ended.status)));
        }
        picture.rewind()?;
        let arguments = ["stdin", "stdout", "-l", &self.languages, "--dpi", &resolution, "-c", "tessedit_create_tsv=1"];
        let mut read = command(reader, arguments);
        read.stdin(picture);
        let allowance = Allowance { memory_bytes: OCR_BYTES, time: self.time.saturating_sub(began.elapsed()) };
        let ended = Running::start(read, allowance)?.finish(allowance, MAX_OUTPUT_BYTES)?;
        if ended.status.success() { Ok(seen(&String::from_utf8_lossy(&ended.output))) } else { Err(io::Error::other(told(ended.status))) }
    }
}

/// Reads tesseract's rows: level, page, block, paragraph, line, word, four of place, confidence, text.
fn seen(output: &str) -> OcrOutcome {
    let mut paragraphs: BTreeMap<(u32, u32), String> = BTreeMap::new();
    let mut confidences = Vec::new();
    let mut line_before = 0;
    for row in output.lines() {
        let cells: Vec<&str> = row.splitn(12, '\t').collect();
        let [level, _, block, paragraph, line, _, _, _, _, _, confidence, text] = cells[..] else { continue };
        let (Ok(block), Ok(paragraph), Ok(line), Ok(confidence)) =
            (block.parse(), paragraph.parse(), line.parse::<u32>(), confidence.parse::<f32>())
        else {
            continue;
        };
        let text = text.trim();
        if level != "5" || text.is_empty() || confidence < MIN_CONFIDENCE {
            continue;
        }
        confidences.push(confidence);
        let paragraph = paragraphs.entry((block, paragraph)).or_default();
        if line != line_before && paragraph.ends_with('-') && text.starts_with(char::is_lowercase) {
            paragraph.pop();
        } else if !paragraph.is_empty() {
            paragraph.push(' ');
        }
        paragraph.push_str(text);
        line_before = line;
    }
    if confidences.is_empty() {
        return OcrOutcome::Nothing;
    }
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "percent of a page's words")]
    let confidence = (confidences.iter().sum::<f32>() / confidences.len() as f32).round() as u32;
    OcrOutcome::Text { paragraphs: paragraphs.into_values().collect(), confidence }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_are_looked_for_in_stretches_that_double() {
        let mut pictures = Pictures::default();
        let mut lengths = Vec::new();
        for page in 1..=10_000 {
            if !pictures.looked_at.contains(&page) {
                pictures.looked_at = pictures.next(page);
                lengths.push(pictures.looked_at.end - page);
            }
        }
        assert_eq!(lengths[..10], [1, 2, 4, 8, 16, 32, 64, 128, 256, 500]);
        assert!(lengths.len() < 30, "{} programs for the pictures of a document", lengths.len());
    }
}
