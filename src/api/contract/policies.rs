//! The team's guardrail policies as agents' pods read them: one ConfigMap, mounted as a folder, so that a change reaches pods
//! that run. kubelet renews the folder within about a minute.

use serde::{Deserialize, Serialize};

use crate::guardrail_policy::{GuardrailPolicySpec, GuardrailRule, Severity};

/// The ConfigMap in the team's namespace. The Team controller makes it, and an admission policy keeps others from it.
pub const CONFIG_MAP: &str = "slipway-policies";
/// The key in it, which is the file's name.
pub const KEY: &str = "policies.json";
/// Where the ConfigMap is mounted.
pub const FOLDER: &str = "/var/run/slipway/policies";
/// The file, as `RUNTIME_POLICIES_FILE` has it.
pub const PATH: &str = "/var/run/slipway/policies/policies.json";
/// How many bytes the file may have. Policies that do not fit are left out, and the Team says which.
pub const FILE_BYTES_MAX: usize = 512 * 1024;

/// All policies of a team.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
pub struct PolicyFile {
    pub policies: Vec<PolicyConfig>,
    /// The ids of the default policies that exist: those of agents that name none.
    #[serde(default)]
    pub default: Vec<String>,
    /// The ids of the policies that the Team requires of every agent.
    #[serde(default)]
    pub required: Vec<String>,
}

/// A policy; in `RUNTIME_POLICIES`, too, where an agent is run outside a cluster.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
pub struct PolicyConfig {
    pub id: String,
    pub name: String,
    pub severity: Severity,
    pub enabled: bool,
    pub rules: Vec<GuardrailRule>,
    #[serde(default)]
    pub rollback: bool,
    #[serde(default = "yes")]
    pub hold_answers: bool,
}

fn yes() -> bool {
    true
}

impl PolicyConfig {
    /// The policy of that id. Its description stays in the cluster.
    pub fn new(id: String, spec: &GuardrailPolicySpec) -> Self {
        let GuardrailPolicySpec { name, description: _, severity, enabled, rules, rollback, hold_answers } = spec.clone();
        Self { id, name, severity, enabled, rules, rollback, hold_answers }
    }
}
