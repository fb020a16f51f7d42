//! Which format a document has: what its first bytes say counts most, then its name, then what its sender said.

use super::{Format, Unreadable};

/// How much of a document should be shown to `Format::of`.
pub const SNIFFED_BYTES: usize = 4096;

/// The first bytes of what is none of the formats, and its name.
const OTHERS: [(&[u8], &str); 13] = [
    (b"\x89PNG\r\n", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"II*\0", "a TIFF image"),
    (b"MM\0*", "a TIFF image"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"7z\xbc\xaf", "a 7-Zip archive"),
    (b"Rar!", "a RAR archive"),
    (b"BZh", "a bzip2 archive"),
    (b"\xfd7zXZ", "an xz archive"),
    (b"{\\rtf", "an RTF document"),
    (b"%!PS", "a PostScript document"),
    (b"\x7fELF", "a program"),
];
const OLE: &[u8] = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1";

impl Format {
    /// The name in the arguments of the subprocess.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pdf => "pdf",
            Self::Docx => "docx",
            Self::Html => "html",
            Self::Csv => "csv",
            Self::Text => "text",
            Self::Markdown => "markdown",
        }
    }

    pub fn of_name(name: &str) -> Option<Self> {
        [Self::Pdf, Self::Docx, Self::Html, Self::Csv, Self::Text, Self::Markdown].into_iter().find(|format| format.name() == name)
    }

    /// `first` has the first bytes, some 4096 of them. `Broken` says what a document is that has none of the formats.
    pub fn of(filename: &str, content_type: Option<&str>, first: &[u8]) -> Result<Self, Unreadable> {
        let named = by_extension(filename);
        let declared = content_type.and_then(by_content_type);
        let head = first.strip_prefix(b"\xef\xbb\xbf").unwrap_or(first);
        if contains(&first[..first.len().min(1024)], b"%PDF-")
            && !matches!(named, Some(Self::Html | Self::Csv | Self::Text | Self::Markdown))
        {
            return Ok(Self::Pdf);
        }
        // An encrypted DOCX is in such a container too: its extractor tells them apart.
        if head.starts_with(OLE) {
            return Ok(Self::Docx);
        }
        if head.starts_with(b"PK\x03\x04") || head.starts_with(b"PK\x05\x06") {
            let is_word =
                [named, declared].contains(&Some(Self::Docx)) || contains(head, b"[Content_Types].xml") || contains(head, b"word/");
            return if is_word { Ok(Self::Docx) } else { Err(none("a zip archive")) };
        }
        if let Some((_, what)) = OTHERS.iter().find(|(magic, _)| head.starts_with(magic)) {
            return Err(none(what));
        }
        if let Some(format) = named.or(declared) {
            return Ok(format);
        }
        if looks_like_html(head) {
            return Ok(Self::Html);
        }
        let is_utf16 = head.starts_with(b"\xff\xfe") || head.starts_with(b"\xfe\xff");
        if is_utf16 || !first.contains(&0) { Ok(Self::Text) } else { Err(none("a binary file of an unknown kind")) }
    }
}

/// What a file is that has none of the formats; none if that cannot be said.
pub(super) fn other(first: &[u8]) -> Option<&'static str> {
    match OTHERS.iter().find(|(magic, _)| first.starts_with(magic)) {
        Some((_, what)) => Some(what),
        None if contains(&first[..first.len().min(1024)], b"%PDF-") => Some("a PDF"),
        None if first.starts_with(OLE) => Some("a document of Office 97 to 2003"),
        None if looks_like_html(first) => Some("an HTML page"),
        None => None,
    }
}

fn none(what: &str) -> Unreadable {
    Unreadable::Broken(format!("it is {what}; PDF, DOCX, HTML, CSV, Markdown and plain text can be read"))
}

