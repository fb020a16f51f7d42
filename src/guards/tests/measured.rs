//! Precision and recall on the labelled sets of `testdata`. The floors are slightly below the results of the held-out halves
//! in `docs/guards.md`. `HALF=dev` prints the half for development, `SHOW=fn` or `SHOW=fp` its misses or false alarms.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test says what went wrong by panicking, and prints its table"
)]

use std::collections::BTreeMap;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use sha2::{Digest, Sha256};
use slipway_guards::{Guards, Side};

struct Row {
    text: String,
    source: String,
    label: Value,
}

fn half() -> String {
    std::env::var("HALF").unwrap_or_else(|_| "held-out".to_owned())
}

fn rows(guard: &str, half: &str) -> Vec<Row> {
    let path = Path::new("testdata").join(guard).join(half).with_extension("jsonl");
    let lines = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let row = |line: &str| {
        let label: Value = serde_json::from_str(line).unwrap();
        let text = STANDARD.decode(label["text"].as_str().unwrap()).unwrap();
        Row { text: String::from_utf8(text).unwrap(), source: label["source"].as_str().unwrap().to_owned(), label }
    };
    lines.lines().map(row).collect()
}

#[derive(Default, Clone, Copy)]
struct Score {
    hits: u32,
    misses: u32,
    alarms: u32,
    quiet: u32,
}

impl Score {
    fn precision(self) -> f64 {
        f64::from(self.hits) / f64::from((self.hits + self.alarms).max(1))
    }

    fn recall(self) -> f64 {
        f64::from(self.hits) / f64::from((self.hits + self.misses).max(1))
    }

    fn count(&mut self, wanted: bool, found: bool) {
        *match (wanted, found) {
            (true, true) => &mut self.hits,
            (true, false) => &mut self.misses,
            (false, true) => &mut self.alarms,
            (false, false) => &mut self.quiet,
        } += 1;
    }
}

#[derive(Default)]
struct Table(BTreeMap<String, Score>);

impl Table {
    fn count(&mut self, name: &str, wanted: bool, found: bool) {
        self.0.entry(name.to_owned()).or_default().count(wanted, found);
        self.0.entry("all".to_owned()).or_default().count(wanted, found);
    }

    fn print(&self, guard: &str) {
        println!(
            "\n{guard}, {}:\n| | precision | recall | hits | misses | false alarms | rightly quiet |\n|---|---|---|---|---|---|---|",
            half()
        );
        for (name, score) in &self.0 {
            let Score { hits, misses, alarms, quiet } = score;
            println!("| {name} | {:.3} | {:.3} | {hits} | {misses} | {alarms} | {quiet} |", score.precision(), score.recall());
        }
    }

    fn floor(&self, name: &str, precision: f64, recall: f64) {
        if half() != "held-out" {
            return;
        }
        let score = self.0[name];
        assert!(score.precision() >= precision, "{name}: precision {:.3} is under {precision}", score.precision());
        assert!(score.recall() >= recall, "{name}: recall {:.3} is under {recall}", score.recall());
    }
}

fn show(what: &str, row: &Row, detail: &str) {
    if std::env::var("SHOW").is_ok_and(|show| show == what) && half() == "dev" {
        println!(
            "{what} [{}] {detail} | {}",
            row.label["about"].as_str().unwrap_or(&row.source),
            row.text.chars().take(220).collect::<String>().replace('\n', "⏎")
        );
    }
}

/// Counts whole texts with and without findings.
fn texts(guard: &str, settings: &str, wanted: impl Fn(&Row) -> bool) -> Table {
    let guards = Guards::read(settings, "").unwrap();
    let mut table = Table::default();
    for row in rows(guard, &half()) {
        let verdict = guards.check(Side::Input, &row.text);
        let (wanted, found) = (wanted(&row), !verdict.findings.is_empty());
        let kinds: Vec<_> =
            verdict.findings.iter().map(|finding| format!("{}={}", finding.kind, &row.text[finding.span.clone()])).collect();
        if wanted && !found {
            show("fn", &row, "");
        } else if found && !wanted {
            show("fp", &row, &kinds.join(" "));
        }
        table.count(&row.source, wanted, found);
    }
    table.print(guard);
    table
}

#[test]
fn personal_data() {
    let guards = Guards::read(r#"["pii-detection"]"#, "").unwrap();
    let mut table = Table::default();
    for row in rows("pii", &half()) {
        let verdict = guards.check(Side::Output, &row.text);
        let labels: Vec<(&str, usize, usize)> = row.label["spans"]
            .as_array()
            .unwrap()
            .iter()
            .map(|span| {
                let place = |key: &str| usize::try_from(span[key].as_u64().unwrap()).unwrap();
                (span["kind"].as_str().unwrap(), place("start"), place("end"))
            })
            .collect();
        let overlap = |finding: &slipway_guards::Finding, start: usize, end: usize| finding.span.start < end && start < finding.span.end;
        for (kind, start, end) in &labels {
            // A label counts as found if all of it is masked, as any kind.
            let found = verdict.findings.iter().any(|finding| finding.span.start <= *start && *end <= finding.span.end);
            if !found {
                show("fn", &row, &format!("{kind}={}", &row.text[*start..*end]));
            }
            table.count(kind, true, found);
        }
        for finding in verdict.findings.iter().filter(|finding| !labels.iter().any(|(_, start, end)| overlap(finding, *start, *end))) {
            show("fp", &row, &format!("{}={}", finding.kind, &row.text[finding.span.clone()]));
            table.count(&finding.kind, false, true);
        }
    }
    table.print("pii-detection");
    table.floor("all", 0.99, 0.94);
}

#[test]
fn secrets() {
    let table = texts("secrets", r#"["secrets-scanner"]"#, |row| row.label["secret"].as_bool().unwrap());
    table.floor("all", 0.95, 0.60);
    table.floor("ripsecrets", 0.99, 0.65);
}

#[test]
fn injections() {
    let table = texts("injection", r#"["prompt-injection"]"#, |row| row.label["injection"].as_bool().unwrap());
    table.floor("all", 0.98, 0.73);
    table.floor("bastioncorpus", 0.99, 0.45);
}

#[test]
fn topics() {
    let table = texts("topics", r#"["blocked-topics"]"#, |row| row.label["topic"].is_string());
    table.floor("all", 0.99, 0.66);
}

#[test]
fn the_halves_are_split_by_the_hash_of_the_text() {
    for guard in ["pii", "secrets", "injection", "topics"] {
        for (half, rest) in [("dev", 0), ("held-out", 1)] {
            let rows = rows(guard, half);
            assert!(rows.len() > 400, "{guard}/{half} has only {} rows", rows.len());
            for row in rows {
                assert_eq!(Sha256::digest(row.text.as_bytes())[0] % 2, rest, "{guard}/{half}: {}", row.source);
            }
        }
    }
}
