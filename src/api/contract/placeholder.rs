//! Text with `{placeholders}`, as URLs and commands have them. The code that fills them in decides
//! what a value may be and how it is written.

use std::collections::BTreeSet;

#[derive(Debug, Clone, PartialEq)]
pub enum Part {
    Text(String),
    Placeholder(String),
}

/// The names in some texts.
pub fn names<'a>(texts: impl IntoIterator<Item = &'a Vec<Part>>) -> BTreeSet<&'a str> {
    let name = |part: &'a Part| match part {
        Part::Placeholder(name) => Some(name.as_str()),
        Part::Text(_) => None,
    };
    texts.into_iter().flatten().filter_map(name).collect()
}

/// The parts of a text; none when a placeholder is not closed, or has no name.
pub fn parts(text: &str) -> Option<Vec<Part>> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(open) = rest.find(['{', '}']) {
        let (before, placeholder) = rest.split_at(open);
        let (name, after) = placeholder.strip_prefix('{')?.split_once('}')?;
        if name.is_empty() || name.contains('{') {
            return None;
        }
        if !before.is_empty() {
            parts.push(Part::Text(before.to_owned()));
        }
        parts.push(Part::Placeholder(name.to_owned()));
        rest = after;
    }
    if !rest.is_empty() {
        parts.push(Part::Text(rest.to_owned()));
    }
    Some(parts)
}
