//! Joins lines to paragraphs, headings, list items and code, across lines, columns and pages, and tells tables' rows.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::ops::ControlFlow;

use super::outline::Outline;
use super::page::{Area, Font, Line, PdfPage};
use super::tables::{Item, PdfTable, split};
use crate::extract::Sink;
use crate::{Block, BlockKind};

/// A paragraph longer than this is cut: the text of a page without spaces, say.
const MAX_PARAGRAPH_BYTES: usize = 1 << 16;
/// Words that are remembered, for what a hyphen at a line's end means.
const MAX_VOCABULARY: usize = 200_000;
const MAX_HEADING_LENGTH: usize = 200;
/// A heading is larger than the text by this, or bold.
const HEADING_SIZE: f32 = 1.14;

/// What has been read and not yet given: the next line may belong to it.
#[derive(Debug)]
struct Open {
    kind: BlockKind,
    text: String,
    page: u32,
    font: Font,
    /// Of its last line.
    area: Area,
    block: u32,
    left: f32,
    right: f32,
    lines: usize,
}

pub(super) struct Flow {
    outline: Outline,
    /// Characters by size in quarters of a point: the most frequent is the text's size.
    sizes: HashMap<i32, u64>,
    /// Lines by the distance of their tops in twentieths of the size.
    pitches: HashMap<i32, u64>,
    vocabulary: HashSet<u64>,
    hasher: RandomState,
    open: Option<Open>,
    /// The columns and the head of the table that the page before ended with.
    table: Option<(Vec<f32>, Vec<String>)>,
    /// Bytes of text given.
    pub(super) given: u64,
}

#[expect(clippy::cast_possible_truncation, reason = "sizes of text are small, and what is not is clamped")]
fn parts(size: f32, a_part: f32) -> i32 {
    (size * a_part).round() as i32
}

#[expect(clippy::cast_precision_loss, reason = "sizes of text are small")]
fn most(counts: &HashMap<i32, u64>, a_part: f32) -> Option<f32> {
    counts.iter().max_by_key(|(part, count)| (**count, -**part)).map(|(part, _)| *part as f32 / a_part)
}

impl Flow {
    pub(super) fn new(outline: Outline) -> Self {
        Self {
            outline,
            sizes: HashMap::new(),
            pitches: HashMap::new(),
            vocabulary: HashSet::new(),
            hasher: RandomState::new(),
            open: None,
            table: None,
            given: 0,
        }
    }

    /// Learns the text's size, pitch and words of a page, some pages before it is told.
    pub(super) fn learn(&mut self, page: &PdfPage) {
        for pair in page.lines.windows(2) {
            let (above, below) = (&pair[0], &pair[1]);
            if above.block == below.block && below.area.top > above.area.top && above.area.height() > 0.0 {
                *self.pitches.entry(parts((below.area.top - above.area.top) / above.area.height(), 20.0)).or_default() += 1;
            }
        }
        for word in page.lines.iter().flat_map(|line| &line.words) {
            *self.sizes.entry(parts(word.font.size, 4.0)).or_default() += word.text.len() as u64;
            if self.vocabulary.len() < MAX_VOCABULARY {
                self.vocabulary.insert(self.hasher.hash_one(bare(&word.text)));
            }
        }
    }

    pub(super) fn tell(&mut self, page: PdfPage, sink: &mut Sink<'_>) -> ControlFlow<()> {
        let number = page.number;
        let seen = page.seen.clone();
        let lines = labelled(page);
        let body = most(&self.sizes, 4.0).unwrap_or(0.0);
        let mut first = true;
        for item in split(lines) {
            match item {
                Item::Table(table) => {
                    self.close(sink)?;
                    self.tell_table(number, table, first, sink)?;
                }
                Item::Line(line) => {
                    self.table = None;
                    self.tell_line(number, &line, body, sink)?;
                }
            }
            first = false;
        }
        if !seen.is_empty() {
            self.close(sink)?;
        }
        for text in seen {
            self.give(Block { kind: BlockKind::Paragraph, text, page: Some(number) }, sink)?;
        }
        ControlFlow::Continue(())
    }

    pub(super) fn finish(&mut self, sink: &mut Sink<'_>) -> ControlFlow<()> {
        self.close(sink)
    }

    fn give(&mut self, block: Block, sink: &mut Sink<'_>) -> ControlFlow<()> {
        self.given += block.text.len() as u64;
        sink(block)
    }

