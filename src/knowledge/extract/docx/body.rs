//! Reads the body of a document, or its footnotes: one pass over the XML, with what is open on a stack.

use std::collections::HashMap;
use std::io::BufRead;

use super::image::Images;
use super::paragraph::{DocxTable, Held, Open, Paragraph, Row};
use super::styles::Styles;
use super::xml::{Element, Node, Xml};
use crate::BlockKind;
use crate::extract::Unreadable;
use crate::extract::output::{Output, Stop};
use crate::extract::table::{Rows, flat, text};

/// Elements whose content is not of the text as it stands: what was deleted, what was before a change, properties.
const SKIPPED: [&str; 17] = [
    "del",
    "moveFrom",
    "delText",
    "instrText",
    "delInstrText",
    "pPrChange",
    "rPrChange",
    "tblPrChange",
    "trPrChange",
    "tcPrChange",
    "sectPr",
    "sdtPr",
    "sdtEndPr",
    "tblPr",
    "tabs",
    "rt",
    "tblPrEx",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum NoteKind {
    Footnote,
    Endnote,
}

/// The properties of what are being read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Properties {
    None,
    Paragraph,
    Run,
    Row,
}

pub(super) struct DocxBody<'a> {
    styles: &'a Styles,
    images: Option<Images<'a>>,
    notes: HashMap<(NoteKind, String), String>,
    /// The notes that the open paragraph or table refers to.
    referred: Vec<(NoteKind, String)>,
    /// The endnotes that were referred to.
    endnotes: Vec<String>,
    open: Vec<Open>,
    /// Of each open choice between forms of the same content, whether one was taken.
    choices: Vec<bool>,
    properties: Properties,
    is_hidden: bool,
    is_text: bool,
    page: Option<u32>,
    /// Charts, diagrams and embedded files.
    left_out: usize,
}

/// What to do with an element's content.
enum Content {
    Read,
    Skip,
}

impl<'a> DocxBody<'a> {
    /// `page` is none where pages are not known.
    pub(super) fn new(
        styles: &'a Styles,
        images: Option<Images<'a>>,
        notes: HashMap<(NoteKind, String), String>,
        page: Option<u32>,
    ) -> Self {
        Self {
            styles,
            images,
            notes,
            referred: Vec::new(),
            endnotes: Vec::new(),
            open: Vec::new(),
            choices: Vec::new(),
            properties: Properties::None,
            is_hidden: false,
            is_text: false,
            page,
            left_out: 0,
        }
    }

    pub(super) fn page(&self) -> Option<u32> {
        self.page
    }

    pub(super) fn read(&mut self, mut xml: Xml<impl BufRead>, output: &mut Output<'_, '_>) -> Result<(), Stop> {
        loop {
            let Some(read) = xml.next()? else { return Ok(()) };
            match read {
                Node::Start(element) => {
                    if let Content::Skip = self.start(&element) {
                        xml.skip()?;
                    }
                }
                Node::End(name, is_word) => {
                    for block in self.end(&name, is_word) {
                        self.deliver(block, output)?;
                    }
                    self.write_notes(output)?;
                }
                Node::Text(text) => {
                    if self.is_text && !self.is_hidden {
                        self.text(&text);
                    }
                }
            }
        }
    }

    /// Reads a part of notes, each as one text.
    pub(super) fn read_notes(
        &mut self,
        mut xml: Xml<impl BufRead>,
        most: usize,
        found: &mut dyn FnMut(String, String),
    ) -> Result<(), Stop> {
        let (mut id, mut note, mut total) = (None, String::new(), 0);
        loop {
            let Some(read) = xml.next()? else { return Ok(()) };
            match read {
                Node::Start(element) if element.is_word && matches!(element.name(), "footnote" | "endnote") => {
                    // Others are the lines that separate them from the text.
                    let is_note = element.attribute("type").is_none_or(|kind| kind == "normal");
                    id = element.attribute("id").filter(|_| is_note);
                    note.clear();
                }
                Node::Start(element) => {
                    if let Content::Skip = self.start(&element) {
                        xml.skip()?;
                    }
                }
                Node::End(name, true) if matches!(&*name, "footnote" | "endnote") => {
                    total += note.len();
                    if total > most {
                        return Err(Unreadable::TooLarge(format!("its footnotes are longer than {} MiB", most >> 20)).into());
                    }
                    if let Some(id) = id.take() {
                        found(id, note.trim().to_owned());
                    }
                }
                Node::End(name, is_word) => {
                    for block in self.end(&name, is_word) {
                        note.push_str(&block.text);
                        note.push('\n');
                    }
                }
                Node::Text(text) => {
                    if self.is_text && !self.is_hidden {
                        self.text(&text);
                    }
                }
            }
        }
    }

