//! HTML: the main content of a page as headings, paragraphs, lists, code and tables. html5gum tokenizes as the HTML standard
//! defines; no tree is built, so that deeply nested pages cost nothing extra. Scripts are not run.

mod charset;
mod elements;
mod main_content;
mod page;
mod tables;
mod tokens;

use std::path::Path;

use super::output::{Output, Stop, read_whole};
use super::{ExtractSummary, Extractor, Sink, Unreadable, decode, format};
use crate::BlockKind;
use page::HtmlPage;

/// Pages are held in memory; the longest standards as one page have half of this.
pub(crate) const HTML_BYTES_MAX: u64 = 32 * 1024 * 1024;

pub struct Html;

impl Extractor for Html {
    fn extract(&self, file: &Path, sink: &mut Sink<'_>) -> Result<ExtractSummary, Unreadable> {
        let bytes = read_whole(file, HTML_BYTES_MAX, "HTML")?;
        let encoding = charset::declared(&bytes);
        let html = decode::whole(&bytes, encoding)?;
        let zeros = decode::zeros(html.as_bytes());
        if let Some(what) = format::other(&bytes).filter(|what| *what != "an HTML page") {
            return Err(Unreadable::Broken(format!("it is {what}, not HTML")));
        }
        if zeros * 100 > html.len() {
            return Err(Unreadable::Broken("it is a binary file, not HTML".into()));
        }
        let size = bytes.len() as u64;
        drop(bytes);
        let (pieces, title) = HtmlPage::read(&html);
        drop(html);
        Stop::settle(write(&main_content::choose(pieces), &title, &mut Output::new(sink, size)))?;
        Ok(ExtractSummary::default())
    }
}

/// A piece of HTML within another document, of which all counts.
pub(super) fn fragment(html: &str, output: &mut Output<'_, '_>) -> Result<(), Stop> {
    let (pieces, _) = HtmlPage::read(html);
    pieces.iter().try_for_each(|piece| output.emit(piece.kind, &piece.text, None))
}

/// A page without a heading of the first level gets its title as one.
fn write(pieces: &[page::HtmlPiece], title: &str, output: &mut Output<'_, '_>) -> Result<(), Stop> {
    if !pieces.iter().any(|piece| piece.kind == BlockKind::Heading(1)) {
        output.emit(BlockKind::Heading(1), title, None)?;
    }
    pieces.iter().try_for_each(|piece| output.emit(piece.kind, &piece.text, None))
}

#[cfg(test)]
mod tests;
