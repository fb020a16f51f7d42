//! Subprocesses that break their limits, die or are not wanted any more.
#![expect(clippy::unwrap_used, reason = "a test has nothing better to do")]

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use slipway_knowledge::extract::ExtractSummary;
use slipway_knowledge::subprocess::{Extraction, ExtractionLimits};
use slipway_knowledge::{Block, BlockKind, Format, Unreadable};
use tempfile::NamedTempFile;

fn program() -> Vec<OsString> {
    vec![env!("CARGO_BIN_EXE_slipway-knowledge").into()]
}

fn file(bytes: &[u8]) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    file
}

async fn all(mut extraction: Extraction) -> (Vec<Block>, Result<ExtractSummary, Unreadable>) {
    let mut blocks = Vec::new();
    while let Some(block) = extraction.next().await {
        blocks.push(block);
    }
    (blocks, extraction.finish().await)
}

/// A program that behaves as the script says.
async fn said(script: &str, limits: ExtractionLimits) -> (Vec<Block>, Result<ExtractSummary, Unreadable>) {
    let program = ["/bin/sh", "-c", script].map(OsString::from);
    all(Extraction::start(&program, Format::Text, Path::new("/dev/null"), limits).unwrap()).await
}

async fn until(done: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !done() {
        assert!(Instant::now() < deadline, "it comes to that");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn blocks_and_the_summary_come_through() {
    let text = file("One\n\nzwei \u{1f600}\n".as_bytes());
    let (blocks, summary) = all(Extraction::start(&program(), Format::Text, text.path(), ExtractionLimits::default()).unwrap()).await;
    let block = |text: &str| Block { kind: BlockKind::Paragraph, text: text.into(), page: None };
    assert_eq!((blocks, summary.unwrap()), (vec![block("One"), block("zwei \u{1f600}")], ExtractSummary::default()));
    let table = file(b"item,price,shelf\npump,12,A\nfan,9\nlid,3,B\n");
    let (_, summary) = all(Extraction::start(&program(), Format::Csv, table.path(), ExtractionLimits::default()).unwrap()).await;
    assert_eq!(summary.unwrap().notes, ["rows with another number of columns than the first: 1, the first is row 3"]);
    let missing = Extraction::start(&program(), Format::Text, Path::new("/nowhere"), ExtractionLimits::default()).unwrap();
    let outcome = all(missing).await.1;
    assert!(matches!(outcome, Err(Unreadable::Reader(_))), "what the subprocess cannot open is that document's matter: {outcome:?}");
    assert!(Extraction::start(&["/no/such/program".into()], Format::Text, text.path(), ExtractionLimits::default()).is_err());
    assert!(Extraction::start(&[], Format::Text, text.path(), ExtractionLimits::default()).is_err());
}

#[tokio::test]
async fn each_limit_says_which_it_is() {
    let limits =
        ExtractionLimits { memory_mebibytes: 64, cpu: Duration::from_secs(1), wait: Duration::from_secs(2), output_bytes: 1 << 20 };
    let block = r#"{"block": {"kind": "paragraph", "text": "x"}}"#;
    for (script, says) in [
        ("kill -XCPU $$", "more than 1 s of the processor"),
        ("while :; do :; done", "the document is too large: it was not read within 2 s"),
        ("exec sleep 600", "it was not read within 2 s"),
        ("kill -KILL $$", "for want of memory"),
        ("echo 'memory allocation of 9 bytes failed' >&2; kill -ABRT $$", "more than 64 MiB of memory"),
        ("echo \"thread 'main' has overflowed its stack\" >&2; kill -ABRT $$", "nested too deeply"),
        ("echo \"thread 'main' (7) panicked at src/x.rs:1:2:\" >&2; exit 101", "its reader failed (src/x.rs:1:2; exit status: 101)"),
        ("exit 0", "it ended without an answer"),
        ("kill -SEGV $$", "signal: 11"),
        ("echo hello", "printed what is no block"),
        ("while :; do echo \"$BLOCK\"; done", "its text has more than 1 MiB"),
        ("exec yes | tr -d '\\n'", "printed what is no block"),
    ] {
        let (_, outcome) = said(&format!("BLOCK='{block}'; PATH=/usr/bin:/bin; {script}"), limits).await;
        let refusal = outcome.unwrap_err().to_string();
        assert!(refusal.contains(says), "{script}: {refusal}");
    }
}

#[tokio::test]
async fn real_limits_end_hostile_documents() {
    let limits =
        |memory_mebibytes, seconds| ExtractionLimits { memory_mebibytes, cpu: Duration::from_secs(seconds), ..ExtractionLimits::default() };
    let signs = file(&vec![b'<'; 24 << 20]);
    let (_, outcome) = all(Extraction::start(&program(), Format::Html, signs.path(), limits(40, 60)).unwrap()).await;
    assert_eq!(outcome.unwrap_err().to_string(), "the document is too large: it takes more than 40 MiB of memory to read");
    let markdown = file("*a_ [".repeat(400_000).as_bytes());
    let (_, outcome) = all(Extraction::start(&program(), Format::Html, markdown.path(), limits(256, 60)).unwrap()).await;
    outcome.unwrap();
    let huge = file(b"");
    huge.as_file().set_len(100 << 20).unwrap();
    for format in [Format::Html, Format::Csv, Format::Text, Format::Markdown, Format::Docx] {
        let (blocks, outcome) = all(Extraction::start(&program(), format, huge.path(), limits(256, 60)).unwrap()).await;
        assert!(blocks.is_empty() && matches!(outcome, Err(Unreadable::Broken(_) | Unreadable::TooLarge(_))), "{format:?}: {outcome:?}");
    }
}

#[tokio::test]
async fn a_slow_reader_is_not_held_against_the_subprocess() {
    let limits = ExtractionLimits { wait: Duration::from_secs(2), ..ExtractionLimits::default() };
    let text = file("word\n\n".repeat(100).as_bytes());
    let mut extraction = Extraction::start(&program(), Format::Text, text.path(), limits).unwrap();
    let mut count = 0;
    while extraction.next().await.is_some() {
        count += 1;
        if count == 10 {
            tokio::time::sleep(Duration::from_secs(3)).await;
        }
    }
    assert_eq!((count, extraction.finish().await.unwrap()), (100, ExtractSummary::default()));
}

#[tokio::test]
async fn a_dropped_extraction_leaves_nothing_behind() {
    let told = NamedTempFile::new().unwrap();
    let script = format!("PATH=/usr/bin:/bin; touch $TMPDIR/x; sleep 600 & echo $$ $! $TMPDIR >{}; wait", told.path().display());
    let program = ["/bin/sh", "-c", &script].map(OsString::from);
    let extraction = Extraction::start(&program, Format::Text, Path::new("/dev/null"), ExtractionLimits::default()).unwrap();
    let written = || fs::read_to_string(told.path()).unwrap();
    until(|| written().ends_with('\n')).await;
    drop(extraction);
    let written = written();
    let [process, descendant, folder] = written.split_whitespace().collect::<Vec<_>>()[..] else { panic!("{written}") };
    let is_gone = |process: &str| {
        let state = fs::read_to_string(Path::new("/proc").join(process).join("stat")).unwrap_or_default();
        // Who would wait for it may be slow.
        state.is_empty() || state.contains(") Z ")
    };
    until(|| is_gone(process) && is_gone(descendant) && !Path::new(folder).exists()).await;
}

#[tokio::test]
async fn the_environment_of_the_subprocess_is_empty() {
    assert!(std::env::var_os("PATH").is_some(), "there is something to hide");
    let script = r#"names=$(/usr/bin/tr '\0' '\n' < /proc/$$/environ | /usr/bin/cut -d= -f1 | /usr/bin/tr '\n' ' ')
        echo "{\"block\": {\"kind\": \"paragraph\", \"text\": \"$names\"}}"; echo '{"ended": {"summary": {"pages": null, "notes": []}}}'"#;
    let (blocks, outcome) = said(script, ExtractionLimits::default()).await;
    assert_eq!((outcome.unwrap(), blocks[0].text.as_str()), (ExtractSummary::default(), "TMPDIR "));
}

/// What OCR is asked is played by a script: that tesseract reads well is its own affair.
#[tokio::test]
async fn tesseract_has_its_own_limits_and_time() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("tesseract");
    // Its limit is set just after it has started.
    fs::write(&program, "#!/bin/sh\n[ -s image ] && sleep 0.3 && ulimit -d > text.txt && echo 'words in the image' >> text.txt\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let document = slipway_peers::documents().join("tika/documents/testWORD_1img.docx");
    let extractor = slipway_knowledge::extract::docx::Docx { tesseract: Some(program) };
    let mut texts = Vec::new();
    let mut sink = |block: Block| {
        texts.push(block.text);
        std::ops::ControlFlow::Continue(())
    };
    let summary = slipway_knowledge::extract::Extractor::extract(&extractor, &document, &mut sink).unwrap();
    assert_eq!(summary.notes, ["images that were read by OCR: 1"]);
    assert!(texts.contains(&format!("{} words in the image", 512 << 10)), "{texts:?}");
}
