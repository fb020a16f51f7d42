//! Which paragraph styles are headings or lists, by their outline level, numbering or name, and those they are based on.

use std::collections::HashMap;

use super::package::Package;
use super::xml::{Node, Xml};
use crate::extract::Unreadable;

const STYLES_MAX: usize = 10_000;
const ANCESTORS_MAX: usize = 32;

#[derive(Default)]
pub(super) struct Styles {
    all: HashMap<String, Style>,
}

#[derive(Default)]
struct Style {
    name: String,
    based_on: Option<String>,
    outline: Option<u8>,
    is_list: Option<bool>,
}

impl Styles {
    pub(super) fn read(package: &mut Package, part: &str) -> Result<Self, Unreadable> {
        let mut styles = Self::default();
        let Some(stream) = package.part(part)? else { return Ok(styles) };
        let mut xml = Xml::new(stream, part);
        let mut open: Option<(String, Style)> = None;
        loop {
            let node = match xml.next() {
                Ok(Some(node)) => node,
                // Broken styles cost the headings alone.
                Ok(None) | Err(Unreadable::Broken(_)) => return Ok(styles),
                Err(error) => return Err(error),
            };
            match node {
                Node::Start(element) if element.is_word => match (element.name(), &mut open) {
                    ("style", _) => {
                        let is_paragraph = element.attribute("type").is_none_or(|kind| kind == "paragraph");
                        open = element.attribute("styleId").filter(|_| is_paragraph).map(|id| (id, Style::default()));
                    }
                    ("name", Some((_, style))) => style.name = element.attribute("val").unwrap_or_default().to_lowercase(),
                    ("basedOn", Some((_, style))) => style.based_on = element.attribute("val"),
                    ("outlineLvl", Some((_, style))) => style.outline = element.attribute("val").and_then(|level| level.parse().ok()),
                    ("numId", Some((_, style))) => style.is_list = Some(element.attribute("val").is_some_and(|list| list != "0")),
                    _ => {}
                },
                Node::End(name, true) if name == "style" => {
                    if let Some((id, style)) = open.take().filter(|_| styles.all.len() < STYLES_MAX) {
                        styles.all.insert(id, style);
                    }
                }
                _ => {}
            }
        }
    }

    /// The level of the headings of a style, from 1 to 6.
    pub(super) fn heading(&self, id: &str) -> Option<u8> {
        for style in self.ancestors(id) {
            if let Some(level) = by_name(&style.name) {
                return Some(level);
            }
            if let Some(outline) = style.outline {
                return level(outline);
            }
        }
        // Without styles, by what Word calls them.
        if self.all.contains_key(id) { None } else { by_name(&id.to_lowercase()) }
    }

    pub(super) fn is_list(&self, id: &str) -> bool {
        self.ancestors(id).find_map(|style| style.is_list).unwrap_or(false)
    }

    fn ancestors(&self, id: &str) -> impl Iterator<Item = &Style> {
        let next = |style: &&Style| style.based_on.as_ref().and_then(|id| self.all.get(id));
        std::iter::successors(self.all.get(id), next).take(ANCESTORS_MAX)
    }
}

/// The level of an outline from 0 to 8; 9 is text.
pub(super) fn level(outline: u8) -> Option<u8> {
    (outline < 9).then(|| (outline + 1).min(6))
}

/// The names of styles that are built in are English in every language of Word.
fn by_name(name: &str) -> Option<u8> {
    match name {
        "title" => Some(1),
        "subtitle" => Some(2),
        _ => match name.strip_prefix("heading")?.trim_start().parse() {
            Ok(level @ 1..=9) => Some(std::cmp::min(level, 6)),
            _ => None,
        },
    }
}
