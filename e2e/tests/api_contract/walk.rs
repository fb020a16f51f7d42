//! docs/rest.md does what it says: each of its commands is run in one shell, and what stands below it is what comes.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use slipway_e2e::page::steps;
use slipway_e2e::{Api, ROOT, Team, kubectl, together};

const TEAM: &str = "contract-walk";
/// What the page calls its team.
const ITS: &str = "research";

#[test]
fn the_walk_through_is_as_it_is_told() {
    // The page makes the team itself, and takes it away.
    let team = Team::planned(together(), TEAM);
    for line in ["delete serviceaccount walk -n slipway-system", "delete clusterrolebinding walk"] {
        kubectl(format!("{line} --ignore-not-found")).ok();
    }
    let page = fs::read_to_string(format!("{ROOT}/docs/rest.md")).unwrap().replace(ITS, &team.slug);
    let steps = steps("docs/rest.md", &page);
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
        if let Err(difference) = step.check(&read(at, "out")) {
            let _ = writeln!(wrong, "docs/rest.md:{}: {}\n{difference}\n{}", step.line, step.commands, read(at, "err"));
        }
    }
    assert!(wrong.is_empty() && ended.success(), "{ended}\n{wrong}\n{}", api.log());
}
