//! Imports out of Git are made by processes of their own, each this program again, with a limit to its memory: what the
//! objects of a pack take once they are unpacked, nobody can know before. Whatever becomes of one, the API goes on.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, setrlimit};
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

/// How many there are at once, and what each may hold of memory: together less than the container of the API has.
const AT_ONCE: usize = 2;
pub(super) const MEMORY: u64 = 96 * 1024 * 1024;
/// The network is given up before.
const TIME: Duration = git::TIME.saturating_add(Duration::from_secs(2));
static ROOM: Semaphore = Semaphore::const_new(AT_ONCE);

/// What such a process says in the end.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Told {
    Skill(Box<SkillSpec>),
    Refused { status: u16, message: String },
}

/// The skill at `source`, found by this command line. When nobody waits for it any longer, the process ends.
pub(super) async fn skill(command: &[OsString], source: &Source) -> Result<SkillSpec, Error> {
    let room = import::room(&ROOM, AT_ONCE).await?;
    let Some((program, arguments)) = command.split_first() else { return Err(Error::internal("nothing imports here")) };
    // It may be ended at any moment, and what it has written goes afterwards.
    let folder = tempfile::tempdir().map_err(Error::internal)?;
    let mut child = Command::new(program)
        .args(arguments)
        .arg(source.written())
        .env("TMPDIR", folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(Error::internal)?;
    let place = slipway_egress::redacted(&source.repository);
    let (mut tell, told) = oneshot::channel();
    tokio::spawn(async move {
        let outcome = select! {
            outcome = answer(&mut child) => outcome,
            () = tell.closed() => Err(Error::internal("nobody waits")),
            () = sleep(TIME) => Err(git::slow(&place)),
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
    if status.signal().is_some() {
        return Err(git::bulky());
    }
    match serde_json::from_slice(&said) {
        Ok(Told::Skill(spec)) => Ok(*spec),
        Ok(Told::Refused { status, message }) => Err(Error::new(StatusCode::from_u16(status).map_err(Error::internal)?, message)),
        Err(error) => Err(Error::internal(format!("the import ended with {status}: {error}"))),
    }
}

/// What such a process does: it limits itself, and says as JSON which skill is at `source`, or why there is none.
pub async fn find_skill(allow: &[Allowed], source: &str) -> io::Result<String> {
    setrlimit(Resource::Data, Rlimit { current: Some(MEMORY), maximum: Some(MEMORY) })?;
    let told = match look(allow, source).await {
        Ok(spec) => Told::Skill(Box::new(spec)),
        Err(error) => {
            if let Some(cause) = error.cause() {
                tracing::warn!(%cause, source, "the import failed");
            }
            Told::Refused { status: error.status().as_u16(), message: error.message().to_owned() }
        }
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

    /// What comes of a process that runs this script.
    async fn told(script: &str) -> Result<SkillSpec, Error> {
        let source = Source::of(&Wanted { source: "https://example.com/r".to_owned(), ..Wanted::default() }).unwrap();
        skill(&["sh", "-c", script, "sh"].map(OsString::from), &source).await
    }

    #[tokio::test]
    async fn what_a_process_says_is_the_answer_and_its_end_is_only_its_own() {
        let spec = r#"{"skill": {"name": "a", "description": "d", "instructions": "Do."}}"#;
        assert_eq!(told(&format!("echo '{spec}'")).await.unwrap().instructions, "Do.");
        let refused = r#"{"refused": {"status": 400, "message": "path: no"}}"#;
        for (script, status, says) in [
            (&*format!("echo '{refused}'"), 400, "path: no"),
            ("kill -ABRT $$", 413, "more than 96 MiB of memory"),
            ("exit 101", 500, ""),
            ("echo hello", 500, ""),
        ] {
            let error = told(script).await.unwrap_err();
            assert!(error.status() == status && error.message().contains(says), "{script}: {error:?}");
        }
    }

    #[tokio::test]
    async fn a_process_for_which_nobody_waits_ends_and_leaves_nothing() {
        let told_of = tempfile::NamedTempFile::new().unwrap();
        let script = format!("touch $TMPDIR/pack; echo $$ $TMPDIR > {}; exec sleep 600", told_of.path().display());
        assert!(timeout(Duration::from_secs(2), told(&script)).await.is_err());
        let said = std::fs::read_to_string(told_of.path()).unwrap();
        let (process, folder) = said.trim().split_once(' ').unwrap();
        timeout(Duration::from_secs(10), async {
            while Path::new("/proc").join(process).exists() || Path::new(folder).exists() {
                sleep(Duration::from_millis(20)).await;
            }
        })
        .await
        .expect("neither the process nor its folder stays");
    }
}
