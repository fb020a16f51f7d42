//! Starts the subprocess of an import: this program again, with a memory limit, a timeout and almost no environment. The
//! memory that a pack or an archive takes cannot be known before it is unpacked; if a subprocess dies, the API goes on.

pub(super) mod child;

use std::env;
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use slipway_api::SkillSpec;
use slipway_http::{Error, StatusCode};
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};
use tokio::select;
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::archive::Archive;
use super::git;
use super::memory::MemoryBudget;
use super::source::SkillSource;
use child::SubprocessAnswer;

/// The signals that end a process without memory: its own abort, or the kernel's kill.
const OUT_OF_MEMORY: [Signal; 2] = [Signal::ABORT, Signal::KILL];
/// The limit of the answer: more than the largest skill takes as JSON.
const ANSWER_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// The environment of an import from Git: proxies and certificate authorities. The URL of a proxy may hold a password, which
/// the import needs.
const GIT_ENVIRONMENT: [&str; 10] = [
    "HTTPS_PROXY",
    "https_proxy",
    "HTTP_PROXY",
    "http_proxy",
    "ALL_PROXY",
    "all_proxy",
    "NO_PROXY",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
];

/// What a subprocess unpacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ImportKind {
    Git,
    Archive,
}

impl ImportKind {
    /// The limit of its memory.
    pub(super) const fn mebibytes(self) -> u32 {
        match self {
            Self::Git => 64,
            Self::Archive => 32,
        }
    }

    /// The limit of its time; that of the network is shorter.
    const fn timeout(self) -> Duration {
        match self {
            Self::Git => git::NETWORK_TIMEOUT.saturating_add(Duration::from_secs(2)),
            Self::Archive => Duration::from_secs(20),
        }
    }

    fn environment(self) -> &'static [&'static str] {
        match self {
            Self::Git => &GIT_ENVIRONMENT,
            Self::Archive => &[],
        }
    }
}

pub(super) async fn fetch(program: &[OsString], memory: &MemoryBudget, team: &str, source: &SkillSource) -> Result<SkillSpec, Error> {
    let mut command = command(program)?;
    command.args(["skill", "--", &source.to_url()]).stdin(Stdio::null());
    run(command, ImportKind::Git, memory, team, git::timed_out(&slipway_egress::redacted(&source.repository))).await
}

pub(super) async fn unpack(
    program: &[OsString],
    memory: &MemoryBudget,
    team: &str,
    archive: Archive,
    path: &str,
) -> Result<SkillSpec, Error> {
    let Archive { file, start, length } = archive;
    let mut command = command(program)?;
    command.args(["archive", &start.to_string(), &length.to_string(), "--", path]).stdin(file);
    let timed_out = Error::new(StatusCode::GATEWAY_TIMEOUT, "the archive took too long to unpack");
    run(command, ImportKind::Archive, memory, team, timed_out).await
}

fn command(program: &[OsString]) -> Result<Command, Error> {
    let (program, arguments) = program.split_first().ok_or_else(|| Error::internal("no program is configured for imports"))?;
    let mut command = Command::new(program);
    command.args(arguments);
    Ok(command)
}

