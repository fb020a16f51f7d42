//! Writing artifacts, and reading them as a stranger would: whatever a repository holds may have been put there by
//! anybody, or be half of what was written.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sha2::{Digest, Sha256};
use slipway_api::names::AgentName;

use crate::artifact::{Artifact, Metadata};
use crate::canonical::yaml;
use crate::fault::shown;
use crate::parse::{document, same};
use crate::{API_VERSION, ArtifactFault, KIND, LONGEST, Status};

impl Artifact {
    /// The canonical form: the same bytes for the same artifact.
    pub fn to_yaml(&self) -> String {
        yaml(&tree(self))
    }

    /// The artifact with its checksum. One that nobody could read again gets none.
    pub fn sealed(mut self) -> Result<Self, ArtifactFault> {
        self.metadata.checksum = self.computed();
        let bytes = self.to_yaml().len();
        if bytes > LONGEST {
            return Err(ArtifactFault::TooLong(bytes));
        }
        self.consistent()?;
        Ok(self)
    }

    /// The same release with another status, sealed: as `current.yaml` has it.
    pub fn marked(mut self, status: Status) -> Result<Self, ArtifactFault> {
        self.metadata.status = status;
        self.sealed()
    }

    /// Reads a sealed artifact, and believes it only if it is whole, in canonical form and without contradictions.
    ///
    /// Fields that this version does not know are kept in the blocks, as a later version may have written them, and
    /// refused in `metadata` and beside the blocks.
    pub fn from_yaml(text: &str) -> Result<Self, ArtifactFault> {
        let document = document(text)?;
        ours(&document)?;
        let artifact: Self = shaped(document)?;
        let found = &artifact.metadata.checksum;
        if found.is_empty() {
            return Err(ArtifactFault::Unsealed);
        }
        same(text, &artifact.to_yaml())?;
        let computed = artifact.computed();
        if *found != computed {
            return Err(ArtifactFault::Checksum { found: shown(found), computed });
        }
        artifact.consistent()?;
        Ok(artifact)
    }

