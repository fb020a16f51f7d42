//! Tables of every format: rows as one line of text each, and cells that span several rows or columns.

use crate::BlockKind;

pub(super) const COLUMNS_MAX: usize = 1024;
/// The length of a row. What is beyond it is cut off at a cell.
const ROW_BYTES_MAX: usize = 60 * 1024;
/// Longer texts of spanning cells stand in the first place alone.
const REPEATED_BYTES_MAX: usize = 256;

/// A row as it is told to the model: `| a | b |`. The second value says whether cells were cut off.
pub(super) fn row<T: AsRef<str>>(cells: &[T]) -> (String, bool) {
    let mut text = String::from("|");
    for cell in cells.iter().take(COLUMNS_MAX) {
        let before = text.len();
        text.push(' ');
        for (index, word) in cell.as_ref().split_whitespace().enumerate() {
            if index > 0 {
                text.push(' ');
            }
            text.push_str(&word.replace('|', "\\|"));
        }
        text.push_str(if text.ends_with(' ') { "|" } else { " |" });
        if text.len() > ROW_BYTES_MAX {
            // A first cell that is too long alone is kept, and cut into blocks.
            if before > 1 {
                text.truncate(before);
            }
            return (text, true);
        }
    }
    (text, cells.len() > COLUMNS_MAX)
}

#[derive(Debug, Clone, Default)]
pub(super) struct Cell {
    pub text: String,
    pub columns: usize,
    pub rows: Rows,
}

/// How many rows a cell stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rows {
    /// As HTML says it.
    Count(usize),
    /// As DOCX says it: as many as continue it.
    Begins,
    /// The cell above goes on.
    Continues,
}

impl Default for Rows {
    fn default() -> Self {
        Self::Count(1)
    }
}

/// Makes rows of cells, in which each spanning cell stands in each of its places, so that a row can be understood alone.
#[derive(Default)]
pub(super) struct Grid {
    /// By column: the text that goes on below, and for how many rows at most.
    open: Vec<(String, usize)>,
}

impl Grid {
    pub(super) fn place(&mut self, cells: Vec<Cell>) -> Vec<String> {
        let mut row: Vec<String> = Vec::new();
        let mut next = Vec::new();
        for cell in cells {
            self.carry(&mut row, &mut next, cell.rows == Rows::Continues);
            let repeated = if cell.text.len() <= REPEATED_BYTES_MAX { cell.text.clone() } else { String::new() };
            for index in 0..cell.columns.max(1) {
                if row.len() >= COLUMNS_MAX {
                    break;
                }
                let above = self.open.get(row.len()).filter(|_| cell.rows == Rows::Continues);
                let text = match above {
                    Some((above, _)) => above.clone(),
                    None if index == 0 => cell.text.clone(),
                    None => repeated.clone(),
                };
                let (below, left) = match cell.rows {
                    Rows::Count(1) => (String::new(), 0),
                    Rows::Count(rows) => (repeated.clone(), rows - 1),
                    Rows::Begins => (repeated.clone(), 0),
                    Rows::Continues => (text.clone(), 0),
                };
                row.push(text);
                next.push((below, left));
            }
        }
        self.carry(&mut row, &mut next, false);
        self.open = next;
        row
    }

    /// Fills the places that cells of rows above span.
    fn carry(&mut self, row: &mut Vec<String>, next: &mut Vec<(String, usize)>, continues: bool) {
        while !continues && let Some((text, left @ 1..)) = self.open.get(row.len()) {
            row.push(text.clone());
            next.push((text.clone(), left - 1));
        }
    }
}

/// Decides which rows are the header. Rows come one at a time, and few are held back.
#[derive(Default)]
pub(super) struct Rowing {
    head: Option<Vec<String>>,
    /// Whether the header was marked as one, and not merely the first row.
    is_marked: bool,
    begun: bool,
}

