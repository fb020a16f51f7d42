//! What was measured of canaries and of the stable tracks beside them, each minute, for the agent controller, which decides by it.

use std::collections::HashMap;

use jiff::Timestamp;
use slipway_governance::canary::Evidence;

use super::fleet::Watched;
use crate::context::Context;
use crate::registry::Change;
use crate::tenancy::Tenancy;

/// What was measured of a canary.
#[allow(dead_code, reason = "nothing is measured in this version")]
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reading {
    /// What is long past is no evidence.
    pub read_at: Timestamp,
    pub canary: Measured,
    /// The stable track, since the canary began.
    pub stable: Measured,
}

/// What was measured of one track with what it runs now.
#[allow(dead_code, reason = "nothing is measured in this version")]
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Measured {
    pub requests: i64,
    pub evidence: Evidence,
    /// Not all of it was read, so that nothing follows from it.
    pub is_partial: bool,
}

/// Reads what there is of each canary, and tells of those of which it is something else.
#[expect(clippy::unused_async, reason = "nothing is read in this version")]
pub(super) async fn look(context: &Context, _tenancy: &Tenancy, _fleet: &[Watched], _now: Timestamp) -> Result<(), String> {
    for agent in context.caches.canary_measured.set(HashMap::new()) {
        context.registry.publish(&Change::CanaryMeasured(agent));
    }
    Ok(())
}
