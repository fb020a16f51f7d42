//! What is open while a document is read: paragraphs, and tables with their rows and cells, which may stand within each other.

use super::styles::{self, Styles};
use crate::BlockKind;
use crate::extract::table::{Cell, Grid, Rowing, Rows};

/// A longer paragraph is no heading, whatever its style says.
const HEADING_BYTES_MAX: usize = 400;

/// A block that waits until what is around it ends.
pub(super) struct Held {
    pub kind: BlockKind,
    pub text: String,
    pub page: Option<u32>,
}

pub(super) enum Open {
    Paragraph(Box<Paragraph>),
    Table(Box<DocxTable>),
}

#[derive(Default)]
pub(super) struct Paragraph {
    pub text: String,
    pub style: Option<String>,
    pub outline: Option<u8>,
    pub is_list: Option<bool>,
    /// The page of its first text.
    pub page: Option<u32>,
    /// The ids of images in it.
    pub images: Vec<String>,
    /// What stands in its text boxes.
    pub after: Vec<Held>,
}

impl Paragraph {
    pub(super) fn kind(&self, styles: &Styles) -> BlockKind {
        let style = self.style.as_deref();
        let heading = match self.outline {
            Some(outline) => styles::level(outline),
            None => style.and_then(|style| styles.heading(style)),
        };
        if let Some(level) = heading.filter(|_| self.text.len() <= HEADING_BYTES_MAX) {
            return BlockKind::Heading(level);
        }
        let is_list = self.is_list.unwrap_or_else(|| style.is_some_and(|style| styles.is_list(style)));
        if is_list { BlockKind::ListItem } else { BlockKind::Paragraph }
    }
}

#[derive(Default)]
pub(super) struct DocxTable {
    pub grid: Grid,
    pub rows: Rowing,
    pub row: Option<Row>,
    cells: usize,
    /// What stands in the first cell, as long as it is the only one: then it is a box around text.
    pub only: Vec<Held>,
}

#[derive(Default)]
pub(super) struct Row {
    pub cells: Vec<Cell>,
    pub cell: Option<Cell>,
    pub is_head: bool,
    pub is_deleted: bool,
    pub page: Option<u32>,
    /// A page ends within it; each of its cells may say so.
    pub is_broken: bool,
}

impl DocxTable {
    pub(super) fn begin_cell(&mut self) {
        self.cells += 1;
        if self.cells > 1 {
            self.only = Vec::new();
        }
        if let Some(row) = &mut self.row {
            row.cell = Some(Cell { columns: 1, ..Cell::default() });
        }
    }

    pub(super) fn is_box(&self) -> bool {
        self.cells == 1
    }

    pub(super) fn end_cell(&mut self) {
        if let Some(row) = &mut self.row
            && let Some(cell) = row.cell.take()
        {
            row.cells.push(cell);
        }
    }

    pub(super) fn cell(&mut self) -> Option<&mut Cell> {
        self.row.as_mut()?.cell.as_mut()
    }

    /// Adds a block to the open cell.
    pub(super) fn push(&mut self, block: Held) {
        let is_box = self.is_box();
        let Some(row) = &mut self.row else { return };
        row.page = row.page.or(block.page);
        if let Some(cell) = &mut row.cell {
            if !cell.text.is_empty() {
                cell.text.push(' ');
            }
            cell.text.push_str(&block.text);
        }
        if is_box {
            self.only.push(block);
        }
    }

    /// The places before the first cell that a row leaves out.
    pub(super) fn skip_columns(&mut self, count: usize) {
        if let Some(row) = &mut self.row {
            row.cells.extend((0..count.min(64)).map(|_| Cell { columns: 1, rows: Rows::Count(1), ..Cell::default() }));
        }
    }
}
