//! A program with nothing inherited: no environment, no input, an empty folder to work in, and a process group of its own
//! that ends with the call, children included.

use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::time::Instant;

use crate::outcome::Context;

/// How long output is awaited of children that outlive the program itself.
const DRAIN: Duration = Duration::from_millis(200);

/// The program as every tool starts it; what it reads and writes is the caller's choice.
pub(crate) fn command(binary: &Path, arguments: &[String], folder: &Path) -> Command {
    let mut command = Command::new(binary);
    command
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", "/tmp")
        .env("LANG", "C.UTF-8")
        .current_dir(folder)
        .process_group(0)
        .kill_on_drop(true);
    command
}

/// Ends the whole group when it goes, however that comes about.
pub(crate) struct Group(Option<Pid>);

impl Group {
    pub(crate) fn of(child: &Child) -> Self {
        // A group of its own bears its leader's number.
        Self(child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw))
    }

    pub(crate) fn kill(&self) {
        if let Some(group) = self.0 {
            // Nobody left to kill is as good.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    Time,
    Output,
    Cancelled,
}

pub(crate) struct Finished {
    pub(crate) status: Option<ExitStatus>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) stopped: Option<Stop>,
}

/// Runs to the end, `until`, cancellation, or `limit` bytes of output, whichever comes first. Afterwards nothing of it is left.
pub(crate) async fn run(binary: &Path, arguments: &[String], limit: usize, until: Instant, context: &Context) -> io::Result<Finished> {
    let folder = TempDir::new()?;
    let mut child = command(binary, arguments, folder.path()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let group = Group::of(&child);
    let (mut stdout, mut stderr) = (child.stdout.take(), child.stderr.take());
    let mut finished = Finished { status: None, stdout: Vec::new(), stderr: Vec::new(), stopped: None };
    let mut until = until;
    while finished.stopped.is_none() && (finished.status.is_none() || stdout.is_some() || stderr.is_some()) {
        tokio::select! {
            more = read(&mut stdout, &mut finished.stdout), if stdout.is_some() => if !more { stdout = None },
            more = read(&mut stderr, &mut finished.stderr), if stderr.is_some() => if !more { stderr = None },
            status = child.wait(), if finished.status.is_none() => {
                finished.status = Some(status?);
                until = until.min(Instant::now() + DRAIN);
            }
            () = tokio::time::sleep_until(until) => {
                if finished.status.is_some() { break }
                finished.stopped = Some(Stop::Time);
            }
            () = context.cancellation() => finished.stopped = Some(Stop::Cancelled),
        }
        if finished.stdout.len() + finished.stderr.len() > limit {
            finished.stopped = Some(Stop::Output);
        }
    }
    group.kill();
    child.wait().await?;
    // The folder may have become big.
    tokio::task::spawn_blocking(move || folder.close()).await.map_err(io::Error::other)??;
    Ok(finished)
}

/// False at the end of the stream.
async fn read(from: &mut Option<impl AsyncRead + Unpin>, into: &mut Vec<u8>) -> bool {
    let Some(from) = from else { return false };
    into.reserve(8 * 1024);
    from.read_buf(into).await.is_ok_and(|count| count > 0)
}
