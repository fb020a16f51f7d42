//! Documents of others, each read by a subprocess: those that Apache Tika tests itself with, and Debian's manuals. None may
//! crash or hang; what cannot be read says why.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test has nothing better to do")]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use slipway_knowledge::extract::{ExtractSummary, SNIFFED_BYTES};
use slipway_knowledge::subprocess::{Extraction, ExtractionLimits};
use slipway_knowledge::{Block, BlockKind, Format, Unreadable};
use tokio::task::JoinSet;

const LIMITS: ExtractionLimits =
    ExtractionLimits { memory_mebibytes: 256, cpu: Duration::from_mins(1), wait: Duration::from_mins(2), output_bytes: 64 << 20 };
/// How many of the manuals' pages are read.
const PAGES: usize = 300;

/// The documents that Apache Tika is tested with.
fn tika() -> PathBuf {
    slipway_peers::documents().join("tika/documents")
}

fn program() -> Vec<OsString> {
    vec![env!("CARGO_BIN_EXE_slipway-knowledge").into()]
}

async fn read(format: Format, file: &Path) -> (Vec<Block>, Result<ExtractSummary, Unreadable>) {
    let mut extraction = Extraction::start(&program(), format, file, LIMITS).unwrap();
    let mut blocks = Vec::new();
    while let Some(block) = extraction.next().await {
        blocks.push(block);
    }
    (blocks, extraction.finish().await)
}

async fn lines(name: &str) -> Vec<String> {
    let file = tika().join(name);
    let (blocks, summary) = read(detect(&file).unwrap(), &file).await;
    summary.unwrap_or_else(|error| panic!("{name}: {error}"));
    blocks.iter().map(|block| format!("{:?} {}", block.kind, block.text)).collect()
}

fn detect(file: &Path) -> Result<Format, Unreadable> {
    let mut first = Vec::new();
    fs::File::open(file).unwrap().take(SNIFFED_BYTES as u64).read_to_end(&mut first).unwrap();
    Format::of(&file.file_name().unwrap().to_string_lossy(), None, &first)
}

/// Reads all, two at a time, and tells of each the kinds of its blocks and how it ended.
async fn read_all(files: Vec<PathBuf>) -> Vec<(PathBuf, Vec<BlockKind>, Result<ExtractSummary, Unreadable>)> {
    let mut tasks = JoinSet::new();
    let mut read_files = Vec::new();
    for file in files {
        if tasks.len() >= 2 {
            read_files.extend(tasks.join_next().await.map(Result::unwrap));
        }
        tasks.spawn(async move {
            let (blocks, outcome) = match detect(&file) {
                Ok(format) => read(format, &file).await,
                Err(refusal) => (Vec::new(), Err(refusal)),
            };
            for block in &blocks {
                assert!(!block.text.trim().is_empty() && !block.text.contains('\0'), "{}: {block:?}", file.display());
                assert!(block.text.len() <= 64 << 10, "{}: {} bytes", file.display(), block.text.len());
            }
            (file, blocks.iter().map(|block| block.kind).collect::<Vec<_>>(), outcome)
        });
    }
    read_files.extend(tasks.join_all().await);
    read_files
}

