//! The memory of an ingestion's pod: what the ingestion, the subprocess that reads a document, and the programs that this starts may
//! have at the same time. More than the pod's limit ends the pod as a whole, so that no document is told from the others; the test below
//! keeps the sum within the limit of `values.yaml`.
//!
//! A limit is one of data (`RLIMIT_DATA`): memory that a process has to itself. Files that it maps, and stacks, are beyond it.

use crate::Format;

/// The ingestion: its embedding model (some 100 MiB), one answer of a source as JSON (up to 64 MiB, and gone before a document is read,
/// though perhaps not given back by then), and a batch of chunks.
pub const INGESTION_BYTES: u64 = 192 << 20;
/// What the kernel counts besides: sockets, page tables, files that are being written.
pub const SYSTEM_BYTES: u64 = 32 << 20;

/// The subprocess that reads a document.
pub const READER_MEBIBYTES: u32 = 256;
/// The one that reads PDF, where poppler's programs do the work: it holds some ten pages.
pub const PDF_READER_MEBIBYTES: u32 = 128;

/// `pdftotext`, and `pdftohtml` beside it as long as the document is read. Ordinary pages take some 27 MB.
pub const PAGES_PROGRAM_BYTES: u64 = 80 << 20;
/// `pdftoppm`, which has ended before OCR begins. A page of A4 at 300 dpi has 2,480 x 3,508 bytes in grey, the largest that is made
/// 40,000,000; its pictures come on top, such as 100 MiB for one in JPEG 2000 and colour.
pub const RASTER_BYTES: u64 = 384 << 20;
/// `tesseract`.
pub const OCR_BYTES: u64 = 512 << 20;

/// The limit of the subprocess that reads a format.
pub const fn reader_mebibytes(format: Format) -> u32 {
    match format {
        Format::Pdf => PDF_READER_MEBIBYTES,
        Format::Docx | Format::Html | Format::Csv | Format::Text | Format::Markdown => READER_MEBIBYTES,
    }
}

/// The most that the programs have together which the reader of a format starts.
pub const fn programs_bytes(format: Format) -> u64 {
    match format {
        Format::Pdf => 2 * PAGES_PROGRAM_BYTES + if RASTER_BYTES > OCR_BYTES { RASTER_BYTES } else { OCR_BYTES },
        // Of its pictures.
        Format::Docx => OCR_BYTES,
        Format::Html | Format::Csv | Format::Text | Format::Markdown => 0,
    }
}

/// The most that the pod takes while it reads a document of this format.
pub fn pod_bytes(format: Format) -> u64 {
    INGESTION_BYTES + SYSTEM_BYTES + (u64::from(reader_mebibytes(format)) << 20) + programs_bytes(format)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the chart gives the pod, in bytes.
    fn pod_limit() -> u64 {
        let values = std::fs::read_to_string(slipway_peers::repository().join("values.yaml")).unwrap();
        let values: serde_yaml::Value = serde_yaml::from_str(&values).unwrap();
        let limit = values["worker"]["ingestion"]["resources"]["limits"]["memory"].as_str().unwrap();
        let (number, shift) = match limit.strip_suffix("Gi") {
            Some(number) => (number, 30),
            None => (limit.strip_suffix("Mi").unwrap_or_else(|| panic!("{limit} is neither Gi nor Mi")), 20),
        };
        number.parse::<u64>().unwrap() << shift
    }

    #[test]
    fn what_lives_at_once_fits_into_the_pod() {
        let limit = pod_limit();
        for format in [Format::Pdf, Format::Docx, Format::Html, Format::Csv, Format::Text, Format::Markdown] {
            let most = pod_bytes(format);
            assert!(most <= limit, "{format:?}: up to {} MiB in a pod of {} MiB", most >> 20, limit >> 20);
        }
    }
}
