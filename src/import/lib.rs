//! Imports skills from Git repositories and zip archives, which strangers wrote.
//!
//! REST calls the `Importer`. It keeps an upload in an unnamed file (`upload`, within the budget of `disk`) and starts a
//! subprocess (`subprocess`, within the budget of `memory`): this program again, with limits of memory and time. The
//! subprocess (`subprocess::child`) fetches with `git` or unpacks with `archive`, finds the skill with `folder`, and prints it
//! or an error as JSON.

mod archive;
mod disk;
mod folder;
mod git;
mod memory;
mod proxy;
mod source;
mod subprocess;
mod upload;

use std::ffi::OsString;

use slipway_api::SkillSpec;
use slipway_http::{Error, Request};

pub use memory::TOTAL_MEBIBYTES;
pub use source::SkillSource;
pub use subprocess::child::{find_skill, unpack_skill};
pub use upload::MediaType;

use disk::DiskBudget;
use memory::MemoryBudget;

/// Runs imports, within budgets of memory and disk for the whole process and for each team.
#[derive(Default)]
pub struct Importer {
    command: Vec<OsString>,
    memory: MemoryBudget,
    disk: DiskBudget,
}

impl Importer {
    /// `command` is the program of the subprocess, with the arguments before `skill` or `archive`.
    pub fn new(command: Vec<OsString>) -> Self {
        Self { command, ..Self::default() }
    }

    /// The skill at `source`, for a team.
    pub async fn fetch(&self, team: &str, source: &SkillSource) -> Result<SkillSpec, Error> {
        subprocess::fetch(&self.command, &self.memory, team, source).await
    }

    /// The skill in the archive that the request uploads, in its folder `path` if that is not empty. The archive is received
    /// before memory is taken: a slow sender does not delay the imports of others.
    pub async fn unpack(&self, team: &str, request: Request, media_type: MediaType, path: &str) -> Result<SkillSpec, Error> {
        let path = source::folder(path)?;
        let (archive, _permit) = upload::receive(&self.disk, request, media_type, team).await?;
        subprocess::unpack(&self.command, &self.memory, team, archive, &path).await
    }
}
