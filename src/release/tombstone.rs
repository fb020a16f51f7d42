//! What takes the place of `current.yaml` when an agent is deleted. The releases themselves stay.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::artifact::Artifact;
use crate::canonical::yaml;
use crate::parse::{document, same};
use crate::read::{ours, shaped, tree};
use crate::{API_VERSION, ArtifactFault, KIND, Status};

/// What a deleted agent's changelog begins with.
const DELETED: &str = "[DELETED] ";

/// The end of an agent. It has no checksum, as it has no content: the commit that holds it is what vouches for it.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Tombstone {
    #[serde(rename = "apiVersion")]
    api_version: String,
    kind: String,
    metadata: Epitaph,
}

#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
struct Epitaph {
    name: String,
    status: Status,
    deleted_at: Timestamp,
    changelog: String,
}

impl Tombstone {
    /// `changelog` is that of the release that was active, or empty if there was none.
    pub fn new(name: impl Into<String>, changelog: &str, deleted_at: Timestamp) -> Self {
        let changelog = if changelog.starts_with(DELETED) { changelog.to_owned() } else { format!("{DELETED}{changelog}") };
        let metadata = Epitaph { name: name.into(), status: Status::Deleted, deleted_at, changelog };
        Self { api_version: API_VERSION.to_owned(), kind: KIND.to_owned(), metadata }
    }

    pub fn name(&self) -> &str {
        &self.metadata.name
    }

    pub fn deleted_at(&self) -> Timestamp {
        self.metadata.deleted_at
    }

    pub fn changelog(&self) -> &str {
        &self.metadata.changelog
    }

    pub fn to_yaml(&self) -> String {
        yaml(&tree(self))
    }
}

/// What `current.yaml` may hold.
#[derive(Debug, Clone, PartialEq)]
pub enum Current {
    Release(Box<Artifact>),
    Gone(Tombstone),
}

impl Current {
    pub fn from_yaml(text: &str) -> Result<Self, ArtifactFault> {
        let document = document(text)?;
        let metadata = &document["metadata"];
        // A tombstone is the only thing of a release's kind that has no version.
        if metadata["status"] != Status::Deleted.as_str() || metadata.get("version").is_some() {
            return Artifact::from_yaml(text).map(|artifact| Self::Release(Box::new(artifact)));
        }
        ours(&document)?;
        let tombstone: Tombstone = shaped(document)?;
        same(text, &tombstone.to_yaml())?;
        Ok(Self::Gone(tombstone))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    fn tombstone(changelog: &str) -> Tombstone {
        Tombstone::new("helper", changelog, "2026-11-21T15:00:00Z".parse().unwrap())
    }

    #[test]
    fn an_agents_end_is_written_and_read() {
        let text = tombstone("Speaks of breakfast.").to_yaml();
        assert_eq!(
            text,
            "apiVersion: agents.slipway.dev/v1\nkind: AgentRelease\nmetadata:\n  changelog: \"[DELETED] Speaks of breakfast.\"\n  deleted_at: \"2026-11-21T15:00:00Z\"\n  name: helper\n  status: deleted\n"
        );
        assert_eq!(Current::from_yaml(&text), Ok(Current::Gone(tombstone("Speaks of breakfast."))));
        assert_eq!(tombstone(tombstone("Twice.").changelog()).changelog(), "[DELETED] Twice.");
    }

    #[test]
    fn what_is_current_is_a_release_or_its_end() {
        let full = samples::full();
        assert_eq!(Current::from_yaml(&full.to_yaml()), Ok(Current::Release(Box::new(full))));
        let text = tombstone("").to_yaml();
        for (damaged, expected) in [
            (text.replace("v1", "v2"), "apiVersion"),
            (text.replace("AgentRelease", "Agent"), "kind"),
            (text.replace("  name: helper", "  name: helper\n  rests: in peace"), "unknown field `rests`"),
            (text.replace("deleted\n", "active\n"), "missing field"),
            (text.replace("  name: helper", "  name:  helper"), "line 6"),
            (text.replace("  name: helper\n", ""), "missing field `name`"),
        ] {
            let fault = Current::from_yaml(&damaged).expect_err(expected).to_string();
            assert!(fault.contains(expected), "should say {expected:?}: {fault}");
        }
    }
}
