//! Incomplete files, damage, and commits by hand.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use super::super::{History, HistoryFault};
use super::{artifact, draft, fsck, git, git_tried, open, show, transition};

/// What is torn, and the files that are put there.
type Tear = (&'static str, Vec<(PathBuf, Vec<u8>)>);

fn packs(repository: &Path, end: &str) -> Vec<PathBuf> {
    let all = fs::read_dir(repository.join("objects/pack")).unwrap().map(|entry| entry.unwrap().path());
    all.filter(|path| path.extension().is_some_and(|found| found == end)).collect()
}

/// A clone in which somebody works by hand.
fn clone(history: &History, root: &Path) -> PathBuf {
    let path = history.path("team-a").unwrap();
    git(root, &["clone", "--quiet", &path.to_string_lossy(), "by-hand"]);
    root.join("by-hand")
}

fn push(folder: &Path, message: &str) {
    git(folder, &["add", "--all"]);
    git(folder, &["commit", "--quiet", "--message", message]);
    git(folder, &["push", "--quiet", "origin", "HEAD:main"]);
}

#[test]
fn recovery_removes_incomplete_files_and_nothing_else() {
    let root = tempfile::tempdir().unwrap();
    let state = root.path().join("state");
    let history = open(&state).unwrap();
    history.record("team-a", draft("hello", "hello-1")).unwrap();
    let path = history.path("team-a").unwrap();
    drop(history);
    let (pack, index) = (&packs(&path, "pack")[0], &packs(&path, "idx")[0]);
    let half = |path: &Path| {
        let bytes = fs::read(path).unwrap();
        bytes[..bytes.len() / 2].to_vec()
    };
    let name = "pack-0123456789012345678901234567890123456789";
    let folder = path.join("objects/pack");
    let tears: Vec<Tear> = vec![
        ("half a pack", vec![(folder.join(format!("tmp_slipway_{name}.pack")), half(pack))]),
        ("a pack without an index", vec![(folder.join(format!("{name}.pack")), half(pack))]),
        ("an index without a pack", vec![(folder.join(format!("{name}.idx")), fs::read(index).unwrap())]),
        (
            "half an index",
            vec![(folder.join(format!("{name}.pack")), fs::read(pack).unwrap()), (folder.join(format!("{name}.idx")), half(index))],
        ),
        (
            "half a pack, whole index",
            vec![(folder.join(format!("{name}.pack")), half(pack)), (folder.join(format!("{name}.idx")), fs::read(index).unwrap())],
        ),
        ("empty files", vec![(folder.join(format!("{name}.pack")), Vec::new()), (folder.join(format!("{name}.idx")), Vec::new())]),
        ("a lock", vec![(path.join("refs/heads/main.lock"), b"0123".to_vec())]),
        ("half an object", vec![(path.join("objects/ab/cd0123456789012345678901234567890123456"), vec![0x78, 0x01, 0x4b])]),
        ("a repository that is not finished", vec![(state.join(".new-team-b.git/HEAD"), b"ref".to_vec())]),
    ];
    let mut version = 1;
    for (tear, files) in tears {
        for (path, bytes) in &files {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
        let history = open(&state).unwrap();
        version += 1;
        let recorded =
            history.record("team-a", draft("hello", &format!("hello-{version}"))).unwrap_or_else(|fault| panic!("{tear}: {fault}"));
        assert_eq!(recorded.version, version, "{tear}");
        assert!((1..=version).all(|version| history.release("team-a", "hello", version).is_ok()), "{tear}");
        let mut other = draft("hello", &format!("hello-{version}"));
        other.artifact.deployment.namespace = "team-b".to_owned();
        history.record("team-b", other).unwrap_or_else(|fault| panic!("{tear}: {fault}"));
        if tear == "half an object" {
            // Git's own check would call it garbage; it is left to the process that put it there.
            fs::remove_dir_all(path.join("objects/ab")).unwrap();
        }
        fsck(&path);
    }
}

/// A history of two versions, its repository, and the pack that the first one is in.
fn two_packs() -> (TempDir, PathBuf, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let history = open(root.path()).unwrap();
    history.record("team-a", draft("hello", "hello-1")).unwrap();
    let path = history.path("team-a").unwrap();
    let first = packs(&path, "pack").remove(0);
    history.record("team-a", draft("hello", "hello-2")).unwrap();
    drop(history);
    (root, path, first)
}

#[test]
fn a_pack_that_lost_its_name_in_a_power_failure_is_recovered() {
    for lost in [["idx"].as_slice(), &["idx", "pack"]] {
        let (root, path, first) = two_packs();
        let named = packs(&path, "pack").into_iter().find(|path| *path != first).unwrap();
        for end in lost {
            let stem = named.file_stem().unwrap().to_str().unwrap().strip_prefix("pack-").unwrap();
            fs::rename(named.with_extension(end), named.with_file_name(format!("tmp_slipway_{stem}_{end}"))).unwrap();
        }
        let history = open(root.path()).unwrap();
        assert_eq!(history.record("team-a", draft("hello", "hello-2")).unwrap().version, 2);
        assert_eq!(history.record("team-a", draft("hello", "hello-3")).unwrap().version, 3);
        fsck(&path);
    }
}

#[test]
fn lists_are_the_same_whatever_happens_to_the_index() {
    let root = tempfile::tempdir().unwrap();
    let history = open(root.path()).unwrap();
    for at in 1..=30 {
        history.record("team-a", draft(["hello", "other"][at % 2], &format!("r-{at}"))).unwrap();
    }
    history.activate("team-a", transition("hello", 3), None).unwrap();
    let path = history.path("team-a").unwrap();
    let index_file = path.join("slipway-releases");
    let listed = |history: &History| {
        let names: Vec<_> = (0..=31).map(|at| history.named("team-a", &format!("r-{at}")).unwrap()).collect();
        (["hello", "other"].map(|agent| history.list("team-a", agent, None, 100).unwrap()), names)
    };
    let expected = listed(&history);
    assert!(expected.0.iter().all(|page| page.rows.iter().all(|row| row.summary.is_ok() && row.recorded.is_some())));
    drop(history);
    let bytes = fs::read(&index_file).unwrap();
    let mut flipped = bytes.clone();
    flipped[bytes.len() / 3] ^= 1;
    let half = bytes[..bytes.len() / 2].to_vec();
    let foreign = [bytes.as_slice(), b"00000000 nonsense\n"].concat();
    for (what, bytes) in
        [("gone", None), ("empty", Some(Vec::new())), ("half", Some(half)), ("flipped", Some(flipped)), ("foreign", Some(foreign))]
    {
        fs::remove_file(&index_file).unwrap();
        if let Some(bytes) = bytes {
            fs::write(&index_file, bytes).unwrap();
        }
        // It is as before, and the next time without reading it all.
        for _ in 0..2 {
            let history = open(root.path()).unwrap();
            assert_eq!(listed(&history), expected, "{what}");
        }
    }
    // A folder in its place is no reason to stop.
    fs::remove_file(&index_file).unwrap();
    fs::create_dir(&index_file).unwrap();
    let history = open(root.path()).unwrap();
    assert_eq!(listed(&history), expected);
    history.record("team-a", draft("hello", "r-31")).unwrap();
    assert_eq!(history.named("team-a", "r-31").unwrap().unwrap().1.version, 16);
}

#[test]
fn a_branch_that_was_replaced_is_read_as_it_is() {
    let root = tempfile::tempdir().unwrap();
    let history = open(&root.path().join("state")).unwrap();
    for at in 1..=4 {
        history.record("team-a", draft("hello", &format!("r-{at}"))).unwrap();
    }
    let path = history.path("team-a").unwrap();
    let back = git(&path, &["rev-parse", "main~2"]);
    drop(history);
    git(&path, &["update-ref", "refs/heads/main", back.trim()]);
    let history = open(&root.path().join("state")).unwrap();
    assert_eq!(history.named("team-a", "r-3").unwrap(), None);
    assert_eq!(history.list("team-a", "hello", None, 10).unwrap().rows.len(), 2);
    assert_eq!(history.record("team-a", draft("hello", "r-4")).unwrap().version, 3);
    // Two lines of work that somebody joined.
    let by_hand = clone(&history, root.path());
    git(&by_hand, &["checkout", "--quiet", "-b", "side", "HEAD~1"]);
    git(&by_hand, &["commit", "--quiet", "--allow-empty", "--message", "aside"]);
    git(&by_hand, &["checkout", "--quiet", "main"]);
    git(&by_hand, &["merge", "--quiet", "--no-ff", "--message", "joined", "side"]);
    git(&by_hand, &["push", "--quiet", "origin", "HEAD:main"]);
    let names: Vec<_> = (1..=4).map(|at| history.named("team-a", &format!("r-{at}")).unwrap().map(|(_, at)| at.version)).collect();
    assert_eq!(names, [Some(1), Some(2), None, Some(3)]);
    assert_eq!(history.record("team-a", draft("hello", "r-3")).unwrap().version, 4);
    fsck(&path);
}

#[test]
fn a_commit_by_hand_is_built_upon_and_its_files_are_kept() {
    let root = tempfile::tempdir().unwrap();
    let history = open(&root.path().join("state")).unwrap();
    history.record("team-a", draft("hello", "hello-1")).unwrap();
    history.list("team-a", "hello", None, 10).unwrap();
    let by_hand = clone(&history, root.path());
    fs::write(by_hand.join("README.md"), "Ours\n").unwrap();
    fs::create_dir_all(by_hand.join("agents/hello/notes")).unwrap();
    fs::write(by_hand.join("agents/hello/notes/why.txt"), "because\n").unwrap();
    fs::write(by_hand.join("deploy/extra.yaml"), "kind: ConfigMap\n").unwrap();
    push(&by_hand, "Notes\n\nRelease: hello-2");
    let hand = git(&by_hand, &["rev-parse", "HEAD"]);
    // A trailer by another hand is not believed: the name is free.
    assert_eq!(history.record("team-a", draft("hello", "hello-2")).unwrap().version, 2);
    history.record("team-a", draft("other", "other-1")).unwrap();
    let path = history.path("team-a").unwrap();
    assert_eq!(git(&path, &["rev-parse", "main~2"]), hand);
    assert_eq!(show(&history, "README.md"), "Ours\n");
    assert_eq!(show(&history, "agents/hello/notes/why.txt"), "because\n");
    assert!(show(&history, "deploy/kustomization.yaml").contains("- extra.yaml\n  - hello.yaml\n  - other.yaml"));
    assert_eq!(history.list("team-a", "hello", None, 10).unwrap().rows.len(), 2);
    fsck(&path);
    // Moving back what was published is not taken.
    let (moved, said) = git_tried(&by_hand, &["push", "--force", "origin", "HEAD~1:main"]);
    assert!(!moved && said.contains("rejected"), "{said}");
}

#[test]
fn releases_and_pushes_by_hand_at_the_same_time_lose_nothing() {
    let root = tempfile::tempdir().unwrap();
    let history = open(&root.path().join("state")).unwrap();
    history.record("team-a", draft("hello", "hello-0")).unwrap();
    let by_hand = clone(&history, root.path());
    let pushed = thread::scope(|scope| {
        for writer in 0..3 {
            let history = &history;
            scope.spawn(move || {
                for at in 0..40 {
                    history.record("team-a", draft("hello", &format!("hello-{writer}-{at}"))).unwrap();
                }
            });
        }
        let mut pushed = 0;
        for at in 0..12 {
            fs::write(by_hand.join(format!("note-{at}")), "x").unwrap();
            git(&by_hand, &["add", "--all"]);
            git(&by_hand, &["commit", "--quiet", "--message", "Note"]);
            for _ in 0..20 {
                if git_tried(&by_hand, &["push", "--quiet", "origin", "HEAD:main"]).0 {
                    pushed += 1;
                    break;
                }
                git(&by_hand, &["pull", "--quiet", "--rebase", "origin", "main"]);
            }
        }
        pushed
    });
    assert!(pushed > 0);
    history.wait_for_repacks();
    let path = history.path("team-a").unwrap();
    fsck(&path);
    assert_eq!(history.list("team-a", "hello", None, 1000).unwrap().rows.len(), 121);
    let notes = git(&path, &["ls-tree", "--name-only", "main"]).lines().filter(|line| line.starts_with("note-")).count();
    assert_eq!(notes, 12, "{pushed} of 12 pushed in time");
    let names = git(&path, &["log", "--format=%(trailers:key=Release,valueonly,separator=)", "main"]);
    assert_eq!(names.lines().filter(|line| !line.is_empty()).count(), 121);
}

#[test]
fn an_invalid_artifact_is_an_error_and_stays_in_place() {
    let root = tempfile::tempdir().unwrap();
    let history = open(&root.path().join("state")).unwrap();
    for at in 1..=4 {
        history.record("team-a", draft("hello", &format!("hello-{at}"))).unwrap();
    }
    let by_hand = clone(&history, root.path());
    let releases = by_hand.join("agents/hello/releases");
    let text = fs::read_to_string(releases.join("v2.yaml")).unwrap();
    fs::write(releases.join("v2.yaml"), text.replace("You are hello", "You are evil")).unwrap();
    fs::copy(releases.join("v1.yaml"), releases.join("v3.yaml")).unwrap();
    let mut foreign = artifact("team-b", "hello", "", slipway_release::Status::Active);
    foreign.metadata.version = 5;
    fs::write(releases.join("v5.yaml"), foreign.sealed().unwrap().to_yaml()).unwrap();
    fs::write(releases.join("v6.yaml"), [0xff, 0xfe]).unwrap();
    for odd in ["v07.yaml", "v0.yaml", "vx.yaml", "v8.yml"] {
        fs::write(releases.join(odd), "x").unwrap();
    }
    fs::write(by_hand.join("agents/hello/current.yaml"), "nonsense").unwrap();
    push(&by_hand, "Tampered");
    for (version, word) in [(2, "checksum"), (3, "version"), (5, "team-b"), (6, "no text")] {
        let said = history.release("team-a", "hello", version).unwrap_err();
        assert!(matches!(&said, HistoryFault::Damaged(said) if said.contains(word)), "v{version}: {said}");
        assert!(matches!(history.activate("team-a", transition("hello", version), None), Err(HistoryFault::Damaged(_))), "v{version}");
    }
    assert!(history.release("team-a", "hello", 1).is_ok() && history.release("team-a", "hello", 4).is_ok());
    assert!(matches!(history.current("team-a", "hello"), Err(HistoryFault::Damaged(_))));
    let rows = history.list("team-a", "hello", None, 10).unwrap().rows;
    let believed: Vec<_> = rows.iter().map(|row| (row.version, row.summary.is_ok())).collect();
    assert_eq!(believed, [(6, false), (5, false), (4, true), (3, false), (2, false), (1, true)]);
    // Life goes on, above what is there.
    assert_eq!(history.record("team-a", draft("hello", "hello-7")).unwrap().version, 7);
    assert!(history.current("team-a", "hello").unwrap().is_some());
    assert!(show(&history, "agents/hello/releases/v2.yaml").contains("You are evil"));
}

#[test]
fn a_damaged_object_is_an_error_and_other_versions_are_read() {
    let (root, path, first) = two_packs();
    let id = git(&path, &["rev-parse", "main:agents/hello/releases/v1.yaml"]);
    let listed = git(&path, &["verify-pack", "-v", &first.to_string_lossy()]);
    let line = listed.lines().find(|line| line.starts_with(id.trim())).unwrap();
    let offset: usize = line.split_whitespace().nth(4).unwrap().parse().unwrap();
    let mut bytes = fs::read(&first).unwrap();
    for byte in &mut bytes[offset + 20..offset + 30] {
        *byte ^= 0xff;
    }
    fs::set_permissions(&first, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    fs::write(&first, &bytes).unwrap();
    let history = open(root.path()).unwrap();
    let said = history.release("team-a", "hello", 1).unwrap_err();
    assert!(matches!(&said, HistoryFault::Damaged(said) if said.contains("version 1 of agent hello")), "{said}");
    assert!(history.release("team-a", "hello", 2).is_ok());
    assert_eq!(history.record("team-a", draft("hello", "hello-3")).unwrap().version, 3);
    assert_eq!(fs::read(&first).unwrap(), bytes, "left in place");
    // Other packs are repacked without the damaged one.
    for at in 0..60 {
        history.record("team-a", draft("other", &format!("other-{at}"))).unwrap();
    }
    history.wait_for_repacks();
    assert!(packs(&path, "idx").len() < 30, "{} packs", packs(&path, "idx").len());
    assert_eq!(fs::read(&first).unwrap(), bytes, "left in place");
    assert!((2..=3).all(|version| history.release("team-a", "hello", version).is_ok()));
}

#[test]
fn a_lock_of_another_program_is_waited_for() {
    let root = tempfile::tempdir().unwrap();
    let history = open(root.path()).unwrap();
    history.record("team-a", draft("hello", "hello-1")).unwrap();
    let lock = history.path("team-a").unwrap().join("refs/heads/main.lock");
    fs::write(&lock, "").unwrap();
    let said = history.record("team-a", draft("hello", "hello-2")).unwrap_err();
    assert!(matches!(&said, HistoryFault::Busy(said) if said.contains("main.lock")), "{said}");
    assert!(lock.exists(), "another's lock is not ours to remove");
    thread::scope(|scope| {
        let waits = scope.spawn(|| history.record("team-a", draft("hello", "hello-2")).unwrap().version);
        thread::sleep(Duration::from_millis(100));
        fs::remove_file(&lock).unwrap();
        assert_eq!(waits.join().unwrap(), 2);
    });
    fsck(&history.path("team-a").unwrap());
}
