//! What an Agent's spec holds, for comparison with a release, and whether a release runs in its place.

use jiff::Timestamp;
use slipway_api::Agent;

use crate::{Artifact, Metadata, Resolved, Status};

/// The artifact of an Agent as it stands, for comparison.
pub fn content_of(agent: &Agent) -> Artifact {
    Artifact::of(agent, Resolved::default(), blank(agent))
}

/// The metadata of a version of this Agent that is none yet.
pub fn blank(agent: &Agent) -> Metadata {
    Metadata {
        name: agent.metadata.name.clone().unwrap_or_default(),
        version: 0,
        previous: 0,
        author: String::new(),
        timestamp: Timestamp::UNIX_EPOCH,
        changelog: String::new(),
        checksum: String::new(),
        status: Status::Active,
        deleted_at: None,
    }
}

/// The hash of the content that the Agent's spec is pinned at, while it still has that. Until then a release runs in its place.
pub fn pinned_content(agent: &Agent) -> Option<String> {
    let pinned = agent.status.as_ref()?.pinned_content.clone()?;
    (content_of(agent).content_hash() == pinned).then_some(pinned)
}
