//! The document's outline, which knows its headings and their levels where the author left one.

use std::collections::HashMap;

/// Titles of an outline beyond this are left out.
const MAX_TITLES: usize = 20_000;

#[derive(Debug, Default)]
pub(super) struct Outline {
    /// Levels by page and the title's letters.
    levels: HashMap<(u32, String), u8>,
}

impl Outline {
    /// Reads the end of what `pdftohtml -xml` prints: nested `<outline>` with `<item page="3">title</item>`.
    pub(super) fn read(output: &str) -> Self {
        let mut outline = Self::default();
        let mut depth = 0_u8;
        for row in output.lines() {
            if row.ends_with("<outline>") {
                depth = depth.saturating_add(1);
            } else if row.ends_with("</outline>") {
                depth = depth.saturating_sub(1);
            } else if let Some((page, title)) = row.strip_prefix("<item page=\"").and_then(|rest| rest.split_once("\">")) {
                let title = letters(&unescaped(title.trim_end_matches("</item>")));
                if let (Ok(page), false, true) = (page.parse::<u32>(), title.is_empty(), outline.levels.len() < MAX_TITLES) {
                    outline.levels.entry((page, title)).or_insert(depth.clamp(1, 6));
                }
            }
        }
        outline
    }

    /// The level of the title on that page, with or without its number.
    pub(super) fn level(&self, page: u32, text: &str) -> Option<u8> {
        if self.levels.is_empty() || text.len() > 300 {
            return None;
        }
        let without_number =
            text.split_once(' ').filter(|(label, _)| label.contains(|letter: char| letter.is_ascii_digit())).map(|(_, rest)| rest);
        let level = |text: &str| self.levels.get(&(page, letters(text))).copied();
        level(text).or_else(|| without_number.and_then(level))
    }
}

fn letters(text: &str) -> String {
    text.chars().filter(|letter| letter.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

fn unescaped(text: &str) -> String {
    text.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&#34;", "\"")
        .replace("&quot;", "\"")
        .replace("&#39;", "'")
        .replace("&amp;", "&")
}
