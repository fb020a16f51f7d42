//! Extraction in a subprocess: this program again, with limits of memory, processor time, waiting and output, and almost no
//! environment. A document that breaks them, or the reader of its format, costs itself only. Blocks come as they are read.

mod child;
mod ending;
mod line;

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::select;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::budget::{READER_MEBIBYTES, reader_mebibytes};
use crate::extract::ExtractSummary;
use crate::{Block, Format, Unreadable};
pub use child::child_main;
use line::Line;

/// Blocks that wait for the reader.
const CHANNEL_BLOCKS: usize = 16;
/// The length of a line. A block has 64 KiB at most, of which each byte may take six in JSON.
const LINE_BYTES_MAX: u64 = 512 * 1024;
/// Of what the subprocess says of its end.
const STDERR_BYTES_MAX: u64 = 4096;

/// The limits of one extraction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExtractionLimits {
    /// Less of a format that takes less, see [`reader_mebibytes`].
    pub memory_mebibytes: u32,
    /// Of the processor. Programs that read images have as much each.
    pub cpu: Duration,
    /// How long the subprocess may keep its reader waiting in all; the reader's own time does not count.
    pub wait: Duration,
    pub output_bytes: u64,
}

impl Default for ExtractionLimits {
    fn default() -> Self {
        Self { memory_mebibytes: READER_MEBIBYTES, cpu: Duration::from_mins(2), wait: Duration::from_mins(5), output_bytes: 2 << 30 }
    }
}

/// An extraction under way. Dropping it ends the subprocess, and all that this has started.
pub struct Extraction {
    blocks: mpsc::Receiver<Block>,
    outcome: JoinHandle<Result<ExtractSummary, Unreadable>>,
}

impl Extraction {
    /// Starts `program`, whose arguments are followed by those of `child_main`.
    pub fn start(program: &[OsString], format: Format, file: &Path, limits: ExtractionLimits) -> Result<Self, Unreadable> {
        let (program, arguments) = program.split_first().ok_or_else(|| io::Error::other("no program is configured for extractions"))?;
        let limits = ExtractionLimits { memory_mebibytes: limits.memory_mebibytes.min(reader_mebibytes(format)), ..limits };
        let mut command = Command::new(program);
        command.args(arguments).args(child::arguments(format, file, &limits));
        Self::run(command, limits)
    }

    fn run(mut command: Command, limits: ExtractionLimits) -> Result<Self, Unreadable> {
        // The subprocess may be killed at any moment; its files are removed here.
        let folder = tempfile::tempdir()?;
        command.env_clear().env("TMPDIR", folder.path()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.kill_on_drop(true).process_group(0);
        let mut subprocess = Subprocess(command.spawn()?);
        let (sender, blocks) = mpsc::channel(CHANNEL_BLOCKS);
        let outcome = tokio::spawn(async move {
            let outcome = subprocess.read(&sender, &limits).await;
            drop((subprocess, folder));
            outcome
        });
        Ok(Self { blocks, outcome })
    }

    /// The next block; none at the end, which `finish` explains.
    pub async fn next(&mut self) -> Option<Block> {
        self.blocks.recv().await
    }

    /// How it ended. Blocks that were not taken are dropped.
    pub async fn finish(mut self) -> Result<ExtractSummary, Unreadable> {
        while self.blocks.recv().await.is_some() {}
        match (&mut self.outcome).await {
            Ok(outcome) => outcome,
            Err(error) => Err(io::Error::other(error).into()),
        }
    }
}

impl Drop for Extraction {
    fn drop(&mut self) {
        self.outcome.abort();
    }
}

/// Ends its whole process group when it is dropped.
struct Subprocess(Child);

impl Drop for Subprocess {
    fn drop(&mut self) {
        let group = self.0.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(group) = group {
            // Fails if all of it has ended already.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Subprocess {
    async fn read(&mut self, sender: &mpsc::Sender<Block>, limits: &ExtractionLimits) -> Result<ExtractSummary, Unreadable> {
        let (Some(stdout), Some(stderr)) = (self.0.stdout.take(), self.0.stderr.take()) else {
            return Err(io::Error::other("the subprocess has no output").into());
        };
        // Read beside, so that what it says never makes it wait.
        let said = tokio::spawn(said(stderr));
        let mut lines = BufReader::with_capacity(64 * 1024, stdout);
        let (mut line, mut waited, mut printed) = (Vec::new(), Duration::ZERO, 0);
        loop {
            line.clear();
            let started = Instant::now();
            let left = limits.wait.saturating_sub(waited);
            let mut limited = (&mut lines).take(LINE_BYTES_MAX);
            let read = select! {
                read = timeout(left, limited.read_until(b'\n', &mut line)) => read,
                () = sender.closed() => return Err(io::Error::other("nobody waits").into()),
            };
            let Ok(read) = read else {
                return Err(Unreadable::TooLarge(format!("it was not read within {} s", limits.wait.as_secs())));
            };
            waited += started.elapsed();
            printed += read? as u64;
            if printed > limits.output_bytes {
                return Err(Unreadable::TooLarge(format!("its text has more than {} MiB", limits.output_bytes >> 20)));
            }
            if line.is_empty() {
                break;
            }
            match serde_json::from_slice(&line) {
                Ok(Line::Block(block)) => {
                    if sender.send(block).await.is_err() {
                        return Err(io::Error::other("nobody waits").into());
                    }
                }
                Ok(Line::Ended(ended)) => return ended.into(),
                // The last line of a subprocess that died.
                Err(_) if !line.ends_with(b"\n") && (line.len() as u64) < LINE_BYTES_MAX => break,
                Err(error) => return Err(Unreadable::Broken(format!("its reader printed what is no block: {error}"))),
            }
        }
        let Ok(status) = timeout(Duration::from_secs(5), self.0.wait()).await else {
            return Err(Unreadable::Broken("its reader closed its output and did not end".to_owned()));
        };
        let status = status?;
        let said = timeout(Duration::from_secs(1), said).await.ok().and_then(Result::ok).unwrap_or_default();
        Err(ending::fault(status, &said, limits))
    }
}

/// The first of what it says; the rest is read, and dropped.
async fn said(mut stderr: impl AsyncRead + Unpin) -> String {
    let mut first = Vec::new();
    // What cannot be read is not said.
    let _ = (&mut stderr).take(STDERR_BYTES_MAX).read_to_end(&mut first).await;
    let _ = tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await;
    String::from_utf8_lossy(&first).into_owned()
}