    fn tell_table(&mut self, page: u32, table: PdfTable, first: bool, sink: &mut Sink<'_>) -> ControlFlow<()> {
        let before = self.table.take().filter(|(columns, head)| {
            let same = |(one, other): (&f32, &f32)| (one - other).abs() < 6.0;
            // Numbers of other lengths begin elsewhere, but a head that is set again tells.
            let placed = || columns.len() == table.columns.len() && columns.iter().zip(&table.columns).all(same);
            first && (table.rows.first() == Some(head) || placed())
        });
        let continued = before.is_some();
        let head = before.map_or_else(|| table.rows.first().cloned().unwrap_or_default(), |(_, head)| head);
        for (at, row) in table.rows.iter().enumerate() {
            // The head of a table is set again on its next page.
            if continued && at == 0 && *row == head {
                continue;
            }
            let kind = if at == 0 && !continued { BlockKind::TableHead } else { BlockKind::TableRow };
            let cells: Vec<String> = row.iter().map(|cell| cell.replace('|', "\\|")).collect();
            self.give(Block { kind, text: format!("| {} |", cells.join(" | ")), page: Some(page) }, sink)?;
        }
        self.table = Some((table.columns, head));
        ControlFlow::Continue(())
    }

    fn tell_line(&mut self, page: u32, line: &Line, body: f32, sink: &mut Sink<'_>) -> ControlFlow<()> {
        let font = line.font();
        let text = without_leaders(line);
        if text.is_empty() {
            return ControlFlow::Continue(());
        }
        if let Some(mut open) = self.open.take() {
            if open.text.len() < MAX_PARAGRAPH_BYTES && self.joins(&open, page, line, font, body) {
                self.join(&mut open, line, &text);
                self.open = Some(open);
                return ControlFlow::Continue(());
            }
            self.open = Some(open);
            self.close(sink)?;
        }
        let leaders = text.len() < line.text().len();
        let (kind, text) = self.kind(page, line, font, body, text, leaders);
        self.open = Some(Open {
            kind,
            text,
            page,
            font,
            area: line.area,
            block: line.block,
            left: line.area.left,
            right: line.area.right,
            lines: 1,
        });
        if leaders {
            self.close(sink)?;
        }
        ControlFlow::Continue(())
    }

    fn kind(&self, page: u32, line: &Line, font: Font, body: f32, text: String, leaders: bool) -> (BlockKind, String) {
        if leaders {
            return (BlockKind::ListItem, text);
        }
        if let Some(level) = self.outline.level(page, &text) {
            return (BlockKind::Heading(level), text);
        }
        if font.mono {
            return (BlockKind::Code, spaced(line));
        }
        if looks_like_heading(font, body, &text) {
            return (BlockKind::Heading(level(font, body, &text)), text);
        }
        match list_item(&text) {
            Some(rest) => (BlockKind::ListItem, rest.to_owned()),
            None => (BlockKind::Paragraph, text),
        }
    }

    /// Whether the line belongs to what is open.
    fn joins(&self, open: &Open, page: u32, line: &Line, font: Font, body: f32) -> bool {
        let same_size = (font.size - open.font.size).abs() <= 0.12 * open.font.size.max(1.0);
        let text = line.text();
        if line.area.beside(&open.area) && page == open.page && line.area.left >= open.area.right - 1.0 {
            // The rest of the same line, which poppler has in another block.
            return line.area.left - open.area.right < 3.0 * line.area.height() && (same_size || open.lines == 1);
        }
        if font.mono != open.font.mono || !same_size {
            return false;
        }
        let below = line.area.top - open.area.top;
        let pitch = most(&self.pitches, 20.0).unwrap_or(1.2).clamp(0.9, 3.0);
        let follows = page == open.page && below > 0.0 && below < (pitch + 0.3) * line.area.height();
        match open.kind {
            BlockKind::Code => follows || (page == open.page && below > 0.0 && below < (2.0 * pitch + 0.3) * line.area.height()),
            BlockKind::Heading(_) => {
                follows
                    && font.bold == open.font.bold
                    && open.text.len() + text.len() < MAX_HEADING_LENGTH
                    && looks_like_heading(font, body, &text)
                    && self.outline.level(page, &text).is_none()
                    && self.outline.level(page, &open.text).is_none()
                    && numbering(&text) == 0
            }
            _ if self.outline.level(page, &text).is_some()
                || looks_like_heading(font, body, &text) != looks_like_heading(open.font, body, &open.text) =>
            {
                false
            }
            _ if list_item(&text).is_some() => false,
            _ if !follows => {
                // The next column or page goes on within a sentence.
                let ended = open.text.ends_with(['.', '!', '?', ':', ';', '”', '"', ')', '。']);
                let begins = text.chars().next().is_some_and(char::is_lowercase);
                let elsewhere = page == open.page + 1 || (page == open.page && below < 0.0);
                elsewhere && !ended && begins && font.bold == open.font.bold
            }
            _ => {
                // Had the first word found room in the line above, the break was meant.
                let room = open.right - open.area.right;
                let wanted = line.words.first().map_or(0.0, |word| word.area.width() + 0.3 * line.area.height());
                let indented = line.area.left > open.left + 0.8 * line.area.height() && open.lines > 1;
                let ended = open.text.ends_with(['.', '!', '?', ':']);
                let apart = line.area.left > open.right || line.area.right < open.left;
                !(apart || (room > wanted + 0.5 * line.area.height() && (ended || line.block != open.block)) || (indented && ended))
            }
        }
    }

