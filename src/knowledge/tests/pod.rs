//! A document that takes all memory that it can get, read by the real subprocess within what the pod of an ingestion has beside the
//! ingestion itself.
#![expect(clippy::unwrap_used, reason = "a test has nothing better to do")]

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::io::Write as _;
use std::iter;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use slipway_knowledge::budget::{INGESTION_BYTES, pod_bytes};
use slipway_knowledge::extract::ExtractSummary;
use slipway_knowledge::subprocess::{Extraction, ExtractionLimits};
use slipway_knowledge::{Format, Unreadable};
use slipway_peers::{Cgroup, is_root, skip};
use tempfile::NamedTempFile;

/// Less than `pdftotext` may have.
const TOO_LITTLE: u64 = 64 << 20;
/// Each takes poppler some kilobyte, so that it comes to its limit. Of letters that are narrower than three points it would drop most.
const WORDS: u32 = 400_000;
/// The side of a picture.
const PIXELS: usize = 3000;

fn stream(dictionary: &str, content: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(content).unwrap();
    let content = encoder.finish().unwrap();
    let mut object = format!("<<{dictionary} /Filter /FlateDecode /Length {}>>\nstream\n", content.len()).into_bytes();
    object.extend(content);
    object.extend(b"\nendstream");
    object
}

/// A page as large as OCR takes it, which is a picture, and one of more words than any memory.
fn greedy() -> NamedTempFile {
    let mut words = String::new();
    for word in 0..WORDS {
        let (column, row) = (word % 500, word / 500);
        writeln!(words, "BT /F 6 Tf {} {} Td (w{word}) Tj ET", f64::from(column) * 1.2, f64::from(row) * 0.9).unwrap();
    }
    let mut picture = vec![255; PIXELS * PIXELS];
    for row in picture.chunks_mut(PIXELS).skip(1000).take(100) {
        row[500..2500].fill(0);
    }
    let gray = format!("/Type /XObject /Subtype /Image /Width {PIXELS} /Height {PIXELS} /ColorSpace /DeviceGray /BitsPerComponent 8");
    let objects = [
        b"<</Type /Catalog /Pages 2 0 R>>".to_vec(),
        b"<</Type /Pages /Kids [3 0 R 5 0 R] /Count 2>>".to_vec(),
        b"<</Type /Page /Parent 2 0 R /MediaBox [0 0 1584 1584] /Contents 4 0 R /Resources <</XObject <</X 7 0 R>>>>>>".to_vec(),
        stream("", b"q 1584 0 0 1584 0 0 cm /X Do Q"),
        b"<</Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 6 0 R /Resources <</Font <</F 8 0 R>>>>>>".to_vec(),
        stream("", words.as_bytes()),
        stream(&gray, &picture),
        b"<</Type /Font /Subtype /Type1 /BaseFont /Helvetica>>".to_vec(),
    ];
    let mut pdf = b"%PDF-1.7\n".to_vec();
    let mut table = format!("xref\n0 {}\n0000000000 65535 f \n", objects.len() + 1);
    for (number, object) in (1..).zip(&objects) {
        writeln!(table, "{:010} 00000 n ", pdf.len()).unwrap();
        pdf.extend(format!("{number} 0 obj\n").bytes());
        pdf.extend(object);
        pdf.extend(b"\nendobj\n");
    }
    let place = pdf.len();
    pdf.extend(table.bytes());
    pdf.extend(format!("trailer\n<</Size {} /Root 1 0 R>>\nstartxref\n{place}\n%%EOF\n", objects.len() + 1).bytes());
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(&pdf).unwrap();
    file
}

async fn read_within(group: &Cgroup, document: &NamedTempFile) -> Result<ExtractSummary, Unreadable> {
    let command = group.command(env!("CARGO_BIN_EXE_slipway-knowledge"));
    let program: Vec<OsString> = iter::once(command.get_program()).chain(command.get_args()).map(OsStr::to_owned).collect();
    Extraction::start(&program, Format::Pdf, document.path(), ExtractionLimits::default()).unwrap().finish().await
}

#[tokio::test]
async fn a_greedy_document_comes_to_its_own_limits_before_the_pods() {
    if !is_root() {
        skip("only root can limit the memory of a group of processes");
        return;
    }
    let document = greedy();
    // That it is greedy, and that this is seen.
    let small = Cgroup::with_memory(TOO_LITTLE);
    drop(read_within(&small, &document).await);
    assert!(small.kills() > 0, "the document does not take {} MiB", TOO_LITTLE >> 20);

    let pod = Cgroup::with_memory(pod_bytes(Format::Pdf) - INGESTION_BYTES);
    let summary = read_within(&pod, &document).await.unwrap();
    assert_eq!((pod.kills(), summary.pages), (0, Some(2)), "{summary:?}");
    for start in ["page 1 is an image", "page 2 cannot be read"] {
        assert!(summary.notes.iter().any(|note| note.starts_with(start)), "{start}: {summary:?}");
    }
}
