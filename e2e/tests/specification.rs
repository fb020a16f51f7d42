//! `docs/specification.md`: that the files and tests that it names are there, that each row has a test or a reason, and that it has
//! a row for whatever the generated files know of: endpoints, fields and limits of kinds, Events. Asks nothing of a cluster.

#![expect(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use slipway_e2e::ROOT;

const PAGE: &str = "docs/specification.md";
const HEAD: [&str; 4] = ["what it says", "where", "shown by", "otherwise, and why"];
/// What stands in a cell without content.
const NOTHING: &str = "–";
/// Fewer would mean that the page is not read as it is meant.
const LEAST_ROWS: usize = 400;
/// Reasons of Events begin with what they are of; those of conditions, which Events repeat, do not.
const EVENTS: [&str; 10] =
    ["AgentCanary", "Alert", "CanaryGate", "Evaluation", "Ingestion", "Integration", "Release", "Rollback", "Rows", "Tools"];
/// What Events are made of.
const EVENT_TYPES: [&str; 3] = ["EventSpec {", "CanaryEvent {", "GateEvent {"];

/// A row of one of the page's tables.
struct Row {
    /// In the page.
    line: usize,
    /// Of its table.
    heading: String,
    what: String,
    place: String,
    tests: String,
    otherwise: String,
}

impl Row {
    fn has_word(&self, word: &str) -> bool {
        quoted(&self.what).any(|found| found == word)
    }

    /// Whether it speaks of a kind.
    fn is_of(&self, kind: &str) -> bool {
        self.heading.contains(&format!("`{kind}`")) || self.what.contains(&format!("`{kind}` as a resource"))
    }
}

