//! How a CSV file is written: which delimiter, whether its first row is a header, and which rows above are titles.

use std::collections::HashSet;

use super::Records;

const DELIMITERS: [u8; 4] = [b',', b';', b'\t', b'|'];
/// How many rows are looked at.
const SAMPLE_ROWS: usize = 100;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Dialect {
    pub delimiter: u8,
    /// Bytes before the first row: the line `sep=;` that spreadsheets write.
    pub skip: usize,
    /// Rows above the table that have a single text, such as the name of a report.
    pub titles: u64,
    pub has_header: bool,
}

impl Dialect {
    pub(super) fn of(sample: &[u8]) -> Self {
        if let Some((delimiter, skip)) = declared(sample) {
            return Self::with(delimiter, skip, &rows(&sample[skip..], delimiter));
        }
        let tried = DELIMITERS.map(|delimiter| (delimiter, rows(sample, delimiter)));
        // Of equals the first.
        let rank = |delimiter, rows: &[Vec<String>]| {
            let score = score(rows);
            (score > (0, 0), is_well_quoted(sample, delimiter), score)
        };
        let best = tried.into_iter().rev().max_by_key(|(delimiter, rows)| rank(*delimiter, rows));
        let (delimiter, rows) = best.unwrap_or((b',', Vec::new()));
        Self::with(delimiter, 0, &rows)
    }

    fn with(delimiter: u8, skip: usize, rows: &[Vec<String>]) -> Self {
        let (columns, _) = usual(rows);
        let filled = |row: &Vec<String>| row.iter().filter(|cell| !cell.is_empty()).count();
        let titles = if columns > 1 { rows.iter().take_while(|row| filled(row) <= 1).count().min(10) } else { 0 };
        Self { delimiter, skip, titles: titles as u64, has_header: has_header(rows.get(titles..).unwrap_or_default()) }
    }
}

fn declared(sample: &[u8]) -> Option<(u8, usize)> {
    let rest = sample.strip_prefix(b"sep=").or_else(|| sample.strip_prefix(b"SEP="))?;
    let (delimiter, rest) = rest.split_first()?;
    let skip = 5 + match rest {
        [b'\r', b'\n', ..] => 2,
        [b'\n', ..] => 1,
        _ => return None,
    };
    delimiter.is_ascii().then_some((*delimiter, skip))
}

fn rows(sample: &[u8], delimiter: u8) -> Vec<Vec<String>> {
    let mut records = Records::new(sample, delimiter);
    let mut rows = Vec::new();
    while rows.len() < SAMPLE_ROWS {
        let Ok(Some(record)) = records.next() else { break };
        rows.push(record.cells);
    }
    // The last row is cut off by the sample's end.
    if rows.len() > 1 && records.at == records.filled && sample.last() != Some(&b'\n') {
        rows.pop();
    }
    rows
}

/// The usual number of columns, and how many rows have it.
fn usual(rows: &[Vec<String>]) -> (usize, usize) {
    let with = |columns: usize| rows.iter().filter(|row| row.len() == columns).count();
    rows.iter().map(|row| (with(row.len()), row.len())).max().map_or((0, 0), |(count, columns)| (columns, count))
}

/// In thousands, the share of rows that have the usual number of columns; then that number. A single column says nothing.
fn score(rows: &[Vec<String>]) -> (usize, usize) {
    match usual(rows) {
        (0 | 1, _) => (0, 0),
        (columns, count) => (count * 1000 / rows.len(), columns),
    }
}

/// Whether each quoted cell ends where the next one begins: commas within quotes are no cells of a file of semicolons.
fn is_well_quoted(sample: &[u8], delimiter: u8) -> bool {
    let (mut is_start, mut is_quoted) = (true, false);
    let mut bytes = sample.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        if is_quoted {
            if byte == b'"' && bytes.next_if_eq(&b'"').is_none() {
                is_quoted = false;
                if bytes.peek().is_some_and(|next| *next != delimiter && !matches!(next, b'\r' | b'\n')) {
                    return false;
                }
            }
        } else {
            is_quoted = is_start && byte == b'"';
            is_start = byte == delimiter || matches!(byte, b'\r' | b'\n');
        }
    }
    true
}

/// A header has different texts, none of which is a number, a date or a value of its own column.
fn has_header(rows: &[Vec<String>]) -> bool {
    let Some((first, rest)) = rows.split_first() else { return false };
    let names: HashSet<&str> = first.iter().map(String::as_str).filter(|name| !name.is_empty()).collect();
    let count = first.iter().filter(|name| !name.is_empty()).count();
    let is_value = |text: &str| {
        let digits = text.chars().filter(char::is_ascii_digit).count();
        let others = text.chars().filter(|letter| letter.is_alphabetic()).count();
        text.contains('@') || text.contains("://") || digits > others
    };
    // Years are fine as names of columns beside others that are texts.
    let values = first.iter().filter(|name| is_value(name)).count();
    let repeats = first
        .iter()
        .enumerate()
        .any(|(column, name)| !name.is_empty() && rest.iter().filter(|row| row.get(column).is_some_and(|cell| cell == name)).count() > 1);
    !rest.is_empty() && !names.is_empty() && names.len() == count && count * 2 > first.len() && values * 2 < count && !repeats
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delimiters_and_headers_are_found() {
        for (text, delimiter, titles, has_header) in [
            ("a,b\n1,2\n", b',', 0, true),
            ("a;b\n1,5;2,5\n3,25;4\n", b';', 0, true),
            ("a\tb\n1\t2\n", b'\t', 0, true),
            ("a|b\nx, y|2\n", b'|', 0, true),
            ("name;city\nAnn;Rome\nBob;Oslo\n", b';', 0, true),
            ("1,2\n3,4\n", b',', 0, false),
            ("2024-01-01,x\n2024-01-02,y\n", b',', 0, false),
            ("Ann,yes\nBob,yes\nCid,yes\n", b',', 0, false),
            ("country,2019,2020,region\nPeru,1,2,x\n", b',', 0, false),
            ("country,code,region,2020\nPeru,PE,x,1\n", b',', 0, true),
            ("Sales of May,,\n\nday,north,south\n1,2,3\n4,5,6\n", b',', 1, true),
            ("\"a,b\",c\n\"d,e\",f\n", b',', 0, true),
            ("\"a; b; c\",x\n\"d; e; f\",y\n", b',', 0, true),
            ("1,\"a\" \n2,\"b\" \n", b',', 0, false),
            ("words\nof one column\n", b',', 0, true),
            ("", b',', 0, false),
        ] {
            assert_eq!(Dialect::of(text.as_bytes()), Dialect { delimiter, skip: 0, titles, has_header }, "{text:?}");
        }
        assert_eq!(Dialect::of(b"sep=;\r\na;b\r\n1;2\r\n"), Dialect { delimiter: b';', skip: 7, titles: 0, has_header: true });
    }
}
