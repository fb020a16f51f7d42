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

#[test]
#[expect(clippy::cast_precision_loss, reason = "counts of cells")]
fn cells_of_generated_tables_are_found_in_their_places() {
    let folder = made("tables", folder());
    let (mut all, mut told, mut correct) = (0, 0, 0);
    let mut by_document = Vec::new();
    let mut wrong = String::new();
    for number in 0..48 {
        let (blocks, _) = extract(&pdf(), &folder.path().join(format!("tables-{number}.pdf"))).unwrap();
        let truth = std::fs::read(folder.path().join(format!("tables-{number}.json"))).unwrap();
        let truth: Vec<Rows> = serde_json::from_slice(&truth).unwrap();
        let mut tables = found(&blocks);
        all += count(&truth);
        told += count(&tables);
        let before = correct;
        for rows in &truth {
            let best = tables.iter().enumerate().map(|(at, table)| (right(rows, table), at)).max();
            let (same, at) = best.unwrap_or_default();
            correct += same;
            if same < count(std::slice::from_ref(rows)) {
                let all = count(std::slice::from_ref(rows));
                writeln!(wrong, "document {number}: {same} of {all}\n  {rows:?}\n  {:?}", tables.get(at)).unwrap();
                if same == 0 {
                    for table in &tables {
                        writeln!(wrong, "    {:?}", &table[..table.len().min(3)]).unwrap();
                    }
                }
            }
            if same > 0 {
                tables.remove(at);
            }
        }
        by_document.push((number, correct - before, count(&truth)));
    }
    let f1 = 2.0 * correct as f64 / (all + told) as f64;
    if let Ok(file) = std::env::var("SLIPWAY_PDF_TABLES") {
        std::fs::write(file, format!("{f1} {correct} {all} {told}\n{by_document:?}\n{wrong}")).unwrap();
    }
    assert!(f1 >= 0.95, "cell F1 is {f1:.4}: {correct} right of {all}, {told} found\n{wrong}");
}
