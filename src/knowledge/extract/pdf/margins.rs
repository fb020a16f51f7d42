//! Finds running headers, footers and page numbers: what stands at the same height of neighbouring pages with the same words,
//! but for numbers, or with a number that grows with the pages.

use std::collections::{HashMap, VecDeque};

use super::page::{Area, Line, PdfPage};

/// The parts of a page's height, above and below, in which headers and footers stand.
const ZONE: f32 = 0.13;
/// Lines of a zone that are looked at, from the edge inwards.
const ROWS: usize = 3;
/// The pages before and after it that a page is compared with: headers of left and right pages differ.
pub(super) const NEIGHBOURS: usize = 3;
/// The number of headers at a height from which on others there count whose text does not repeat: the titles of short chapters.
const PROVEN: u32 = 4;
/// Between a header and the text there is this much space, in heights of the header. The head of a table that is set again on
/// each page has less.
const SPACE: f32 = 1.4;
/// A row of more parts than these (left, middle, right) is of a table.
const PARTS: usize = 3;
/// A line as long as this is no header, whatever its place.
const MAX_LENGTH: usize = 160;

/// A line across the page in a zone.
#[derive(Debug, Clone, PartialEq)]
struct Row {
    /// Its height on the page, in halves of a point.
    slot: i32,
    /// The words without digits.
    text: String,
    numbers: Vec<i64>,
    /// A number that the row begins or ends with, as page numbers do.
    ends: Vec<i64>,
    /// How many rows are between this one and the edge.
    depth: usize,
    /// Whether there is space towards the text.
    apart: bool,
    /// At the top of the page, and not at its bottom.
    top: bool,
    lines: Vec<usize>,
}

/// Pages wait here until those after them are known.
#[derive(Debug, Default)]
pub(super) struct Margins {
    pages: VecDeque<(PdfPage, Vec<Row>)>,
    /// How many of the front ones have been given out.
    given: usize,
    proven: HashMap<i32, u32>,
}

impl Margins {
    /// Takes the next page, and gives the one whose neighbours are complete.
    pub(super) fn push(&mut self, page: PdfPage) -> Option<PdfPage> {
        let rows = rows(&page);
        self.pages.push_back((page, rows));
        (self.pages.len() > self.given + NEIGHBOURS).then(|| self.give()).flatten()
    }

    /// Gives the pages that are left, when no more come.
    pub(super) fn pop(&mut self) -> Option<PdfPage> {
        self.give()
    }

    fn give(&mut self) -> Option<PdfPage> {
        let at = self.given;
        let (page, rows) = self.pages.get(at)?;
        let number = i64::from(page.number);
        let mut gone: Vec<usize> = Vec::new();
        // Rows come from the edges inwards: what is within a row of the text is text.
        let mut outer_gone = true;
        for row in rows {
            let others = self.pages.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, other)| other);
            let repeats = others
                .filter(|(page, rows)| {
                    let away = i64::from(page.number) - number;
                    rows.iter().any(|other| same_running(row, other, away))
                })
                .count();
            outer_gone |= row.depth == 0;
            let repeated = outer_gone
                && repeats > usize::from(row.depth > 0)
                && (row.apart || rows.iter().any(|inner| inner.depth == row.depth + 1 && inner.apart && inner.top == row.top));
            let proven = row.depth == 0 && row.apart && self.proven.get(&row.slot).is_some_and(|count| *count >= PROVEN);
            if repeated && row.depth == 0 {
                for slot in row.slot - 1..=row.slot + 1 {
                    let count = self.proven.entry(slot).or_default();
                    *count = count.saturating_add(1);
                }
            }
            outer_gone = repeated || proven;
            if outer_gone {
                gone.extend(&row.lines);
            }
        }
        let mut page = std::mem::take(&mut self.pages[at].0);
        // Neighbours compare numbers and rows only.
        self.pages[at].0.number = page.number;
        let mut index = 0;
        page.lines.retain(|_| {
            index += 1;
            !gone.contains(&(index - 1))
        });
        if self.given < NEIGHBOURS {
            self.given += 1;
        } else {
            self.pages.pop_front();
        }
        Some(page)
    }
}