    fn join(&self, open: &mut Open, line: &Line, text: &str) {
        if open.kind == BlockKind::Code {
            let beside = line.area.beside(&open.area);
            if beside {
                open.text.push(' ');
                open.text.push_str(text);
            } else {
                let width = width_of_letter(line);
                let indent = ((line.area.left - open.left) / width).clamp(0.0, 80.0);
                open.text.push('\n');
                open.text.extend(std::iter::repeat_n(' ', letters(indent)));
                open.text.push_str(&spaced(line));
            }
        } else {
            self.join_words(&mut open.text, text);
        }
        open.right = open.right.max(line.area.right);
        open.left = if open.lines == 1 && !line.area.beside(&open.area) { line.area.left } else { open.left.min(line.area.left) };
        open.lines += usize::from(!line.area.beside(&open.area));
        open.area = line.area;
        open.block = line.block;
    }

    /// Joins two lines, and the word that a hyphen parts.
    fn join_words(&self, text: &mut String, next: &str) {
        let head = text.rsplit(' ').next().unwrap_or_default();
        let tail = next.split(' ').next().unwrap_or_default();
        let soft = head.ends_with(['\u{ad}', '\u{2010}']);
        let parted = (soft || head.ends_with('-'))
            && tail.chars().next().is_some_and(char::is_lowercase)
            && head.chars().rev().nth(1).is_some_and(char::is_alphabetic);
        let address = |word: &str| word.contains(['/', '_', '@', ':']) || word.trim_end_matches(['.', ',']).contains('.');
        if !parted {
            if !head.ends_with('/') || !address(head.trim_end_matches('/')) {
                text.push(' ');
            }
        } else if address(head) || head.starts_with('-') {
            // A hyphen of the name itself.
        } else {
            let known = |word: String| self.vocabulary.contains(&self.hasher.hash_one(bare(&word)));
            let whole = head.trim_end_matches(['-', '\u{ad}', '\u{2010}']);
            let joined = known(format!("{whole}{tail}"));
            if soft || joined || !known(format!("{whole}-{tail}")) {
                text.truncate(text.trim_end_matches(['-', '\u{ad}', '\u{2010}']).len());
            }
        }
        text.push_str(next);
    }

