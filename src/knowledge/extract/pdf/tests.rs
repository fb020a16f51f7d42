//! Documents that ReportLab made, Debian's manuals, and files that are no PDF at all.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::*;
use crate::{Block, BlockKind};

mod documents;
mod hostile;
mod quality;
mod tables;

fn pdf() -> Pdf {
    Pdf::new(PdfLimits::default(), "eng").unwrap()
}

fn extract(pdf: &Pdf, file: &Path) -> Result<(Vec<Block>, ExtractSummary), Unreadable> {
    let mut blocks = Vec::new();
    let summary = pdf.extract(file, &mut |block| {
        blocks.push(block);
        ControlFlow::Continue(())
    })?;
    Ok((blocks, summary))
}

fn plain(blocks: &[Block]) -> String {
    blocks.iter().flat_map(|block| [block.text.as_str(), "\n"]).collect()
}

/// A folder with what `documents.py` makes.
fn made(kind: &str, folder: TempDir) -> TempDir {
    let script = slipway_peers::repository().join("src/knowledge/extract/pdf/tests/documents.py");
    let output = slipway_peers::python(&script, &[kind, &folder.path().display().to_string()], &[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    folder
}

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// The folder of Debian's manuals.
fn manual(name: &str) -> PathBuf {
    let file = slipway_peers::documents().join("debian").join(name);
    assert!(file.exists(), "{} does not exist: run hack/peers", file.display());
    file
}
