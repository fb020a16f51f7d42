//! HTML that sources make of what is no document by itself: an issue with its comments, a page with its title. It is written as it
//! comes, up to the length that the reader of HTML takes.

mod adf;

use std::fs::File;
use std::io::Write;

pub(crate) use adf::html as adf_to_html;

use super::http::unwritable;
use super::{Fetched, SourceError};
use crate::extract::html::HTML_BYTES_MAX;

const MAX_PAGE_BYTES: u64 = HTML_BYTES_MAX;
/// Kept free for what a page ends with.
const END_BYTES: u64 = 1024;
const MAX_TITLE_CHARACTERS: usize = 1000;

pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            other => out.push(other),
        }
    }
    out
}

/// A page on its way into a file.
pub(crate) struct PageWriter<'a> {
    file: &'a mut File,
    bytes: u64,
}

impl<'a> PageWriter<'a> {
    pub(crate) fn begin(file: &'a mut File, title: &str) -> Result<Self, SourceError> {
        let title = escaped(&title.chars().take(MAX_TITLE_CHARACTERS).collect::<String>());
        let mut page = Self { file, bytes: 0 };
        page.write(&format!("<!DOCTYPE html><html><head><meta charset=\"utf-8\"><title>{title}</title></head><body><h1>{title}</h1>\n"))?;
        Ok(page)
    }

    /// Writes a piece of the body if there is room for it: whether there was.
    pub(crate) fn add(&mut self, html: &str) -> Result<bool, SourceError> {
        let has_room = self.bytes + html.len() as u64 + END_BYTES <= MAX_PAGE_BYTES;
        if has_room {
            self.write(html)?;
        }
        Ok(has_room)
    }

    /// Writes the end: a sentence or two, if there is something to say.
    pub(crate) fn finish(mut self, last: &str) -> Result<Fetched, SourceError> {
        self.write(last)?;
        self.write("</body></html>\n")?;
        Ok(Fetched { bytes: self.bytes, content_type: Some("text/html; charset=utf-8".to_owned()) })
    }

    fn write(&mut self, html: &str) -> Result<(), SourceError> {
        self.file.write_all(html.as_bytes()).map_err(|error| unwritable(&error))?;
        self.bytes += html.len() as u64;
        Ok(())
    }
}

/// Writes a page with this title and body.
pub(crate) fn write_page(file: &mut File, title: &str, body: &str) -> Result<Fetched, SourceError> {
    let mut page = PageWriter::begin(file, title)?;
    if page.add(body)? { page.finish("") } else { Err(page_too_large()) }
}

pub(crate) fn page_too_large() -> SourceError {
    SourceError::unfetchable(format!("the document is larger than {} MiB as HTML", MAX_PAGE_BYTES >> 20))
}