    /// What is left at the end: the endnotes.
    pub(super) fn finish(&mut self, output: &mut Output<'_, '_>) -> Result<(), Stop> {
        let page = self.page;
        std::mem::take(&mut self.endnotes).iter().try_for_each(|note| output.emit(BlockKind::Paragraph, note, page))
    }

    pub(super) fn into_notes(self) -> Vec<String> {
        let mut notes = self.images.map(Images::into_notes).unwrap_or_default();
        if self.left_out > 0 {
            notes.push(format!("charts, diagrams and embedded files that were left out: {}", self.left_out));
        }
        notes
    }

    fn paragraph(&mut self) -> Option<&mut Paragraph> {
        match self.open.last_mut() {
            Some(Open::Paragraph(paragraph)) => Some(paragraph),
            _ => None,
        }
    }

    fn table(&mut self) -> Option<&mut DocxTable> {
        match self.open.last_mut() {
            Some(Open::Table(table)) => Some(table),
            _ => None,
        }
    }

    fn text(&mut self, text: &str) {
        let page = self.page;
        if let Some(paragraph) = self.paragraph() {
            paragraph.page = paragraph.page.or(page);
            paragraph.text.push_str(text);
        }
    }

    fn start(&mut self, element: &Element<'_>) -> Content {
        let name = element.name();
        match name {
            "AlternateContent" => self.choices.push(false),
            "Choice" | "Fallback" if !self.choices.is_empty() => {
                let taken = self.choices.last_mut().is_some_and(|taken| std::mem::replace(taken, true));
                return if taken { Content::Skip } else { Content::Read };
            }
            "blip" => self.image(element.attribute("embed")),
            "imagedata" => self.image(element.attribute("id")),
            "chart" | "relIds" if !element.is_word => self.left_out += 1,
            "OLEObject" => self.left_out += 1,
            "t" if element.has_prefix("m") => self.is_text = true,
            _ if element.is_word => return self.start_word(element),
            _ => {}
        }
        Content::Read
    }

    fn image(&mut self, id: Option<String>) {
        if let (Some(paragraph), Some(id)) = (self.paragraph(), id) {
            paragraph.images.push(id);
        }
    }

    fn start_word(&mut self, element: &Element<'_>) -> Content {
        match (element.name(), self.properties) {
            ("del", Properties::Row) => {
                if let Some(row) = self.table().and_then(|table| table.row.as_mut()) {
                    row.is_deleted = true;
                }
            }
            // Of the mark at a paragraph's end.
            ("rPr", Properties::Paragraph) => return Content::Skip,
            (name, _) if SKIPPED.contains(&name) => return Content::Skip,
            ("p", _) => self.open.push(Open::Paragraph(Box::default())),
            ("tbl", _) => self.open.push(Open::Table(Box::default())),
            ("pPr", _) => self.properties = Properties::Paragraph,
            ("rPr", _) => self.properties = Properties::Run,
            ("trPr", _) => self.properties = Properties::Row,
            ("r", _) => self.is_hidden = false,
            ("vanish", Properties::Run) => self.is_hidden = element.is_on(),
            ("t", _) => self.is_text = true,
            ("tab" | "ptab", Properties::None) => self.mark("\t"),
            ("br" | "cr", Properties::None) => self.mark("\n"),
            ("noBreakHyphen", _) => self.mark("-"),
            ("lastRenderedPageBreak", _) => self.turn_page(),
            ("altChunk", _) => self.left_out += 1,
            ("footnoteReference", _) => self.refer(NoteKind::Footnote, element),
            ("endnoteReference", _) => self.refer(NoteKind::Endnote, element),
            (name, Properties::Paragraph) => self.paragraph_property(name, element),
            (name, _) => self.table_part(name, element),
        }
        Content::Read
    }

    fn mark(&mut self, text: &str) {
        if !self.is_hidden {
            self.text(text);
        }
    }

    fn refer(&mut self, kind: NoteKind, element: &Element<'_>) {
        self.referred.extend(element.attribute("id").map(|id| (kind, id)));
    }

    fn turn_page(&mut self) {
        let outermost = self.open.iter_mut().find_map(|open| match open {
            Open::Table(table) => table.row.as_mut(),
            Open::Paragraph(_) => None,
        });
        let is_known = outermost.is_some_and(|row| std::mem::replace(&mut row.is_broken, true));
        if !is_known && let Some(page) = &mut self.page {
            *page = page.saturating_add(1);
        }
    }

    fn paragraph_property(&mut self, name: &str, element: &Element<'_>) {
        let value = element.attribute("val");
        let Some(paragraph) = self.paragraph() else { return };
        match name {
            "pStyle" => paragraph.style = value,
            "outlineLvl" => paragraph.outline = value.and_then(|level| level.parse().ok()),
            "numId" => paragraph.is_list = Some(value.is_some_and(|list| list != "0")),
            _ => {}
        }
    }

