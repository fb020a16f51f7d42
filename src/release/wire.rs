//! What the state role tells other parts of Slipway over its internal API, as JSON. Faults are told as everywhere:
//! `{error, message, path}`, a corrupt artifact as 502, an unknown one as 404.
//!
//! | asked | answered |
//! | --- | --- |
//! | `GET /releases/{namespace}/{slug}?limit=&before=` | [`Releases`], newest first; an agent without history has none |
//! | `GET /releases/{namespace}/{slug}/{version}` | [`Release`] |
//! | `GET /agents[?namespace=]` | [`Agents`] |
//! | `GET /mirror` | [`Mirrors`] |
//! | `POST /mirror/test`, with [`MirrorTest`] for another remote than the one in force | [`Tested`] |
//! | `POST /callbacks` with a callback of an evaluation | what `wire` of `src/evaluation` has |
//! | `/state/{namespace}.git/…` | Git's smart HTTP |

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use slipway_api::mirror::Credential;

use crate::Status;

/// Most entries that one answer holds.
pub const MOST: usize = 500;

/// A page of an agent's releases.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Releases {
    pub data: Vec<Entry>,
    /// `before` of the next page.
    #[serde(default)]
    pub next_before: Option<u64>,
}

/// A release without its artifact.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    pub version: u64,
    pub previous: u64,
    /// Where it stands now.
    pub status: Status,
    /// Why, where there is something to say.
    #[serde(default)]
    pub reason: Option<String>,
    pub author: String,
    pub timestamp: Timestamp,
    pub changelog: String,
    pub checksum: String,
    pub commit: String,
    /// The AgentRelease by which it was made.
    #[serde(default)]
    pub name: Option<String>,
}

/// One release with its artifact as it was committed: canonical YAML whose checksum was verified.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Release {
    #[serde(flatten)]
    pub entry: Entry,
    pub artifact: String,
}

/// The agents that the repositories know.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Agents {
    pub data: Vec<Known>,
}

/// An agent as its team's repository has it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Known {
    pub namespace: String,
    pub slug: String,
    /// The version that is active.
    #[serde(default)]
    pub active: Option<u64>,
    /// Whether its end was written down.
    #[serde(default)]
    pub deleted: bool,
    /// `deploy/{slug}.yaml`.
    #[serde(default)]
    pub manifest: Option<String>,
    /// What is wrong with its files.
    #[serde(default)]
    pub fault: Option<String>,
}

/// What became of copying the repositories to the remote that the platform is configured for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Mirrors {
    /// Whether there is a remote at all.
    pub configured: bool,
    /// Repository by repository.
    #[serde(default)]
    pub data: Vec<Mirror>,
    /// What is wrong with the configuration itself.
    #[serde(default)]
    pub fault: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Mirror {
    pub namespace: String,
    pub status: MirrorStatus,
    #[serde(default)]
    pub message: Option<String>,
    /// The last commit that the remote has.
    #[serde(default)]
    pub commit: Option<String>,
    #[serde(default)]
    pub pushed_at: Option<Timestamp>,
}

/// How a copy is. The later ones are worse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MirrorStatus {
    /// The remote has all.
    Ok,
    /// Something is still to be pushed.
    Behind,
    /// The last attempt failed; it is tried again.
    Error,
    /// The remote holds commits of somebody else. Nothing is forced.
    Diverged,
}

/// A remote that is to be tested in place of the one in force. Nothing of it is kept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MirrorTest {
    pub url: String,
    #[serde(default)]
    pub branch: Option<String>,
    #[serde(default)]
    pub known_hosts: Option<String>,
    #[serde(default)]
    pub authority: Option<String>,
    /// The token, if it is given anew.
    #[serde(default, with = "revealed")]
    pub token: Option<Credential>,
    /// The private key, if it is given anew.
    #[serde(default, with = "revealed")]
    pub key: Option<Credential>,
    /// Whether the stored token is used, if there is one.
    #[serde(default)]
    pub keeps_token: bool,
    /// Whether the stored key is used, if there is one.
    #[serde(default)]
    pub keeps_key: bool,
}

/// A credential as it is, for the way to the state role alone.
mod revealed {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use slipway_api::mirror::Credential;

    #[expect(clippy::ref_option, reason = "serde calls it so")]
    pub(super) fn serialize<S: Serializer>(credential: &Option<Credential>, serializer: S) -> Result<S::Ok, S::Error> {
        credential.as_ref().map(Credential::reveal).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Credential>, D::Error> {
        Ok(Option::<String>::deserialize(deserializer)?.map(Credential::new))
    }
}

/// What came of connecting to the remote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tested {
    pub status: TestStatus,
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TestStatus {
    Ok,
    Error,
    NotConfigured,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_is_sent_and_never_shown() {
        let test = MirrorTest { url: "https://h/o".to_owned(), token: Some(Credential::new("hunter2")), ..MirrorTest::default() };
        let sent = serde_json::to_value(&test).unwrap();
        assert_eq!((&sent["token"], &sent["key"]), (&serde_json::json!("hunter2"), &serde_json::Value::Null));
        assert_eq!(serde_json::from_value::<MirrorTest>(sent).unwrap(), test);
        assert!(!format!("{test:?}").contains("hunter2"));
        let least: MirrorTest = serde_json::from_str(r#"{"url": "https://h/o"}"#).unwrap();
        assert_eq!(least, MirrorTest { url: "https://h/o".to_owned(), ..MirrorTest::default() });
    }

    #[test]
    fn a_release_is_its_entry_and_its_artifact_side_by_side() {
        let text = r#"{"version":2,"previous":1,"status":"archived","author":"ada","timestamp":"2026-11-21T12:00:00Z","changelog":"","checksum":"ab","commit":"cd","artifact":"x: 1\n"}"#;
        let release: Release = serde_json::from_str(text).unwrap();
        assert_eq!((release.entry.version, release.entry.name.as_deref(), release.artifact.as_str()), (2, None, "x: 1\n"));
        assert_eq!(serde_json::from_value::<Release>(serde_json::to_value(&release).unwrap()).unwrap(), release);
    }
}