    /// An artifact that was found where another one belongs is refused.
    pub fn expected(self, name: &AgentName, version: u64) -> Result<Self, ArtifactFault> {
        let foreign = |field, found: String, expected: String| Err(ArtifactFault::Foreign { field, found, expected });
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

    fn consistent(&self) -> Result<(), ArtifactFault> {
        let inconsistent = |field, problem: String| Err(ArtifactFault::Inconsistent { field, problem });
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

pub(crate) fn tree(value: &impl Serialize) -> Value {
    // Plain structs with keys that are strings: there is nothing in them that could fail.
    serde_json::to_value(value).unwrap_or_default()
}

/// Whether the document is of our group and kind.
pub(crate) fn ours(document: &Value) -> Result<(), ArtifactFault> {
    for (field, expected) in [("apiVersion", API_VERSION), ("kind", KIND)] {
        let found = document.get(field).and_then(Value::as_str).unwrap_or_default();
        if found != expected {
            return Err(ArtifactFault::Foreign { field, found: shown(found), expected: expected.to_owned() });
        }
    }
    Ok(())
}

/// The document as what it should be.
pub(crate) fn shaped<T: DeserializeOwned>(document: Value) -> Result<T, ArtifactFault> {
    serde_json::from_value(document).map_err(|error| ArtifactFault::Misshapen(shown(&error.to_string())))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Resolved, samples, strange};

    /// The text with one part replaced, and the checksum made right again, as somebody would who means it.
    fn forged(part: &str, by: &str) -> String {
        let text = samples::full().to_yaml();
        assert!(text.contains(part), "{part}");
        resealed(&text.replacen(part, by, 1))
    }

    fn resealed(text: &str) -> String {
        let lines = |checksum: &str| {
            let mut first = true;
            text.lines()
                .map(|line| match line.strip_prefix("  checksum: ") {
                    Some(_) if std::mem::take(&mut first) => format!("  checksum: {checksum}\n"),
                    _ => format!("{line}\n"),
                })
                .collect::<String>()
        };
        let sum = hex::encode(Sha256::digest(lines("''")));
        lines(&if sum.starts_with(|first: char| first.is_ascii_digit()) { format!("\"{sum}\"") } else { sum })
    }

    #[test]
    fn the_checksum_is_that_of_the_file_with_the_line_emptied() {
        for artifact in [samples::full(), samples::artifact("").sealed().unwrap()] {
            assert_eq!(resealed(&artifact.to_yaml()), artifact.to_yaml());
        }
    }

    #[test]
    fn what_is_wrong_is_told() {
        let text = samples::full().to_yaml();
        let cases = [
            (String::new(), "line 1: the text ends without a line break"),
            ("- a\n".to_owned(), "apiVersion: is \"\""),
            ("a: [\n".to_owned(), "line 1"),
            ("kind: AgentRelease\n".to_owned(), "apiVersion: is \"\""),
            (forged("agents.slipway.dev/v1", "agents.slipway.dev/v2"), "apiVersion: is \"agents.slipway.dev/v2\", and should be"),
            (forged("kind: AgentRelease", "kind: Secret"), "kind: is \"Secret\", and should be \"AgentRelease\""),
            (text.replace("replicas: 2", "replicas: 3"), "it was changed after it was written"),
            (
                Artifact { metadata: Metadata { checksum: "abc".to_owned(), ..samples::metadata() }, ..samples::full() }.to_yaml(),
                "metadata.checksum: is abc, but",
            ),
            (samples::artifact("").to_yaml(), "is empty; the artifact was never sealed"),
            (text.replace("  version: 3", "  version: three"), "invalid type"),
            (text.replace("  status: active", "  status: splendid"), "unknown variant `splendid`"),
            (forged("  name: concierge", "  colour: red\n  name: concierge"), "unknown field `colour`"),
            (text.clone() + "zebra: 1\n", "unknown field `zebra`"),
            (text.replace("  replicas: 2", "  replicas: 2 # two"), "line 101 is not as Slipway"),
            (text.replace("  - clock", "  - &c clock"), "line"),
            (text.clone() + "\n", "line "),
            (text.trim_end().to_owned(), "ends without a line break"),
            (text.replace("  author:", "  author:  "), "is not as Slipway writes it"),
            (text.clone() + &text, "line "),
            ("---\n".to_owned() + &text, "line 1 is not as Slipway writes it: \"---\" should be"),
            (forged("  name: concierge", "  name: a/../concierge"), "metadata.name"),
            (forged("  version: 3", "  version: 0"), "metadata.version: is 0; versions begin with 1"),
            (forged("  previous: 2", "  previous: 3"), "metadata.previous: is 3, which does not come before version 3"),
            (forged("  name: concierge", "  deleted_at: 2026-11-21T14:00:00Z\n  name: concierge"), "line 7 is not as"),
            (
                forged("  name: concierge", "  deleted_at: \"2026-11-21T14:00:00Z\"\n  name: concierge"),
                "metadata.deleted_at: is set, but the status is active",
            ),
            (forged("  min_quality_score: 0", "  min_quality_score: 101"), "governance.min_quality_score: is 101; it goes from 0 to 100"),
            (forged("  replicas: 2", "  replicas: -2"), "runtime.replicas: is -2"),
            (forged("2026-11-21T14:00:00Z", "2026-11-21T14:00:00.0Z"), "line"),
            ("a".repeat(LONGEST + 1), "the artifact has 1048577 bytes; at most 1048576 are possible"),
        ];
        for (text, expected) in cases {
            let fault = Artifact::from_yaml(&text).expect_err(expected).to_string();
            assert!(fault.contains(expected), "should say {expected:?}: {fault}");
        }
    }

    #[test]
    fn what_a_later_version_added_to_a_block_is_kept() {
        for (part, with) in [
            ("    provider: anthropic\n", "    provider: anthropic\n    temperature: 0.5\n"),
            ("  channel: rest\n", "  channel: rest\n  checksum: no\n"),
            ("runtime:\n", "runtime:\n  autoscaling:\n    - cpu: \"80\"\n"),
        ] {
            let text = forged(part, &with.replace(": no", ": \"no\""));
            let read = Artifact::from_yaml(&text).unwrap();
            assert_eq!(read.to_yaml(), text);
            assert!(!read.same_content(&samples::full()));
        }
    }

    #[test]
    fn an_artifact_in_the_wrong_place_is_noticed() {
        let name = |name: &str| AgentName::new(name).unwrap();
        assert!(samples::full().expected(&name("concierge"), 3).is_ok());
        let foreign = |name: AgentName, version| samples::full().expected(&name, version).unwrap_err().to_string();
        assert_eq!(foreign(name("helper"), 3), "metadata.name: is \"concierge\", and should be \"helper\"");
        assert_eq!(foreign(name("concierge"), 4), "metadata.version: is \"3\", and should be \"4\"");
    }

    #[test]
    fn what_nobody_could_read_is_not_sealed() {
        let mut artifact = samples::full();
        artifact.agent.system_prompt = Some("\u{1}".repeat(LONGEST / 4));
        assert!(matches!(artifact.sealed(), Err(ArtifactFault::TooLong(bytes)) if bytes > LONGEST));
        let mut artifact = samples::full();
        artifact.metadata.version = 0;
        assert!(matches!(artifact.sealed(), Err(ArtifactFault::Inconsistent { field: "metadata.version", .. })));
    }

    #[test]
    fn another_status_is_another_checksum() {
        let active = samples::full();
        let archived = active.clone().marked(Status::Archived).unwrap();
        assert_ne!(active.metadata.checksum, archived.metadata.checksum);
        assert_eq!(archived.marked(Status::Active), Ok(active));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(spec in samples::spec(), author in strange::string(), changelog in strange::string(), further in strange::value()) {
            let mut artifact = Artifact::of_spec(&spec, "team-a", Resolved::default(), samples::metadata());
            artifact.metadata.author = author;
            artifact.metadata.changelog = changelog;
            artifact.agent.model.further.insert("later".to_owned(), further);
            let sealed = artifact.sealed().unwrap();
            let text = sealed.to_yaml();
            let read = Artifact::from_yaml(&text).unwrap_or_else(|fault| panic!("{fault} in:\n{text}"));
            prop_assert_eq!(&read, &sealed);
            prop_assert_eq!(read.to_yaml(), text);
        }

        #[test]
        fn no_text_upsets_the_reader(text in any::<String>(), document in strange::value()) {
            let _ = Artifact::from_yaml(&text);
            let _ = Artifact::from_yaml(&yaml(&document));
        }

        #[test]
        fn no_damage_goes_unnoticed(at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<bool>()) {
            let text = samples::full().to_yaml();
            let mut bytes = text.clone().into_bytes();
            let at = at.index(bytes.len());
            if cut { bytes.truncate(at) } else { bytes[at] = byte }
            let damaged = String::from_utf8_lossy(&bytes);
            prop_assert_eq!(Artifact::from_yaml(&damaged).is_ok(), damaged == text);
            let _ = Artifact::from_yaml(&resealed(&damaged));
        }
    }
}