fn by_extension(filename: &str) -> Option<Format> {
    let (_, extension) = filename.rsplit_once('.')?;
    Some(match extension.to_ascii_lowercase().as_str() {
        "pdf" => Format::Pdf,
        "docx" | "docm" | "dotx" | "dotm" | "doc" => Format::Docx,
        "html" | "htm" | "xhtml" | "xht" => Format::Html,
        "csv" | "tsv" | "tab" => Format::Csv,
        "md" | "markdown" | "mdown" | "mkd" => Format::Markdown,
        "txt" | "text" | "log" | "rst" | "adoc" => Format::Text,
        _ => return None,
    })
}

fn by_content_type(content_type: &str) -> Option<Format> {
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    Some(match essence.as_str() {
        "application/pdf" | "application/x-pdf" => Format::Pdf,
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
        | "application/vnd.openxmlformats-officedocument.wordprocessingml.template"
        | "application/vnd.ms-word.document.macroenabled.12"
        | "application/msword" => Format::Docx,
        "text/html" | "application/xhtml+xml" => Format::Html,
        "text/csv" | "application/csv" | "text/tab-separated-values" => Format::Csv,
        "text/markdown" | "text/x-markdown" => Format::Markdown,
        // What a sender says who does not know is looked at.
        _ => return None,
    })
}

fn looks_like_html(head: &[u8]) -> bool {
    let start = head.iter().position(|byte| !byte.is_ascii_whitespace()).unwrap_or(head.len());
    let head = head[start..].get(..512.min(head.len() - start)).unwrap_or_default().to_ascii_lowercase();
    let begins = [&b"<!doctype html"[..], b"<html", b"<head", b"<body"].iter().any(|tag| head.starts_with(tag));
    begins || (head.starts_with(b"<?xml") || head.starts_with(b"<!--")) && contains(&head, b"<html")
}

pub(super) fn contains(bytes: &[u8], what: &[u8]) -> bool {
    bytes.windows(what.len()).any(|window| window == what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_recognized() {
        let docx = b"PK\x03\x04\x14\0\x06\0\x08\0\0\0!\0........[Content_Types].xml";
        for (name, content_type, first, expected) in [
            ("a.pdf", None, &b"%PDF-1.7"[..], Some(Format::Pdf)),
            ("a", None, b"\n%PDF-1.7", Some(Format::Pdf)),
            // A broken PDF is still one.
            ("a.PDF", None, b"", Some(Format::Pdf)),
            ("a.pdf", None, b"<html>", Some(Format::Pdf)),
            ("notes.txt", None, b"%PDF- is how a PDF begins", Some(Format::Text)),
            ("a.docx", None, docx, Some(Format::Docx)),
            ("a", None, docx, Some(Format::Docx)),
            ("a.zip", None, b"PK\x03\x04\x14\0readme.txt", None),
            ("a.docx", None, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\0", Some(Format::Docx)),
            ("a.txt", Some("text/html"), b"<p>", Some(Format::Text)),
            ("a", Some("text/html; charset=utf-8"), b"<p>", Some(Format::Html)),
            ("a", None, b"  <!DOCTYPE HTML PUBLIC", Some(Format::Html)),
            ("a", None, b"<?xml version='1.0'?><html xmlns=''>", Some(Format::Html)),
            ("a.tsv", None, b"a\tb", Some(Format::Csv)),
            ("README.md", Some("text/plain"), b"# A", Some(Format::Markdown)),
            ("a", Some("application/octet-stream"), b"words", Some(Format::Text)),
            ("a", None, b"\xff\xfea\0b\0", Some(Format::Text)),
            ("a", None, b"\x01\0\0\0", None),
            ("a.docx", None, b"{\\rtf1\\ansi", None),
            ("a.pdf", None, b"\x89PNG\r\n\x1a\n", None),
        ] {
            assert_eq!(Format::of(name, content_type, first).ok(), expected, "{name} {content_type:?} {first:?}");
        }
        let refusal = Format::of("a.png", None, b"\x89PNG\r\n\x1a\n").unwrap_err().to_string();
        assert!(refusal.contains("it is a PNG image"), "{refusal}");
        for format in [Format::Pdf, Format::Docx, Format::Html, Format::Csv, Format::Text, Format::Markdown] {
            assert_eq!(Format::of_name(format.name()), Some(format));
        }
    }
}
