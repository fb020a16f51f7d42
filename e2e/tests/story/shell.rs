//! One bash, in which all blocks of the page are run: what one has set the next one knows.

use std::fs;
use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a block may take: the longest wait for an alert to end.
const LIMIT: Duration = Duration::from_mins(10);
const PAUSE: Duration = Duration::from_millis(50);

pub(crate) struct Shell {
    child: Child,
    input: ChildStdin,
    folder: PathBuf,
    count: usize,
}

/// What came of a block.
pub(crate) struct BlockOutput {
    pub(crate) output: String,
    pub(crate) complaints: String,
    /// None of one that took too long.
    pub(crate) code: Option<i32>,
}

impl Shell {
    /// One in this folder, with these variables, which finds programs in `path` before others, and asks `direct` by no proxy.
    pub(crate) fn start(folder: &Path, path: &str, variables: &[(&str, &str)], direct: IpAddr) -> Self {
        let blocks = folder.join(".blocks");
        fs::create_dir_all(&blocks).unwrap();
        let mut command = Command::new("bash");
        command.args(["--noprofile", "--norc"]).current_dir(folder).envs(variables.iter().copied());
        // Nothing of this machine's settings of Git counts.
        command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_TERMINAL_PROMPT", "0");
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        // What the page asks is here, where no proxy leads; what images are made of may well be behind one.
        for name in ["no_proxy", "NO_PROXY"] {
            command.env(name, past_proxies(std::env::var(name).ok(), direct));
        }
        command.env("PATH", format!("{path}:{}", std::env::var("PATH").unwrap_or_default()));
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("bash cannot be run: {error}"));
        let input = child.stdin.take().unwrap();
        Self { child, input, folder: blocks, count: 0 }
    }

    /// Runs a block to its end.
    #[track_caller]
    pub(crate) fn run(&mut self, commands: &str) -> BlockOutput {
        self.count += 1;
        let file = |kind: &str| self.folder.join(format!("{}.{kind}", self.count));
        fs::write(file("sh"), commands).unwrap();
        let (code, half) = (file("code"), file("half"));
        let line = format!(
            ". '{}' </dev/null >'{}' 2>'{}'; echo $? >'{half}'; mv '{half}' '{}'\n",
            file("sh").display(),
            file("out").display(),
            file("err").display(),
            code.display(),
            half = half.display(),
        );
        self.input.write_all(line.as_bytes()).and_then(|()| self.input.flush()).unwrap_or_else(|error| panic!("bash has ended: {error}"));
        let deadline = Instant::now() + LIMIT;
        while !code.exists() && Instant::now() < deadline && !matches!(self.child.try_wait(), Ok(Some(_))) {
            sleep(PAUSE);
        }
        let read = |kind: &str| fs::read(file(kind)).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
        BlockOutput { output: read("out"), complaints: read("err"), code: read("code").trim().parse().ok() }
    }
}

/// What is asked by no proxy: all that was before, this machine, and this address.
fn past_proxies(before: Option<String>, direct: IpAddr) -> String {
    let before = before.filter(|names| !names.is_empty());
    before.into_iter().chain(["localhost".to_owned(), "127.0.0.1".to_owned(), direct.to_string()]).collect::<Vec<_>>().join(",")
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
