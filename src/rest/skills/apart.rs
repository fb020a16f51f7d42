//! What strangers send is unpacked by processes of their own, each this program again, with little memory and nothing of
//! our environment: what a pack or an archive takes once it is unpacked, nobody can know before. Whatever becomes of one,
//! the API goes on.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::sync::LazyLock;
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
use super::child::Told;
use super::git;
use super::room::Memory;
use super::source::Source;

/// By these a process ends that gets no memory, from itself or from the system.
const STARVED: [Signal; 2] = [Signal::ABORT, Signal::KILL];
/// What a process may say: more than the largest skill takes as JSON.
const ANSWER_BYTES: u64 = 4 * 1024 * 1024;
/// What an import from Git needs of our environment: the way out, and whom to trust on it. A proxy's URL may hold a
/// password, which is for just that.
const WAY_OUT: [&str; 10] = [
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
static MEMORY: LazyLock<Memory> = LazyLock::new(Memory::default);

/// What a process unpacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Git,
    Archive,
}

impl Kind {
    /// How much memory it may take.
    pub(super) const fn mebibytes(self) -> u32 {
        match self {
            Self::Git => 64,
            Self::Archive => 32,
        }
    }

    /// How long it may take. The network is given up before.
    const fn time(self) -> Duration {
        match self {
            Self::Git => git::TIME.saturating_add(Duration::from_secs(2)),
            Self::Archive => Duration::from_secs(20),
        }
    }

    fn environment(self) -> &'static [&'static str] {
        match self {
            Self::Git => &WAY_OUT,
            Self::Archive => &[],
        }
    }
}

/// The skill at `source`, for a team. `importer` is the program, and its arguments before the command.
pub(super) async fn fetch(importer: &[OsString], team: &str, source: &Source) -> Result<SkillSpec, Error> {
    let mut command = command(importer)?;
    command.args(["skill", "--", &source.written()]).stdin(Stdio::null());
    told(command, Kind::Git, team, git::slow(&slipway_egress::redacted(&source.repository))).await
}

/// The skill in the archive, in its folder `path` if that is not empty.
pub(super) async fn unpack(importer: &[OsString], team: &str, archive: Archive, path: &str) -> Result<SkillSpec, Error> {
    let Archive { file, start, length } = archive;
    let mut command = command(importer)?;
    command.args(["archive", &start.to_string(), &length.to_string(), "--", path]).stdin(file);
    let late = Error::new(StatusCode::GATEWAY_TIMEOUT, "the archive took too long to unpack");
    told(command, Kind::Archive, team, late).await
}

fn command(importer: &[OsString]) -> Result<Command, Error> {
    let (program, arguments) = importer.split_first().ok_or_else(|| Error::internal("it is not known who unpacks"))?;
    let mut command = Command::new(program);
    command.args(arguments);
    Ok(command)
}

