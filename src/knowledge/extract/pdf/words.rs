//! Reads what `pdftotext -tsv` prints: one row a page, block, line and word, in poppler's reading order.

use std::io::{self, BufRead};
use std::path::Path;
use std::process::Command;

use super::page::{Area, Font, Line, PdfPage, Word};
use super::stream::Give;
use crate::extract::program::{command, read_line};

/// A row longer than this is cut.
const MAX_ROW_BYTES: usize = 1 << 14;
/// What a page has beyond this is left out.
const MAX_PAGE_WORDS: usize = 50_000;
const MAX_PAGE_TEXT_BYTES: usize = 2 << 20;

const PAGE: &str = "1";
const BLOCK: &str = "3";
const LINE: &str = "4";
const WORD: &str = "5";

pub(super) fn print(program: &Path, file: &Path, first: u32, last: u32) -> Command {
    let mut command = command(program, ["-q", "-tsv", "-f", &first.to_string(), "-l", &last.to_string()]);
    command.arg(file).arg("-");
    command
}

pub(super) fn parse(mut output: impl BufRead, give: &mut Give<'_, PdfPage>) -> io::Result<()> {
    let mut row = Vec::new();
    let mut reading: Option<Reading> = None;
    while read_line(&mut output, &mut row, MAX_ROW_BYTES)? {
        let Some(row) = Row::read(&row) else { continue };
        if row.level == PAGE {
            if let Some(done) = reading.replace(Reading::new(&row))
                && !give(done.finish())
            {
                return Ok(());
            }
        } else if let Some(reading) = &mut reading {
            reading.take(&row);
        }
    }
    // The last page is whole only if the program came to its end; an empty rest of it does no harm.
    if let Some(done) = reading {
        give(done.finish());
    }
    Ok(())
}

struct Row {
    level: &'static str,
    number: u32,
    area: Area,
    text: String,
}

impl Row {
    fn read(row: &[u8]) -> Option<Self> {
        let row = String::from_utf8_lossy(row);
        let mut cells = row.splitn(12, '\t');
        let level = cells.next()?;
        let level = [PAGE, BLOCK, LINE, WORD].into_iter().find(|known| *known == level)?;
        let number = cells.next()?.parse().ok()?;
        let mut cells = cells.skip(4);
        let mut place = || cells.next()?.parse::<f32>().ok().filter(|place| place.is_finite());
        let (left, top, width, height) = (place()?, place()?, place()?, place()?);
        let text = cells.nth(1)?.trim().to_owned();
        Some(Self { level, number, area: Area { left, top, right: left + width, bottom: top + height }, text })
    }
}

struct Reading {
    page: PdfPage,
    block: u32,
    words: Vec<Word>,
    count: usize,
    bytes: usize,
}

impl Reading {
    fn new(row: &Row) -> Self {
        let page = PdfPage { number: row.number, width: row.area.width(), height: row.area.height(), ..PdfPage::default() };
        Self { page, block: 0, words: Vec::new(), count: 0, bytes: 0 }
    }

    fn take(&mut self, row: &Row) {
        match row.level {
            WORD => {
                self.count += 1;
                self.bytes += row.text.len();
                let bounded = self.count <= MAX_PAGE_WORDS && self.bytes <= MAX_PAGE_TEXT_BYTES;
                let text: String = row.text.chars().filter(|letter| !letter.is_control()).collect();
                if bounded && !text.is_empty() {
                    self.words.push(Word { area: row.area, text, font: Font { size: row.area.height(), ..Font::default() } });
                }
            }
            LINE => self.end_line(),
            _ => {
                self.end_line();
                self.block += 1;
            }
        }
    }

    fn end_line(&mut self) {
        let words = std::mem::take(&mut self.words);
        self.page.lines.extend(Line::new(self.block, words));
    }

    fn finish(mut self) -> PdfPage {
        self.end_line();
        self.page
    }
}