    fn close(&mut self, sink: &mut Sink<'_>) -> ControlFlow<()> {
        match self.open.take() {
            Some(open) if !open.text.trim().is_empty() => {
                let text = if open.kind == BlockKind::Code { open.text.trim_end() } else { open.text.trim() };
                self.give(Block { kind: open.kind, text: text.to_owned(), page: Some(open.page) }, sink)
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

fn bare(word: &str) -> String {
    word.trim_matches(|letter: char| !letter.is_alphanumeric()).to_lowercase()
}

/// Bullets and numbers of lists that poppler has apart from their lines are put before them.
fn labelled(mut page: PdfPage) -> PdfPage {
    let mut at = 0;
    while at < page.lines.len() {
        let line = &page.lines[at];
        let label = format!("{} x", line.words[0].text);
        let alone = line.words.len() == 1 && (list_item(&label).is_some() || numbering(&label) > 0);
        let owner = alone.then(|| {
            page.lines.iter().enumerate().position(|(other, of)| {
                other != at
                    && of.area.beside(&line.area)
                    && of.area.left >= line.area.right
                    && of.area.left - line.area.right < 4.0 * line.area.height()
            })
        });
        if let Some(Some(owner)) = owner {
            let label = page.lines.remove(at);
            let owner = if owner > at { owner - 1 } else { owner };
            let owner = &mut page.lines[owner];
            owner.area.join(&label.area);
            owner.words.splice(0..0, label.words);
        } else {
            at += 1;
        }
    }
    page
}

/// The text, but for dots that lead to a page's number.
fn without_leaders(line: &Line) -> String {
    let is_dots = |text: &str| text.chars().all(|letter| matches!(letter, '.' | '…' | '·'));
    let dots: usize = line.words.iter().filter(|word| is_dots(&word.text)).map(|word| word.text.chars().count()).sum();
    let words = line.words.iter().map(|word| word.text.as_str()).filter(|text| dots < 4 || !is_dots(text));
    words.map(|text| if text.len() > 5 && text.ends_with("....") { text.trim_end_matches('.') } else { text }).collect::<Vec<_>>().join(" ")
}

fn width_of_letter(line: &Line) -> f32 {
    let count: usize = line.words.iter().map(|word| word.text.chars().count()).sum();
    let width: f32 = line.words.iter().map(|word| word.area.width()).sum();
    #[expect(clippy::cast_precision_loss, reason = "letters of a line")]
    let width = width / count.max(1) as f32;
    width.max(0.5)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped before")]
fn letters(width: f32) -> usize {
    width.round() as usize
}

/// The words of a line of code, as far apart as they are set.
fn spaced(line: &Line) -> String {
    let width = width_of_letter(line);
    let mut text = String::new();
    let mut right = None;
    for word in &line.words {
        if let Some(right) = right {
            let gap: f32 = (word.area.left - right) / width;
            text.extend(std::iter::repeat_n(' ', letters(gap.clamp(1.0, 80.0))));
        }
        text.push_str(&word.text);
        right = Some(word.area.right);
    }
    text
}

/// The text after a bullet, or the whole with its number: numbers are referred to.
fn list_item(text: &str) -> Option<&str> {
    let (label, rest) = text.split_once(' ')?;
    if matches!(label, "•" | "◦" | "▪" | "‣" | "–" | "—" | "-" | "*" | "·" | "●" | "○" | "■" | "□" | "➢" | "✓" | "∗" | "\u{f0b7}")
    {
        return Some(rest.trim_start());
    }
    let inner = label.strip_suffix(['.', ')'])?.trim_start_matches('(');
    let number = !inner.is_empty() && inner.len() <= 3 && inner.bytes().all(|digit| digit.is_ascii_digit());
    let letter = inner.len() == 1 && inner.bytes().all(|letter| letter.is_ascii_lowercase())
        || matches!(inner, "ii" | "iii" | "iv" | "vi" | "vii" | "viii" | "ix");
    (number || letter).then_some(text)
}

fn looks_like_heading(font: Font, body: f32, text: &str) -> bool {
    let letters = text.chars().filter(|letter| letter.is_alphabetic()).count();
    if letters < 2 || text.len() > MAX_HEADING_LENGTH || font.mono {
        return false;
    }
    font.size >= HEADING_SIZE * body || (font.bold && font.size >= 0.95 * body && !text.ends_with(['.', ',', ';', ':']) && text.len() < 120)
}

/// How many parts the number has that a heading begins with.
fn numbering(text: &str) -> usize {
    let Some((label, _)) = text.split_once(' ') else { return 0 };
    let parts: Vec<&str> = label.trim_end_matches('.').split('.').collect();
    let number = |part: &&str| !part.is_empty() && part.len() <= 3 && part.bytes().all(|digit| digit.is_ascii_digit());
    let first =
        |part: &&str| number(part) || (part.len() == 1 && parts.len() > 1 && part.bytes().all(|letter| letter.is_ascii_uppercase()));
    if parts.first().is_some_and(first) && parts[1..].iter().all(number) { parts.len() } else { 0 }
}

fn level(font: Font, body: f32, text: &str) -> u8 {
    let numbered = numbering(text);
    if numbered > 0 {
        return u8::try_from(numbered.min(6)).unwrap_or(6);
    }
    let ratio = font.size / body.max(1.0);
    [1.85, 1.45, HEADING_SIZE].iter().zip(1..).find(|(least, _)| ratio >= **least).map_or(4, |(_, level)| level)
}
