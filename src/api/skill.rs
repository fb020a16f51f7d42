//! `Skill`: instructions that an agent's model reads when a task calls for them, with the files they speak of.
//!
//! `markdown` reads and writes the form in which skills travel between platforms: a folder with a `SKILL.md`.

mod markdown;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::schema;

pub use markdown::SkillError;

/// The file that every skill has.
pub const SKILL_FILE: &str = "SKILL.md";
/// How many bytes the instructions may have.
pub const INSTRUCTIONS_MAX: usize = 64 * 1024;
/// How many files may lie beside them, and how many bytes these may have together.
pub const FILES_MAX: usize = 64;
pub const FILES_BYTES_MAX: usize = 256 * 1024;
/// A ConfigMap's keys have at most 253 characters, and encoding a path at most doubles it.
pub const PATH_MAX: usize = 120;

/// Instructions that agents of the same namespace can load when a task calls for them.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[kube(
    group = "agents.slipway.dev",
    version = "v1",
    kind = "Skill",
    doc = "Instructions that agents of the same namespace can load when a task calls for them.",
    plural = "skills",
    shortname = "sk",
    category = "slipway",
    namespaced,
    derive = "PartialEq",
    status = "SkillStatus",
    selectable = ".spec.category",
    printcolumn(name = "Name", type_ = "string", json_path = ".spec.name"),
    printcolumn(name = "Category", type_ = "string", json_path = ".spec.category"),
    printcolumn(name = "Version", type_ = "string", json_path = ".spec.version"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Author", type_ = "string", json_path = ".spec.author", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = kube::core::Rule::new("self.metadata.name.size() <= 63 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')")
        .message("metadata.name: must begin with a lower-case letter and have at most 63 lower-case letters, digits and hyphens"),
)]
#[serde(rename_all = "camelCase")]
pub struct SkillSpec {
    /// The name by which the model asks for the skill, and of the folder that holds it: lower-case letters, digits and single hyphens.
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[a-z0-9]+(-[a-z0-9]+)*$"))]
    pub name: String,

    /// What the skill does and when to use it; the model reads this with every message, and the rest only when it needs it.
    #[schemars(length(min = 1, max = 1024))]
    pub description: String,

    /// What the model is to do, in Markdown. At most 64 KiB.
    #[schemars(length(min = 1, max = 65_536))]
    #[x_kube(validation = kube::core::Rule::new("bytes(self).size() <= 65536").message("must have at most 64 KiB (65536 bytes)"))]
    pub instructions: String,

    /// A heading to file the skill under. Default general.
    #[serde(default = "general")]
    #[schemars(length(min = 1, max = 63))]
    pub category: String,

    /// The skill's version, in its author's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub version: Option<String>,

    /// Who wrote the skill.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub author: Option<String>,

    /// Where the skill was taken from, for example the URL of a repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 2048))]
    pub source: Option<String>,

    /// The licence under which the skill may be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub license: Option<String>,

    /// What the skill needs around it, such as programs or network access.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 500))]
    pub compatibility: Option<String>,

    /// Tools that the skill expects the agent to have, by the names the model knows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 128), regex(pattern = r"^[^\s,]([^\r\n]*[^\s,])?$")))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub tools: Vec<String>,

    /// Scripts, references and other text files by their path within the skill's folder, for example references/forms.md. At most 64, and 256 KiB in all.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "files")]
    #[x_kube(
        validation = kube::core::Rule::new("self.all(p, p.size() <= 120 && p.matches('^[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*$'))")
            .message("a path is relative and has at most 120 characters; its steps have letters, digits, dots, hyphens and underscores, and begin with no dot"),
        validation = kube::core::Rule::new("self.all(p, p.lowerAscii() != 'skill.md')")
            .message("SKILL.md is made from the other fields"),
        validation = kube::core::Rule::new("self.map(p, bytes(self[p]).size()).sum() <= 262144")
            .message("the files have more than 256 KiB together"),
    )]
    pub files: BTreeMap<String, String>,
}

