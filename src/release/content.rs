//! What of an artifact counts when it is asked whether anything changed: the blocks, without `metadata`, which tells of
//! the release and not of the agent, without `resolved`, which is found and not asked for, and without `replicas`.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::artifact::{Artifact, Runtime};
use crate::canonical::yaml;

impl Artifact {
    /// The blocks that make up the content, and nothing else.
    pub fn content(&self) -> Value {
        let runtime = Runtime { replicas: None, ..self.runtime.clone() };
        json!({ "runtime": runtime, "agent": self.agent, "governance": self.governance, "deployment": self.deployment })
    }

    /// Whether a release of the one would say the same as a release of the other.
    pub fn same_content(&self, other: &Self) -> bool {
        let runtime = Runtime { replicas: other.runtime.replicas, ..self.runtime.clone() };
        runtime == other.runtime && self.agent == other.agent && self.governance == other.governance && self.deployment == other.deployment
    }

    /// SHA-256 of the content's canonical form, in lower-case hex.
    pub fn content_hash(&self) -> String {
        hex::encode(Sha256::digest(yaml(&self.content())))
    }
}
