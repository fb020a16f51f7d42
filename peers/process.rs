//! One process of a stranger with everything that it starts: a process group, a temporary folder, a log. A small shell
//! beside it holds the reading end of a pipe whose writing end is ours: when that closes, however we ended, it ends the
//! group and removes the folder.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tempfile::TempDir;

/// The watcher's parent ends at once, so that it is no child of the server, which may not expect one. It outlives the
/// TERM that it sends, and takes the rest along with itself.
const WATCHED: &str = r#"
folder=$1; shift
exec 3<&0 </dev/null
( ( trap '' TERM; cat <&3 >/dev/null; kill -TERM 0; sleep 2; rm -rf "$folder"; kill -KILL 0 ) >/dev/null 2>&1 & )
exec 3<&-
exec "$@"
"#;

pub(crate) const NOBODY: u32 = 65534;

pub(crate) struct Process {
    child: Child,
    _alive: Option<ChildStdin>,
    log: PathBuf,
    name: String,
    farewell: Signal,
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

impl Process {
    /// Runs the command with `folder` as the place that is removed with it; its output goes to a log in there.
    pub(crate) fn start(command: &Command, folder: &Path, user: Option<u32>, farewell: Signal) -> Process {
        let name = Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy().into_owned();
        let log = folder.join("log");
        let output = File::options().create(true).append(true).open(&log).expect("a log in a folder of ours");
        let mut watched = Command::new("/bin/sh");
        watched.args(["-c", WATCHED, "sh"]).arg(folder).arg(command.get_program()).args(command.get_args());
        for (variable, value) in command.get_envs() {
            match value {
                Some(value) => watched.env(variable, value),
                None => watched.env_remove(variable),
            };
        }
        watched.current_dir(command.get_current_dir().unwrap_or(folder)).process_group(0);
        if let Some(user) = user {
            watched.uid(user).gid(user);
        }
        watched.stdin(Stdio::piped()).stderr(output.try_clone().expect("a second handle of the log")).stdout(output);
        let mut child = watched.spawn().unwrap_or_else(|error| panic!("{name} could not be started: {error}"));
        let alive = child.stdin.take();
        Process { child, _alive: alive, log, name, farewell }
    }

    /// Waits until `ready` holds; panics with the log's end when the process ends before, or time does.
    pub(crate) fn wait(&mut self, limit: Duration, what: &str, mut ready: impl FnMut() -> bool) {
        let deadline = Instant::now() + limit;
        while !ready() {
            if let Ok(Some(status)) = self.child.try_wait() {
                panic!("{} ended with {status} before {what}; the end of its log:\n{}", self.name, self.tail());
            }
            assert!(
                Instant::now() < deadline,
                "{} was not ready after {} s: {what} failed; the end of its log:\n{}",
                self.name,
                limit.as_secs(),
                self.tail()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    fn tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Says farewell with this signal, waits, and kills what is left of the group.
    pub(crate) fn stop(&mut self, farewell: Signal) {
        let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) else { return };
        let deadline = Instant::now() + Duration::from_secs(5);
        if let Ok(None) = self.child.try_wait() {
            kill_process(pid, farewell).ok();
            while Instant::now() < deadline && matches!(self.child.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        // The watcher belongs to the group until now, so the number cannot have become a stranger's.
        kill_process_group(pid, Signal::KILL).ok();
        self.child.wait().ok();
        // The others are not ours to wait for, and take a moment to let go of their ports and files.
        let deadline = Instant::now() + Duration::from_millis(500);
        while Instant::now() < deadline && lives(self.child.id()) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Process {
    #[expect(clippy::print_stderr, reason = "the test's runner shows it with the failure")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the end of the log of {}:\n{}", self.name, self.tail());
        }
        self.stop(self.farewell);
    }
}

/// Whether the group has a process that runs; the dead are in it until init has looked at them.
fn lives(group: u32) -> bool {
    let Ok(processes) = fs::read_dir("/proc") else { return false };
    processes.flatten().filter_map(|process| fs::read_to_string(process.path().join("stat")).ok()).any(|stat| {
        // What comes before the last parenthesis is the program's name: anything.
        let mut fields = stat.rsplit_once(") ").map_or("", |(_, rest)| rest).split(' ');
        let (state, _parent, its) = (fields.next(), fields.next(), fields.next());
        !matches!(state, None | Some("Z" | "X")) && its.and_then(|its| its.parse().ok()) == Some(group)
    })
}

/// A folder that is removed with the value, named so that a leftover is recognised.
pub(crate) fn folder() -> TempDir {
    folder_in(std::env::temp_dir())
}

pub(crate) fn folder_in(parent: impl AsRef<Path>) -> TempDir {
    tempfile::Builder::new().prefix("slipway-peer-").tempdir_in(parent).expect("a temporary folder")
}
