//! Finds tables by how words are aligned: consecutive lines across the page whose words leave the same gutters free. Rules
//! are not drawn on in the text that poppler prints, so rows are told from lines of one cell by the space between them.

use std::collections::HashSet;
use std::ops::Deref;

use super::page::{Area, Line, PdfPage, Word};

/// Gaps between words, in heights of the text: a table begins with a line that has one as wide as this.
const CELL_GAP: f32 = 0.85;
/// In other lines a gap like this parts cells, where all of them have one. Between words of a sentence there is less.
const RUN_GAP: f32 = 0.45;
/// More space between two lines ends a table.
const MAX_ROW_GAP: f32 = 2.6;
/// The space between lines above which a row ends, where a table has different spaces.
const ROW_GAP: f32 = 0.3;
/// Words of a column begin at the same place, but for this many points.
const EDGE: f32 = 1.0;
const MAX_COLUMNS: usize = 40;
/// A page with more lines across it is not looked at.
const MAX_ROWS: usize = 1000;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct PdfTable {
    pub(super) area: Area,
    /// The left edges of its columns.
    pub(super) columns: Vec<f32>,
    pub(super) rows: Vec<Vec<String>>,
}

/// What a page has in reading order.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Item {
    Line(Line),
    Table(PdfTable),
}

/// A word, and the how manieth of the page it is.
#[derive(Clone, Copy)]
struct Placed<'a> {
    at: usize,
    word: &'a Word,
}

impl Deref for Placed<'_> {
    type Target = Word;

    fn deref(&self) -> &Word {
        self.word
    }
}

/// Words on one height across the page.
struct Row<'a> {
    area: Area,
    words: Vec<Placed<'a>>,
}

impl Row<'_> {
    /// The stretches of words without a gap of this many heights between them.
    fn stretches(&self, gap: f32) -> Vec<(f32, f32)> {
        let mut stretches: Vec<(f32, f32)> = Vec::new();
        for word in &self.words {
            match stretches.last_mut() {
                Some((_, right)) if word.area.left - *right < gap * word.area.height() => *right = right.max(word.area.right),
                _ => stretches.push((word.area.left, word.area.right)),
            }
        }
        stretches
    }

    /// Where the words of a column begin, each with the space before it in its heights, but for the first.
    fn begins(&self, column: (f32, f32)) -> impl Iterator<Item = (f32, Option<f32>)> {
        let mut before: Option<f32> = None;
        self.words.iter().filter(move |word| column.0 <= word.area.left && word.area.left < column.1).map(move |word| {
            let space = before.map(|before| (word.area.left - before) / word.area.height());
            before = Some(before.map_or(word.area.right, |before| before.max(word.area.right)));
            (word.area.left, space)
        })
    }
}

pub(super) fn split(page: PdfPage) -> Vec<Item> {
    let tables = find(&page);
    if tables.is_empty() {
        return page.lines.into_iter().map(Item::Line).collect();
    }
    let mut items = Vec::new();
    let mut told = vec![false; tables.len()];
    let mut at = 0;
    for line in page.lines {
        let mut rest = Vec::new();
        for word in line.words {
            match tables.iter().position(|(_, words)| words.contains(&at)) {
                None => rest.push(word),
                Some(table) if !told[table] => {
                    told[table] = true;
                    items.extend(Line::new(line.block, std::mem::take(&mut rest)).map(Item::Line));
                    items.push(Item::Table(tables[table].0.clone()));
                }
                Some(_) => {}
            }
            at += 1;
        }
        items.extend(Line::new(line.block, rest).map(Item::Line));
    }
    items
}

/// Tables, and which of the page's words are theirs.
fn find(page: &PdfPage) -> Vec<(PdfTable, HashSet<usize>)> {
    let rows = rows(page);
    let mut tables = Vec::new();
    let mut at = 0;
    while at < rows.len() && rows.len() <= MAX_ROWS {
        match grow(&rows, at) {
            Some((first, end, gutters)) if !could_be_table(&rows[first..end], &gutters) => at = end.max(at + 1),
            Some((first, end, gutters)) => {
                let table = table(&rows[first..end], &with_edges(&rows[first..end], &gutters));
                let full = table.rows.iter().filter(|row| row.iter().filter(|cell| !cell.is_empty()).count() > 1).count();
                if full > 1 && full * 2 >= table.rows.len() {
                    tables.push((table, rows[first..end].iter().flat_map(|row| row.words.iter().map(|word| word.at)).collect()));
                    at = end;
                } else {
                    at += 1;
                }
            }
            None => at += 1,
        }
    }
    tables
}

