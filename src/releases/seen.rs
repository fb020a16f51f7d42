//! All that a decision depends on, gathered.

use jiff::Timestamp;
use slipway_api::Agent;
use slipway_release::{Artifact, Status};

use super::history::AgentHistory;
use super::references::References;
use super::run::Runs;
use super::shown::Shown;

/// All that a decision depends on.
pub(super) struct Seen<'a> {
    /// With its managed fields, where the annotation of a rollback is there or a release is to be recorded.
    pub agent: &'a Agent,
    pub past: &'a AgentHistory,
    /// What the cluster has of its releases.
    pub shown: &'a [Shown],
    pub references: &'a References,
    /// The EvaluationRuns of its releases and its canary.
    pub runs: &'a Runs,
    /// Whether a comparison of words may judge for a gate.
    pub allow_heuristic: bool,
    /// The version that the annotation asks for, as it was found.
    pub asked: Option<&'a RequestedRelease>,
    /// Who owns the spec, if GitOps does. It counts with the annotation alone.
    pub owner: Option<&'a str>,
    /// Who asked for the rollback, and when.
    pub by: &'a str,
    pub asked_at: Option<Timestamp>,
    /// Whether the present content has stood still long enough, and the image was waited for.
    pub patience: Patience,
    pub now: Timestamp,
}

/// How long a change has stood, and an image been waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Patience {
    pub content: bool,
    pub image: bool,
}

impl Patience {
    pub(super) const OVER: Self = Self { content: true, image: true };
}

/// The release that somebody wants to run again.
#[derive(Debug, Clone)]
pub(super) struct RequestedRelease {
    pub version: u64,
    /// What it holds and where it stands, or why it cannot be believed.
    pub found: Result<(Artifact, Status), String>,
}