/// Runs the subprocess and returns its answer. Dropping the future kills the subprocess.
async fn run(mut command: Command, kind: ImportKind, memory: &MemoryBudget, team: &str, timed_out: Error) -> Result<SkillSpec, Error> {
    let permit = memory.acquire(team, kind.mebibytes()).await?;
    // The subprocess may be killed at any moment; its files are removed here.
    let folder = tempfile::tempdir().map_err(Error::internal)?;
    let passed = kind.environment().iter().filter_map(|name| Some((name, env::var_os(name)?)));
    command.env_clear().envs(passed).env("TMPDIR", folder.path()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().map_err(Error::internal)?;
    let (mut sender, receiver) = oneshot::channel();
    tokio::spawn(async move {
        let outcome = select! {
            outcome = answer(&mut child, kind) => outcome,
            () = sender.closed() => Err(Error::internal("nobody waits")),
            () = sleep(kind.timeout()) => Err(timed_out),
        };
        // Fails if the subprocess has ended already.
        let _ = child.kill().await;
        drop((folder, permit));
        let _ = sender.send(outcome);
    });
    receiver.await.map_err(Error::internal)?
}

async fn answer(child: &mut Child, kind: ImportKind) -> Result<SkillSpec, Error> {
    let mut output = Vec::new();
    if let Some(out) = &mut child.stdout {
        out.take(ANSWER_BYTES_MAX).read_to_end(&mut output).await.map_err(Error::internal)?;
    }
    if output.len() as u64 == ANSWER_BYTES_MAX {
        return Err(Error::internal("the import's subprocess printed more than any skill takes"));
    }
    let status = child.wait().await.map_err(Error::internal)?;
    let ended = format!("the import's subprocess ended with {status}");
    if status.signal().is_some_and(|signal| OUT_OF_MEMORY.map(Signal::as_raw).contains(&signal)) {
        tracing::warn!("{ended}");
        return Err(out_of_memory(kind));
    }
    match serde_json::from_slice(&output) {
        Ok(SubprocessAnswer::Skill(spec)) => Ok(*spec),
        Ok(SubprocessAnswer::Refused { status, message, cause }) => {
            let error = Error::new(StatusCode::from_u16(status).map_err(Error::internal)?, message);
            Err(match cause {
                Some(cause) => error.because(cause),
                None => error,
            })
        }
        Err(error) => Err(Error::internal(format!("{ended}: {error}"))),
    }
}

/// 413: the import does not fit into the memory of the subprocess.
pub(super) fn out_of_memory(kind: ImportKind) -> Error {
    let memory = kind.mebibytes();
    Error::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        match kind {
            ImportKind::Git => format!(
                "the repository holds a file of more than 32 MiB, or takes more than {memory} MiB of memory to unpack; import the skill as a zip archive"
            ),
            ImportKind::Archive => format!("the archive takes more than {memory} MiB of memory to unpack, which no skill needs"),
        },
    )
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tokio::time::timeout;

    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    async fn said(script: &str, kind: ImportKind) -> Result<SkillSpec, Error> {
        run(shell(script), kind, &MemoryBudget::default(), "team-a", git::timed_out("it")).await
    }

    async fn until(done: impl Fn() -> bool) {
        let wait = async {
            while !done() {
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(Duration::from_secs(20), wait).await.expect("it comes to that");
    }

    #[tokio::test]
    async fn the_output_of_the_subprocess_is_the_answer() {
        let spec = r#"{"skill": {"name": "a", "description": "d", "instructions": "Do."}}"#;
        assert_eq!(said(&format!("echo '{spec}'"), ImportKind::Git).await.unwrap().instructions, "Do.");
        let refused = r#"{"refused": {"status": 400, "message": "path: no", "cause": "because"}}"#;
        for (script, kind, status, says) in [
            (&*format!("echo '{refused}'"), ImportKind::Git, 400, "path: no"),
            ("kill -ABRT $$", ImportKind::Git, 413, "more than 64 MiB of memory"),
            ("kill -ABRT $$", ImportKind::Archive, 413, "more than 32 MiB of memory"),
            ("kill -SEGV $$", ImportKind::Archive, 500, ""),
            ("exit 101", ImportKind::Git, 500, ""),
            ("echo hello", ImportKind::Git, 500, ""),
            // Endless output is cut off.
            (
                "while :; do echo hello hello hello hello hello hello hello hello hello hello hello hello; done",
                ImportKind::Archive,
                500,
                "",
            ),
        ] {
            let error = said(script, kind).await.unwrap_err();
            assert!(error.status() == status && error.message().contains(says), "{script}: {error:?}");
        }
    }

    #[tokio::test]
    async fn the_environment_of_the_subprocess_is_minimal() {
        assert!(env::var_os("PATH").is_some(), "there is something to hide");
        // The environment that the kernel was given, without what a shell adds.
        let script = r#"names=$(tr '\0' '\n' < /proc/$$/environ | cut -d= -f1 | sort | tr '\n' ' ')
            echo "{\"skill\": {\"name\": \"a\", \"description\": \"d\", \"instructions\": \"$names\"}}""#;
        assert_eq!(said(&format!("PATH=/usr/bin:/bin; {script}"), ImportKind::Archive).await.unwrap().instructions, "TMPDIR ");
        let names = said(&format!("PATH=/usr/bin:/bin; {script}"), ImportKind::Git).await.unwrap().instructions;
        assert!(names.split_whitespace().all(|name| name == "TMPDIR" || GIT_ENVIRONMENT.contains(&name)), "{names}");
    }

    #[tokio::test]
    async fn a_cancelled_import_leaves_no_process_and_no_files() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let script = format!("touch $TMPDIR/pack; echo $$ $TMPDIR > {}; exec sleep 600", file.path().display());
        let waiting = tokio::spawn(async move { said(&script, ImportKind::Git).await });
        let written = || std::fs::read_to_string(file.path()).unwrap();
        until(|| written().ends_with('\n')).await;
        waiting.abort();
        let written = written();
        let (process, folder) = written.trim().split_once(' ').unwrap();
        until(|| !Path::new("/proc").join(process).exists() && !Path::new(folder).exists()).await;
    }
}
