//! Files that are broken, or made to harm. None may hang, crash or be taken for a document with text.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::time::Instant;

use flate2::Compression;
use flate2::write::ZlibEncoder;

use super::*;

/// A hostile file costs no more than this.
const MAX_DURATION: Duration = Duration::from_mins(1);

fn written(content: &[u8]) -> (TempDir, PathBuf) {
    let folder = folder();
    let file = folder.path().join("-hostile.pdf");
    fs::write(&file, content).unwrap();
    (folder, file)
}

fn tried(content: &[u8]) -> Result<(Vec<Block>, ExtractSummary), Unreadable> {
    let (_folder, file) = written(content);
    let began = Instant::now();
    let result = extract(&pdf(), &file);
    assert!(began.elapsed() < MAX_DURATION, "it took {:?}", began.elapsed());
    result
}

fn broken(content: &[u8]) {
    let result = tried(content);
    assert!(matches!(result, Err(Unreadable::Broken(_))), "{result:?}");
}

/// A PDF of these objects, the first being the catalog.
fn document(objects: &[Vec<u8>]) -> Vec<u8> {
    let mut file = b"%PDF-1.7\n".to_vec();
    let mut table = format!("xref\n0 {}\n0000000000 65535 f \n", objects.len() + 1);
    for (at, object) in objects.iter().enumerate() {
        writeln!(table, "{:010} 00000 n ", file.len()).unwrap();
        file.extend(format!("{} 0 obj\n", at + 1).bytes());
        file.extend(object);
        file.extend(b"\nendobj\n");
    }
    let place = file.len();
    file.extend(table.bytes());
    file.extend(format!("trailer\n<</Size {} /Root 1 0 R>>\nstartxref\n{place}\n%%EOF\n", objects.len() + 1).bytes());
    file
}

fn stream(content: &[u8], dictionary: &str) -> Vec<u8> {
    let mut object = format!("<<{dictionary} /Length {}>>\nstream\n", content.len()).into_bytes();
    object.extend(content);
    object.extend(b"\nendstream");
    object
}

fn deflated(content: impl Iterator<Item = Vec<u8>>) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    content.for_each(|part| encoder.write_all(&part).unwrap());
    encoder.finish().unwrap()
}

/// One page whose content is this object.
fn page(content: Vec<u8>) -> Vec<u8> {
    document(&[
        b"<</Type /Catalog /Pages 2 0 R>>".to_vec(),
        b"<</Type /Pages /Kids [3 0 R] /Count 1>>".to_vec(),
        b"<</Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R /Resources <</Font <</F 5 0 R>> /XObject <</X 6 0 R>>>>>>"
            .to_vec(),
        content,
        b"<</Type /Font /Subtype /Type1 /BaseFont /Helvetica>>".to_vec(),
        stream(b"/X Do /X Do", "/Type /XObject /Subtype /Form /BBox [0 0 9 9] /Resources <</XObject <</X 6 0 R>>>>"),
    ])
}

#[test]
fn the_page_that_hostile_ones_are_made_of_is_sound() {
    let (blocks, _) = tried(&page(stream(b"BT /F 12 Tf 72 700 Td (A sound page) Tj ET", ""))).unwrap();
    assert_eq!(blocks[0].text, "A sound page");
}

#[test]
fn an_empty_file_is_broken() {
    broken(b"");
}

#[test]
fn zero_bytes_are_broken() {
    broken(&vec![0; 1 << 20]);
}

#[test]
fn random_bytes_are_broken() {
    let mut state = 1_u64;
    let noise = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56).to_le_bytes()[0]
    });
    broken(&noise.take(1 << 20).collect::<Vec<u8>>());
}

#[test]
fn a_head_without_a_body_is_broken() {
    broken(b"%PDF-1.7\n%%EOF\n");
}

#[test]
fn a_file_that_does_not_exist_is_an_error_of_input() {
    let result = extract(&pdf(), Path::new("/nowhere/at/all.pdf"));
    assert!(matches!(result, Err(Unreadable::Io(_))), "{result:?}");
}

#[test]
fn truncated_documents_end_with_what_is_whole() {
    let whole = quality::unpacked(&manual("usr/share/doc/debian-policy/fhs/fhs-3.0.pdf.gz"));
    for part in [1, 3, 5, 7, 9] {
        match tried(&whole[..whole.len() * part / 10]) {
            Ok((_, summary)) => assert!(summary.pages.is_some_and(|pages| pages <= 50), "{summary:?}"),
            Err(error) => assert!(matches!(error, Unreadable::Broken(_)), "{error}"),
        }
    }
}

