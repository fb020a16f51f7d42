//! Markdown as CommonMark and GitHub define it: headings, lists, code and tables become blocks, and markup within text goes.

use std::path::Path;

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use super::output::{Output, Stop, read_whole};
use super::table::{Cell, Grid, Rowing, text};
use super::text::{Text, refuse_binary};
use super::{ExtractSummary, Extractor, Sink, Unreadable, decode, html};
use crate::BlockKind;

/// The parser takes a hundred times the memory of a hostile text. Longer ones are read as plain text.
const MARKDOWN_BYTES_MAX: u64 = 2 * 1024 * 1024;

pub struct Markdown;

impl Extractor for Markdown {
    fn extract(&self, file: &Path, sink: &mut Sink<'_>) -> Result<ExtractSummary, Unreadable> {
        if std::fs::metadata(file)?.len() > MARKDOWN_BYTES_MAX {
            let mut summary = Text.extract(file, sink)?;
            summary.notes.push(format!("Markdown of more than {} MiB is read as plain text", MARKDOWN_BYTES_MAX >> 20));
            return Ok(summary);
        }
        let bytes = read_whole(file, MARKDOWN_BYTES_MAX, "Markdown")?;
        refuse_binary(&bytes[..bytes.len().min(super::SNIFFED_BYTES)])?;
        let source = decode::whole(&bytes, None)?;
        let mut page = Page { output: Output::new(sink, bytes.len() as u64), open: Vec::new(), text: String::new(), table: None };
        let options = Options::ENABLE_TABLES
            | Options::ENABLE_FOOTNOTES
            | Options::ENABLE_STRIKETHROUGH
            | Options::ENABLE_TASKLISTS
            | Options::ENABLE_YAML_STYLE_METADATA_BLOCKS;
        let outcome = Parser::new_ext(&source, options).try_for_each(|event| page.event(event));
        Stop::settle(outcome.and_then(|()| page.flush()))?;
        Ok(ExtractSummary::default())
    }
}

struct Page<'s, 'f> {
    output: Output<'s, 'f>,
    /// The kinds of the blocks within which text stands, the innermost last.
    open: Vec<BlockKind>,
    text: String,
    table: Option<Table>,
}

#[derive(Default)]
struct Table {
    rows: Rowing,
    cells: Vec<Cell>,
}

impl Page<'_, '_> {
    fn event(&mut self, event: Event<'_>) -> Result<(), Stop> {
        match event {
            Event::Start(tag) => return self.start(&tag),
            Event::End(tag) => return self.end(tag),
            Event::Text(text) | Event::Code(text) | Event::InlineMath(text) | Event::DisplayMath(text) => self.text.push_str(&text),
            // The rest of a block of HTML comes with it, and is read as a page when the block ends.
            Event::Html(html) => self.text.push_str(&html),
            Event::InlineHtml(tag) if tag.starts_with("<br") => self.text.push('\n'),
            Event::SoftBreak => self.text.push(' '),
            Event::HardBreak => self.text.push('\n'),
            Event::TaskListMarker(done) => self.text.push_str(if done { "[x] " } else { "[ ] " }),
            Event::InlineHtml(_) | Event::FootnoteReference(_) | Event::Rule => {}
        }
        Ok(())
    }

    fn start(&mut self, tag: &Tag<'_>) -> Result<(), Stop> {
        let kind = match tag {
            Tag::Heading { level, .. } => BlockKind::Heading(*level as u8),
            Tag::CodeBlock(_) | Tag::MetadataBlock(_) => BlockKind::Code,
            Tag::Item => BlockKind::ListItem,
            Tag::Paragraph | Tag::BlockQuote(_) => {
                // The first block of an item is the item.
                let item = self.open.last_mut().filter(|last| **last == BlockKind::ListItem && self.text.is_empty());
                let kind = item.map_or(BlockKind::Paragraph, |item| std::mem::replace(item, BlockKind::Paragraph));
                self.flush()?;
                self.open.push(kind);
                return Ok(());
            }
            Tag::HtmlBlock | Tag::FootnoteDefinition(_) | Tag::List(_) => BlockKind::Paragraph,
            Tag::Table(_) => {
                self.flush()?;
                self.table = Some(Table::default());
                return Ok(());
            }
            _ => return Ok(()),
        };
        self.flush()?;
        self.open.push(kind);
        Ok(())
    }

