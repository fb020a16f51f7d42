//! What Git says of one agent, as far as the next step depends on it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use slipway_release::{Artifact, Status};

use super::evaluated::Evaluated;
use super::note::Note;

/// One agent's history.
#[derive(Debug, Clone, Default)]
pub(super) struct AgentHistory {
    pub active: Option<Active>,
    /// What waits for its evaluation.
    pub pending: Option<Pending>,
    /// Of the newest versions, those that were rejected.
    pub rejected: Vec<Pending>,
    /// Why what is active cannot be believed. Nothing is recorded upon it, but another version can be deployed.
    pub damaged: Option<String>,
    /// The highest version that there ever was; 0 if there is none.
    pub highest: u64,
    /// The versions that the cluster shows or should show.
    pub versions: BTreeMap<u64, Version>,
}

/// The version that is active.
#[derive(Debug, Clone)]
pub(super) struct Active {
    pub version: u64,
    /// Since when.
    pub since: Timestamp,
    pub artifact: Artifact,
    pub note: Note,
    /// What its evaluation said, if it passed one to become active.
    pub evaluated: Option<Evaluated>,
}

/// A version that is not active, with what it holds.
#[derive(Debug, Clone)]
pub(super) struct Pending {
    pub version: u64,
    pub artifact: Artifact,
}

/// One version, without what it holds.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Version {
    pub name: Option<String>,
    pub status: Status,
    pub reason: Option<String>,
    /// Since when it stands there.
    pub when: Timestamp,
    pub previous: u64,
    pub author: String,
    pub timestamp: Timestamp,
    pub changelog: String,
    pub checksum: String,
    pub commit: Option<String>,
}

impl Active {
    /// Whether it runs because it was deployed again, rather than because it was made.
    pub(super) fn is_again(&self) -> bool {
        self.note.by.is_some() || (self.since != self.artifact.metadata.timestamp && self.evaluated.is_none())
    }

    /// Who made it run.
    pub(super) fn author(&self) -> &str {
        self.note.by.as_deref().unwrap_or(&self.artifact.metadata.author)
    }
}

/// How many of the last versions the cluster keeps, whatever they are.
const KEPT: usize = 3;

impl AgentHistory {
    /// The versions that the cluster keeps: what is active, what waits, and the last three.
    pub(super) fn kept(&self) -> impl Iterator<Item = (&u64, &Version)> {
        let last = self.versions.iter().rev().nth(KEPT - 1).map_or(0, |(version, _)| *version);
        self.versions.iter().filter(move |(version, line)| **version >= last || matches!(line.status, Status::Active | Status::PendingEval))
    }
}
