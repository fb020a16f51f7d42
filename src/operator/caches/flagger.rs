//! What is known of agents whose rollouts Flagger drives. No watch tells it: the agent controller looks.

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