/// What the process says. When nobody waits for it any longer, it ends.
async fn told(mut command: Command, kind: Kind, team: &str, late: Error) -> Result<SkillSpec, Error> {
    let room = MEMORY.room(team, kind.mebibytes()).await?;
    // It may be ended at any moment, and what it has written goes afterwards.
    let folder = tempfile::tempdir().map_err(Error::internal)?;
    let passed = kind.environment().iter().filter_map(|name| Some((name, env::var_os(name)?)));
    command.env_clear().envs(passed).env("TMPDIR", folder.path()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().map_err(Error::internal)?;
    let (mut tell, told) = oneshot::channel();
    tokio::spawn(async move {
        let outcome = select! {
            outcome = answer(&mut child, kind) => outcome,
            () = tell.closed() => Err(Error::internal("nobody waits")),
            () = sleep(kind.time()) => Err(late),
        };
        // One that has ended cannot be killed, and need not be.
        let _ = child.kill().await;
        drop((folder, room));
        let _ = tell.send(outcome);
    });
    told.await.map_err(Error::internal)?
}

async fn answer(child: &mut Child, kind: Kind) -> Result<SkillSpec, Error> {
    let mut said = Vec::new();
    if let Some(out) = &mut child.stdout {
        out.take(ANSWER_BYTES).read_to_end(&mut said).await.map_err(Error::internal)?;
    }
    if said.len() as u64 == ANSWER_BYTES {
        return Err(Error::internal("the import's process says more than any skill takes"));
    }
    let status = child.wait().await.map_err(Error::internal)?;
    let ended = format!("the import's process ended with {status}");
    if status.signal().is_some_and(|signal| STARVED.map(Signal::as_raw).contains(&signal)) {
        tracing::warn!("{ended}");
        return Err(starved(kind));
    }
    match serde_json::from_slice(&said) {
        Ok(Told::Skill(spec)) => Ok(*spec),
        Ok(Told::Refused { status, message, cause }) => {
            let error = Error::new(StatusCode::from_u16(status).map_err(Error::internal)?, message);
            Err(match cause {
                Some(cause) => error.because(cause),
                None => error,
            })
        }
        Err(error) => Err(Error::internal(format!("{ended}: {error}"))),
    }
}

/// More than fits into the memory of the process.
pub(super) fn starved(kind: Kind) -> Error {
    let memory = kind.mebibytes();
    Error::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        match kind {
            Kind::Git => format!(
                "the repository holds a file of more than 32 MiB, or takes more than {memory} MiB of memory to unpack; import the skill as a zip archive"
            ),
            Kind::Archive => format!("the archive takes more than {memory} MiB of memory to unpack, which no skill needs"),
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

    async fn said(script: &str, kind: Kind) -> Result<SkillSpec, Error> {
        told(shell(script), kind, "team-a", git::slow("it")).await
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
    async fn what_a_process_says_is_the_answer_and_its_end_is_only_its_own() {
        let spec = r#"{"skill": {"name": "a", "description": "d", "instructions": "Do."}}"#;
        assert_eq!(said(&format!("echo '{spec}'"), Kind::Git).await.unwrap().instructions, "Do.");
        let refused = r#"{"refused": {"status": 400, "message": "path: no", "cause": "because"}}"#;
        for (script, kind, status, says) in [
            (&*format!("echo '{refused}'"), Kind::Git, 400, "path: no"),
            ("kill -ABRT $$", Kind::Git, 413, "more than 64 MiB of memory"),
            ("kill -ABRT $$", Kind::Archive, 413, "more than 32 MiB of memory"),
            ("kill -SEGV $$", Kind::Archive, 500, ""),
            ("exit 101", Kind::Git, 500, ""),
            ("echo hello", Kind::Git, 500, ""),
            // Whoever does not stop is not heard to the end.
            ("while :; do echo hello hello hello hello hello hello hello hello hello hello hello hello; done", Kind::Archive, 500, ""),
        ] {
            let error = said(script, kind).await.unwrap_err();
            assert!(error.status() == status && error.message().contains(says), "{script}: {error:?}");
        }
    }

    #[tokio::test]
    async fn a_process_is_told_nothing_that_it_does_not_need() {
        assert!(env::var_os("PATH").is_some(), "there is something to hide");
        // What the kernel was given, and not what a shell adds.
        let script = r#"names=$(tr '\0' '\n' < /proc/$$/environ | cut -d= -f1 | sort | tr '\n' ' ')
            echo "{\"skill\": {\"name\": \"a\", \"description\": \"d\", \"instructions\": \"$names\"}}""#;
        assert_eq!(said(&format!("PATH=/usr/bin:/bin; {script}"), Kind::Archive).await.unwrap().instructions, "TMPDIR ");
        let names = said(&format!("PATH=/usr/bin:/bin; {script}"), Kind::Git).await.unwrap().instructions;
        assert!(names.split_whitespace().all(|name| name == "TMPDIR" || WAY_OUT.contains(&name)), "{names}");
    }

    #[tokio::test]
    async fn a_process_for_which_nobody_waits_ends_and_leaves_nothing() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let script = format!("touch $TMPDIR/pack; echo $$ $TMPDIR > {}; exec sleep 600", file.path().display());
        let waiting = tokio::spawn(async move { said(&script, Kind::Git).await });
        let written = || std::fs::read_to_string(file.path()).unwrap();
        until(|| written().ends_with('\n')).await;
        waiting.abort();
        let written = written();
        let (process, folder) = written.trim().split_once(' ').unwrap();
        until(|| !Path::new("/proc").join(process).exists() && !Path::new(folder).exists()).await;
    }
}