    fn table_part(&mut self, name: &str, element: &Element<'_>) {
        let Some(table) = self.table() else { return };
        let number = || element.attribute("val").and_then(|value| value.parse::<usize>().ok()).unwrap_or(1);
        match name {
            "tr" => table.row = Some(Row::default()),
            "tc" => table.begin_cell(),
            "gridBefore" => table.skip_columns(number()),
            "tblHeader" => {
                if let Some(row) = &mut table.row {
                    row.is_head = element.is_on();
                }
            }
            "gridSpan" => {
                if let Some(cell) = table.cell() {
                    cell.columns = number().clamp(1, 64);
                }
            }
            "vMerge" => {
                if let Some(cell) = table.cell() {
                    let begins = element.attribute("val").is_some_and(|value| value == "restart");
                    cell.rows = if begins { Rows::Begins } else { Rows::Continues };
                }
            }
            _ => {}
        }
    }

    /// The blocks that end here.
    fn end(&mut self, name: &str, is_word: bool) -> Vec<Held> {
        match name {
            "AlternateContent" => drop(self.choices.pop()),
            "t" => self.is_text = false,
            "p" if is_word => return self.end_paragraph(),
            "pPr" | "rPr" | "trPr" if is_word => self.properties = Properties::None,
            "tc" if is_word => self.table().map_or((), DocxTable::end_cell),
            "tr" if is_word => return self.end_row(),
            "tbl" if is_word => return self.end_table(),
            _ => {}
        }
        Vec::new()
    }

    fn end_paragraph(&mut self) -> Vec<Held> {
        let Some(Open::Paragraph(mut paragraph)) = self.open.pop_if(|open| matches!(open, Open::Paragraph(_))) else { return Vec::new() };
        let mut blocks = Vec::new();
        let page = paragraph.page.or(self.page);
        if !paragraph.text.trim().is_empty() {
            let kind = paragraph.kind(self.styles);
            blocks.push(Held { kind, text: std::mem::take(&mut paragraph.text).trim().to_owned(), page });
        }
        if let Some(images) = &mut self.images {
            let texts = paragraph.images.iter().flat_map(|id| images.read(id));
            blocks.extend(texts.map(|text| Held { kind: BlockKind::Paragraph, text, page }));
        }
        blocks.append(&mut paragraph.after);
        blocks
    }

    fn end_row(&mut self) -> Vec<Held> {
        let page = self.page;
        let Some(table) = self.table() else { return Vec::new() };
        table.end_cell();
        let Some(row) = table.row.take().filter(|row| !row.is_deleted) else { return Vec::new() };
        let cells = table.grid.place(row.cells);
        let page = row.page.or(page);
        let rows = table.rows.row(cells, row.is_head);
        rows.into_iter().map(|(kind, cells)| Held { kind, text: text(kind, &cells), page }).collect()
    }

    fn end_table(&mut self) -> Vec<Held> {
        let Some(Open::Table(table)) = self.open.pop_if(|open| matches!(open, Open::Table(_))) else { return Vec::new() };
        let is_box = table.is_box();
        let DocxTable { rows, only, .. } = *table;
        let page = self.page;
        match rows.finish() {
            Some(_) if is_box => only,
            Some((kind, cells)) => vec![Held { kind, text: text(kind, &cells), page }],
            None => Vec::new(),
        }
    }

    /// To what is around it. The rows of a table go around that table.
    fn deliver(&mut self, mut block: Held, output: &mut Output<'_, '_>) -> Result<(), Stop> {
        let is_row = matches!(block.kind, BlockKind::TableHead | BlockKind::TableRow);
        // While its table is open, a row's own place is one step further out.
        let own = self.open.iter().rposition(|open| matches!(open, Open::Table(table) if is_row && table.row.is_none()));
        let around = match own {
            Some(own) => self.open[..own].last_mut(),
            None => self.open.last_mut(),
        };
        match around {
            None => return output.emit(block.kind, &block.text, block.page),
            Some(Open::Paragraph(paragraph)) => paragraph.after.push(block),
            Some(Open::Table(table)) => {
                if is_row {
                    block.text = flat(&block.text);
                }
                table.push(block);
            }
        }
        Ok(())
    }

    /// The footnotes of what has just ended.
    fn write_notes(&mut self, output: &mut Output<'_, '_>) -> Result<(), Stop> {
        if self.referred.is_empty() || !self.open.is_empty() {
            return Ok(());
        }
        for key in std::mem::take(&mut self.referred) {
            // Each is told once.
            let Some(text) = self.notes.remove(&key) else { continue };
            match key.0 {
                NoteKind::Footnote => output.emit(BlockKind::Paragraph, &text, self.page)?,
                NoteKind::Endnote => self.endnotes.push(text),
            }
        }
        Ok(())
    }
}
