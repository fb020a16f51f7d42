//! The FAQ of Python's documentation, read from the HTML of Debian's package by the few tags that Sphinx writes.

use std::path::PathBuf;

use slipway_knowledge::{Block, BlockKind};

/// The HTML of Python's documentation.
pub(crate) fn folder() -> PathBuf {
    let documents = slipway_peers::documents().join("debian/usr/share/doc");
    let entries = std::fs::read_dir(&documents).unwrap_or_else(|error| panic!("{}: {error}", documents.display()));
    let folders = entries.flatten().map(|entry| entry.path().join("html"));
    folders.filter(|html| html.join("faq").is_dir()).max().unwrap_or_else(|| panic!("{} has no FAQ: run hack/peers", documents.display()))
}

/// The pages with questions, as blocks.
pub(crate) fn pages() -> Vec<Vec<Block>> {
    let names = ["design", "extending", "general", "gui", "installed", "library", "programming", "windows"];
    let read = |name| std::fs::read_to_string(folder().join(format!("faq/{name}.html"))).unwrap();
    names.into_iter().map(|name| blocks(&read(name))).collect()
}

/// The blocks of a page's body. Its table of contents would give the questions away.
pub(crate) fn blocks(html: &str) -> Vec<Block> {
    let body = html.split_once("role=\"main\">").unwrap().1;
    let body = body.split_once("<div class=\"clearer\">").unwrap().0;
    let (mut blocks, mut text, mut kind, mut hidden) = (Vec::new(), String::new(), BlockKind::Paragraph, 0);
    for part in body.split('<').skip(1) {
        let (tag, after) = part.split_once('>').unwrap();
        let name = tag.split([' ', '\n']).next().unwrap();
        let next = match name {
            "h1" | "h2" | "h3" | "h4" => Some(BlockKind::Heading(name[1..].parse().unwrap())),
            "pre" => Some(BlockKind::Code),
            "li" => Some(BlockKind::ListItem),
            "p" if kind == BlockKind::ListItem && text.trim().is_empty() => None,
            "p" | "dt" | "dd" | "div" | "section" | "/h1" | "/h2" | "/h3" | "/h4" | "/pre" | "/li" | "/p" | "/dt" | "/dd" => {
                Some(BlockKind::Paragraph)
            }
            "nav" => {
                hidden += 1;
                None
            }
            "/nav" => {
                hidden -= 1;
                None
            }
            _ => None,
        };
        if let Some(next) = next {
            let read = if kind == BlockKind::Code {
                text.trim_end().to_owned()
            } else {
                text.split_whitespace().collect::<Vec<_>>().join(" ").trim_end_matches('¶').to_owned()
            };
            if !read.trim().is_empty() && hidden == 0 {
                blocks.push(Block { kind, text: read, page: None });
            }
            text.clear();
            kind = next;
        }
        text.push_str(&after.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&#39;", "'").replace("&amp;", "&"));
    }
    blocks
}
