//! A GuardrailPolicy as it is cached: without its description, and with what is found once, when it arrives; and what the team
//! controller finds of all of a team's.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::core::error_boundary::InvalidObject;
use slipway_api::contract::policies::{FILE_BYTES_MAX, PolicyConfig};
use slipway_api::{GuardrailPolicy, ids};
use slipway_cluster::Guarded;
use slipway_cluster::cached::{Cached, trimmed};

/// On a default policy until the Team's status says that it was made: one that is deleted before stays until then.
pub(crate) const UNRECORDED: &str = "agents.slipway.dev/default-policy";

/// A GuardrailPolicy without its description.
pub(crate) struct CachedPolicy {
    policy: Guarded<GuardrailPolicy>,
    /// What is wrong with the spec, field first.
    pub fault: Option<String>,
    /// How many bytes it has in the team's file.
    pub bytes: usize,
    /// Whether it has the finalizer [`UNRECORDED`].
    pub is_unrecorded: bool,
}

impl CachedPolicy {
    pub(crate) fn policy(&self) -> Result<&GuardrailPolicy, &InvalidObject> {
        self.policy.0.as_ref()
    }

    /// As it stands in the team's file, unless it is on its way out or cannot be read.
    pub(crate) fn config(&self, name: &str) -> Option<PolicyConfig> {
        let policy = self.policy().ok().filter(|policy| policy.metadata.deletion_timestamp.is_none())?;
        Some(PolicyConfig::new(ids::guardrail_policy(name), &policy.spec))
    }

    /// Whether it is there for those who name it. What cannot be read is there, and at fault.
    pub(crate) fn is_there(&self) -> bool {
        self.policy().map_or(true, |policy| policy.metadata.deletion_timestamp.is_none())
    }

    /// What keeps agents from being held to it, if something does.
    pub(crate) fn invalid(&self) -> Option<String> {
        match self.policy() {
            Ok(_) => self.fault.as_ref().map(|fault| format!("spec.{fault}")),
            Err(invalid) => Some(format!("it cannot be read: {}", invalid.error)),
        }
    }
}

impl Cached for CachedPolicy {
    fn is_readable(&self) -> bool {
        self.policy.0.is_ok()
    }
}

impl From<Guarded<GuardrailPolicy>> for CachedPolicy {
    fn from(mut object: Guarded<GuardrailPolicy>) -> Self {
        let Ok(whole) = &mut object.0 else {
            return Self { policy: trimmed(object), fault: None, bytes: 0, is_unrecorded: false };
        };
        let is_unrecorded = whole.metadata.finalizers.iter().flatten().any(|name| name == UNRECORDED);
        let fault = whole.spec.fault();
        whole.spec.description = None;
        let config = PolicyConfig::new(ids::guardrail_policy(whole.metadata.name.as_deref().unwrap_or_default()), &whole.spec);
        let bytes = serde_json::to_vec(&config).map_or(usize::MAX, |json| json.len());
        Self { policy: trimmed(object), fault, bytes, is_unrecorded }
    }
}

/// The policies of a namespace, by name.
pub(crate) type Policies = BTreeMap<String, Arc<CachedPolicy>>;

/// What came of a team's policies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TeamPolicies {
    /// Those that are not in the file, and why.
    pub left_out: BTreeMap<String, LeftOut>,
    /// How many agents are held to each.
    pub agents: BTreeMap<String, usize>,
    /// Those that are in the file as it was written. None while there is no file.
    pub given: Option<BTreeSet<String>>,
}

/// Why a policy is not in the team's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LeftOut {
    Invalid(String),
    /// The others fill it.
    NoRoom,
}

impl LeftOut {
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Invalid(_) => "PolicyInvalid",
            Self::NoRoom => "NoRoom",
        }
    }

    pub(crate) fn message(&self) -> String {
        match self {
            Self::Invalid(why) => why.clone(),
            Self::NoRoom => format!(
                "the policies of the team have more than {FILE_BYTES_MAX} bytes together, which is the most that pods are given; those that the Team requires come first, then the defaults, then the others by name"
            ),
        }
    }
}