fn same_running(one: &Row, other: &Row, away: i64) -> bool {
    if (one.slot - other.slot).abs() > 4 {
        return false;
    }
    let counts = one.numbers.iter().any(|number| other.numbers.contains(&(number.saturating_add(away))));
    let counts_at_end = one.ends.iter().any(|number| other.ends.contains(&number.saturating_add(away)));
    let same_text = one.text == other.text;
    // Text that repeats with other numbers is a caption or a heading rather than a header.
    (same_text && !one.text.is_empty() && (one.numbers == other.numbers || (one.depth == 0 && counts))) || (one.depth == 0 && counts_at_end)
}

fn rows(page: &PdfPage) -> Vec<Row> {
    let mut at: Vec<(usize, &Line)> = page.lines.iter().enumerate().collect();
    at.sort_by(|(_, one), (_, other)| one.area.middle().total_cmp(&other.area.middle()));
    let mut found: Vec<(Area, Vec<usize>)> = Vec::new();
    for (index, line) in at {
        match found.last_mut() {
            Some((area, lines)) if area.beside(&line.area) => {
                area.join(&line.area);
                lines.push(index);
            }
            _ => found.push((line.area, vec![index])),
        }
    }
    let apart = |at: usize, inner: Option<usize>| {
        let inner = inner.and_then(|inner| found.get(inner));
        let area = &found[at].0;
        inner.is_none_or(|(inner, _)| (inner.top - area.bottom).max(area.top - inner.bottom) >= SPACE * area.height())
    };
    let mut rows = Vec::new();
    for depth in 0..ROWS.min(found.len()) {
        let (at, last) = (depth, found.len() - 1 - depth);
        if found[at].0.bottom < page.height * ZONE {
            rows.extend(row(page, &found[at], &Place { depth, apart: apart(at, Some(at + 1)), top: true }));
        }
        if found[last].0.top > page.height * (1.0 - ZONE) {
            rows.extend(row(page, &found[last], &Place { depth, apart: apart(last, last.checked_sub(1)), top: false }));
        }
    }
    rows.sort_by_key(|row| (!row.top, row.depth));
    rows
}

struct Place {
    depth: usize,
    apart: bool,
    top: bool,
}

fn row(page: &PdfPage, (area, lines): &(Area, Vec<usize>), place: &Place) -> Option<Row> {
    let text: Vec<String> = lines.iter().map(|line| page.lines[*line].text()).collect();
    let text = text.join(" ");
    if text.len() > MAX_LENGTH || lines.len() > PARTS {
        return None;
    }
    let words = text.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty());
    let ends = words.clone().next().into_iter().chain(words.clone().next_back()).filter_map(number).collect();
    let numbers = words.clone().filter_map(number).collect();
    let text = words.filter(|word| number(word).is_none()).collect::<Vec<_>>().join(" ");
    #[expect(clippy::cast_possible_truncation, reason = "a place on a page; one out of range is at the edge")]
    let slot = (area.middle() * 2.0).round() as i32;
    let Place { depth, apart, top } = *place;
    Some(Row { slot, text, numbers, ends, depth, apart, top, lines: lines.clone() })
}

/// A number in digits, or in small Roman numerals, as prefaces have.
fn number(word: &str) -> Option<i64> {
    if word.bytes().all(|digit| digit.is_ascii_digit()) {
        return word.parse().ok();
    }
    let mut sum = 0;
    let mut last = 0;
    for letter in word.bytes().rev() {
        let value = match letter {
            b'i' => 1,
            b'v' => 5,
            b'x' => 10,
            b'l' => 50,
            b'c' => 100,
            _ => return None,
        };
        sum += if value < last { -value } else { value };
        last = last.max(value);
    }
    Some(sum)
}
