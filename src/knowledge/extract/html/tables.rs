//! Tables within a page: rows and cells as they come, and at the end of each the decision whether it holds data or is a means
//! of layout, as on old pages, whose blocks stand for themselves.

use super::page::HtmlPiece;
use super::tokens::Tag;
use crate::BlockKind;
use crate::extract::table::{self, Cell, Grid, Rowing, Rows};

/// A longer text in a cell is no datum.
const DATUM_BYTES_MAX: usize = 2000;
const DATUM_PIECES_MAX: usize = 6;

#[expect(clippy::struct_excessive_bools, reason = "each is seen on its own")]
#[derive(Default)]
pub(super) struct HtmlTable {
    /// The caption, and what stands between cells.
    before: Vec<HtmlPiece>,
    rows: Vec<Row>,
    row: Option<Row>,
    cell: Option<Held>,
    has_header: bool,
    is_nested: bool,
    is_presentation: bool,
    pub is_in_head: bool,
}

#[derive(Default)]
struct Row {
    cells: Vec<Held>,
    is_head: bool,
}

#[derive(Default)]
struct Held {
    pieces: Vec<HtmlPiece>,
    columns: usize,
    rows: usize,
    is_header: bool,
}

impl HtmlTable {
    pub(super) fn new(tag: &Tag) -> Self {
        let is_presentation = tag.attribute("role").is_some_and(|role| matches!(role, "presentation" | "none"));
        Self { is_presentation, ..Self::default() }
    }

    pub(super) fn begin_row(&mut self) {
        self.end_row();
        self.row = Some(Row { is_head: self.is_in_head, ..Row::default() });
    }

    pub(super) fn end_row(&mut self) {
        self.end_cell();
        if let Some(mut row) = self.row.take().filter(|row| !row.cells.is_empty()) {
            row.is_head |= row.cells.iter().all(|cell| cell.is_header);
            self.has_header |= row.is_head || row.cells.iter().any(|cell| cell.is_header);
            self.rows.push(row);
        }
    }

    pub(super) fn begin_cell(&mut self, tag: &Tag) {
        self.end_cell();
        if self.row.is_none() {
            self.begin_row();
        }
        // Zero: to the end of the group of rows.
        let rows = tag.number("rowspan").map_or(1, |rows| if rows == 0 { usize::MAX } else { rows });
        let columns = tag.number("colspan").unwrap_or(1).clamp(1, table::COLUMNS_MAX);
        self.cell = Some(Held { pieces: Vec::new(), columns, rows, is_header: tag.name.is(&["th"]) });
    }

    pub(super) fn end_cell(&mut self) {
        if let (Some(cell), Some(row)) = (self.cell.take(), &mut self.row) {
            row.cells.push(cell);
        }
    }

    pub(super) fn push(&mut self, piece: HtmlPiece) {
        match &mut self.cell {
            Some(cell) => cell.pieces.push(piece),
            None => self.before.push(piece),
        }
    }

    /// Takes the pieces of a table that stood in the open cell.
    pub(super) fn extend(&mut self, pieces: Vec<HtmlPiece>) {
        self.is_nested |= pieces.iter().any(|piece| matches!(piece.kind, BlockKind::TableHead | BlockKind::TableRow));
        match &mut self.cell {
            Some(cell) => cell.pieces.extend(pieces),
            None => self.before.extend(pieces),
        }
    }

    pub(super) fn finish(mut self) -> Vec<HtmlPiece> {
        self.end_row();
        let is_layout = self.is_layout();
        let mut pieces = self.before;
        if is_layout {
            pieces.extend(self.rows.into_iter().flat_map(|row| row.cells).flat_map(|cell| cell.pieces));
            return pieces;
        }
        let (mut grid, mut rowing) = (Grid::default(), Rowing::default());
        // All of a table is of the region in which it stands.
        let mut last = None;
        for row in self.rows {
            let links = row.cells.iter().flat_map(|cell| &cell.pieces).map(|piece| piece.links).sum();
            let Some(model) = row.cells.iter().flat_map(|cell| &cell.pieces).next() else { continue };
            let model = HtmlPiece { text: String::new(), links, ..model.clone() };
            let cells = row.cells.into_iter().map(|cell| {
                let rows = Rows::Count(cell.rows);
                Cell { text: flat(&cell.pieces), columns: cell.columns, rows }
            });
            for (kind, cells) in rowing.row(grid.place(cells.collect()), row.is_head) {
                pieces.push(HtmlPiece { kind, text: table::text(kind, &cells), ..model.clone() });
            }
            last = Some(model);
        }
        if let (Some((kind, cells)), Some(model)) = (rowing.finish(), last) {
            pieces.push(HtmlPiece { kind, text: table::text(kind, &cells), ..model });
        }
        pieces
    }

    fn is_layout(&self) -> bool {
        let cells = || self.rows.iter().flat_map(|row| &row.cells);
        let long = |cell: &Held| {
            cell.pieces.len() > DATUM_PIECES_MAX || cell.pieces.iter().map(|piece| piece.text.len()).sum::<usize>() > DATUM_BYTES_MAX
        };
        let has_heading = |cell: &Held| cell.pieces.iter().any(|piece| matches!(piece.kind, BlockKind::Heading(_)));
        let is_column = self.rows.iter().all(|row| row.cells.len() <= 1);
        self.is_presentation || !self.has_header && (self.is_nested || is_column || cells().any(|cell| long(cell) || has_heading(cell)))
    }
}

/// The text of a cell, in which rows of a table within it lose their bars.
fn flat(pieces: &[HtmlPiece]) -> String {
    let texts = pieces.iter().map(|piece| match piece.kind {
        BlockKind::TableHead | BlockKind::TableRow => table::flat(&piece.text),
        _ => piece.text.clone(),
    });
    texts.collect::<Vec<_>>().join(" ")
}