fn files_below(folder: &Path, is: &dyn Fn(&str) -> bool) -> Vec<PathBuf> {
    let (mut files, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let (path, kind) = (entry.path(), entry.file_type().unwrap());
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() && is(&entry.file_name().to_string_lossy()) {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

/// Formats that this program's reader of is elsewhere are left out.
fn is_pdf(name: &str) -> bool {
    name.to_lowercase().ends_with(".pdf")
}

#[tokio::test]
async fn every_document_of_tika_is_read_or_refused() {
    let files = files_below(&tika(), &|name| !is_pdf(name));
    let count = files.len();
    assert!(count > 300, "only {count} files");
    let mut read_by_extension: BTreeMap<String, [usize; 3]> = BTreeMap::new();
    for (file, blocks, outcome) in read_all(files).await {
        let extension = file.extension().unwrap_or_default().to_string_lossy().to_lowercase();
        let counts = read_by_extension.entry(extension).or_default();
        counts[2] += 1;
        match outcome {
            Ok(_) => {
                counts[0] += usize::from(!blocks.is_empty());
                counts[1] += 1;
            }
            Err(error @ (Unreadable::Io(_) | Unreadable::Reader(_))) => panic!("{}: {error}", file.display()),
            Err(refusal) => assert!(!refusal.to_string().contains("its reader"), "{}: {refusal}", file.display()),
        }
    }
    let of = |extension: &str| read_by_extension.get(extension).copied().unwrap_or_default();
    // With text, read, and all. Seven have charts, embedded files or pictures alone; three are encrypted and one is cut off.
    assert_eq!((of("docx"), of("docm"), of("dotx")), ([35, 42, 46], [1; 3], [1; 3]), "{read_by_extension:?}");
    assert_eq!(of("html"), [24; 3], "{read_by_extension:?}");
    for extension in ["doc", "xls", "xlsx", "ppt", "pptx", "rtf"] {
        assert!(of(extension)[1] == 0 && of(extension)[2] > 10, "{extension}: {read_by_extension:?}");
    }
}

#[tokio::test]
async fn manuals_are_read_with_their_headings() {
    let all = files_below(&slipway_peers::documents().join("debian/usr/share/doc"), &|name| name.contains(".html"));
    assert!(all.len() > 2 * PAGES, "only {} pages", all.len());
    let step = all.len() / PAGES;
    let files: Vec<PathBuf> = all.into_iter().step_by(step).take(PAGES).collect();
    let (mut empty, mut marked, mut without) = (Vec::new(), 0, Vec::new());
    for (file, blocks, outcome) in read_all(files).await {
        outcome.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let markup = String::from_utf8_lossy(&fs::read(&file).unwrap()).to_lowercase();
        if ["<h1", "<h2", "<h3"].iter().any(|heading| markup.contains(heading)) {
            marked += 1;
            if !blocks.iter().any(|kind| matches!(kind, BlockKind::Heading(_))) {
                without.push(file.clone());
            }
        }
        if blocks.len() < 2 {
            empty.push(file);
        }
    }
    assert!(empty.len() * 50 <= PAGES, "{empty:?}");
    // Headings of a page's frame alone are left out with it.
    assert!(marked * 2 > PAGES && without.len() * 10 < marked, "{} of {marked} pages with headings lost them: {without:?}", without.len());
}

#[tokio::test]
async fn documents_are_read_block_by_block() {
    assert_eq!(lines("footnotes.docx").await, ["Paragraph Eto ochen prostoy text so snoskoy", "Paragraph snoska"]);
    assert_eq!(
        lines("testWORD_text_box.docx").await,
        [
            "Paragraph This text is directly in the body of the document.",
            "Paragraph This text is inside of a text box in the body of the document."
        ]
    );
    let various = lines("testWORD_various.docx").await;
    assert_eq!(various[..3], ["Paragraph Footnote appears here", "Paragraph Here is a text box", "Paragraph This is a footnote."]);
    for expected in [
        "ListItem Bullet 1",
        "TableHead | Row 1 Col 1 | Row 1 Col 2 | Row 1 Col 3 |",
        "TableRow | Row 2 Col 1 | Row 2 Col 2 | Row 2 Col 3 |",
        "Paragraph ゾルゲと尾崎、淡々と最期",
        "Paragraph 𐌲𐌿𐍄𐌹𐍃𐌺",
    ] {
        assert_eq!(various.iter().filter(|line| *line == expected).count(), 1, "{expected}: {various:#?}");
    }
    assert!(!various.iter().any(|line| line.contains("This is the header text")), "{various:#?}");
}

#[tokio::test]
async fn pages_and_refusals_are_those_of_the_documents() {
    let documents = tika();
    let (blocks, summary) = read(Format::Docx, &documents.join("testWORD_numbered_list.docx")).await;
    assert_eq!(summary.unwrap().pages, Some(2));
    assert!(blocks.iter().any(|block| block.page == Some(2)) && blocks.iter().all(|block| block.page.is_some()));
    assert!(blocks.iter().any(|block| block.kind == BlockKind::ListItem));
    for (name, says) in [
        ("testWORD_protected_passtika.docx", "the document is encrypted; upload it without a password"),
        ("testWORD_truncated.docx", "its zip archive is broken"),
        ("testWORD.doc", "it is a Word document of before 2007 (.doc); save it as .docx"),
        ("testEXCEL_embeded.xls", "it is an Excel workbook of before 2007 (.xls)"),
        ("testEXCEL.xlsx", "it is an Excel workbook (.xlsx)"),
        ("testRTF.rtf", "it is an RTF document"),
    ] {
        let refusal = read(Format::Docx, &documents.join(name)).await.1.unwrap_err().to_string();
        assert!(refusal.contains(says), "{name}: {refusal}");
    }
}
