use std::process::Command;

use super::*;

fn of(blocks: &[Block], kind: BlockKind) -> Vec<&str> {
    blocks.iter().filter(|block| block.kind == kind).map(|block| block.text.as_str()).collect()
}

#[test]
fn columns_are_read_one_after_the_other() {
    let folder = made("columns", folder());
    let (blocks, summary) = extract(&pdf(), &folder.path().join("columns.pdf")).unwrap();
    let text = plain(&blocks);

    assert_eq!(summary, ExtractSummary { pages: Some(6), notes: vec![] });
    let places: Vec<usize> = (1..=6)
        .flat_map(|page| {
            let place = |part: String| text.find(&part).unwrap_or_else(|| panic!("{part} is not in {text}"));
            [place(format!("the left text on page {page} has line 28")), place(format!("the right text on page {page} has line 0 "))]
        })
        .collect();
    assert!(places.is_sorted(), "{text}");
    assert!(blocks.iter().all(|block| !matches!(block.kind, BlockKind::TableHead | BlockKind::TableRow)), "{text}");
}

#[test]
fn running_headers_and_page_numbers_are_left_out() {
    let folder = made("columns", folder());
    let (blocks, _) = extract(&pdf(), &folder.path().join("columns.pdf")).unwrap();
    for block in &blocks {
        assert!(!block.text.contains("Journal of Running") && !block.text.contains("of 6"), "{block:?}");
    }
    let headings: Vec<String> = (1..=6).map(|page| format!("Chapter number {page}")).collect();
    assert_eq!(of(&blocks, BlockKind::Heading(2)).len() + of(&blocks, BlockKind::Heading(1)).len(), 6, "{blocks:?}");
    for heading in headings {
        assert!(blocks.iter().any(|block| matches!(block.kind, BlockKind::Heading(_)) && block.text == heading), "{heading}");
    }
}

#[test]
fn hyphens_at_the_ends_of_lines_are_joined() {
    let folder = made("columns", folder());
    let (blocks, _) = extract(&pdf(), &folder.path().join("columns.pdf")).unwrap();
    let text = plain(&blocks);
    assert!(text.contains("has line 0 and more examples") || text.contains("has line 0 and more example words"), "{text}");
    assert!(!text.contains("exam-"), "{text}");
}

#[test]
fn encrypted_documents_are_told_as_such() {
    let folder = made("encrypted", folder());
    let error = extract(&pdf(), &folder.path().join("encrypted.pdf")).unwrap_err();
    assert!(matches!(error, Unreadable::Encrypted), "{error}");
}

#[test]
fn documents_that_open_without_a_password_are_read() {
    let folder = made("encrypted", folder());
    let (blocks, _) = extract(&pdf(), &folder.path().join("restricted.pdf")).unwrap();
    assert_eq!(of(&blocks, BlockKind::Paragraph), ["Nobody reads this sentence without leave."]);
}

/// A page of the FHS as a picture, between a page of text and an empty one.
fn pictures() -> TempDir {
    let folder = folder();
    let manual = folder.path().join("fhs.pdf");
    std::fs::write(&manual, quality::unpacked(&manual_of_fhs())).unwrap();
    let page = folder.path().join("page");
    let status = Command::new("pdftoppm").args(["-singlefile", "-r", "200", "-f", "12", "-l", "12"]).arg(&manual).arg(&page).status();
    assert!(status.unwrap().success());
    made("picture", folder)
}

fn manual_of_fhs() -> PathBuf {
    manual("usr/share/doc/debian-policy/fhs/fhs-3.0.pdf.gz")
}

#[test]
fn pages_that_are_pictures_are_read_by_ocr() {
    let folder = pictures();
    let (blocks, summary) = extract(&pdf(), &folder.path().join("picture.pdf")).unwrap();
    let seen = plain(&blocks.iter().filter(|block| block.page == Some(2)).cloned().collect::<Vec<_>>());

    assert!(seen.contains("Utility to concatenate files to standard output"), "{blocks:?}");
    assert!(blocks[0].text.starts_with("This first page has text of its own") && blocks[0].page == Some(1), "{blocks:?}");
    assert_eq!(summary.notes.len(), 1, "{summary:?}");
    assert!(summary.notes[0].starts_with("page 2 is an image and was read by OCR"), "{summary:?}");
}

