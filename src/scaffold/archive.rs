//! The files as a zip archive: sorted, without a clock, so that the same files are the same bytes.

use std::io::{Cursor, Write};

use zip::result::ZipResult;
use zip::write::{SimpleFileOptions, ZipWriter};
use zip::{CompressionMethod, DateTime};

use crate::File;

/// How large an archive may be.
pub const ARCHIVE_BYTES_MAX: usize = 1024 * 1024;

/// The archive, in which all files lie in `folder`.
pub fn archive(folder: &str, files: &[File]) -> ZipResult<Vec<u8>> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated).last_modified_time(DateTime::default());
    for File { path, mode, content } in files {
        zip.start_file(format!("{folder}/{path}"), options.unix_permissions(*mode))?;
        zip.write_all(content.as_bytes())?;
    }
    Ok(zip.finish()?.into_inner())
}