fn rows(page: &PdfPage) -> Vec<Row<'_>> {
    let mut words: Vec<Placed<'_>> =
        page.lines.iter().flat_map(|line| &line.words).enumerate().map(|(at, word)| Placed { at, word }).collect();
    words.sort_by(|one, other| one.area.middle().total_cmp(&other.area.middle()));
    let mut rows: Vec<Row<'_>> = Vec::new();
    for word in words {
        match rows.last_mut() {
            // Compared with the last word, and not with what has grown from many.
            Some(row)
                if row.words.last().is_some_and(|last| (word.area.middle() - last.area.middle()).abs() < 0.2 * word.area.height()) =>
            {
                row.area.join(&word.area);
                row.words.push(word);
            }
            _ => rows.push(Row { area: word.area, words: vec![word] }),
        }
    }
    for row in &mut rows {
        row.words.sort_by(|one, other| one.area.left.total_cmp(&other.area.left));
    }
    rows
}

/// The free stretches between columns. One without a width is the left edge of a column, up to which the text before it comes in
/// some rows, or over it.
type Gutters = Vec<(f32, f32)>;

/// The stretches of rows laid over each other: the columns of a table.
fn over(columns: &[(f32, f32)], row: &Row<'_>) -> Vec<(f32, f32)> {
    let mut all = row.stretches(RUN_GAP);
    all.extend(columns);
    all.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mut merged: Vec<(f32, f32)> = Vec::new();
    for (left, right) in all {
        match merged.last_mut() {
            Some(last) if left <= last.1 + 0.1 * row.area.height() => last.1 = last.1.max(right),
            _ => merged.push((left, right)),
        }
    }
    merged
}

