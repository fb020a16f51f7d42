//! What takes the place of `current.yaml` when an agent is deleted. The releases themselves stay.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::artifact::Artifact;
use crate::canonical::yaml;
use crate::read::{canonical, parse, tree};
use crate::{API_VERSION, Fault, KIND, Status};

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
    pub fn from_yaml(text: &str) -> Result<Self, Fault> {
        let document = parse(text)?;
        let metadata = &document["metadata"];
        // A tombstone is the only thing of a release's kind that has no version.
        if metadata["status"] != Status::Deleted.as_str() || metadata.get("version").is_some() {
            return Artifact::from_yaml(text).map(|artifact| Self::Release(Box::new(artifact)));
        }
        for (field, expected) in [("apiVersion", API_VERSION), ("kind", KIND)] {
            let found = document.get(field).and_then(Value::as_str).unwrap_or_default();
            if found != expected {
                return Err(Fault::Foreign { field, found: found.chars().take(200).collect(), expected: expected.to_owned() });
            }
        }
        let tombstone: Tombstone = serde_json::from_value(document).map_err(|error| Fault::Malformed(error.to_string()))?;
        canonical(text, &tombstone.to_yaml())?;
        Ok(Self::Gone(tombstone))
    }
}
