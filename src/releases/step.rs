//! What a decision comes to: one write, or a reason to wait.

use serde_json::Value;
use slipway_api::AgentReleaseStatus;
use slipway_release::Status;

use super::agent_status::ReleasePart;
use super::draft::Draft;
use super::evaluated::Evaluated;
use super::note::Note;

/// The next thing to do.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    /// Nothing, until something changes or time has passed.
    Wait(Wait),
    /// Tells that a rollback cannot be, and takes its annotation away.
    Refuse { version: String, why: String },
    /// In Git: makes a version active, or writes another note beside the active one.
    Activate { version: u64, note: Note },
    /// In Git: records a version, active at once or, held by a gate, waiting for its evaluation.
    Record(Box<Draft>),
    /// In Git: makes the version active that has passed its evaluation.
    Approve { version: u64, evaluated: Evaluated },
    /// In Git: rejects the version that has not.
    Reject { version: u64, evaluated: Evaluated },
    /// In Git: archives the version that waits, because the Agent is back at one that was decided on before.
    Supersede { version: u64, by: u64 },
    /// On the Agent, one merge patch: the content of the active release in the place of what was rejected.
    Revert { patch: Value, rejected: u64 },
    /// On the Agent, one merge patch: a release's content, and the annotation goes. Tells of the release, if that is news
    /// and the status will not tell, because it names the release already.
    Patch { patch: Value, news: bool },
    /// On the Agent: the annotation goes. The same of the release.
    RemoveAnnotation { news: bool },
    /// Makes an AgentRelease.
    CreateRelease { version: u64 },
    /// Writes the status of one.
    WriteReleaseStatus { name: String, status: Box<AgentReleaseStatus> },
    /// Deletes one.
    Prune { name: String },
    /// Writes our part of the Agent's status, and tells of the release that it names, if that is news.
    WriteAgentStatus { part: ReleasePart, news: bool },
}

impl Step {
    /// Whether it ends somebody's request because nothing has changed. The request may be heard of sooner than a change that
    /// was made before it, as each comes by a watch of its own.
    pub(super) fn is_skip(&self) -> bool {
        matches!(self, Self::WriteReleaseStatus { status, .. } if status.phase == Some(Status::Skipped))
    }

    /// Whether it depends on who wrote the Agent, which is not kept, or writes down what the Agent says.
    pub(super) fn needs_live(&self) -> bool {
        matches!(self, Self::Record(_) | Self::Revert { .. })
    }
}

/// Why there is nothing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    /// All is as it should be.
    Done,
    /// A change has to stand still first. The number tells it from others.
    Change(u64),
    /// A first release waits for its image to be known.
    Image,
    /// The agent cannot have one now: it is suspended, or names what is not there.
    Unable,
}
