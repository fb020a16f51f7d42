//! State of agents whose rollouts Flagger drives. No watch reports it: the agent controller reads it.

use super::child::DeploymentState;

/// Flagger's copy of an agent's Deployment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Primary {
    /// None where there is none.
    pub deployment: Option<DeploymentState>,
    /// On its pods.
    pub secrets_hash: Option<String>,
    /// Whether its replicas were set by its scale subresource, as autoscalers do.
    pub is_scaled: bool,
}
