use std::io::{Cursor, Write};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use zip::write::{SimpleFileOptions, ZipWriter};

use super::*;
use crate::BlockKind;
use crate::extract::extracted;

const PLAIN: Docx = Docx { tesseract: None };
const HEAD: &str = r#"<?xml version="1.0" encoding="UTF-8"?><w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main" xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"><w:body>"#;

fn package(parts: &[(&str, &[u8])]) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in parts {
        zip.start_file(*name, SimpleFileOptions::default().compression_method(zip::CompressionMethod::Deflated)).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

fn document(body: &str) -> String {
    format!("{HEAD}{body}</w:body></w:document>")
}

fn relations(entries: &[(&str, &str, &str)]) -> String {
    let entries: Vec<String> = entries
        .iter()
        .map(|(id, kind, target)| format!(r#"<Relationship Id="{id}" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/{kind}" Target="{target}"/>"#))
        .collect();
    format!(r#"<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">{}</Relationships>"#, entries.concat())
}

fn read_package(bytes: &[u8]) -> (Vec<String>, Result<ExtractSummary, Unreadable>) {
    let (blocks, summary) = extracted(&PLAIN, bytes);
    (blocks.into_iter().map(|(kind, text)| format!("{kind:?} {text}")).collect(), summary)
}

fn read(body: &str) -> Vec<String> {
    let (blocks, summary) = read_package(&package(&[("word/document.xml", document(body).as_bytes())]));
    assert_eq!(summary.unwrap(), ExtractSummary::default(), "{body}");
    blocks
}

fn p(text: &str) -> String {
    format!("<w:p><w:r><w:t>{text}</w:t></w:r></w:p>")
}

#[test]
fn runs_become_paragraphs() {
    for (body, expected) in [
        ("<w:p><w:r><w:t>One</w:t></w:r><w:r><w:t xml:space='preserve'> two</w:t></w:r></w:p>", &["Paragraph One two"][..]),
        (
            "<w:p><w:r><w:t>a</w:t><w:tab/><w:t>b</w:t><w:br/><w:t>c</w:t><w:noBreakHyphen/><w:t>d &amp; &#xe9;&bomb;</w:t></w:r></w:p>",
            &["Paragraph a\tb\nc-d & é"],
        ),
        ("<w:p><w:pPr><w:tabs><w:tab w:val='left'/></w:tabs></w:pPr><w:r><w:t>a</w:t></w:r></w:p><w:p/>", &["Paragraph a"]),
        (
            "<w:p><w:ins><w:r><w:t>new</w:t></w:r></w:ins><w:del><w:r><w:delText>old</w:delText></w:r></w:del><w:moveFrom><w:r><w:t>away</w:t></w:r></w:moveFrom></w:p>",
            &["Paragraph new"],
        ),
        (
            "<w:p><w:pPr><w:rPr><w:del w:id='1'/></w:rPr></w:pPr><w:r><w:rPr><w:vanish/></w:rPr><w:t>no</w:t></w:r><w:r><w:t>yes</w:t></w:r></w:p>",
            &["Paragraph yes"],
        ),
        (
            "<w:p><w:hyperlink><w:r><w:t>link</w:t></w:r></w:hyperlink><w:r><w:instrText> PAGE </w:instrText></w:r><w:fldSimple><w:r><w:t> 7</w:t></w:r></w:fldSimple></w:p>",
            &["Paragraph link 7"],
        ),
        (
            "<w:sdt><w:sdtPr><w:placeholder/></w:sdtPr><w:sdtContent><w:p><w:r><w:t>in</w:t></w:r></w:p></w:sdtContent></w:sdt>",
            &["Paragraph in"],
        ),
        (
            "<w:p><w:r><w:t>around</w:t></w:r><w:r><mc:AlternateContent><mc:Choice><w:txbxContent><w:p><w:r><w:t>box</w:t></w:r></w:p></w:txbxContent></mc:Choice><mc:Fallback><w:txbxContent><w:p><w:r><w:t>box</w:t></w:r></w:p></w:txbxContent></mc:Fallback></mc:AlternateContent></w:r><w:r><w:t> it</w:t></w:r></w:p>",
            &["Paragraph around it", "Paragraph box"],
        ),
        (
            "<w:p><w:pPr><w:pStyle w:val='Heading2'/></w:pPr><w:r><w:t>H</w:t></w:r></w:p><w:p><w:pPr><w:pStyle w:val='Title'/></w:pPr><w:r><w:t>T</w:t></w:r></w:p>",
            &["Heading(2) H", "Heading(1) T"],
        ),
        ("<w:p><w:pPr><w:outlineLvl w:val='7'/></w:pPr><w:r><w:t>H</w:t></w:r></w:p>", &["Heading(6) H"]),
        (
            "<w:p><w:pPr><w:numPr><w:ilvl w:val='1'/><w:numId w:val='3'/></w:numPr></w:pPr><w:r><w:t>item</w:t></w:r></w:p>",
            &["ListItem item"],
        ),
    ] {
        assert_eq!(read(body), expected, "{body}");
    }
}

#[test]
fn tables_keep_their_rows() {
    let cell = |properties: &str, text: &str| format!("<w:tc><w:tcPr>{properties}</w:tcPr>{}</w:tc>", p(text));
    let row = |properties: &str, cells: &[String]| format!("<w:tr><w:trPr>{properties}</w:trPr>{}</w:tr>", cells.concat());
    let table = |rows: &[String]| format!("<w:tbl><w:tblPr/>{}</w:tbl>", rows.concat());
    let ab = row("", &[cell("", "a"), cell("", "b|")]);
    for (body, expected) in [
        (table(&[ab.clone(), row("", &[cell("", "1"), cell("", "")])]), &["TableHead | a | b\\| |", "TableRow | 1 | |"][..]),
        (
            table(&[
                row("<w:tblHeader/>", &[cell("<w:vMerge w:val='restart'/>", "y"), cell("<w:gridSpan w:val='2'/>", "s")]),
                row("<w:tblHeader/>", &[cell("<w:vMerge/>", ""), cell("", "n"), cell("", "o")]),
                row("", &[cell("", "1"), cell("", "2"), cell("", "3")]),
                row("<w:del/>", &[cell("", "4")]),
                row("<w:gridBefore w:val='1'/>", &[cell("", "5"), cell("", "6")]),
            ]),
            &["TableHead | y | s n | s o |", "TableRow | 1 | 2 | 3 |", "TableRow | | 5 | 6 |"],
        ),
        (
            table(&[ab.clone(), format!("<w:tr><w:tc>{}{}</w:tc>{}</w:tr>", table(&[ab.clone(), ab.clone()]), p(""), cell("", "c"))]),
            &["TableHead | a | b\\| |", "TableRow | a b\\| a b\\| | c |"],
        ),
        (table(&[format!("<w:tr><w:tc>{}{}</w:tc></w:tr>", p("One"), p("Two"))]), &["Paragraph One", "Paragraph Two"]),
        (format!("{}{}", p("before"), table(std::slice::from_ref(&ab))), &["Paragraph before", "TableRow | a | b\\| |"]),
    ] {
        assert_eq!(read(&body), expected, "{body}");
    }
}

#[test]
fn styles_notes_and_pages_are_read() {
    let word = "xmlns:w='http://schemas.openxmlformats.org/wordprocessingml/2006/main'";
    let styles = format!(
        "<w:styles {word}><w:style w:type='paragraph' w:styleId='berschrift1'><w:name w:val='heading 1'/></w:style><w:style w:type='paragraph' w:styleId='Mine'><w:name w:val='Mine'/><w:basedOn w:val='berschrift1'/></w:style><w:style w:type='paragraph' w:styleId='Loop'><w:name w:val='x'/><w:basedOn w:val='Loop'/></w:style><w:style w:type='paragraph' w:styleId='Bullet'><w:pPr><w:numPr><w:numId w:val='2'/></w:numPr></w:pPr></w:style></w:styles>"
    );
    let notes = format!(
        "<w:footnotes {word}><w:footnote w:type='separator' w:id='-1'>{0}</w:footnote><w:footnote w:id='2'>{0}</w:footnote></w:footnotes>",
        p("A note.")
    );
    let ends = format!("<w:endnotes {word}><w:endnote w:id='2'>{}</w:endnote></w:endnotes>", p("An end."));
    let of_style = |style: &str, text: &str| format!("<w:p><w:pPr><w:pStyle w:val='{style}'/></w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>");
    let body = [
        of_style("Mine", "Head"),
        of_style("Loop", "Text"),
        of_style("Bullet", "Item"),
        "<w:p><w:r><w:t>Noted</w:t><w:endnoteReference w:id='2'/><w:footnoteReference w:id='2'/></w:r></w:p>".to_owned(),
        "<w:p><w:r><w:lastRenderedPageBreak/><w:t>Second</w:t></w:r></w:p>".to_owned(),
        "<w:p><w:r><w:t>Over</w:t><w:lastRenderedPageBreak/><w:t>flow</w:t></w:r></w:p>".to_owned(),
        p("Third"),
    ];
    let bytes = package(&[
        ("_rels/.rels", relations(&[("a", "officeDocument", "/word/doc2.xml")]).as_bytes()),
        (
            "word/_rels/doc2.xml.rels",
            relations(&[("b", "styles", "styles.xml"), ("c", "footnotes", "footnotes.xml"), ("d", "endnotes", "endnotes.xml")]).as_bytes(),
        ),
        ("word/doc2.xml", document(&body.concat()).as_bytes()),
        ("word/styles.xml", styles.as_bytes()),
        ("word/footnotes.xml", notes.as_bytes()),
        ("word/endnotes.xml", ends.as_bytes()),
    ]);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    let mut blocks = Vec::new();
    let mut sink = |block: crate::Block| {
        blocks.push(format!("{} {:?} {}", block.page.unwrap(), block.kind, block.text));
        std::ops::ControlFlow::Continue(())
    };
    let summary = PLAIN.extract(file.path(), &mut sink).unwrap();
    assert_eq!(summary, ExtractSummary { pages: Some(3), notes: Vec::new() });
    assert_eq!(
        blocks,
        [
            "1 Heading(1) Head",
            "1 Paragraph Text",
            "1 ListItem Item",
            "1 Paragraph Noted",
            "1 Paragraph A note.",
            "2 Paragraph Second",
            "2 Paragraph Overflow",
            "3 Paragraph Third",
            "3 Paragraph An end.",
        ]
    );
}

#[test]
fn what_is_no_docx_is_named() {
    let ole = |name: &str| {
        let mut bytes = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1".to_vec();
        bytes.resize(48, 0);
        // The directory's sector.
        bytes.extend([5, 0, 0, 0]);
        bytes.resize(512 * 7, 0);
        bytes.extend(name.encode_utf16().flat_map(u16::to_le_bytes));
        bytes
    };
    let truncated = package(&[("word/document.xml", document(&p("x")).as_bytes())]);
    for (bytes, says) in [
        (Vec::new(), "it is empty"),
        (ole("EncryptedPackage"), "is encrypted"),
        (ole("WordDocument"), "(.doc)"),
        (ole("Workbook"), "(.xls)"),
        (ole("Workbook")[..8].to_vec(), "is cut off"),
        (ole("Workbook")[..51].to_vec(), "is cut off"),
        (ole("Workbook")[..52].to_vec(), "of an unknown kind"),
        (b"{\\rtf1}".to_vec(), "it is an RTF document"),
        (b"<html><p>x".to_vec(), "it is an HTML page"),
        (b"%PDF-1.4".to_vec(), "it is a PDF"),
        (b"random".to_vec(), "it is no zip archive"),
        (package(&[("xl/workbook.xml", b"")]), "(.xlsx)"),
        (package(&[("a.txt", b"")]), "a zip archive without a Word document"),
        (truncated[..truncated.len() - 30].to_vec(), "its zip archive is broken"),
        (package(&[("word/document.xml", HEAD.as_bytes())]), "its part word/document.xml is cut off"),
        (package(&[("word/document.xml", b"<a></b>")]), "is no XML"),
        (package(&[("word/document.xml", b"<a>\xff</a>")]), "is no XML"),
    ] {
        let fault = read_package(&bytes).1.unwrap_err();
        assert!(!matches!(fault, Unreadable::Io(_)), "no document's bytes are a fault of the disk: {fault:?}");
        let refusal = fault.to_string();
        assert!(refusal.contains(says), "{says}: {refusal}");
    }
}

#[test]
fn bombs_are_limits_that_say_what_they_are() {
    let zeros = vec![b' '; 64 << 20];
    let bomb = package(&[("word/document.xml", &[HEAD.as_bytes(), &zeros, b"</w:body></w:document>"].concat())]);
    let deep = document(&"<w:sdt>".repeat(2000));
    let many: Vec<(String, &[u8])> = (0..10_001).map(|number| (format!("a{number}"), &b""[..])).collect();
    let many: Vec<(&str, &[u8])> = many.iter().map(|(name, bytes)| (name.as_str(), *bytes)).collect();
    for (bytes, says) in [
        (bomb, "a part expands to more than 200 times its packed size"),
        (package(&[("word/document.xml", deep.as_bytes())]), "are nested deeper than 1024"),
        (package(&many), "has 10001 entries"),
    ] {
        let refusal = read_package(&bytes).1.unwrap_err();
        assert!(matches!(&refusal, Unreadable::TooLarge(what) if what.contains(says)), "{says}: {refusal}");
    }
}

#[test]
fn entities_of_a_document_are_not_expanded() {
    let laughs = r#"<!DOCTYPE w [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;"><!ENTITY c SYSTEM "file:///etc/passwd">]>"#;
    let document = document(&p("x&b;&c;y")).replacen("<w:document", &format!("{laughs}<w:document"), 1);
    assert_eq!(read_package(&package(&[("word/document.xml", document.as_bytes())])).0, ["Paragraph xy"]);
}

#[test]
fn a_hostile_part_takes_time_by_its_length() {
    for piece in [
        "<w:p>",
        "<w:p/>",
        "<w:tbl><w:tr><w:tc>",
        "<w:tr/>",
        "<w:tc/>",
        "<x xmlns:w='http://purl.oclc.org/ooxml/wordprocessingml/main'/>",
        "&a;",
        "<!---->",
        "<w:gridSpan w:val='64'/>",
        "<w:footnoteReference w:id='1'/>",
        "<mc:AlternateContent/>",
        "<w:x a='1' a='1' a='1' a='1'/>",
    ] {
        let started = Instant::now();
        let body = document(&piece.repeat((1 << 20) / piece.len()));
        let _ = read_package(&package(&[("word/document.xml", body.as_bytes())]));
        assert!(started.elapsed() < Duration::from_secs(10), "{piece}: {:?}", started.elapsed());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn no_package_makes_it_panic(
        body in "(<w:p>|</w:p>|<w:r>|</w:r>|<w:t>|</w:t>|[a-z]|<w:tbl>|</w:tbl>|<w:tr>|</w:tr>|<w:tc>|</w:tc>|<w:del>|</w:del>|<w:pPr>|</w:pPr>|&|<|<w:vMerge/>|<mc:Choice>|<w:txbxContent>){0,60}",
        any in any::<Vec<u8>>(),
    ) {
        let _ = (extracted(&PLAIN, &any), read_package(&package(&[("word/document.xml", document(&body).as_bytes())])));
    }

    #[test]
    fn no_damage_makes_it_panic(at in 0..2000_usize, byte in any::<u8>(), length in 0..2000_usize) {
        let mut bytes = package(&[
            ("_rels/.rels", relations(&[("a", "officeDocument", "word/document.xml")]).as_bytes()),
            ("word/document.xml", document(&p("text").repeat(50)).as_bytes()),
        ]);
        let damaged = at % bytes.len();
        bytes[damaged] = byte;
        let _ = extracted(&PLAIN, &bytes);
        bytes.truncate(length);
        let _ = extracted(&PLAIN, &bytes);
    }
}

#[test]
fn images_without_a_reader_are_noted() {
    let image = "<w:p><w:r><w:drawing><a:blip r:embed='i1'/><a:blip r:embed='i2'/></w:drawing></w:r></w:p>";
    let png = [&b"\x89PNG\r\n\x1a\n"[..], &[1; 1000]].concat();
    let bytes = package(&[
        ("word/_rels/document.xml.rels", relations(&[("i1", "image", "media/a.png"), ("i2", "image", "media/b.wmf")]).as_bytes()),
        ("word/document.xml", document(&image.repeat(2)).as_bytes()),
        ("word/media/a.png", &png),
        ("word/media/b.wmf", b"\xd7\xcd\xc6\x9a"),
    ]);
    assert_eq!(
        read_package(&bytes).1.unwrap().notes,
        ["images that were not read: 1 (there is no tesseract)", "drawings that were left out: 1"]
    );
    let (blocks, summary) = extracted(&Docx { tesseract: Some("/bin/false".into()) }, &bytes);
    assert_eq!(blocks, [] as [(BlockKind, String); 0]);
    assert!(summary.unwrap().notes[0].ends_with("(too large, too many, or tesseract failed)"));
}
