//! DOCX: a zip archive of XML parts, read as streams. Tracked changes count as accepted; headers, footers and comments are
//! left out; footnotes follow the paragraph that refers to them.

mod body;
mod image;
mod package;
mod paragraph;
mod relations;
mod styles;
mod xml;

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::output::{Output, Stop};
use super::{ExtractSummary, Extractor, Sink, Unreadable, format, program};
use body::{DocxBody, NoteKind};
use image::Images;
use package::Package;
use relations::Relations;
use styles::Styles;
use xml::Xml;

/// An OLE container's header up to the number of the directory's first sector.
const HEADER_BYTES: usize = 52;
/// How much of an OLE container's directory is looked at.
const DIRECTORY_BYTES_MAX: u64 = 1024 * 1024;
/// The text of all footnotes, or of all endnotes.
const NOTES_BYTES_MAX: usize = 8 * 1024 * 1024;

pub struct Docx {
    /// The program that reads embedded images; without it they are left out.
    pub tesseract: Option<PathBuf>,
}

impl Default for Docx {
    fn default() -> Self {
        Self { tesseract: program::find("tesseract") }
    }
}

impl Extractor for Docx {
    fn extract(&self, file: &Path, sink: &mut Sink<'_>) -> Result<ExtractSummary, Unreadable> {
        refuse_others(file)?;
        let mut package = Package::open(file)?;
        let main = main_part(&mut package)?;
        let relations = Relations::of(&mut package, &main)?;
        let styles = match relations.part("styles") {
            Some(part) => Styles::read(&mut package, part)?,
            None => Styles::default(),
        };
        let mut notes = HashMap::new();
        for (kind, name) in [(NoteKind::Footnote, "footnotes"), (NoteKind::Endnote, "endnotes")] {
            if let Some(part) = relations.part(name) {
                read_notes(&mut package, part, kind, &styles, &mut notes)?;
            }
        }
        let has_pages = package.contains(&main, b"lastRenderedPageBreak")?;
        let images = Images::new(self.tesseract.as_deref(), file, &relations);
        let mut output = Output::new(sink, package.size());
        let mut body = DocxBody::new(&styles, Some(images), notes, has_pages.then_some(1));
        let stream = package.part(&main)?.ok_or_else(|| Unreadable::Broken(format!("its part {main} is missing")))?;
        let outcome = body.read(Xml::new(stream, &main), &mut output).and_then(|()| body.finish(&mut output));
        Stop::settle(outcome)?;
        Ok(ExtractSummary { pages: body.page(), notes: body.into_notes() })
    }
}

/// What is no zip archive is named if it can be.
fn refuse_others(file: &Path) -> Result<(), Unreadable> {
    let mut first = Vec::new();
    File::open(file)?.take(format::SNIFFED_BYTES as u64).read_to_end(&mut first)?;
    if first.is_empty() {
        return Err(Unreadable::Broken("it is empty".into()));
    }
    if first.starts_with(b"PK") {
        return Ok(());
    }
    let what = match format::other(&first) {
        Some("a document of Office 97 to 2003") => return Err(ole(file)?),
        Some(what) => what,
        None if format::contains(&first, b"pkg:package") || format::contains(&first, b"wordDocument") => "a document of Word in plain XML",
        None => "no zip archive, which a DOCX is",
    };
    Err(Unreadable::Broken(format!("it is {what}")))
}

/// What an OLE container holds, by the first known name in its directory; what is embedded in it comes later.
fn ole(file: &Path) -> Result<Unreadable, Unreadable> {
    let names = [
        ("EncryptedPackage", None),
        ("WordDocument", Some("a Word document of before 2007 (.doc); save it as .docx")),
        ("Workbook", Some("an Excel workbook of before 2007 (.xls)")),
        ("PowerPoint Document", Some("a PowerPoint presentation of before 2007 (.ppt)")),
        ("__substg1.0", Some("an Outlook message (.msg)")),
    ];
    let mut file = File::open(file)?;
    let mut header = Vec::new();
    (&mut file).take(HEADER_BYTES as u64).read_to_end(&mut header)?;
    let Ok([.., a, b, c, d]) = <[u8; HEADER_BYTES]>::try_from(header) else {
        return Ok(Unreadable::Broken("it is the beginning of a document of Office 97 to 2003, and is cut off".into()));
    };
    // Sectors of 512 bytes begin after the header, which is as long.
    file.seek(SeekFrom::Start((u64::from(u32::from_le_bytes([a, b, c, d])) + 1) * 512))?;
    let mut directory = Vec::new();
    file.take(DIRECTORY_BYTES_MAX).read_to_end(&mut directory)?;
    let at = |name: &str| {
        let units: Vec<u8> = name.encode_utf16().flat_map(u16::to_le_bytes).collect();
        memchr::memmem::find(&directory, &units)
    };
    let first = names.into_iter().filter_map(|(name, what)| Some((at(name)?, what))).min_by_key(|(at, _)| *at);
    Ok(match first {
        Some((_, None)) => Unreadable::Encrypted,
        Some((_, Some(what))) => Unreadable::Broken(format!("it is {what}")),
        None => Unreadable::Broken("it is a document of Office 97 to 2003, of an unknown kind".into()),
    })
}

fn main_part(package: &mut Package) -> Result<String, Unreadable> {
    let named = Relations::of(package, "")?.part("officeDocument").map(str::to_owned);
    let main = named.filter(|part| package.has(part)).unwrap_or_else(|| "word/document.xml".to_owned());
    if package.has(&main) && !main.starts_with("xl/") && !main.starts_with("ppt/") && !main.starts_with("visio/") {
        return Ok(main);
    }
    let kinds = [
        ("xl/", "an Excel workbook (.xlsx)"),
        ("ppt/", "a PowerPoint presentation (.pptx)"),
        ("visio/", "a Visio drawing"),
        ("META-INF/manifest.xml", "an OpenDocument file or a Java archive"),
    ];
    let what =
        kinds.into_iter().find(|(prefix, _)| package.has_prefix(prefix)).map_or("a zip archive without a Word document", |(_, what)| what);
    Err(Unreadable::Broken(format!("it is {what}")))
}

/// The text of each footnote by its id. They are short; a broken part costs the footnotes alone.
fn read_notes(
    package: &mut Package,
    part: &str,
    kind: NoteKind,
    styles: &Styles,
    notes: &mut HashMap<(NoteKind, String), String>,
) -> Result<(), Unreadable> {
    let Some(stream) = package.part(part)? else { return Ok(()) };
    let mut read = HashMap::new();
    let mut body = DocxBody::new(styles, None, HashMap::new(), None);
    let outcome = body.read_notes(Xml::new(stream, part), NOTES_BYTES_MAX, &mut |id, text| {
        read.insert((kind, id), text);
    });
    match outcome {
        Err(Stop::Fault(Unreadable::TooLarge(what))) => return Err(Unreadable::TooLarge(what)),
        _ => notes.extend(read),
    }
    Ok(())
}

#[cfg(test)]
mod tests;
