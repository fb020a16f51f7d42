//! The process is killed at every change of a file, one after the other; what is found then is whole, and doing the
//! same again ends where it would have ended.

use std::path::Path;
use std::process::Command;

use slipway_release::Status;

use super::super::History;
use super::super::source::Source;
use super::{author, dies, draft, fsck, git, pending, step, when};

const STEPS: &str = "SLIPWAY_TEST_DIES_AFTER";
const ROOT: &str = "SLIPWAY_TEST_ROOT";
const TALE: &str = "SLIPWAY_TEST_TALE";

/// A life in some commits. Answers the versions that were recorded.
fn life(root: &Path) -> Vec<u64> {
    let history = History::open(root).unwrap();
    let mut versions = Vec::new();
    versions.push(history.record("team-a", draft("hello", "hello-1")).unwrap().version);
    versions.push(history.record("team-a", pending("hello", "hello-2")).unwrap().version);
    history.activate("team-a", step("hello", 2), Some("# two\n".to_owned())).unwrap();
    versions.push(history.record("team-a", draft("other", "other-1")).unwrap().version);
    history.bury("team-a", "other", author(), when(9)).unwrap();
    versions
}

/// Two releases more than there were, and the packs put together.
fn housekeeping(root: &Path) -> Vec<u64> {
    let history = History::open(root).unwrap();
    let record = |name: &str| history.record("team-a", draft("hello", name)).unwrap().version;
    let versions = vec![record("more-1"), record("more-2")];
    history.settle();
    let repository = history.repository("team-a", false).unwrap().unwrap();
    for _ in 0..2 {
        repository.tidy.tidy(&Source(repository.source().unwrap().0)).unwrap();
    }
    versions
}

/// Not a test by itself: the process that is killed.
#[test]
#[ignore = "run by the others, in a process that dies"]
fn victim() {
    let Ok(root) = std::env::var(ROOT) else { return };
    dies::after(std::env::var(STEPS).unwrap().parse().unwrap());
    let tale = if std::env::var(TALE).unwrap() == "life" { life } else { housekeeping };
    tale(Path::new(&root));
    dies::after(-1);
}

/// Runs the tale in a process of its own. Whether it came to its end.
fn survives(root: &Path, tale: &str, steps: i64) -> bool {
    // This very program, though its file may have been built anew meanwhile.
    let mut command = Command::new("/proc/self/exe");
    command.args(["history::tests::kill::victim", "--exact", "--ignored", "--nocapture"]);
    let output = command.env(ROOT, root).env(STEPS, steps.to_string()).env(TALE, tale).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("running 1 test"), "{said}");
    match std::os::unix::process::ExitStatusExt::signal(&output.status) {
        Some(9) => false,
        _ if output.status.success() => true,
        _ => panic!("after {steps} steps: {said}"),
    }
}

#[test]
fn killed_anywhere_the_history_is_whole_and_goes_on() {
    let mut steps = 1;
    loop {
        let root = tempfile::tempdir().unwrap();
        let ended = survives(root.path(), "life", steps);
        let repository = root.path().join("team-a.git");
        if repository.is_dir() {
            fsck(&repository);
        }
        // What was reported or half done is found; the rest is done; nothing is done twice.
        assert_eq!(life(root.path()), [1, 2, 1], "killed after {steps} steps");
        fsck(&repository);
        let names = git(&repository, &["log", "--format=%(trailers:key=Release,valueonly,separator=)", "main"]);
        let mut names: Vec<_> = names.lines().filter(|line| !line.is_empty()).collect();
        names.sort_unstable();
        assert_eq!(names, ["hello-1", "hello-2", "other-1"], "killed after {steps} steps");
        let history = History::open(root.path()).unwrap();
        let stands = |agent, version| history.standing("team-a", agent, version).unwrap().unwrap().status;
        assert_eq!([stands("hello", 1), stands("hello", 2), stands("other", 1)], [Status::Archived, Status::Active, Status::Deleted]);
        let left: Vec<_> = super::super::disk::names(&repository.join("objects/pack")).unwrap();
        assert!(left.iter().all(|name| name.starts_with("pack-")), "killed after {steps} steps: {left:?}");
        if ended {
            break;
        }
        steps += 1;
    }
    assert!(steps > 60, "only {steps} places to be killed at");
}

#[test]
fn killed_while_packs_are_put_together_nothing_is_lost() {
    let template = tempfile::tempdir().unwrap();
    let history = History::open(template.path()).unwrap();
    for at in 0..23 {
        history.record("team-a", draft("hello", &format!("hello-{at}"))).unwrap();
        history.settle();
    }
    drop(history);
    let mut steps = 1;
    loop {
        let root = tempfile::tempdir().unwrap();
        git(root.path(), &["clone", "--quiet", "--mirror", "--local", &template.path().join("team-a.git").to_string_lossy(), "team-a.git"]);
        let packs = root.path().join("team-a.git/objects/pack");
        let count = |end: &str| super::super::disk::names(&packs).unwrap().iter().filter(|name| name.ends_with(end)).count();
        // The first twelve were put together when the twelfth came, and go with a change that comes two seconds later.
        assert!([12, 24].contains(&count(".idx")), "{}", count(".idx"));
        let ended = survives(root.path(), "housekeeping", steps);
        fsck(&root.path().join("team-a.git"));
        assert_eq!(housekeeping(root.path()), [24, 25], "killed after {steps} steps");
        fsck(&root.path().join("team-a.git"));
        // One that holds all, or some that are left from before, until there are enough again.
        assert!(count(".idx") <= 28 && count(".pack") == count(".idx"), "killed after {steps} steps: {} packs", count(".idx"));
        let history = History::open(root.path()).unwrap();
        assert!((1..=25).all(|version| history.release("team-a", "hello", version).is_ok()));
        if ended {
            break;
        }
        steps += 1;
    }
    assert!(steps > 40, "only {steps} places to be killed at");
}
