//! A full disk: a small file system, which only root can mount.

use std::path::Path;
use std::process::Command;

use super::{draft, fsck, open};

/// A file system of a few megabytes, gone when this is.
struct Small<'a>(&'a Path);

impl<'a> Small<'a> {
    fn mount(at: &'a Path) -> Option<Self> {
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=2m", "tmpfs"]).arg(at).status().is_ok_and(|status| status.success());
        mounted.then_some(Self(at))
    }
}

impl Drop for Small<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0).status();
    }
}

#[test]
fn a_full_disk_is_an_error_loses_nothing_and_writes_go_on_with_room() {
    let folder = tempfile::tempdir().unwrap();
    if !rustix::process::geteuid().is_root() {
        slipway_peers::skip("only root can mount a small file system");
        return;
    }
    let small = Small::mount(folder.path()).expect("root can mount a tmpfs");
    let root = folder.path().join("state");
    let history = open(&root).unwrap();
    let ballast = folder.path().join("ballast");
    let mut recorded = 0;
    // With less and less room, each place where it may run out is met.
    for left in [600_000, 200_000, 60_000, 20_000, 9_000, 5_000, 1_000] {
        let used = Command::new("df").args(["--output=avail", "-B1"]).arg(folder.path()).output().unwrap();
        let available: usize = String::from_utf8(used.stdout).unwrap().lines().nth(1).unwrap().trim().parse().unwrap();
        std::fs::write(&ballast, vec![1; available.saturating_sub(left)]).unwrap();
        let fault = loop {
            match history.record("team-a", draft("hello", &format!("hello-{}", recorded + 1))) {
                Ok(done) => {
                    recorded += 1;
                    assert_eq!(done.version, recorded);
                }
                Err(fault) => break fault,
            }
        };
        assert!(fault.is_full(), "{fault}");
        assert!((1..=recorded).all(|version| history.release("team-a", "hello", version).is_ok()));
        if recorded > 0 {
            // A repack in progress would confuse the check.
            history.wait_for_repacks();
            fsck(&history.path("team-a").unwrap());
        }
        std::fs::remove_file(&ballast).unwrap();
        history.wait_for_repacks();
        recorded += 1;
        assert_eq!(history.record("team-a", draft("hello", &format!("hello-{recorded}"))).unwrap().version, recorded);
        history.wait_for_repacks();
    }
    drop(history);
    let history = open(&root).unwrap();
    assert_eq!(history.list("team-a", "hello", None, 1000).unwrap().rows.len() as u64, recorded);
    fsck(&history.path("team-a").unwrap());
    drop((history, small));
}
