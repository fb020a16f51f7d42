//! The headings above a chunk, and what is embedded of them.

use std::fmt::Write;

/// The most characters of a heading in a section path.
pub(super) const MAX_HEADING_CHARS: usize = 120;

/// The most bytes of headings before a text that is embedded. The outermost are left out first.
const MAX_PATH_BYTES: usize = 256;

const SEPARATOR: &str = " > ";

/// The open headings, outermost first.
#[derive(Debug, Default)]
pub(super) struct Section {
    levels: Vec<u8>,
    titles: Vec<String>,
    /// The most tokens that the path to each heading, or to one above it, adds to what is embedded.
    tokens: Vec<u32>,
}

impl Section {
    /// Opens a heading, and closes those of the same or a deeper level. Returns how many stay open above it.
    pub(super) fn open(&mut self, level: u8, text: &str, count: impl FnOnce(&str) -> u32) -> usize {
        let above = self.levels.iter().take_while(|&&open| open < level).count();
        self.levels.truncate(above);
        self.titles.truncate(above);
        self.tokens.truncate(above);
        let title = text.trim().lines().next().unwrap_or_default();
        let end = title.char_indices().nth(MAX_HEADING_CHARS).map_or(title.len(), |(at, _)| at);
        self.levels.push(level);
        self.titles.push(title[..end].to_owned());
        let mut path = String::new();
        write_path(&self.titles, &mut path);
        self.tokens.push(self.tokens().max(count(&path)));
        above
    }

    pub(super) fn titles(&self) -> &[String] {
        &self.titles
    }

    /// The most tokens that the path adds to what is embedded.
    pub(super) fn tokens(&self) -> u32 {
        self.tokens.last().copied().unwrap_or(0)
    }
}

/// The path of the headings that the text does not begin with, on a line of its own, and the text.
pub fn embedded(section: &[String], text: &str) -> String {
    let mut embedded = context(section, text);
    embedded.push_str(text);
    embedded
}

/// The line before a text that is embedded, or nothing.
pub(super) fn context(section: &[String], text: &str) -> String {
    let mut line = String::new();
    let own = (0..section.len()).find(|&from| begins_with(text, &section[from..])).unwrap_or(section.len());
    write_path(&section[..own], &mut line);
    line
}

fn write_path(titles: &[String], line: &mut String) {
    let mut bytes = 0;
    let fits = |title: &&String| {
        bytes += title.len() + SEPARATOR.len();
        bytes <= MAX_PATH_BYTES
    };
    let from = titles.len() - titles.iter().rev().take_while(fits).count();
    for (at, title) in titles[from..].iter().enumerate() {
        // Writing to a string cannot fail.
        let _ = write!(line, "{}{title}", if at == 0 { "" } else { SEPARATOR });
    }
    if from < titles.len() {
        line.push('\n');
    }
}

/// Whether the first lines of a text are these headings.
fn begins_with(text: &str, titles: &[String]) -> bool {
    let mut lines = text.lines();
    titles.iter().all(|title| {
        lines.next().is_some_and(|line| line == title || (line.starts_with(title.as_str()) && title.chars().count() == MAX_HEADING_CHARS))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn a_heading_closes_those_of_its_level_and_below() {
        let mut section = Section::default();
        let words = |text: &str| u32::try_from(text.split_whitespace().count()).unwrap();
        for (level, text, above, expected, tokens) in [
            (2, "Early", 0, vec!["Early"], 1),
            (1, "Book", 0, vec!["Book"], 1),
            (3, "Deep", 1, vec!["Book", "Deep"], 3),
            (2, "Less", 1, vec!["Book", "Less"], 3),
            (6, "Last\nline", 2, vec!["Book", "Less", "Last"], 5),
            (1, "Next", 0, vec!["Next"], 1),
        ] {
            assert_eq!(section.open(level, text, words), above, "{text}");
            assert_eq!(section.titles(), expected);
            assert_eq!(section.tokens(), tokens, "{text}");
        }
    }

    #[test]
    fn headings_are_embedded_once_and_the_innermost_if_they_are_long() {
        let long = "x".repeat(MAX_HEADING_CHARS);
        for (section, text, expected) in [
            (vec![], "text", ""),
            (vec!["A", "B"], "text", "A > B\n"),
            (vec!["A", "B"], "B\ntext", "A\n"),
            (vec!["A", "B"], "A\nB\ntext", ""),
            (vec!["A", "B"], "A\ntext", "A > B\n"),
            (vec!["A"], "A text", "A\n"),
            (vec!["A", &long], &format!("{long}yz\ntext"), "A\n"),
            (vec!["A", &long, &long, &long], "text", &format!("{long} > {long}\n")),
        ] {
            assert_eq!(context(&strings(&section), text), expected, "{section:?} {text:?}");
        }
    }
}
