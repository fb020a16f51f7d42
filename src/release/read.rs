//! Writing artifacts, and reading them as a stranger would: whatever a repository holds may have been put there by
//! anybody, or be half of what was written.

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use slipway_api::names::AgentName;

use crate::artifact::{Artifact, Metadata};
use crate::canonical::yaml;
use crate::{API_VERSION, Fault, KIND, LONGEST, Status};

impl Artifact {
    /// The canonical form: the same bytes for the same artifact.
    pub fn to_yaml(&self) -> String {
        yaml(&tree(self))
    }

    /// The artifact with its checksum. One that nobody could read again gets none.
    pub fn sealed(mut self) -> Result<Self, Fault> {
        self.metadata.checksum = self.computed();
        fits(self.to_yaml().len())?;
        self.consistent()?;
        Ok(self)
    }

    /// The same release with another status, sealed: as `current.yaml` has it.
    pub fn marked(mut self, status: Status) -> Result<Self, Fault> {
        self.metadata.status = status;
        self.sealed()
    }

    /// Reads a sealed artifact, and believes it only if it is whole, in canonical form and without contradictions.
    ///
    /// Fields that this version does not know are kept in the blocks, as a later version may have written them, and
    /// refused in `metadata` and beside the blocks.
    pub fn from_yaml(text: &str) -> Result<Self, Fault> {
        let document = parse(text)?;
        for (field, expected) in [("apiVersion", API_VERSION), ("kind", KIND)] {
            let found = document.get(field).and_then(Value::as_str).unwrap_or_default();
            if found != expected {
                return Err(Fault::Foreign { field, found: shown(found), expected: expected.to_owned() });
            }
        }
        let artifact: Self = serde_json::from_value(document).map_err(|error| Fault::Malformed(shown(&error.to_string())))?;
        let found = &artifact.metadata.checksum;
        if found.is_empty() {
            return Err(Fault::Unsealed);
        }
        let computed = artifact.computed();
        if *found != computed {
            return Err(Fault::Checksum { found: shown(found), computed });
        }
        canonical(text, &artifact.to_yaml())?;
        artifact.consistent()?;
        Ok(artifact)
    }

    /// An artifact that was found where another one belongs is refused.
    pub fn expected(self, name: &AgentName, version: u64) -> Result<Self, Fault> {
        let foreign = |field, found: String, expected: String| Err(Fault::Foreign { field, found, expected });
        if self.metadata.name != name.as_str() {
            return foreign("metadata.name", self.metadata.name, name.to_string());
        }
        if self.metadata.version != version {
            return foreign("metadata.version", self.metadata.version.to_string(), version.to_string());
        }
        Ok(self)
    }

    /// SHA-256 of the canonical form with the checksum empty, in lower-case hex.
    fn computed(&self) -> String {
        let mut document = tree(self);
        document["metadata"]["checksum"] = Value::String(String::new());
        hex::encode(Sha256::digest(yaml(&document)))
    }

    fn consistent(&self) -> Result<(), Fault> {
        let inconsistent = |field, problem: String| Err(Fault::Inconsistent { field, problem });
        let Metadata { name, version, previous, status, deleted_at, .. } = &self.metadata;
        if let Err(error) = AgentName::new(shown(name)) {
            return inconsistent("metadata.name", error.to_string());
        }
        if *version == 0 || i64::try_from(*version).is_err() {
            return inconsistent("metadata.version", format!("is {version}; versions begin with 1 and end at {}", i64::MAX));
        }
        if previous >= version {
            return inconsistent("metadata.previous", format!("is {previous}, which does not come before version {version}"));
        }
        if deleted_at.is_some() && *status != Status::Deleted {
            return inconsistent("metadata.deleted_at", format!("is set, but the status is {}", status.as_str()));
        }
        if !(0..=100).contains(&self.governance.min_quality_score) {
            let score = self.governance.min_quality_score;
            return inconsistent("governance.min_quality_score", format!("is {score}; it goes from 0 to 100"));
        }
        match self.runtime.replicas {
            Some(replicas) if replicas < 0 => inconsistent("runtime.replicas", format!("is {replicas}; it cannot be below 0")),
            _ => Ok(()),
        }
    }
}

/// Any document of ours, as a tree, if it is not too long to be looked at.
pub(crate) fn parse(text: &str) -> Result<Value, Fault> {
    fits(text.len())?;
    let document: Value = serde_yaml::from_str(text).map_err(|error| Fault::Malformed(shown(&error.to_string())))?;
    if document.is_object() { Ok(document) } else { Err(Fault::Malformed("it has no fields".to_owned())) }
}

/// Tells the first line that differs from the canonical form.
pub(crate) fn canonical(text: &str, expected: &str) -> Result<(), Fault> {
    if text == expected {
        return Ok(());
    }
    let (mut ours, mut theirs) = (expected.split('\n'), text.split('\n'));
    let mut line = 1;
    loop {
        let (expected, found) = (ours.next(), theirs.next());
        if expected != found || expected.is_none() {
            return Err(Fault::NotCanonical {
                line,
                found: shown(found.unwrap_or("(nothing)")),
                expected: shown(expected.unwrap_or("(nothing)")),
            });
        }
        line += 1;
    }
}

pub(crate) fn tree(value: &impl Serialize) -> Value {
    // Plain structs with keys that are strings: there is nothing in them that could fail.
    serde_json::to_value(value).unwrap_or_default()
}

fn fits(bytes: usize) -> Result<(), Fault> {
    if bytes > LONGEST { Err(Fault::TooLong(bytes)) } else { Ok(()) }
}

/// So much of a stranger's text as belongs into an error.
fn shown(text: &str) -> String {
    const MOST: usize = 200;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
