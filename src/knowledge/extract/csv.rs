//! CSV: each row becomes a block, with the header first. Rows are streamed; values stay as they are written.

mod dialect;

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use csv_core::{ReadFieldResult, Reader, ReaderBuilder};

use super::output::{Output, Stop};
use super::table::{COLUMNS_MAX, row};
use super::{ExtractSummary, Extractor, Sink, Unreadable, decode};
use crate::BlockKind;
use dialect::Dialect;

/// The length of a field; what is beyond it is left out.
const FIELD_BYTES_MAX: usize = 32 * 1024;
/// The length of all fields of a row.
const RECORD_BYTES_MAX: usize = 256 * 1024;
const BUFFER_BYTES: usize = 64 * 1024;
/// How much is looked at to see the delimiter and the header.
const SAMPLE_BYTES: usize = 64 * 1024;

pub struct Csv;

impl Extractor for Csv {
    fn extract(&self, file: &Path, sink: &mut Sink<'_>) -> Result<ExtractSummary, Unreadable> {
        let opened = File::open(file)?;
        let size = opened.metadata()?.len();
        let encoding = decode::detect(BufReader::new(opened))?;
        let mut stream = decode::Utf8::new(File::open(file)?, encoding);
        let mut sample = vec![0; SAMPLE_BYTES];
        let mut length = 0;
        while length + 4 < sample.len() {
            let read = stream.read(&mut sample[length..])?;
            if read == 0 {
                break;
            }
            length += read;
        }
        sample.truncate(length);
        let is_binary = decode::zeros(&sample) * 100 > length;
        if is_binary {
            return Err(Unreadable::Broken("it is a binary file, not CSV".into()));
        }
        let dialect = Dialect::of(&sample);
        sample.drain(..dialect.skip);
        let mut table = Table { output: Output::new(sink, size), columns: None, dialect, defects: Defects::default() };
        let outcome = table.read(Records::new(sample.chain_to(stream), table.dialect.delimiter));
        Stop::settle(outcome)?;
        Ok(ExtractSummary { pages: None, notes: table.defects.notes() })
    }
}

trait ChainTo {
    fn chain_to<R: Read>(self, rest: R) -> impl Read;
}

impl ChainTo for Vec<u8> {
    fn chain_to<R: Read>(self, rest: R) -> impl Read {
        std::io::Cursor::new(self).chain(rest)
    }
}

/// What was left out or is odd, with the first row of each.
#[derive(Default)]
struct Defects {
    ragged: (u64, u64),
    long_fields: (u64, u64),
    long_rows: (u64, u64),
}

impl Defects {
    fn notes(&self) -> Vec<String> {
        let told = |(count, first): (u64, u64), what: &str| (count > 0).then(|| format!("{what}: {count}, the first is row {first}"));
        [
            told(self.ragged, "rows with another number of columns than the first"),
            told(self.long_fields, &format!("fields of more than {} KiB that were cut off", FIELD_BYTES_MAX / 1024)),
            told(self.long_rows, &format!("rows with more than {COLUMNS_MAX} columns or 60 KiB that were cut off")),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

fn count(defect: &mut (u64, u64), row: u64) {
    if defect.0 == 0 {
        defect.1 = row;
    }
    defect.0 += 1;
}

struct Table<'s, 'f> {
    output: Output<'s, 'f>,
    /// Of the table's first row.
    columns: Option<usize>,
    dialect: Dialect,
    defects: Defects,
}

impl Table<'_, '_> {
    fn read(&mut self, mut records: Records<impl Read>) -> Result<(), Stop> {
        let mut number = 0;
        while let Some(record) = records.next()? {
            number += 1;
            let filled = record.cells.iter().filter(|cell| !cell.trim().is_empty()).count();
            if filled == 0 {
                continue;
            }
            if number <= self.dialect.titles {
                let title = record.cells.iter().find(|cell| !cell.trim().is_empty()).map_or("", String::as_str);
                self.output.emit(BlockKind::Paragraph, title, None)?;
                continue;
            }
            let is_first = self.columns.is_none();
            if record.columns != *self.columns.get_or_insert(record.columns) {
                count(&mut self.defects.ragged, number);
            }
            if record.is_field_cut {
                count(&mut self.defects.long_fields, number);
            }
            let (text, is_cut) = row(&record.cells);
            if is_cut || record.columns > record.cells.len() {
                count(&mut self.defects.long_rows, number);
            }
            let kind = if is_first && self.dialect.has_header { BlockKind::TableHead } else { BlockKind::TableRow };
            self.output.emit(kind, &text, None)?;
        }
        Ok(())
    }
}

#[derive(Default)]
struct Record {
    /// No more than `COLUMNS_MAX`.
    cells: Vec<String>,
    columns: usize,
    is_field_cut: bool,
    bytes: usize,
}

impl Record {
    fn push(&mut self, field: &mut Vec<u8>, was_cut: bool) {
        self.columns += 1;
        if self.cells.len() < COLUMNS_MAX && self.bytes <= RECORD_BYTES_MAX {
            self.bytes += field.len();
            self.cells.push(String::from_utf8_lossy(field).trim().to_owned());
            self.is_field_cut |= was_cut;
        }
        field.clear();
    }
}

/// Reads records in bounded memory, whatever stands in them.
struct Records<R> {
    stream: R,
    reader: Reader,
    buffer: Vec<u8>,
    at: usize,
    filled: usize,
    field: Vec<u8>,
}

impl<R: Read> Records<R> {
    fn new(stream: R, delimiter: u8) -> Self {
        let reader = ReaderBuilder::new().delimiter(delimiter).build();
        Self { stream, reader, buffer: vec![0; BUFFER_BYTES], at: 0, filled: 0, field: Vec::new() }
    }

    fn next(&mut self) -> Result<Option<Record>, Stop> {
        let mut record = Record::default();
        let mut piece = [0; 1024];
        let mut is_cut = false;
        self.field.clear();
        loop {
            if self.at == self.filled {
                self.filled = self.stream.read(&mut self.buffer)?;
                self.at = 0;
            }
            let (result, read, written) = self.reader.read_field(&self.buffer[self.at..self.filled], &mut piece);
            self.at += read;
            if self.field.len() + written <= FIELD_BYTES_MAX {
                self.field.extend_from_slice(&piece[..written]);
            } else {
                is_cut = true;
            }
            match result {
                ReadFieldResult::InputEmpty | ReadFieldResult::OutputFull => {}
                ReadFieldResult::Field { record_end } => {
                    record.push(&mut self.field, std::mem::take(&mut is_cut));
                    if record_end {
                        return Ok(Some(record));
                    }
                }
                ReadFieldResult::End => return Ok((record.columns > 0).then_some(record)),
            }
        }
    }
}

#[cfg(test)]
mod tests;
