//! Tables of documents that ReportLab made: ruled, with lines above and below, shaded and bare, with cells of many lines,
//! over many pages. A cell is right when its text stands in its row and column.

use std::fmt::Write as _;

use super::*;

type Rows = Vec<Vec<String>>;

fn cells(row: &str) -> Vec<String> {
    let inner = row.strip_prefix("| ").unwrap().strip_suffix(" |").unwrap();
    inner.split(" | ").map(|cell| cell.trim().to_owned()).collect()
}

fn found(blocks: &[Block]) -> Vec<Rows> {
    let mut tables: Vec<Rows> = Vec::new();
    let mut within = false;
    for block in blocks {
        match block.kind {
            BlockKind::TableHead => tables.push(vec![cells(&block.text)]),
            BlockKind::TableRow if within => tables.last_mut().unwrap().push(cells(&block.text)),
            BlockKind::TableRow => panic!("a row without a head: {block:?}"),
            _ => {}
        }
        within = matches!(block.kind, BlockKind::TableHead | BlockKind::TableRow);
    }
    tables
}

fn right(truth: &Rows, table: &Rows) -> usize {
    let same =
        |(one, other): (&Vec<String>, &Vec<String>)| one.iter().zip(other).filter(|(one, other)| one == other && !one.is_empty()).count();
    truth.iter().zip(table).map(same).sum()
}

fn count(tables: &[Rows]) -> usize {
    tables.iter().flatten().flatten().filter(|cell| !cell.is_empty()).count()
}

/// Cells of documents: how many there are, were found, and are right; and the tables that are not, in words.
#[derive(Default)]
struct Score {
    all: usize,
    told: usize,
    correct: usize,
    wrong: String,
}

impl Score {
    fn of(folder: &Path, documents: std::ops::Range<u32>) -> Self {
        let mut score = Self::default();
        for number in documents {
            let (blocks, _) = extract(&pdf(), &folder.join(format!("tables-{number}.pdf"))).unwrap();
            let truth = std::fs::read(folder.join(format!("tables-{number}.json"))).unwrap();
            score.add(number, &serde_json::from_slice::<Vec<Rows>>(&truth).unwrap(), found(&blocks));
        }
        score
    }

    fn add(&mut self, number: u32, truth: &[Rows], mut tables: Vec<Rows>) {
        self.all += count(truth);
        self.told += count(&tables);
        for rows in truth {
            let best = tables.iter().enumerate().map(|(at, table)| (right(rows, table), at)).max();
            let (same, at) = best.unwrap_or_default();
            self.correct += same;
            let all = count(std::slice::from_ref(rows));
            if same < all {
                writeln!(self.wrong, "document {number}: {same} of {all}\n  {rows:?}\n  {:?}", tables.get(at)).unwrap();
            }
            if same > 0 {
                tables.remove(at);
            }
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "counts of cells")]
    fn f1(&self) -> f64 {
        2.0 * self.correct as f64 / (self.all + self.told) as f64
    }
}

#[test]
fn cells_of_generated_tables_are_found_in_their_places() {
    let folder = made("tables", folder());
    // The second half is more difficult: a whole that is good enough does not hide it.
    for documents in [0..24, 24..48] {
        let score = Score::of(folder.path(), documents.clone());
        let Score { all, told, correct, wrong } = &score;
        let f1 = score.f1();
        if let Ok(file) = std::env::var("SLIPWAY_PDF_TABLES") {
            std::fs::write(format!("{file}-{}", documents.start), format!("{f1} {correct} {all} {told}\n{wrong}")).unwrap();
        }
        assert!(f1 >= 0.95, "cell F1 of documents {documents:?} is {f1:.4}: {correct} right of {all}, {told} found\n{wrong}");
    }
}
