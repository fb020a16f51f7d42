//! Releases, without a clock, a cluster or a disk: what an artifact holds, how it is written and read, how two of
//! them differ, which states a release passes through, what brings an Agent back to one, and what makes a canary's of it.
//!
//! An artifact is taken from an Agent ([`Artifact::of`]), sealed, and written in a canonical form ([`yaml`]), so that
//! the same release is the same bytes wherever it is written. Reading believes nothing: see [`Artifact::from_yaml`].

mod artifact;
mod canonical;
mod capture;
mod content;
mod diff;
mod fault;
pub mod gate;
pub mod lifecycle;
mod name;
mod parse;
mod pinned;
mod read;
mod rollback;
#[cfg(test)]
#[path = "tests/unit/samples.rs"]
mod samples;
#[cfg(test)]
#[path = "tests/unit/strange.rs"]
mod strange;
mod tombstone;
pub mod wire;

pub use artifact::{
    AgentBlock, Artifact, Deployment, Further, Governance, GovernanceLimits, Memory, Metadata, Model, PodTemplate, Price, Resolved,
    Resources, Runtime,
};
pub use canonical::{digest, yaml};
pub use capture::autoscaled;
pub use diff::{Change, diff};
pub use fault::ArtifactFault;
pub use name::plain_name;
pub use parse::document;
pub use pinned::{blank, content_of, pinned_content};
pub use rollback::{promotion, rollback, spec};
/// Where a release stands. Resource and artifact use the same words.
pub use slipway_api::release::ReleasePhase as Status;
pub use tombstone::{Current, Tombstone};

/// How many bytes an artifact may have; the status of an AgentRelease holds as much.
pub const LONGEST: usize = 1024 * 1024;
/// The `apiVersion` of artifacts.
pub const API_VERSION: &str = "agents.slipway.dev/v1";
/// The `kind` of artifacts.
pub const KIND: &str = "AgentRelease";