impl Rowing {
    /// The blocks that are certain after this row.
    pub(super) fn row(&mut self, cells: Vec<String>, is_head: bool) -> Vec<(BlockKind, Vec<String>)> {
        if cells.iter().all(|cell| cell.trim().is_empty()) {
            return Vec::new();
        }
        if self.begun {
            return vec![(BlockKind::TableRow, cells)];
        }
        match &mut self.head {
            None => {
                (self.head, self.is_marked) = (Some(cells), is_head);
                Vec::new()
            }
            // Headers of several rows become one.
            Some(head) if is_head && self.is_marked => {
                head.resize(head.len().max(cells.len()), String::new());
                for (above, below) in head.iter_mut().zip(cells) {
                    if *above != below && above.len() + below.len() < ROW_BYTES_MAX {
                        format!("{above} {below}").trim().clone_into(above);
                    }
                }
                Vec::new()
            }
            Some(head) => {
                self.begun = true;
                vec![(BlockKind::TableHead, std::mem::take(head)), (BlockKind::TableRow, cells)]
            }
        }
    }

    /// What was held back when the table ends. A single cell is no table.
    pub(super) fn finish(self) -> Option<(BlockKind, Vec<String>)> {
        let head = self.head.filter(|_| !self.begun)?;
        let kind = match head.as_slice() {
            [_] => BlockKind::Paragraph,
            _ if self.is_marked => BlockKind::TableHead,
            _ => BlockKind::TableRow,
        };
        Some((kind, head))
    }
}

/// The text of a block that the two above return.
pub(super) fn text(kind: BlockKind, cells: &[String]) -> String {
    match (kind, cells) {
        (BlockKind::Paragraph, [cell]) => cell.clone(),
        _ => row(cells).0,
    }
}

/// The text of a row within a cell of another table.
pub(super) fn flat(row: &str) -> String {
    let cells = row.strip_prefix('|').unwrap_or(row);
    cells.strip_suffix('|').unwrap_or(cells).trim().replace(" |", "").replace("\\|", "|")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(text: &str, columns: usize, rows: Rows) -> Cell {
        Cell { text: text.to_owned(), columns, rows }
    }

    #[test]
    fn a_row_is_one_line() {
        assert_eq!(row(&["a", "", "b|c", " d\n e "]), ("| a | | b\\|c | d e |".to_owned(), false));
        let (long, cut) = row(&vec!["x".repeat(1000); 100]);
        assert!(cut && long.len() < ROW_BYTES_MAX && long.ends_with("x |"));
        assert!(row(&vec!["1"; COLUMNS_MAX + 1]).1);
    }

    #[test]
    fn spanning_cells_stand_in_each_place() {
        let mut grid = Grid::default();
        let one = Rows::Count(1);
        assert_eq!(grid.place(vec![cell("a", 1, Rows::Count(3)), cell("b", 2, one)]), ["a", "b", "b"]);
        assert_eq!(grid.place(vec![cell("c", 1, Rows::Count(2)), cell("d", 1, one)]), ["a", "c", "d"]);
        assert_eq!(grid.place(vec![cell("e", 1, one)]), ["a", "c", "e"]);
        assert_eq!(grid.place(vec![cell("f", 1, one)]), ["f"]);
        let mut grid = Grid::default();
        assert_eq!(grid.place(vec![cell("a", 2, Rows::Begins), cell("b", 1, one)]), ["a", "a", "b"]);
        assert_eq!(grid.place(vec![cell("", 2, Rows::Continues), cell("c", 1, one)]), ["a", "a", "c"]);
        assert_eq!(grid.place(vec![cell("", 2, Rows::Continues), cell("d", 1, one)]), ["a", "a", "d"]);
        assert_eq!(grid.place(vec![cell("e", 1, one), cell("f", 9999, one)]).len(), COLUMNS_MAX);
    }

    #[test]
    fn headers_of_several_rows_become_one() {
        let cells = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
        let mut rows = Rowing::default();
        assert_eq!(rows.row(cells(&["Year", "Sales", "Sales"]), true), []);
        assert_eq!(rows.row(cells(&["Year", "North", "South"]), true), []);
        assert_eq!(
            rows.row(cells(&["2020", "1", "2"]), false),
            [(BlockKind::TableHead, cells(&["Year", "Sales North", "Sales South"])), (BlockKind::TableRow, cells(&["2020", "1", "2"]))]
        );
        assert_eq!(rows.finish(), None);
        let mut box_of_text = Rowing::default();
        assert_eq!(box_of_text.row(cells(&["Note"]), false), []);
        assert_eq!(box_of_text.finish(), Some((BlockKind::Paragraph, cells(&["Note"]))));
    }
}
