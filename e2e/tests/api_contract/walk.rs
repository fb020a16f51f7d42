//! docs/rest.md does what it says: each of its commands is run in one shell, and what stands below it is what comes.
//!
//! A block marked `sh` is run. A block marked `json` or `text` that follows is what its output holds: fields that are
//! not shown may be there too, and `…` stands for anything.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use serde_json::Value;
use slipway_e2e::{Api, ROOT, Team, kubectl, together};

const TEAM: &str = "contract-walk";
/// What the page calls its team.
const ITS: &str = "research";

struct Step {
    line: usize,
    commands: String,
    /// The mark of the block with the output, and that.
    shown: Option<(String, String)>,
}

#[test]
fn the_walk_through_is_as_it_is_told() {
    // The page makes the team itself, and takes it away.
    let team = Team::planned(together(), TEAM);
    for line in ["delete serviceaccount walk -n slipway-system", "delete clusterrolebinding walk"] {
        kubectl(format!("{line} --ignore-not-found")).ok();
    }
    let page = fs::read_to_string(format!("{ROOT}/docs/rest.md")).unwrap().replace(ITS, &team.slug);
    let steps = steps(&page);
    assert!(steps.len() > 15, "{} steps were found", steps.len());
    let api = Api::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    let mut script = format!("API={}/api/v1\n", api.url());
    for (at, step) in steps.iter().enumerate() {
        let _ = write!(script, "{{\n{}\n}} >{at}.out 2>{at}.err\n", step.commands);
    }
    fs::write(folder.path().join("walk.sh"), script).unwrap();
    let kubectl = std::env::var("KUBECTL").unwrap_or_else(|_| "kubectl".to_owned());
    let path =
        kubectl.rsplit_once('/').map_or(String::new(), |(folder, _)| format!("{folder}:")) + &std::env::var("PATH").unwrap_or_default();
    let ended = Command::new("timeout").args(["180", "bash", "walk.sh"]).current_dir(folder.path()).env("PATH", path).status().unwrap();
    let read = |at: usize, kind: &str| fs::read_to_string(folder.path().join(format!("{at}.{kind}"))).unwrap_or_default();
    let mut wrong = String::new();
    for (at, step) in steps.iter().enumerate() {
        let Some((mark, shown)) = &step.shown else { continue };
        if let Err(difference) = compare(mark, shown, &read(at, "out")) {
            let _ = writeln!(wrong, "docs/rest.md:{}: {}\n{difference}\n{}", step.line, step.commands, read(at, "err"));
        }
    }
    assert!(wrong.is_empty() && ended.success(), "{ended}\n{wrong}\n{}", api.log());
}

fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut block: Option<(usize, String, String)> = None;
    for (at, line) in page.lines().enumerate() {
        match (&mut block, line.strip_prefix("```")) {
            (None, Some(mark)) => block = Some((at + 1, mark.to_owned(), String::new())),
            (None, None) => {}
            (Some((_, _, text)), None) => {
                text.push_str(line);
                text.push('\n');
            }
            (Some(_), Some(_)) => {
                let Some((line, mark, text)) = block.take() else { continue };
                match mark.as_str() {
                    "sh" => steps.push(Step { line, commands: text, shown: None }),
                    "json" | "text" => {
                        steps.last_mut().unwrap_or_else(|| panic!("docs/rest.md:{line} shows what nobody asked for")).shown =
                            Some((mark, text));
                    }
                    _ => {}
                }
            }
        }
    }
    steps
}

fn compare(mark: &str, shown: &str, came: &str) -> Result<(), String> {
    let different = || format!("should say\n{shown}and says\n{came}");
    if mark == "json" {
        let shown: Value = serde_json::from_str(shown).map_err(|e| format!("what is shown is not JSON: {e}"))?;
        let came: Value = serde_json::from_str(came).map_err(|_| different())?;
        return if holds(&shown, &came) { Ok(()) } else { Err(different()) };
    }
    let (shown, came): (Vec<&str>, Vec<&str>) = (shown.trim().lines().collect(), came.trim().lines().collect());
    let same = shown.len() == came.len() && shown.iter().zip(&came).all(|(shown, came)| fits(shown, came));
    if same { Ok(()) } else { Err(different()) }
}

fn holds(shown: &Value, came: &Value) -> bool {
    match (shown, came) {
        (Value::Object(fields), Value::Object(_)) => {
            fields.iter().all(|(name, value)| came.get(name).is_some_and(|came| holds(value, came)))
        }
        (Value::Array(shown), Value::Array(came)) => {
            shown.len() == came.len() && shown.iter().zip(came).all(|(shown, came)| holds(shown, came))
        }
        (Value::String(shown), Value::String(came)) => fits(shown, came),
        _ => shown == came,
    }
}

/// Whether `came` is `shown`, in which `…` stands for anything.
fn fits(shown: &str, came: &str) -> bool {
    let Some((before, after)) = shown.split_once('…') else { return shown == came };
    let Some(rest) = came.strip_prefix(before) else { return false };
    if after.is_empty() {
        return true;
    }
    (0..=rest.len()).filter(|at| rest.is_char_boundary(*at)).any(|at| fits(after, &rest[at..]))
}

#[test]
fn what_is_shown_is_compared() {
    for (mark, shown, came, same) in [
        ("json", r#"{"a": "x…z", "b": [1]}"#, r#"{"a": "xyz", "b": [1], "c": 2}"#, true),
        ("json", r#"{"a": 1}"#, r#"{"b": 1}"#, false),
        ("json", r#"{"a": [1]}"#, r#"{"a": [1, 2]}"#, false),
        ("text", "one …\ntwo\n", "one 1\ntwo\n", true),
        ("text", "one\n", "one\ntwo\n", false),
        ("text", "a…b…c", "a1b2c", true),
        ("text", "a…b…c", "a1b2", false),
    ] {
        assert_eq!(compare(mark, shown, came).is_ok(), same, "{shown} and {came}");
    }
}
