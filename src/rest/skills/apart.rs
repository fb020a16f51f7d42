//! Imports out of Git are made by processes of their own, each this program again, with a limit to its memory: what the
//! objects of a pack take once they are unpacked, nobody can know before. Whatever becomes of one, the API goes on.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};
use slipway_api::SkillSpec;
use slipway_egress::Allowed;
use slipway_http::{Error, StatusCode};
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};
use tokio::select;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::sleep;

use super::out::Out;
use super::source::{Source, Wanted};
use super::{folder, git, import};

/// How many there are at once, and what each may hold of memory: together half of what the container of the API has, by
/// which the kernel would end all of it.
const AT_ONCE: usize = 2;
pub(super) const MEMORY: u64 = 64 * 1024 * 1024;
/// By these a process ends that gets no memory, from itself or from the system.
const STARVED: [Signal; 2] = [Signal::ABORT, Signal::KILL];
/// This very program, whatever its file has become.
const PROGRAM: &str = "/proc/self/exe";
/// The network is given up before.
const TIME: Duration = git::TIME.saturating_add(Duration::from_secs(2));
static ROOM: Semaphore = Semaphore::const_new(AT_ONCE);

/// What such a process says in the end.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Told {
    Skill(Box<SkillSpec>),
    Refused { status: u16, message: String, cause: Option<String> },
}

/// The skill at `source`, found by this program with these arguments.
pub(super) async fn skill(arguments: &[OsString], source: &Source) -> Result<SkillSpec, Error> {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).arg(source.written());
    told(command, &slipway_egress::redacted(&source.repository)).await
}

/// What the process says. When nobody waits for it any longer, it ends.
async fn told(mut command: Command, place: &str) -> Result<SkillSpec, Error> {
    let room = import::room(&ROOM, AT_ONCE).await?;
    // It may be ended at any moment, and what it has written goes afterwards.
    let folder = tempfile::tempdir().map_err(Error::internal)?;
    command.env("TMPDIR", folder.path()).stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().map_err(Error::internal)?;
    let late = git::slow(place);
    let (mut tell, told) = oneshot::channel();
    tokio::spawn(async move {
        let outcome = select! {
            outcome = answer(&mut child) => outcome,
            () = tell.closed() => Err(Error::internal("nobody waits")),
            () = sleep(TIME) => Err(late),
        };
        // One that has ended cannot be killed, and need not be.
        let _ = child.kill().await;
        drop((folder, room));
        let _ = tell.send(outcome);
    });
    told.await.map_err(Error::internal)?
}

async fn answer(child: &mut Child) -> Result<SkillSpec, Error> {
    let mut said = Vec::new();
    if let Some(out) = &mut child.stdout {
        out.read_to_end(&mut said).await.map_err(Error::internal)?;
    }
    let status = child.wait().await.map_err(Error::internal)?;
    let ended = format!("the import's process ended with {status}");
    if status.signal().is_some_and(|signal| STARVED.map(Signal::as_raw).contains(&signal)) {
        tracing::warn!("{ended}");
        return Err(git::bulky());
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

/// What such a process does: it limits itself, and says as JSON which skill is at `source`, or why there is none.
pub async fn find_skill(allow: &[Allowed], source: &str) -> io::Result<String> {
    let most = getrlimit(Resource::Data).maximum.map_or(MEMORY, |most| most.min(MEMORY));
    setrlimit(Resource::Data, Rlimit { current: Some(most), maximum: Some(most) })?;
    let told = match look(allow, source).await {
        Ok(spec) => Told::Skill(Box::new(spec)),
        Err(error) => Told::Refused {
            status: error.status().as_u16(),
            message: error.message().to_owned(),
            cause: error.cause().map(ToString::to_string),
        },
    };
    Ok(serde_json::to_string(&told)?)
}

async fn look(allow: &[Allowed], source: &str) -> Result<SkillSpec, Error> {
    let source = Source::of(&Wanted { source: source.to_owned(), ..Wanted::default() })?;
    let egress = Out::new(allow).to(&source.repository)?;
    let written = source.written();
    let mut spec = folder::skill(git::files(&egress, source, git::Limits::default()).await?)?;
    // Where it was found in the end, whatever it says of itself.
    spec.source = Some(written);
    Ok(spec)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tokio::time::timeout;

    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
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
        assert_eq!(told(shell(&format!("echo '{spec}'")), "").await.unwrap().instructions, "Do.");
        let refused = r#"{"refused": {"status": 400, "message": "path: no", "cause": "because"}}"#;
        for (script, status, says) in [
            (&*format!("echo '{refused}'"), 400, "path: no"),
            ("kill -ABRT $$", 413, "more than 64 MiB of memory"),
            ("kill -SEGV $$", 500, ""),
            ("exit 101", 500, ""),
            ("echo hello", 500, ""),
        ] {
            let error = told(shell(script), "").await.unwrap_err();
            assert!(error.status() == status && error.message().contains(says), "{script}: {error:?}");
        }
    }

    #[tokio::test]
    async fn a_process_for_which_nobody_waits_ends_and_leaves_nothing() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let script = format!("touch $TMPDIR/pack; echo $$ $TMPDIR > {}; exec sleep 600", file.path().display());
        let waiting = tokio::spawn(async move { told(shell(&script), "").await });
        let said = || std::fs::read_to_string(file.path()).unwrap();
        until(|| said().ends_with('\n')).await;
        waiting.abort();
        let said = said();
        let (process, folder) = said.trim().split_once(' ').unwrap();
        until(|| !Path::new("/proc").join(process).exists() && !Path::new(folder).exists()).await;
    }
}