/// The most rows from `at` that share gutters, and with those before them that are lines of their first cells.
fn grow(rows: &[Row<'_>], at: usize) -> Option<(usize, usize, Gutters)> {
    let parted = |row: &Row<'_>| (2..=MAX_COLUMNS).contains(&row.stretches(CELL_GAP).len());
    if !parted(&rows[at]) {
        return None;
    }
    let mut columns = rows[at].stretches(RUN_GAP);
    let mut end = at + 1;
    let mut bottom = rows[at].area.bottom;
    while let Some(row) = rows.get(end) {
        if row.area.top - bottom > MAX_ROW_GAP * row.area.height() {
            break;
        }
        let merged = over(&columns, row);
        let crosses = row.stretches(RUN_GAP).len() < 2 && merged.len() < columns.len();
        // A table has columns that all its rows keep; a line of prose crosses them.
        if merged.len() < 2 || crosses || merged.len() * 2 < columns.len() {
            break;
        }
        columns = merged;
        bottom = bottom.max(row.area.bottom);
        end += 1;
    }
    // Single lines below a table that only happen to be short.
    while end > at + 1 && rows[end - 1].stretches(RUN_GAP).len() < 2 && !continues(&rows[end - 2], &rows[end - 1], &rows[at..end]) {
        end -= 1;
    }
    let mut begin = at;
    while begin > 0 {
        let above = &rows[begin - 1];
        let near = rows[begin].area.top - above.area.bottom < ROW_GAP * above.area.height();
        let merged = over(&columns, above);
        if !near || merged.len() < columns.len() || above.area.left < columns[0].1 {
            break;
        }
        columns = merged;
        begin -= 1;
    }
    // Once more, of those rows alone that are left.
    let columns_of = |rows: &[Row<'_>]| rows.iter().fold(Vec::new(), |columns, row| over(&columns, row));
    let mut columns = columns_of(&rows[begin..end]);
    // A head may be wider than its column.
    if end - begin > 3 {
        let below = columns_of(&rows[begin + 1..end]);
        columns = if below.len() > columns.len() { below } else { columns };
    }
    let gutters: Gutters = columns.windows(2).map(|pair| (pair[0].1, pair[1].0)).collect();
    (!gutters.is_empty()).then_some((begin, end, gutters))
}

/// The gutters of a table, and the edges of columns that touch in some rows.
fn with_edges(rows: &[Row<'_>], gutters: &Gutters) -> Gutters {
    let lefts = std::iter::once(f32::MIN).chain(gutters.iter().map(|(_, right)| *right));
    let columns = lefts.zip(gutters.iter().map(|(left, _)| *left).chain([f32::MAX]));
    // Each edge is looked for in all rows.
    let room = MAX_COLUMNS.saturating_sub(gutters.len() + 1);
    let mut all: Gutters = columns.flat_map(|column| edges(rows, column)).take(room).map(|edge| (edge, edge)).collect();
    all.extend(gutters);
    all.sort_by(|one, other| one.0.total_cmp(&other.0));
    all
}

/// The left edges of further columns within one: nearly all rows that come so far have a word that begins there, and most have
/// space before it. In the others the text of the column before touches it.
fn edges(rows: &[Row<'_>], column: (f32, f32)) -> Vec<f32> {
    let parted = |space: Option<f32>| space.is_some_and(|space| space >= CELL_GAP);
    let mut begins: Vec<f32> = Vec::new();
    for row in rows {
        begins.extend(row.begins(column).filter(|(_, space)| parted(*space)).map(|(left, _)| left));
    }
    begins.sort_by(f32::total_cmp);
    let mut found: Vec<f32> = Vec::new();
    for group in begins.chunk_by(|one, other| other - one < EDGE / 2.0).filter(|group| group.len() > 2).take(MAX_COLUMNS) {
        let edge = group[0];
        let reaches = |row: &&Row<'_>| row.words.iter().any(|word| word.area.left < column.1 && word.area.right > edge + EDGE);
        let (mut reach, mut begin, mut apart) = (0, 0, 0);
        for row in rows.iter().filter(reaches) {
            let space = row.begins(column).find(|(left, _)| (left - edge).abs() < EDGE).map(|(_, space)| space);
            reach += 1;
            begin += usize::from(space.is_some());
            apart += usize::from(space.is_some_and(|space| space.is_none() || parted(space)));
        }
        if apart * 2 >= reach && begin * 5 >= reach * 4 {
            found.push(edge);
        }
    }
    found
}

/// Whether the lower line is closer to the upper one than a paragraph below a table would be.
fn continues(upper: &Row<'_>, lower: &Row<'_>, rows: &[Row<'_>]) -> bool {
    let gap = lower.area.top - upper.area.bottom;
    let usual = rows.windows(2).map(|pair| pair[1].area.top - pair[0].area.bottom).fold(0.0, f32::max);
    gap < ROW_GAP * lower.area.height() || (gap <= usual && lower.words.first().is_some_and(|word| word.area.left > upper.area.left + 1.0))
}

fn could_be_table(rows: &[Row<'_>], gutters: &Gutters) -> bool {
    if rows.iter().filter(|row| row.stretches(CELL_GAP).len() > 1).count() < 2 {
        return false;
    }
    let words: Vec<Placed<'_>> = rows.iter().flat_map(|row| row.words.iter().copied()).collect();
    // Listings of programs are aligned as well.
    let mono = words.iter().filter(|word| word.font.mono).count();
    // The leaders of a table of contents.
    let dots = words.iter().filter(|word| word.text.chars().all(|letter| letter == '.')).count();
    if mono * 10 > words.len() * 9 || dots * 4 > words.len() {
        return false;
    }
    let cells: Vec<Vec<Vec<Placed<'_>>>> = rows.iter().map(|row| cells(row, gutters)).collect();
    // Bullets and numbers before the text of a list, or of notes.
    let labels = cells.iter().all(|row| row[0].is_empty() || (row[0].len() == 1 && is_label(&row[0][0].text)));
    if labels && gutters.len() == 1 {
        return false;
    }
    // Columns of prose: long lines, all of them nearly as wide as their column.
    let mut prose = 0;
    for column in 0..=gutters.len() {
        let lines: Vec<&Vec<Placed<'_>>> = cells.iter().map(|row| &row[column]).filter(|cell| !cell.is_empty()).collect();
        let width = |cell: &Vec<Placed<'_>>| cell[cell.len() - 1].area.right - cell[0].area.left;
        let widest = lines.iter().map(|cell| width(cell)).fold(0.0, f32::max);
        let long = lines.iter().filter(|cell| cell.len() > 3 && width(cell) > 0.75 * widest).count();
        prose += usize::from(long * 3 > lines.len() * 2 && lines.len() > 3);
    }
    prose * 2 < gutters.len() + 1 || (prose == 1 && gutters.len() == 1 && has_row_gaps(rows))
}

fn is_label(text: &str) -> bool {
    let short = text.chars().count() <= 4;
    short && (text.chars().all(|letter| !letter.is_alphanumeric()) || text.ends_with(['.', ')', ']']))
}

/// The words of each column.
fn cells<'a>(row: &Row<'a>, gutters: &Gutters) -> Vec<Vec<Placed<'a>>> {
    let mut cells = vec![Vec::new(); gutters.len() + 1];
    for word in &row.words {
        let past = |(left, right): &(f32, f32)| {
            if left < right { f32::midpoint(*left, *right) < middle(word) } else { word.area.left > left - EDGE }
        };
        cells[gutters.iter().rposition(past).map_or(0, |before| before + 1)].push(*word);
    }
    for (at, gutter) in gutters.iter().enumerate() {
        if let [before, after] = &mut cells[at..=at + 1] {
            part(before, after, *gutter);
        }
    }
    cells
}

fn middle(word: &Word) -> f32 {
    f32::midpoint(word.area.left, word.area.right)
}

/// Parts what lies over a gutter, as words of a wide head do, where there is most space.
fn part<'a>(before: &mut Vec<Placed<'a>>, after: &mut Vec<Placed<'a>>, (left, right): (f32, f32)) {
    let aside = |word: &Placed<'_>| middle(word) <= left || right <= middle(word);
    let mut over = before.split_off(before.iter().rposition(aside).map_or(0, |last| last + 1));
    over.extend(after.drain(..after.iter().position(aside).unwrap_or(after.len())));
    let mut end = before.last().map_or(left, |word| word.area.right);
    let (mut widest, mut at) = (f32::MIN, 0);
    let lefts = over.iter().map(|word| word.area.left).chain([after.first().map_or(right, |word| word.area.left)]);
    for (index, begin) in lefts.enumerate() {
        if begin - end > widest {
            (widest, at) = (begin - end, index);
        }
        end = over.get(index).map_or(end, |word| word.area.right);
    }
    after.splice(0..0, over.split_off(at));
    before.append(&mut over);
}

fn gaps(rows: &[Row<'_>]) -> Vec<f32> {
    let mut bottom = f32::MAX;
    rows.iter()
        .map(|row| {
            let gap = (row.area.top - bottom) / row.area.height();
            bottom = if bottom.total_cmp(&f32::MAX).is_eq() { row.area.bottom } else { bottom.max(row.area.bottom) };
            gap
        })
        .skip(1)
        .collect()
}

/// Lines of one cell lie closer than rows do.
fn has_row_gaps(rows: &[Row<'_>]) -> bool {
    let gaps = gaps(rows);
    let (least, most) = gaps.iter().fold((f32::MAX, f32::MIN), |(least, most), gap| (least.min(*gap), most.max(*gap)));
    most - least > ROW_GAP
}

fn table(rows: &[Row<'_>], gutters: &Gutters) -> PdfTable {
    let mut area = rows[0].area;
    for row in rows {
        area.join(&row.area);
    }
    let gaps = gaps(rows);
    let by_gap = has_row_gaps(rows);
    let (least, most) = gaps.iter().fold((f32::MAX, f32::MIN), |(least, most), gap| (least.min(*gap), most.max(*gap)));
    // Cells in the middle of their rows overlap others' lines.
    let least = least.max(0.0);
    let limit = f32::midpoint(least, most).min(least + 1.5 * ROW_GAP);
    let mut table: Vec<Vec<String>> = Vec::new();
    for (at, row) in rows.iter().enumerate() {
        let parts = cells(row, gutters);
        let begins = at == 0 || if by_gap { gaps[at - 1] > limit } else { !parts[0].is_empty() };
        if begins {
            table.push(vec![String::new(); gutters.len() + 1]);
        }
        let Some(current) = table.last_mut() else { continue };
        for (cell, words) in current.iter_mut().zip(parts) {
            for word in words {
                if !cell.is_empty() {
                    cell.push(' ');
                }
                cell.push_str(&word.text);
            }
        }
    }
    let columns = std::iter::once(area.left).chain(gutters.iter().map(|(_, right)| *right)).collect();
    PdfTable { area, columns, rows: table }
}