/// Whether the skill can be used.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SkillStatus {
    /// Available or Error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<SkillPhase>,
    /// The skill's id in the REST API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 70))]
    pub id: Option<String>,
    /// SHA-256 over all that the skill's folder holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub digest: Option<String>,
    /// The generation of the spec that this status speaks of.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready, with a reason that names the field at fault.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// Whether a skill can be used.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, JsonSchema)]
pub enum SkillPhase {
    Available,
    Error,
}

impl SkillSpec {
    /// Everything in the skill's folder, by path.
    pub fn folder(&self) -> BTreeMap<String, String> {
        let files = self.files.iter().map(|(path, text)| (path.clone(), text.clone()));
        files.chain([(SKILL_FILE.to_owned(), self.to_markdown())]).collect()
    }

    /// The digest of the folder.
    pub fn digest(&self) -> String {
        digest(&self.folder())
    }

    /// What is wrong with the skill, field first. The API server refuses most of it already; bytes it cannot count.
    pub fn fault(&self) -> Option<String> {
        if !is_name(&self.name) {
            return Some(format!(
                "spec.name: {:?} must have 1 to 64 lower-case letters, digits and single hyphens between them",
                self.name
            ));
        }
        let described = self.description.trim().chars().count();
        if !(1..=1024).contains(&described) {
            return Some(format!("spec.description: has {described} characters; it needs 1 to 1024"));
        }
        if self.instructions.len() > INSTRUCTIONS_MAX {
            return Some(format!("spec.instructions: has {} bytes; at most {INSTRUCTIONS_MAX} are possible", self.instructions.len()));
        }
        files_fault(&self.files).map(|fault| format!("spec.files: {fault}"))
    }
}

/// SHA-256 over a folder, each part with its length before it.
pub fn digest(folder: &BTreeMap<String, String>) -> String {
    let mut sha = Sha256::new();
    for part in folder.iter().flat_map(|(path, text)| [path, text]) {
        sha.update((part.len() as u64).to_be_bytes());
        sha.update(part);
    }
    hex::encode(sha.finalize())
}

/// Lower-case letters and digits, in words joined by single hyphens.
fn is_name(name: &str) -> bool {
    let word = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    name.len() <= 64 && name.split('-').all(word)
}

fn files_fault(files: &BTreeMap<String, String>) -> Option<String> {
    if files.len() > FILES_MAX {
        return Some(format!("there are {}; at most {FILES_MAX} are possible", files.len()));
    }
    let bytes: usize = files.values().map(String::len).sum();
    if bytes > FILES_BYTES_MAX {
        return Some(format!("they have {bytes} bytes together; at most {FILES_BYTES_MAX} are possible"));
    }
    if let Some(path) = files.keys().find(|path| !is_path(path)) {
        return Some(format!(
            "{path:?} is no path; it should be relative, such as references/forms.md, its steps of letters, digits, dots, hyphens and underscores, and begin with no dot"
        ));
    }
    if let Some(path) = files.keys().find(|path| path.eq_ignore_ascii_case(SKILL_FILE)) {
        return Some(format!("{path} is made from the other fields"));
    }
    let parent = files.keys().find(|path| files.keys().any(|other| other.strip_prefix(*path).is_some_and(|rest| rest.starts_with('/'))));
    parent.map(|path| format!("{path} is a file and a folder at once"))
}

fn is_path(path: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let step = |step: &str| !step.is_empty() && !step.starts_with('.') && step.bytes().all(allowed);
    path.len() <= PATH_MAX && path.split('/').all(step)
}

/// A path as a ConfigMap's key, which cannot hold a slash. Two paths never give the same key.
pub fn key(path: &str) -> String {
    path.replace('_', "__").replace('/', "_-")
}

/// The path that a ConfigMap's key was made of; none of what is no such key.
pub fn path(key: &str) -> Option<String> {
    let (mut path, mut rest) = (String::with_capacity(key.len()), key);
    while let Some((before, after)) = rest.split_once('_') {
        path.push_str(before);
        let (step, begins) = if after.starts_with('_') { ('_', "_") } else { ('/', "-") };
        path.push(step);
        rest = after.strip_prefix(begins)?;
    }
    path.push_str(rest);
    Some(path)
}

