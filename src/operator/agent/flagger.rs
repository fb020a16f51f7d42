//! Agents whose rollouts Flagger drives ([`Agent::is_flaggers`]): it copies the agent's Deployment to one of its own, which serves, and
//! sets replicas itself.

use slipway_api::Agent;

use crate::context::Context;

/// Whether a pod of Flagger's own Deployment takes requests, so that the agent's Service is to select these.
pub(super) fn is_primary_ready(_agent: &Agent, _context: &Context) -> bool {
    false
}

/// Whether Flagger has set the replicas of the agent's Deployment, so that they are its own to set.
pub(super) fn replicas_elsewhere(_agent: &Agent, _context: &Context) -> bool {
    false
}
