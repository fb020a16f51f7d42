//! The workloads of an Agent: one a track, each with the spec that it runs. What is gathered, resolved, built and applied is
//! so for each of them; a further track is a further pair from [`of`].

use std::borrow::Cow;

use slipway_api::{Agent, Track};

use super::pin;
use crate::context::Context;

/// One workload of an Agent.
pub(super) struct Workload<'a> {
    pub track: Track,
    /// The Agent with the spec that is in force on this track.
    pub agent: Cow<'a, Agent>,
}

/// All workloads that an Agent should have, the stable one first; none while it cannot be said what it runs.
pub(super) fn of<'a>(agent: &'a Agent, context: &Context) -> Option<Vec<Workload<'a>>> {
    Some(vec![Workload { track: Track::Stable, agent: pin::effective(agent, context)? }])
}
