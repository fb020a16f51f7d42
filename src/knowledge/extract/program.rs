//! Other people's programs that read documents, poppler's and tesseract, each run in a child process without a shell, with a
//! cleared environment, with limits of memory and processor time, and killed when it is dropped.

use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

/// Where programs are looked for.
const FOLDERS: [&str; 3] = ["/usr/bin", "/usr/local/bin", "/bin"];
/// How often a child is looked after while it has an end to come to.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// What a program may map beyond its memory: its libraries, which are files.
const LIBRARIES_BYTES: u64 = 64 << 20;
/// What is kept of a program's complaints.
const MAX_COMPLAINT_BYTES: u64 = 4096;

/// A program's absolute path, if it is installed.
pub(super) fn find(name: &str) -> Option<PathBuf> {
    FOLDERS.iter().map(|folder| Path::new(folder).join(name)).find(|path| path.is_file())
}

/// What a child may use.
#[derive(Debug, Clone, Copy)]
pub(super) struct Allowance {
    /// That it has to itself.
    pub(super) memory_bytes: u64,
    /// From its start to its end.
    pub(super) time: Duration,
}

/// A child process with its output, killed when dropped.
#[derive(Debug)]
pub(super) struct Running {
    child: Child,
}

/// How a program ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) status: ExitStatus,
    pub(super) output: Vec<u8>,
    pub(super) complaint: String,
}

pub(super) fn command<I: AsRef<OsStr>>(program: &Path, arguments: impl IntoIterator<Item = I>) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).env_clear().current_dir("/").stdin(Stdio::null()).stderr(Stdio::null()).stdout(Stdio::piped());
    // Libraries that would start a thread a core find that they may not.
    command.env("LC_ALL", "C.UTF-8").env("OMP_THREAD_LIMIT", "1");
    command
}

impl Running {
    pub(super) fn start(mut command: Command, allowance: Allowance) -> io::Result<Self> {
        let running = Self { child: command.spawn()? };
        if let Some(pid) = i32::try_from(running.child.id()).ok().and_then(Pid::from_raw) {
            // Nobody but root may raise a limit that this process has itself.
            let lower = |resource, most: u64| {
                let most = getrlimit(resource).maximum.map_or(most, |own| own.min(most));
                prlimit(Some(pid), resource, Rlimit { current: Some(most), maximum: Some(most) })
            };
            lower(Resource::As, allowance.memory_bytes.saturating_add(LIBRARIES_BYTES))?;
            // The subprocess that reads the document may have less of its own, which this one would inherit.
            lower(Resource::Data, allowance.memory_bytes)?;
            lower(Resource::Cpu, allowance.time.as_secs().max(1))?;
            lower(Resource::Core, 0)?;
        }
        Ok(running)
    }

    pub(super) fn output(&mut self) -> Option<BufReader<ChildStdout>> {
        self.child.stdout.take().map(|output| BufReader::with_capacity(1 << 16, output))
    }

    /// Waits for the end of a program whose output is small: what is longer than the bound is an error, and so is a program
    /// that takes longer than its time.
    pub(super) fn finish(mut self, allowance: Allowance, max_output_bytes: u64) -> io::Result<Ended> {
        let deadline = Instant::now() + allowance.time;
        let output = self.child.stdout.take().map(|pipe| thread::spawn(move || read_bounded(pipe, max_output_bytes)));
        let complaint = self.child.stderr.take().map(|pipe| thread::spawn(move || read_bounded(pipe, MAX_COMPLAINT_BYTES)));
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            if Instant::now() > deadline {
                return Err(io::Error::new(io::ErrorKind::TimedOut, format!("it took more than {} s", allowance.time.as_secs())));
            }
            thread::sleep(POLL_INTERVAL);
        };
        let complaint = String::from_utf8_lossy(&joined(complaint)?.0).into_owned();
        let (output, whole) = joined(output)?;
        if !whole {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("more than {max_output_bytes} bytes came")));
        }
        Ok(Ended { status, output, complaint })
    }

    pub(super) fn kill(&mut self) {
        // One that has ended cannot be killed, which is as well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

type Reading = thread::JoinHandle<io::Result<(Vec<u8>, bool)>>;

fn joined(reading: Option<Reading>) -> io::Result<(Vec<u8>, bool)> {
    match reading {
        Some(reading) => reading.join().map_err(|_| io::Error::other("a reader of a program's output failed"))?,
        None => Ok((Vec::new(), true)),
    }
}

/// The output up to the bound, and whether that was all. What comes after it is read and thrown away, so that the program is not held up.
fn read_bounded(pipe: impl Read, bound: u64) -> io::Result<(Vec<u8>, bool)> {
    let mut output = Vec::new();
    let mut pipe = pipe;
    pipe.by_ref().take(bound).read_to_end(&mut output)?;
    let more = io::copy(&mut pipe, &mut io::sink())?;
    Ok((output, more == 0))
}

/// How a signal or a code is told to the document's owner.
pub(super) fn told(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("its reader was ended by signal {signal}"),
        (_, code) => format!("its reader ended with {}", code.unwrap_or(-1)),
    }
}

/// Reads one line without its end into `line`, and skips what is longer than the bound. False at the end.
pub(super) fn read_line(from: &mut impl BufRead, line: &mut Vec<u8>, bound: usize) -> io::Result<bool> {
    line.clear();
    let mut any = false;
    loop {
        let buffer = from.fill_buf()?;
        if buffer.is_empty() {
            return Ok(any);
        }
        any = true;
        let end = memchr::memchr(b'\n', buffer);
        let part = &buffer[..end.unwrap_or(buffer.len())];
        line.extend_from_slice(&part[..part.len().min(bound - line.len())]);
        let taken = part.len() + usize::from(end.is_some());
        from.consume(taken);
        if end.is_some() {
            return Ok(true);
        }
    }
}
