//! A process is killed at every change of a file, one after the other. The repository is whole each time, and repeating
//! the calls has the same result as without the kill. The child process that repacks is killed at all stages of its work.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use slipway_release::Status;
use tokio::time::timeout;

use super::super::{History, HistoryFault, disk};
use super::{author, crash, draft, fsck, git, open, pending, transition, when};

const STEPS: &str = "SLIPWAY_TEST_DIES_AFTER";
const ROOT: &str = "SLIPWAY_TEST_ROOT";
const TALE: &str = "SLIPWAY_TEST_TALE";

/// A few changes. Returns the versions.
fn life(root: &Path) -> Vec<u64> {
    let history = open(root).unwrap();
    let mut versions = Vec::new();
    versions.push(history.record("team-a", draft("hello", "hello-1")).unwrap().version);
    versions.push(history.record("team-a", pending("hello", "hello-2")).unwrap().version);
    history.activate("team-a", transition("hello", 2), Some("# two\n".to_owned())).unwrap();
    versions.push(history.record("team-a", draft("other", "other-1")).unwrap().version);
    history.tombstone("team-a", "other", author(), when(9)).unwrap();
    versions
}

/// Two more releases and a repack. Returns the versions.
fn housekeeping(root: &Path) -> Vec<u64> {
    let history = open(root).unwrap();
    let record = |name: &str| history.record("team-a", draft("hello", name)).unwrap().version;
    let versions = vec![record("more-1"), record("more-2")];
    repack(&history, Duration::MAX).unwrap().unwrap();
    versions
}

/// Repacks, and kills git after this time. None if it was killed.
fn repack(history: &History, time: Duration) -> Option<Result<(), HistoryFault>> {
    let repository = history.repository("team-a", false).unwrap().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { timeout(time, repository.repack.run()).await }).ok()
}

/// The process that is killed.
#[test]
#[ignore = "run by the others, in a process that is killed"]
fn victim() {
    let Ok(root) = std::env::var(ROOT) else { return };
    crash::after(std::env::var(STEPS).unwrap().parse().unwrap());
    let tale = if std::env::var(TALE).unwrap() == "life" { life } else { housekeeping };
    tale(Path::new(&root));
    crash::after(-1);
}

/// Runs a function above in a process of its own, killed after `steps` changes. Returns whether it finished.
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
        let history = open(root.path()).unwrap();
        let stands = |agent, version| history.status("team-a", agent, version).unwrap().unwrap().status;
        assert_eq!([stands("hello", 1), stands("hello", 2), stands("other", 1)], [Status::Archived, Status::Active, Status::Deleted]);
        let left: Vec<_> = disk::names(&repository.join("objects/pack")).unwrap();
        assert!(left.iter().all(|name| name.starts_with("pack-")), "killed after {steps} steps: {left:?}");
        if ended {
            break;
        }
        steps += 1;
    }
    assert!(steps > 60, "only {steps} places to be killed at");
}

/// A history of 23 releases, each in a pack of its own.
fn unpacked(root: &Path) -> History {
    let history = open(root).unwrap();
    for at in 0..23 {
        history.record("team-a", draft("hello", &format!("hello-{at}"))).unwrap();
    }
    history
}

fn count(repository: &Path, end: &str) -> usize {
    disk::names(&repository.join("objects/pack")).unwrap().iter().filter(|name| name.ends_with(end)).count()
}

fn copy(template: &Path, root: &Path) {
    let from = template.join("team-a.git");
    git(root, &["clone", "--quiet", "--mirror", "--local", &from.to_string_lossy(), "team-a.git"]);
    assert_eq!(count(&root.join("team-a.git"), ".idx"), 23);
}

#[test]
fn killed_anywhere_around_a_repack_nothing_is_lost() {
    let template = tempfile::tempdir().unwrap();
    drop(unpacked(template.path()));
    let mut steps = 1;
    loop {
        let root = tempfile::tempdir().unwrap();
        copy(template.path(), root.path());
        let repository = root.path().join("team-a.git");
        let ended = survives(root.path(), "housekeeping", steps);
        fsck(&repository);
        assert_eq!(housekeeping(root.path()), [24, 25], "killed after {steps} steps");
        fsck(&repository);
        let packs = count(&repository, ".idx");
        assert!(packs <= 2 && count(&repository, ".pack") == packs, "killed after {steps} steps: {packs} packs");
        let history = open(root.path()).unwrap();
        assert!((1..=25).all(|version| history.release("team-a", "hello", version).is_ok()));
        if ended {
            break;
        }
        steps += 1;
    }
    assert!(steps > 20, "only {steps} places to be killed at");
}

#[test]
fn a_repack_that_is_killed_at_any_time_loses_nothing() {
    let template = tempfile::tempdir().unwrap();
    drop(unpacked(template.path()));
    let (mut time, mut kills) = (Duration::ZERO, 0);
    loop {
        let root = tempfile::tempdir().unwrap();
        copy(template.path(), root.path());
        let repository = root.path().join("team-a.git");
        let history = open(root.path()).unwrap();
        let done = repack(&history, time);
        fsck(&repository);
        assert!((1..=23).all(|version| history.release("team-a", "hello", version).is_ok()), "killed after {time:?}");
        drop(history);
        let history = open(root.path()).unwrap();
        assert!((1..=23).all(|version| history.release("team-a", "hello", version).is_ok()), "killed after {time:?}");
        assert_eq!(history.record("team-a", draft("hello", "more")).unwrap().version, 24);
        let left = disk::names(&repository.join("objects/pack")).unwrap();
        assert!(left.iter().all(|name| name.starts_with("pack-")), "killed after {time:?}: {left:?}");
        fsck(&repository);
        if let Some(done) = done {
            done.unwrap();
            break;
        }
        time += Duration::from_micros(400);
        kills += 1;
    }
    assert!(kills > 5, "only {kills} kills");
}