fn files(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object",
        "maxProperties": 64,
        "additionalProperties": { "type": "string", "maxLength": 262_144 },
    })
}

fn general() -> String {
    "general".to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn skill() -> SkillSpec {
        SkillSpec { name: "forms".into(), description: "Fills forms.".into(), instructions: "Read first.".into(), ..SkillSpec::default() }
    }

    fn with(files: &[(&str, &str)]) -> SkillSpec {
        SkillSpec { files: files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect(), ..skill() }
    }

    #[test]
    fn faults_name_the_field() {
        let large = "é".repeat(FILES_BYTES_MAX / 2 + 1);
        let long = "x".repeat(PATH_MAX + 1);
        let cases = [
            (skill(), None),
            (with(&[("scripts/run.py", "pass"), ("references/a/b_c-d.md", "")]), None),
            (SkillSpec { name: "Forms".into(), ..skill() }, Some("spec.name")),
            (SkillSpec { name: "a--b".into(), ..skill() }, Some("single hyphens")),
            (SkillSpec { name: "-a".into(), ..skill() }, Some("spec.name")),
            (SkillSpec { name: "a".repeat(65), ..skill() }, Some("64")),
            (SkillSpec { description: " ".into(), ..skill() }, Some("spec.description: has 0")),
            (SkillSpec { instructions: "é".repeat(INSTRUCTIONS_MAX / 2 + 1), ..skill() }, Some("spec.instructions: has 65538 bytes")),
            (with(&[("../x", "")]), Some("no path")),
            (with(&[("/x", "")]), Some("no path")),
            (with(&[("a//b", "")]), Some("no path")),
            (with(&[("a/", "")]), Some("no path")),
            (with(&[("a/../b", "")]), Some("no path")),
            (with(&[("a b", "")]), Some("no path")),
            (with(&[(".hidden", "")]), Some("no path")),
            (with(&[(&long, "")]), Some("no path")),
            (with(&[("skill.MD", "")]), Some("made from the other fields")),
            (with(&[("a", ""), ("a/b", "")]), Some("a is a file and a folder at once")),
            (with(&[("a", &large)]), Some("262146 bytes")),
        ];
        for (skill, expected) in cases {
            match (skill.fault(), expected) {
                (found, None) => assert_eq!(found, None, "{}", skill.name),
                (found, Some(part)) => assert!(found.as_ref().is_some_and(|fault| fault.contains(part)), "{part}: {found:?}"),
            }
        }
    }

    #[test]
    fn any_change_of_content_changes_the_digest() {
        let one = with(&[("a", "b")]);
        let others = [
            with(&[("ab", "")]),
            with(&[("a", "c")]),
            with(&[]),
            SkillSpec { instructions: "Read last.".into(), ..one.clone() },
            SkillSpec { description: "Other.".into(), ..one.clone() },
        ];
        assert_eq!(one.digest(), one.clone().digest());
        for other in others {
            assert_ne!(one.digest(), other.digest(), "{other:?}");
        }
    }

    #[test]
    fn what_is_no_key_of_a_path_has_none() {
        for (key, expected) in [("a", Some("a")), ("a_-b__c", Some("a/b_c")), ("__-_-", Some("_-/")), ("a_", None), ("a_b", None)] {
            assert_eq!(path(key).as_deref(), expected, "{key}");
        }
    }

    proptest! {
        #[test]
        fn keys_fit_a_config_map_and_do_not_collide(one in "[A-Za-z0-9_-][A-Za-z0-9._/-]{0,40}", other in "[A-Za-z0-9_-][A-Za-z0-9._/-]{0,40}") {
            prop_assert_eq!(key(&one) == key(&other), one == other);
            prop_assert_eq!(path(&key(&one)), Some(one.clone()));
            prop_assert!(key(&one).bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte)));
            prop_assert!(key(&"_".repeat(PATH_MAX)).len() <= 253);
        }
    }
}