#[test]
fn documents_with_flipped_bytes_do_no_harm() {
    let whole = quality::unpacked(&manual("usr/share/doc/debian-policy/fhs/fhs-3.0.pdf.gz"));
    for seed in 1..4_usize {
        let mut flipped = whole.clone();
        for at in (seed * 997..flipped.len()).step_by(7919) {
            flipped[at] ^= 0x55;
        }
        // Whatever comes of it, it comes in time.
        if let Err(error) = tried(&flipped) {
            assert!(matches!(error, Unreadable::Broken(_) | Unreadable::Encrypted), "{error}");
        }
    }
}

#[test]
fn pages_that_are_their_own_parents_are_no_loop() {
    let looped = document(&[b"<</Type /Catalog /Pages 2 0 R>>".to_vec(), b"<</Type /Pages /Kids [2 0 R 2 0 R] /Count 9>>".to_vec()]);
    if let Ok((blocks, _)) = tried(&looped) {
        assert!(blocks.is_empty(), "{blocks:?}");
    }
}

#[test]
fn forms_that_draw_themselves_are_no_loop() {
    let (blocks, _) = tried(&page(stream(b"/X Do BT /F 12 Tf 72 700 Td (after the loop) Tj ET", ""))).unwrap();
    assert_eq!(blocks.last().unwrap().text, "after the loop");
}

#[test]
fn a_title_that_fills_pdfinfo_concerns_its_document_alone() {
    let sound = page(stream(b"BT /F 12 Tf 72 700 Td (A sound page) Tj ET", ""));
    let titled = |length: usize| {
        let info = format!("7 0 obj\n<</Title ({})>>\nendobj\n", "t".repeat(length));
        // In an update at the end, as editors write one.
        let mut file = sound.clone();
        let (former, object) = (startxref(&sound), file.len());
        file.extend(info.bytes());
        let table = file.len();
        let trailer = format!("trailer\n<</Size 8 /Root 1 0 R /Info 7 0 R /Prev {former}>>\nstartxref\n{table}\n%%EOF\n");
        file.extend(format!("xref\n7 1\n{object:010} 00000 n \n{trailer}").bytes());
        file
    };
    let (blocks, _) = tried(&titled(100)).unwrap();
    assert_eq!(blocks[0].text, "A sound page");
    let result = tried(&titled(200_000));
    assert!(matches!(result, Err(Unreadable::TooLarge(_))), "{result:?}");
}

/// Where the table of a document's objects is.
fn startxref(file: &[u8]) -> usize {
    let text = String::from_utf8_lossy(file);
    let (_, end) = text.rsplit_once("startxref\n").unwrap();
    end.lines().next().unwrap().parse().unwrap()
}

#[test]
fn a_page_that_swells_a_thousandfold_is_bounded() {
    let line = b"BT /F 12 Tf 72 700 Td (bomb bomb bomb bomb) Tj ET\n".repeat(1000);
    let bomb = deflated(std::iter::repeat_n(line, 20_000));
    assert!(bomb.len() < 8 << 20);
    let limits = PdfLimits { page_time: Duration::from_secs(3), ..PdfLimits::default() };
    let (_folder, file) = written(&page(stream(&bomb, "/Filter /FlateDecode")));
    let began = Instant::now();
    let result = extract(&Pdf::new(limits, "eng").unwrap(), &file);
    assert!(began.elapsed() < MAX_DURATION, "it took {:?}", began.elapsed());
    assert!(matches!(result, Err(Unreadable::Broken(_))), "{result:?}");
}

#[test]
fn object_streams_that_swell_are_bounded() {
    let bomb = deflated(std::iter::repeat_n(vec![b' '; 1 << 20], 2048));
    let pages = stream(&bomb, "/Type /ObjStm /N 1000000 /First 8 /Filter /FlateDecode");
    let file = document(&[b"<</Type /Catalog /Pages 3 0 R>>".to_vec(), pages, b"<</Type /Pages /Kids [4 0 R] /Count 1>>".to_vec()]);
    if let Ok((blocks, _)) = tried(&file) {
        assert!(blocks.is_empty(), "{blocks:?}");
    }
}
