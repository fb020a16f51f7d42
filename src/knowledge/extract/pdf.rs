//! Reads PDF: poppler's programs print words and fonts in child processes, and what words make of each other (headings, tables,
//! running headers, paragraphs) is found here, page by page. Pages that are pictures are read by tesseract.

use std::fs;
use std::io::{self, ErrorKind};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use self::flow::Flow;
use self::margins::{Margins, NEIGHBOURS};
use self::notes::{Notes, PageNote};
use self::ocr::{Ocr, OcrOutcome, Pictures};
use self::outline::Outline;
use self::page::PdfPage;
use self::reader::{Read, Reader, ReaderState};
use super::program::{Allowance, Running, command, find, told};
use super::{ExtractSummary, Extractor, Sink, Unreadable};
use crate::budget::PAGES_PROGRAM_BYTES;

mod flow;
mod fonts;
mod margins;
mod notes;
mod ocr;
mod outline;
mod page;
mod reader;
mod stream;
mod tables;
mod words;

#[cfg(test)]
mod tests;

const MAX_PAGES: u32 = 10_000;
const MAX_TEXT_BYTES: u64 = 64 << 20;
const MAX_OCR_PAGES: u32 = 500;
const MAX_OCR_PAGE_TIME: Duration = Duration::from_mins(1);
const MAX_PAGE_TIME: Duration = Duration::from_secs(20);
const MAX_TIME: Duration = Duration::from_hours(1);

const INFO_TIME: Duration = Duration::from_secs(20);
const MAX_INFO_BYTES: u64 = 64 << 10;
const MAX_OUTLINE_BYTES: u64 = 8 << 20;
/// OCR that is less sure of a page's words, in percent, is told so.
const LOW_CONFIDENCE: u32 = 70;

/// What a document may have and take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PdfLimits {
    pub pages: u32,
    pub text_bytes: u64,
    /// Pages that are pictures, beyond which they are told and not read.
    pub ocr_pages: u32,
    pub ocr_page_time: Duration,
    pub page_time: Duration,
    /// Of the whole document.
    pub time: Duration,
}

impl Default for PdfLimits {
    fn default() -> Self {
        Self {
            pages: MAX_PAGES,
            text_bytes: MAX_TEXT_BYTES,
            ocr_pages: MAX_OCR_PAGES,
            ocr_page_time: MAX_OCR_PAGE_TIME,
            page_time: MAX_PAGE_TIME,
            time: MAX_TIME,
        }
    }
}

/// The extractor of PDF.
#[derive(Debug)]
pub struct Pdf {
    info: PathBuf,
    text: PathBuf,
    html: PathBuf,
    ocr: Ocr,
    limits: PdfLimits,
}

impl Pdf {
    /// Finds the programs; the languages of pictures are those of tesseract, as `eng+deu`.
    pub fn new(limits: PdfLimits, languages: &str) -> io::Result<Self> {
        let program = |name| find(name).ok_or_else(|| io::Error::new(ErrorKind::NotFound, format!("{name} of poppler is not installed")));
        Ok(Self {
            info: program("pdfinfo")?,
            text: program("pdftotext")?,
            html: program("pdftohtml")?,
            ocr: Ocr::new(languages, limits.ocr_page_time),
            limits,
        })
    }

    fn allowance(&self) -> Allowance {
        Allowance { memory_bytes: PAGES_PROGRAM_BYTES, time: self.limits.time }
    }

    /// The number of pages.
    fn pages(&self, file: &Path) -> Result<u32, Unreadable> {
        let allowance = Allowance { time: INFO_TIME, ..self.allowance() };
        let mut command = command(&self.info, [file]);
        command.stderr(std::process::Stdio::piped());
        let ended = match Running::start(command, allowance)?.finish(allowance, MAX_INFO_BYTES) {
            // What a title of any length makes, and what takes any time, is the document's own doing.
            Err(error) if matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::FileTooLarge) => {
                return Err(Unreadable::TooLarge(format!("its head cannot be read: {error}")));
            }
            ended => ended?,
        };
        if ended.complaint.contains("Incorrect password") {
            return Err(Unreadable::Encrypted);
        }
        let output = String::from_utf8_lossy(&ended.output);
        let pages = output.lines().find_map(|row| row.strip_prefix("Pages:")).and_then(|pages| pages.trim().parse::<u32>().ok());
        match pages {
            Some(pages) if ended.status.success() && pages > 0 => Ok(pages),
            Some(_) => Err(Unreadable::Broken("it has no pages".to_owned())),
            None => Err(Unreadable::Broken(reason(&ended.complaint).unwrap_or_else(|| told(ended.status)))),
        }
    }

    fn outline(&self, file: &Path) -> Outline {
        let allowance = Allowance { time: INFO_TIME, ..self.allowance() };
        let mut command = command(&self.html, ["-q", "-xml", "-i", "-nodrm", "-stdout", "-f", "1", "-l", "1"]);
        command.arg(file);
        let ended = Running::start(command, allowance).and_then(|running| running.finish(allowance, MAX_OUTLINE_BYTES));
        ended.map_or_else(|_| Outline::default(), |ended| Outline::read(&String::from_utf8_lossy(&ended.output)))
    }
}

