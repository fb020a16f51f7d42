//! Reads documents into blocks: one file per format. Extractors parse strangers' bytes and run in a subprocess with limits
//! of memory and time; a hostile file costs itself only.

pub mod csv;
mod decode;
pub mod docx;
mod format;
pub mod html;
pub mod markdown;
mod output;
pub mod pdf;
mod program;
mod table;
pub mod text;

use std::io;
use std::ops::ControlFlow;
use std::path::Path;

use thiserror::Error;

use crate::Block;
pub use format::SNIFFED_BYTES;

/// The formats of documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Pdf,
    Docx,
    Html,
    Csv,
    Text,
    Markdown,
}

/// Why a document cannot be read, in words for its owner.
#[derive(Debug, Error)]
pub enum Unreadable {
    #[error("the document is encrypted; upload it without a password")]
    Encrypted,
    /// The format's rules are broken; the text says where.
    #[error("the document is broken: {0}")]
    Broken(String),
    /// A limit of pages, text, memory or time.
    #[error("the document is too large: {0}")]
    TooLarge(String),
    /// The subprocess that reads it failed on a file or a program. Documents behind it may be read all the same.
    #[error("the document cannot be read: {0}")]
    Reader(String),
    /// A file, a program or the subprocess itself cannot be used from here, whatever the document.
    #[error("the document cannot be read: {0}")]
    Io(#[from] io::Error),
}

/// What was read besides the blocks.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ExtractSummary {
    /// The number of pages, where the format has pages.
    pub pages: Option<u32>,
    /// What was left out, in words: "page 7 is an image and was read by OCR with low confidence".
    pub notes: Vec<String>,
}

/// Takes blocks in reading order. `Break` ends the extraction early, without a fault.
pub type Sink<'a> = dyn FnMut(Block) -> ControlFlow<()> + 'a;

/// Reads one format.
pub trait Extractor {
    fn extract(&self, file: &Path, sink: &mut Sink<'_>) -> Result<ExtractSummary, Unreadable>;
}

/// The extractor of a format; none where this program has none.
pub fn extractor(format: Format) -> Option<Box<dyn Extractor>> {
    Some(match format {
        // Poppler may be missing.
        Format::Pdf => Box::new(pdf::Pdf::new(pdf::PdfLimits::default(), "eng").ok()?),
        Format::Docx => Box::new(docx::Docx::default()),
        Format::Html => Box::new(html::Html),
        Format::Csv => Box::new(csv::Csv),
        Format::Text => Box::new(text::Text),
        Format::Markdown => Box::new(markdown::Markdown),
    })
}

#[cfg(test)]
type Extracted = (Vec<(crate::BlockKind, String)>, Result<ExtractSummary, Unreadable>);

/// What an extractor reads of a document with these bytes.
#[cfg(test)]
fn extracted(extractor: &impl Extractor, bytes: &[u8]) -> Extracted {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    let mut blocks = Vec::new();
    let mut sink = |block: Block| {
        blocks.push((block.kind, block.text));
        ControlFlow::Continue(())
    };
    let summary = extractor.extract(file.path(), &mut sink);
    (blocks, summary)
}