    fn end(&mut self, tag: TagEnd) -> Result<(), Stop> {
        match tag {
            TagEnd::TableCell => {
                let text = std::mem::take(&mut self.text);
                if let Some(table) = &mut self.table {
                    table.cells.push(Cell { text, columns: 1, ..Cell::default() });
                }
            }
            TagEnd::TableHead | TagEnd::TableRow => {
                let Some(table) = &mut self.table else { return Ok(()) };
                let cells = Grid::default().place(std::mem::take(&mut table.cells));
                for (kind, cells) in table.rows.row(cells, tag == TagEnd::TableHead) {
                    self.output.emit(kind, &text(kind, &cells), None)?;
                }
            }
            TagEnd::Table => {
                if let Some((kind, cells)) = self.table.take().and_then(|table| table.rows.finish()) {
                    self.output.emit(kind, &text(kind, &cells), None)?;
                }
            }
            TagEnd::HtmlBlock => {
                let html = std::mem::take(&mut self.text);
                self.open.pop();
                html::fragment(&html, &mut self.output)?;
            }
            TagEnd::Paragraph
            | TagEnd::Heading(_)
            | TagEnd::BlockQuote(_)
            | TagEnd::CodeBlock
            | TagEnd::List(_)
            | TagEnd::Item
            | TagEnd::FootnoteDefinition
            | TagEnd::MetadataBlock(_) => {
                self.flush()?;
                self.open.pop();
            }
            _ => {}
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Stop> {
        let text = std::mem::take(&mut self.text);
        let kind = self.open.last().copied().unwrap_or(BlockKind::Paragraph);
        // What follows in the same item is a paragraph of it.
        if let Some(last) = self.open.last_mut().filter(|last| **last == BlockKind::ListItem && !text.trim().is_empty()) {
            *last = BlockKind::Paragraph;
        }
        self.output.emit(kind, &text, None)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use proptest::prelude::*;

    use super::*;
    use crate::extract::extracted;

    fn read(text: &str) -> Vec<String> {
        extracted(&Markdown, text.as_bytes()).0.into_iter().map(|(kind, text)| format!("{kind:?} {text}")).collect()
    }

    #[test]
    fn blocks_of_markdown_are_read() {
        for (text, expected) in [
            ("# One #\n\nTwo\n---\n\nThree\nfour", &["Heading(1) One", "Heading(2) Two", "Paragraph Three four"][..]),
            ("- a\n- b\n  c\n\n  d\n  1. e\n", &["ListItem a", "ListItem b c", "Paragraph d", "ListItem e"]),
            ("- [x] done\n- [ ] open", &["ListItem [x] done", "ListItem [ ] open"]),
            ("```rust\nfn a() {\n\n    b()\n}\n```", &["Code fn a() {\n\n    b()\n}"]),
            ("~~~\n# no heading\n", &["Code # no heading"]),
            ("A [link](https://x.example/) **is** `code` ![alt](a.png)", &["Paragraph A link is code alt"]),
            ("|a|b|\n|-|:-:|\n|1|`x\\|y`|\n|2|", &["TableHead | a | b |", "TableRow | 1 | x\\|y |", "TableRow | 2 | |"]),
            ("> quoted\n> more\n\n***", &["Paragraph quoted more"]),
            ("---\ntitle: T\n---\n# A", &["Code title: T", "Heading(1) A"]),
            (
                "<div align=center><h1>Name</h1><!-- no --><p>Text &amp; more</p></div>\n\nend",
                &["Heading(1) Name", "Paragraph Text & more", "Paragraph end"],
            ),
            ("a<br>b &lt; &copy;", &["Paragraph a\nb < ©"]),
            ("", &[]),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
    }

    #[test]
    fn a_hostile_text_takes_time_by_its_length() {
        for piece in ["*", "[", "> ", "- ", "`", "![](", "<", "|", "# ", "_a ", "[^1]: ", "&"] {
            let text = piece.repeat((256 << 10) / piece.len());
            let started = Instant::now();
            read(&text);
            assert!(started.elapsed() < Duration::from_secs(10), "{piece}: {:?}", started.elapsed());
        }
    }

    #[test]
    fn a_very_long_text_is_read_as_plain() {
        let (blocks, summary) = extracted(&Markdown, "# A\n\n".repeat(500_000).as_bytes());
        assert_eq!((blocks.len(), &*blocks[0].1), (500_000, "# A"));
        assert_eq!(summary.unwrap().notes, ["Markdown of more than 2 MiB is read as plain text"]);
    }

    proptest! {
        #[test]
        fn no_text_makes_markdown_panic(any in any::<Vec<u8>>(), text in "([a-z ]|#|-|\\*|`|\\||>|<|\n|\\[|\\]|\\(|\\)|1\\.|    ){0,60}") {
            let _ = (extracted(&Markdown, &any), read(&text));
        }
    }
}