impl Extractor for Pdf {
    fn extract(&self, file: &Path, sink: &mut Sink<'_>) -> Result<ExtractSummary, Unreadable> {
        // Absolute, so that no name is taken for an option.
        let file = fs::canonicalize(file)?;
        let pages = self.pages(&file)?;
        if pages > self.limits.pages {
            return Err(Unreadable::TooLarge(format!("it has {pages} pages, and {} are read", self.limits.pages)));
        }
        let reader = Reader {
            text_program: self.text.clone(),
            font_program: self.html.clone(),
            file: file.clone(),
            pages,
            allowance: self.allowance(),
            patience: self.limits.page_time,
            state: ReaderState::default(),
        };
        let mut reading = Reading {
            pdf: self,
            reader,
            margins: Margins::default(),
            flow: Flow::new(self.outline(&file)),
            notes: Notes::default(),
            with_pictures: Pictures::default(),
            pictures: 0,
            began: Instant::now(),
        };
        reading.all(sink)?;
        Ok(ExtractSummary { pages: Some(pages), notes: reading.notes.told() })
    }
}

/// A document on its way.
struct Reading<'a> {
    pdf: &'a Pdf,
    reader: Reader,
    margins: Margins,
    flow: Flow,
    notes: Notes,
    with_pictures: Pictures,
    /// Pages that were read by OCR.
    pictures: u32,
    began: Instant,
}

impl Reading<'_> {
    fn all(&mut self, sink: &mut Sink<'_>) -> Result<(), Unreadable> {
        let mut lost = 0;
        loop {
            match self.reader.read()? {
                Read::Page(page) => {
                    let page = self.with_picture(page);
                    self.flow.learn(&page);
                    if let Some(page) = self.margins.push(page)
                        && self.flow.tell(page, sink).is_break()
                    {
                        return Ok(());
                    }
                }
                Read::Lost(number) => {
                    lost += 1;
                    self.notes.add(number, PageNote::Lost);
                }
                Read::GivenUp(number) => {
                    lost += self.reader.pages - number + 1;
                    self.notes.add_range(number, self.reader.pages, PageNote::Lost);
                    break;
                }
                Read::End => break,
            }
            self.check()?;
        }
        if lost >= self.reader.pages {
            return Err(Unreadable::Broken("none of its pages can be read".to_owned()));
        }
        if self.reader.fonts_failed() {
            self.notes.add_whole("fonts are not known of all pages, and so some headings are not");
        }
        self.rest(sink)
    }

    /// The pages that waited for their neighbours.
    fn rest(&mut self, sink: &mut Sink<'_>) -> Result<(), Unreadable> {
        for _ in 0..=NEIGHBOURS {
            if let Some(page) = self.margins.pop()
                && self.flow.tell(page, sink).is_break()
            {
                return Ok(());
            }
        }
        // Whether it goes on does not matter any more.
        let (ControlFlow::Continue(()) | ControlFlow::Break(())) = self.flow.finish(sink);
        self.check()
    }

    fn check(&self) -> Result<(), Unreadable> {
        let limits = &self.pdf.limits;
        if self.flow.given > limits.text_bytes {
            return Err(Unreadable::TooLarge(format!("it has more than {} bytes of text", limits.text_bytes)));
        }
        if self.began.elapsed() > limits.time {
            return Err(Unreadable::TooLarge(format!("it takes more than {} s to read", limits.time.as_secs())));
        }
        Ok(())
    }

    fn with_picture(&mut self, mut page: PdfPage) -> PdfPage {
        let ocr = &self.pdf.ocr;
        if !ocr.is_picture(self.reader.file(), &page, &mut self.with_pictures) {
            return page;
        }
        let number = page.number;
        if self.pictures >= self.pdf.limits.ocr_pages {
            self.notes.add(number, PageNote::Unread(format!("{} pages of a document are", self.pdf.limits.ocr_pages)));
            return page;
        }
        self.pictures += 1;
        match ocr.read(self.reader.file(), &page) {
            OcrOutcome::Text { paragraphs, confidence } => {
                self.notes.add(number, if confidence < LOW_CONFIDENCE { PageNote::ReadWithLowConfidence } else { PageNote::Read });
                // A few words of text may be in the picture as well, or be its page number.
                let words: usize = paragraphs.iter().map(|paragraph| paragraph.split(' ').count()).sum();
                if words > page.words() {
                    page.lines.clear();
                    page.seen = paragraphs;
                }
            }
            OcrOutcome::Nothing => self.notes.add(number, PageNote::WithoutText),
            OcrOutcome::Failed(why) => self.notes.add(number, PageNote::Unread(why)),
        }
        page
    }
}

/// Poppler's last complaint, as a reason.
fn reason(complaint: &str) -> Option<String> {
    let line = complaint.lines().rev().map(str::trim).find(|line| !line.is_empty())?;
    let line = line.split_once("Error").map_or(line, |(_, rest)| rest);
    let line = line.split_once("): ").map_or(line, |(_, rest)| rest).trim_start_matches([':', ' ']);
    Some(line.chars().filter(|letter| !letter.is_control()).take(200).collect())
}
