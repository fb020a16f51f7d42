//! Runs a program without inherited state: no environment, no input, an empty working folder, and a process group of its own,
//! which is killed with the call, children included.

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

/// The time to read remaining output after the program has exited, while its children keep the pipes open.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(200);

/// The command of a tool's program; the caller sets standard input and output.
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

/// A process group, killed on drop.
pub(crate) struct ProcessGroup(Option<Pid>);

impl ProcessGroup {
    pub(crate) fn of(child: &Child) -> Self {
        // The id of a process group is that of its leader.
        Self(child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw))
    }

    pub(crate) fn kill(&self) {
        if let Some(group) = self.0 {
            // Fails if the group is empty.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.kill();
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopReason {
    Time,
    Output,
    Cancelled,
}

pub(crate) struct Finished {
    pub(crate) status: Option<ExitStatus>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) stopped: Option<StopReason>,
}

/// Runs until the program ends, `until`, cancellation, or `limit` bytes of output, whichever comes first. No process and no
/// file of it remains.
pub(crate) async fn run(binary: &Path, arguments: &[String], limit: usize, until: Instant, context: &Context) -> io::Result<Finished> {
    let folder = TempDir::new()?;
    let mut child = command(binary, arguments, folder.path()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let group = ProcessGroup::of(&child);
    let (mut stdout, mut stderr) = (child.stdout.take(), child.stderr.take());
    let mut finished = Finished { status: None, stdout: Vec::new(), stderr: Vec::new(), stopped: None };
    let mut until = until;
    while finished.stopped.is_none() && (finished.status.is_none() || stdout.is_some() || stderr.is_some()) {
        tokio::select! {
            more = read(&mut stdout, &mut finished.stdout), if stdout.is_some() => if !more { stdout = None },
            more = read(&mut stderr, &mut finished.stderr), if stderr.is_some() => if !more { stderr = None },
            status = child.wait(), if finished.status.is_none() => {
                finished.status = Some(status?);
                until = until.min(Instant::now() + DRAIN_TIMEOUT);
            }
            () = tokio::time::sleep_until(until) => {
                if finished.status.is_some() { break }
                finished.stopped = Some(StopReason::Time);
            }
            () = context.cancellation() => finished.stopped = Some(StopReason::Cancelled),
        }
        if finished.stdout.len() + finished.stderr.len() > limit {
            finished.stopped = Some(StopReason::Output);
        }
    }
    group.kill();
    child.wait().await?;
    // On a blocking thread, because the folder may be large.
    tokio::task::spawn_blocking(move || folder.close()).await.map_err(io::Error::other)??;
    Ok(finished)
}

/// False at the end of the stream.
async fn read(from: &mut Option<impl AsyncRead + Unpin>, into: &mut Vec<u8>) -> bool {
    let Some(from) = from else { return false };
    into.reserve(8 * 1024);
    from.read_buf(into).await.is_ok_and(|count| count > 0)
}
