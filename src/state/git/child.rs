//! A running git: a process group that is killed when the value is dropped. Orphans of the group are reaped, as this may
//! be the first process of a container.

use std::io;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, waitpgid};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::time::{Instant, sleep, sleep_until};

use super::{GitFault, GitLimits, Scrubbed};

/// How long output of descendants is awaited after the program has ended.
const DRAIN_TIME: Duration = Duration::from_millis(200);
/// Interval and number of attempts to reap killed processes.
const REAP_INTERVAL: Duration = Duration::from_millis(20);
const REAP_ATTEMPTS: u32 = 100;

pub(crate) struct Child {
    // Dropped in this order: the group, then its folder.
    _group: Group,
    process: tokio::process::Child,
    _private: TempDir,
}

/// The result of a child that ended by itself.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Scrubbed,
    pub(crate) stderr: Scrubbed,
}

impl Child {
    pub(super) fn new(process: tokio::process::Child, private: TempDir) -> Self {
        // The id of the group is that of its leader.
        let group = Group(process.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw));
        Self { _group: group, process, _private: private }
    }

    /// The three streams. They can be taken once.
    pub(crate) fn streams(&mut self) -> io::Result<(ChildStdin, ChildStdout, ChildStderr)> {
        let streams = self.process.stdin.take().zip(self.process.stdout.take()).zip(self.process.stderr.take());
        streams.map(|((stdin, stdout), stderr)| (stdin, stdout, stderr)).ok_or_else(|| io::Error::other("a stream was taken twice"))
    }

    pub(crate) async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.process.wait().await
    }

    /// Collects the output until the end.
    pub(super) async fn finish(mut self, limits: GitLimits, secrets: &[String]) -> Result<Finished, GitFault> {
        let read_error = |error: io::Error| GitFault::Read(error.to_string());
        let (stdin, stdout, stderr) = self.streams().map_err(read_error)?;
        drop(stdin);
        let (mut stdout, mut stderr) = (Some(stdout), Some(stderr));
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut status = None;
        let mut until = Instant::now() + limits.time;
        while status.is_none() || stdout.is_some() || stderr.is_some() {
            tokio::select! {
                more = read(&mut stdout, &mut out), if stdout.is_some() => if !more { stdout = None },
                more = read(&mut stderr, &mut err), if stderr.is_some() => if !more { stderr = None },
                ended = self.process.wait(), if status.is_none() => {
                    status = Some(ended.map_err(read_error)?);
                    until = until.min(Instant::now() + DRAIN_TIME);
                }
                () = sleep_until(until) => match status {
                    Some(_) => break,
                    None => return Err(GitFault::Time(limits.time)),
                }
            }
            if out.len() + err.len() > limits.bytes {
                return Err(GitFault::Output(limits.bytes));
            }
        }
        let status = status.ok_or_else(|| GitFault::Read("it ended without a status".to_owned()))?;
        Ok(Finished { status, stdout: Scrubbed::new(&out, secrets), stderr: Scrubbed::new(&err, secrets) })
    }
}

/// False at the end of the stream.
async fn read(from: &mut Option<impl AsyncRead + Unpin>, into: &mut Vec<u8>) -> bool {
    let Some(from) = from else { return false };
    into.reserve(8 * 1024);
    from.read_buf(into).await.is_ok_and(|count| count > 0)
}

struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        let Some(group) = self.0 else { return };
        // Fails if the group has ended.
        let _ = kill_process_group(group, Signal::KILL);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(reap(group));
        }
    }
}

/// Reaps processes of the group whose parent has died.
async fn reap(group: Pid) {
    for _ in 0..REAP_ATTEMPTS {
        // Tokio reaps the leader; the pause lets it be first.
        sleep(REAP_INTERVAL).await;
        loop {
            match waitpgid(group, WaitOptions::NOHANG) {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
}