#[test]
fn pictures_are_told_where_tesseract_is_missing() {
    let folder = pictures();
    let mut pdf = pdf();
    pdf.ocr.reader = None;
    let (blocks, summary) = extract(&pdf, &folder.path().join("picture.pdf")).unwrap();
    assert_eq!(blocks.len(), 1, "{blocks:?}");
    assert_eq!(summary.notes, ["page 2 is an image and was not read: tesseract is not installed"]);
}

#[test]
fn pictures_beyond_the_limit_are_told() {
    let folder = pictures();
    let limits = PdfLimits { ocr_pages: 0, ..PdfLimits::default() };
    let (_, summary) = extract(&Pdf::new(limits, "eng").unwrap(), &folder.path().join("picture.pdf")).unwrap();
    assert_eq!(summary.notes, ["page 2 is an image and was not read: 0 pages of a document are"]);
}

#[test]
fn ocr_that_takes_too_long_is_ended_and_told() {
    let folder = pictures();
    let limits = PdfLimits { ocr_page_time: Duration::from_millis(20), ..PdfLimits::default() };
    let (_, summary) = extract(&Pdf::new(limits, "eng").unwrap(), &folder.path().join("picture.pdf")).unwrap();
    assert!(summary.notes[0].starts_with("page 2 is an image and was not read: it took more than"), "{summary:?}");
}

/// Both are played by scripts. The one that rasters goes on for a while after its last byte, and the one that reads tells what it finds.
#[test]
fn ocr_begins_when_the_page_has_been_rastered() {
    let folder = pictures();
    let ended = folder.path().join("ended");
    // By another process, so that no file is open for writing here when it is run.
    let script = |name: &str, lines: &str| {
        let (text, program) = (folder.path().join(format!("{name}.sh")), folder.path().join(name));
        std::fs::write(&text, format!("#!/bin/sh\n{lines}\n")).unwrap();
        assert!(Command::new("install").args(["-m", "755"]).args([&text, &program]).status().unwrap().success());
        Some(program)
    };
    let ended = ended.display();
    let mut pdf = pdf();
    pdf.ocr.rasterer = script("raster", &format!("rm -f {ended}; printf 'P5\\n2 1\\n255\\nxy'; exec >&-; sleep 0.5; : > {ended}"));
    let row = "5\\t1\\t1\\t1\\t1\\t1\\t0\\t0\\t0\\t0\\t90\\t";
    pdf.ocr.reader = script("read", &format!("if [ -e {ended} ]; then printf '{row}afterwards\\n'; else printf '{row}meanwhile\\n'; fi"));
    let (blocks, summary) = extract(&pdf, &folder.path().join("picture.pdf")).unwrap();
    let seen = blocks.iter().filter(|block| block.page == Some(2)).map(|block| block.text.as_str()).collect::<Vec<_>>();
    assert_eq!(seen, ["afterwards"], "{summary:?}");
}

#[test]
fn extraction_ends_when_its_sink_has_enough() {
    let folder = made("columns", folder());
    let mut blocks = Vec::new();
    let summary = pdf().extract(&folder.path().join("columns.pdf"), &mut |block| {
        blocks.push(block);
        ControlFlow::Break(())
    });
    assert_eq!(summary.unwrap().pages, Some(6));
    assert_eq!(blocks.len(), 1);
}

#[test]
fn ten_thousand_pages_are_read_and_one_more_is_refused() {
    let folder = made("long", folder());
    let mut last = None;
    let summary = pdf().extract(&folder.path().join("long.pdf"), &mut |block| {
        last = Some(block);
        ControlFlow::Continue(())
    });
    assert_eq!(summary.unwrap(), ExtractSummary { pages: Some(10_000), notes: vec![] });
    assert_eq!(last.unwrap().text, "The sentence of page number 10000 is here.");

    let error = extract(&pdf(), &folder.path().join("longer.pdf")).unwrap_err();
    assert_eq!(error.to_string(), "the document is too large: it has 10001 pages, and 10000 are read");
}

#[test]
fn more_text_than_the_limit_is_too_large() {
    let folder = made("columns", folder());
    let limits = PdfLimits { text_bytes: 3000, ..PdfLimits::default() };
    let error = extract(&Pdf::new(limits, "eng").unwrap(), &folder.path().join("columns.pdf")).unwrap_err();
    assert_eq!(error.to_string(), "the document is too large: it has more than 3000 bytes of text");
}