/// The texts between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[track_caller]
fn read(path: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

#[track_caller]
fn rows() -> Vec<Row> {
    let (mut heading, mut rows) = (String::new(), Vec::new());
    for (at, text) in read(PAGE).lines().enumerate() {
        let line = at + 1;
        if let Some(title) = text.strip_prefix("##") {
            title.trim_start_matches('#').trim().clone_into(&mut heading);
        }
        let Some(inner) = text.strip_prefix("| ").and_then(|text| text.strip_suffix(" |")) else { continue };
        let cells: Vec<&str> = inner.split(" | ").map(str::trim).collect();
        let [what, place, tests, otherwise] = cells[..] else { panic!("{PAGE}:{line}: {} cells, not {}", cells.len(), HEAD.len()) };
        if cells == HEAD || cells.iter().all(|cell| *cell == "---") {
            continue;
        }
        let [what, place, tests, otherwise] = [what, place, tests, otherwise].map(str::to_owned);
        rows.push(Row { line, heading: heading.clone(), what, place, tests, otherwise });
    }
    assert!(rows.len() >= LEAST_ROWS, "{PAGE} has {} rows", rows.len());
    rows
}

/// All that is wrong, at once.
#[track_caller]
fn none(wrong: &[String]) {
    assert!(wrong.is_empty(), "{} faults in {PAGE}:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn each_row_names_a_file_and_a_test_or_a_reason() {
    let mut wrong = Vec::new();
    for Row { line, what, place, tests, otherwise, .. } in &rows() {
        let mut say = |fault: String| wrong.push(format!("{line}: {what}: {fault}"));
        if what.is_empty() || what == NOTHING {
            say("nothing is said".to_owned());
        }
        if quoted(place).next().is_none() {
            say("no file is named".to_owned());
        }
        for path in quoted(place).filter(|path| !Path::new(ROOT).join(path).exists()) {
            say(format!("there is no {path}"));
        }
        if quoted(tests).next().is_none() && (otherwise.is_empty() || otherwise == NOTHING) {
            say("neither a test nor a reason".to_owned());
        }
        for cell in [what, place, tests, otherwise] {
            if cell.is_empty() || !cell.matches('`').count().is_multiple_of(2) {
                say(format!("an empty cell or a lonely backtick: {cell:?}"));
            }
        }
    }
    none(&wrong);
}

#[test]
fn each_test_that_is_named_is_there() {
    let mut wrong = Vec::new();
    for row in &rows() {
        for named in quoted(&row.tests) {
            let fault = match named.split_once(": ") {
                None => Some("should be a file and a test".to_owned()),
                Some((path, _)) if !Path::new(ROOT).join(path).is_file() => Some(format!("there is no {path}")),
                Some((path, test)) if Path::new(path).extension().is_some_and(|end| end == "rs") => {
                    (!is_test(&read(path), test)).then(|| format!("{path} has no test {test}"))
                }
                Some((path, words)) => (!read(path).contains(words)).then(|| format!("{path} does not say {words}")),
            };
            wrong.extend(fault.map(|fault| format!("{}: {named}: {fault}", row.line)));
        }
    }
    none(&wrong);
}

/// Whether a file of Rust has a function of this name that the test runner calls.
fn is_test(source: &str, name: &str) -> bool {
    let begins = [format!("fn {name}("), format!("async fn {name}(")];
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let at = lines.iter().position(|line| begins.iter().any(|begin| line.starts_with(begin.as_str())));
    at.is_some_and(|at| {
        let mut attributes = lines[..at].iter().rev().take_while(|line| line.starts_with("#[") || line.starts_with("//"));
        attributes.any(|line| line.starts_with("#[test") || line.starts_with("#[tokio::test"))
    })
}

#[test]
fn each_endpoint_has_a_row_and_each_row_an_endpoint() {
    const METHODS: [&str; 5] = ["GET ", "POST ", "PUT ", "PATCH ", "DELETE "];
    let document: Value = serde_json::from_str(&read("docs/openapi.json")).unwrap();
    let paths = document["paths"].as_object().unwrap();
    let described: BTreeSet<String> = paths
        .iter()
        .flat_map(|(path, methods)| methods.as_object().unwrap().keys().map(move |method| format!("{} {path}", method.to_uppercase())))
        .collect();
    let rows = rows();
    let words = rows.iter().flat_map(|row| quoted(&row.what).map(move |word| (row.line, word)));
    let told: Vec<(usize, &str)> = words.filter(|(_, word)| METHODS.iter().any(|method| word.starts_with(method))).collect();
    let mut wrong: Vec<String> = described
        .iter()
        .filter(|operation| !told.iter().any(|(_, word)| word == operation))
        .map(|operation| format!("{operation} has no row"))
        .collect();
    // The root's is not in the description, which is of what is below /api/v1.
    let unknown = told.iter().filter(|(_, word)| !described.contains(*word) && *word != "GET /healthz");
    wrong.extend(unknown.map(|(line, word)| format!("{line}: there is no {word} in docs/openapi.json")));
    none(&wrong);
}

/// The schemas of spec and status of each kind.
#[track_caller]
fn kinds() -> Vec<(String, Value)> {
    let mut found = Vec::new();
    for path in files(&Path::new(ROOT).join("crds"), "yaml") {
        let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let whole: Value = serde_yaml::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let kind = whole["spec"]["names"]["kind"].as_str().unwrap().to_owned();
        found.push((kind, whole["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"].clone()));
    }
    assert!(found.len() >= 10, "{} kinds in crds", found.len());
    found
}

#[test]
fn each_field_of_a_kind_has_a_row() {
    let rows = rows();
    let mut wrong = Vec::new();
    for (kind, schema) in kinds() {
        let of_kind: Vec<&Row> = rows.iter().filter(|row| row.is_of(&kind)).collect();
        let mut parts = vec!["/spec/properties", "/status/properties"];
        if kind == "Agent" {
            parts.push("/spec/properties/canary/properties");
        }
        for part in parts {
            let fields = schema.pointer(part).and_then(Value::as_object).into_iter().flatten().map(|(name, _)| name);
            let missing = fields.filter(|name| !of_kind.iter().any(|row| row.has_word(name)));
            wrong
                .extend(missing.map(|name| format!("{kind}: {name} of {part} has no row under a heading or in a row that names the kind")));
        }
    }
    none(&wrong);
}

/// What the rows of the section on limits say of fields of kinds is what the API server is told.
#[test]
fn the_limits_are_those_of_the_kinds() {
    let kinds = kinds();
    let rows = rows();
    let mut told = 0;
    let mut wrong = Vec::new();
    for row in rows.iter().filter(|row| row.heading == "Limits") {
        let mut words = quoted(&row.what);
        let (Some(field), Some(kind)) = (words.next(), words.next()) else { continue };
        let schema = kinds.iter().find(|(name, _)| name == kind).map(|(_, schema)| schema);
        let pointer = format!("/spec/properties/{}", field.replace('.', "/properties/"));
        let Some(schema) = schema.and_then(|schema| schema.pointer(&pointer)) else {
            wrong.push(format!("{}: {kind} has no field {field}", row.line));
            continue;
        };
        told += 1;
        let number = |name: &str| schema[name].as_f64().map(|number| number.to_string());
        let mut expected = format!("`{field}` of `{kind}`:");
        let bounds = number("minimum").zip(number("maximum"));
        // A default alone stands where the specification has no bounds.
        let has_bounds = row.what.contains(" to ");
        if let Some((least, most)) = bounds.filter(|_| has_bounds) {
            let _ = write!(expected, " {least} to {most}");
        }
        if let Some(default) = number("default") {
            let _ = write!(expected, "{} default {default}", if has_bounds { "," } else { "" });
        }
        if row.what != expected {
            wrong.push(format!("{}: {} should be {expected}", row.line, row.what));
        }
    }
    none(&wrong);
    assert_eq!(told, 7, "rows of fields under Limits");
}

#[test]
fn each_event_has_a_row() {
    let rows = rows();
    let told: BTreeSet<&str> = rows.iter().filter(|row| row.heading == "Events").flat_map(|row| quoted(&row.what)).collect();
    let mut wrong = Vec::new();
    let mut seen = 0;
    for path in sources(&Path::new(ROOT).join("src")) {
        let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        if !EVENT_TYPES.iter().any(|made| code.contains(made)) {
            continue;
        }
        for reason in code.split('"').skip(1).step_by(2).filter(|text| is_reason(text)) {
            seen += 1;
            if !told.contains(reason) {
                wrong.push(format!("{reason} of {} has no row", path.display()));
            }
        }
    }
    none(&wrong);
    assert!(seen > EVENTS.len(), "{seen} reasons of Events found in src");
}

/// Whether a text is the reason of an Event: several words, written as one.
fn is_reason(text: &str) -> bool {
    let is_word = text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_word && EVENTS.iter().any(|of| text.strip_prefix(of).is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_uppercase())))
}

#[track_caller]
fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut found: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    found.sort();
    found
}

#[track_caller]
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    entries(folder).into_iter().filter(|path| path.extension().is_some_and(|found| found == ending)).collect()
}

/// The files of Rust below a folder, without tests.
#[track_caller]
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = files(folder, "rs");
    found.retain(|path| path.file_name().is_none_or(|name| name != "tests.rs"));
    for inner in entries(folder).iter().filter(|path| path.is_dir() && path.file_name().is_none_or(|name| name != "tests")) {
        found.extend(sources(inner));
    }
    found
}
