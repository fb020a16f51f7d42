//! The canary of an Agent: whether there is a workload of it, and what becomes of it.
//!
//! `tracks` asks what runs; between bringing and reporting, [`step`] says how the canary stands, which is all that is written about it:
//! one process, one manager, one status.

use std::time::Duration;

use slipway_api::condition::{CANARY_READY, Finding};
use slipway_api::{Agent, CanaryStatus};
use slipway_cluster::write;

use super::Progress;
use crate::context::Context;

/// What of a canary there should be.
#[expect(dead_code, reason = "this version runs no canary")]
pub(super) enum Wants {
    /// A workload with this spec.
    Run(Box<Agent>),
    /// What there is, as it is.
    Keep,
    Nothing,
}

/// Decides by the spec and by how the canary stood last.
pub(super) fn wants(_agent: &Agent) -> Wants {
    Wants::Nothing
}

/// How a canary stands.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Told {
    /// None without a canary.
    pub status: Option<CanaryStatus>,
    /// The condition about it.
    pub finding: Option<Finding>,
    /// When the agent is to be looked at again, where that is sooner than usual.
    pub next: Option<Duration>,
}

/// Takes the canary as far as it can go now, and says how it stands then.
#[expect(clippy::unused_async, reason = "this version writes nothing")]
pub(super) async fn step(agent: &Agent, _progress: &Progress, _context: &Context) -> Result<Told, write::Error> {
    let not_yet = || Finding::new(CANARY_READY, false, "NotInThisVersion", "spec.canary: this version of Slipway runs no canaries");
    Ok(Told { status: None, finding: agent.canary().map(|_| not_yet()), next: None })
}
