//! What a process does that takes a skill out of what a stranger sends: it limits its own memory, and says as JSON which
//! skill there is, or why there is none. `apart` starts it and listens.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};
use slipway_api::SkillSpec;
use slipway_egress::Allowed;
use slipway_http::Error;

use super::apart::Kind;
use super::archive::Archive;
use super::out::Out;
use super::source::{self, Source, Wanted};
use super::{folder, git};

/// What such a process says in the end.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Told {
    Skill(Box<SkillSpec>),
    Refused { status: u16, message: String, cause: Option<String> },
}

impl Told {
    fn of(outcome: Result<SkillSpec, Error>) -> Self {
        match outcome {
            Ok(spec) => Self::Skill(Box::new(spec)),
            Err(error) => Self::Refused {
                status: error.status().as_u16(),
                message: error.message().to_owned(),
                cause: error.cause().map(ToString::to_string),
            },
        }
    }
}

/// Says which skill is at `source`, in a Git repository.
pub async fn find_skill(allow: &[Allowed], source: &str) -> io::Result<String> {
    limit(Kind::Git)?;
    Ok(serde_json::to_string(&Told::of(fetched(allow, source).await))?)
}

/// Says which skill is in the zip archive of this length that begins at `start` of standard input, which must be a file.
/// With a `path`, the skill's folder is there.
pub fn unpack_skill(start: u64, length: u64, path: &str) -> io::Result<String> {
    limit(Kind::Archive)?;
    let archive = Archive { file: File::from(io::stdin().as_fd().try_clone_to_owned()?), start, length };
    Ok(serde_json::to_string(&Told::of(unpacked(&archive, path)))?)
}

fn limit(kind: Kind) -> io::Result<()> {
    let wanted = u64::from(kind.mebibytes()) << 20;
    let most = getrlimit(Resource::Data).maximum.map_or(wanted, |most| most.min(wanted));
    setrlimit(Resource::Data, Rlimit { current: Some(most), maximum: Some(most) })?;
    Ok(())
}

async fn fetched(allow: &[Allowed], source: &str) -> Result<SkillSpec, Error> {
    let source = Source::of(&Wanted { source: source.to_owned(), ..Wanted::default() })?;
    let egress = Out::new(allow).to(&source.repository)?;
    let written = source.written();
    let mut spec = folder::skill(git::files(&egress, source, git::Limits::default()).await?)?;
    // Where it was found in the end, whatever it says of itself.
    spec.source = Some(written);
    Ok(spec)
}

fn unpacked(archive: &Archive, path: &str) -> Result<SkillSpec, Error> {
    let asked = source::folder(path)?;
    let entries = archive.entries()?;
    let mut files = Vec::new();
    for entry in folder::choose(&entries, &asked)? {
        let bytes = archive.read(&entry)?;
        files.push((entry.path, bytes));
    }
    folder::skill(files)
}
