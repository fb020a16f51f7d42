//! HTML that sources make of what is no document by itself: an issue with its comments, a page with its title.

mod adf;

use std::fs::File;
use std::io::Write;

pub(crate) use adf::html as adf_to_html;

use super::http::{too_large, unwritable};
use super::{Fetched, MAX_DOCUMENT_BYTES, SourceError};

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

/// Writes a page with this title and body.
pub(crate) fn write_page(file: &mut File, title: &str, body: &str) -> Result<Fetched, SourceError> {
    let title = escaped(title);
    let page = format!(
        "<!DOCTYPE html><html><head><meta charset=\"utf-8\"><title>{title}</title></head><body><h1>{title}</h1>\n{body}</body></html>\n"
    );
    let bytes = page.len() as u64;
    if bytes > MAX_DOCUMENT_BYTES {
        return Err(too_large());
    }
    file.write_all(page.as_bytes()).map_err(|error| unwritable(&error))?;
    Ok(Fetched { bytes, content_type: Some("text/html; charset=utf-8".to_owned()) })
}
