//! Runs in the subprocess of an import: limits its own memory, reads the repository or the archive, and returns the skill or
//! the error as JSON, which the program prints.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};
use slipway_api::SkillSpec;
use slipway_egress::Allowed;
use slipway_http::Error;

use super::ImportKind;
use crate::archive::Archive;
use crate::proxy::ImportEgress;
use crate::source::{self, SkillSource};
use crate::{folder, git};

/// The answer of the subprocess.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum SubprocessAnswer {
    Skill(Box<SkillSpec>),
    Refused { status: u16, message: String, cause: Option<String> },
}

impl SubprocessAnswer {
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

/// Fetches the skill at `source`, in a Git repository.
pub async fn find_skill(allow: &[Allowed], source: &str) -> io::Result<String> {
    limit_memory(ImportKind::Git)?;
    Ok(serde_json::to_string(&SubprocessAnswer::of(fetched(allow, source).await))?)
}

/// Unpacks the skill in the zip archive of `length` bytes at offset `start` of standard input, which must be a file. `path` is
/// the skill's folder; empty for the only one.
pub fn unpack_skill(start: u64, length: u64, path: &str) -> io::Result<String> {
    limit_memory(ImportKind::Archive)?;
    let archive = Archive { file: File::from(io::stdin().as_fd().try_clone_to_owned()?), start, length };
    Ok(serde_json::to_string(&SubprocessAnswer::of(unpacked(&archive, path)))?)
}

fn limit_memory(kind: ImportKind) -> io::Result<()> {
    let wanted = u64::from(kind.mebibytes()) << 20;
    let most = getrlimit(Resource::Data).maximum.map_or(wanted, |most| most.min(wanted));
    setrlimit(Resource::Data, Rlimit { current: Some(most), maximum: Some(most) })?;
    Ok(())
}

async fn fetched(allow: &[Allowed], source: &str) -> Result<SkillSpec, Error> {
    let source = SkillSource::parse(source, None, None)?;
    let egress = ImportEgress::new(allow).to(&source.repository)?;
    let url = source.to_url();
    let mut spec = folder::skill(git::files(&egress, source, git::FetchLimits::default()).await?)?;
    // Overrides the source that the skill claims for itself.
    spec.source = Some(url);
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
