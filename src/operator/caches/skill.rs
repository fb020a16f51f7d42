//! A Skill as it is cached: its texts are put into its ConfigMap once, and only what says whether they are there stays.

use std::collections::BTreeMap;

use kube::core::error_boundary::InvalidObject;
use serde_json::Value;
use sha2::{Digest, Sha256};
use slipway_api::Skill;
use slipway_cluster::Guarded;
use slipway_cluster::cached::{Cached, strip_metadata, trimmed};
use slipway_cluster::json::hash as hash_of;
use slipway_cluster::write;

use crate::skill_folder;

/// A Skill without its instructions and the texts of its files.
pub(crate) struct CachedSkill {
    skill: Guarded<Skill>,
    pub layout: Layout,
}

/// What there is to know of a skill's folder.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    /// As the status has it.
    pub digest: String,
    /// What is wrong with the skill, field first.
    pub fault: Option<String>,
    /// The hash of the ConfigMap that the folder makes, and of its data alone.
    pub config_map: u64,
    data: [u8; 32],
}

impl CachedSkill {
    pub(crate) fn skill(&self) -> Result<&Skill, &InvalidObject> {
        self.skill.0.as_ref()
    }

    /// Whether an object has the very data that this skill's ConfigMap should have.
    pub(crate) fn is_laid_out_in(&self, object: &Value) -> bool {
        let data = object.as_object().into_iter().flatten().map(|(key, text)| (key.as_str(), text.as_str().unwrap_or_default()));
        hash(data) == self.layout.data
    }
}

impl Cached for CachedSkill {
    fn is_readable(&self) -> bool {
        self.skill.0.is_ok()
    }
}

impl From<Guarded<Skill>> for CachedSkill {
    fn from(object: Guarded<Skill>) -> Self {
        let mut whole = match object.0 {
            Ok(skill) => skill,
            Err(invalid) => return Self { skill: trimmed(Guarded(Err(invalid))), layout: Layout::default() },
        };
        strip_metadata(&mut whole.metadata);
        let map = skill_folder::config_map(&whole);
        let layout = Layout {
            digest: whole.spec.digest(),
            fault: whole.spec.fault(),
            config_map: write::value(&map).map_or(0, |value| hash_of(&value)),
            data: hash(map.data.iter().flatten().map(|(key, text)| (key.as_str(), text.as_str()))),
        };
        whole.spec.instructions = String::new();
        let paths = std::mem::take(&mut whole.spec.files).into_keys();
        whole.spec.files = paths.map(|path| (path, String::new())).collect();
        Self { skill: trimmed(Guarded(Ok(whole))), layout }
    }
}

/// Over keys and texts in the order of the keys, each with its length before it.
fn hash<'a>(data: impl Iterator<Item = (&'a str, &'a str)>) -> [u8; 32] {
    let sorted: BTreeMap<&str, &str> = data.collect();
    let mut sha = Sha256::new();
    for part in sorted.into_iter().flat_map(|(key, text)| [key, text]) {
        sha.update((part.len() as u64).to_be_bytes());
        sha.update(part);
    }
    sha.finalize().into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_texts_go_and_what_tells_whether_they_are_laid_out_stays() {
        let whole: Skill = serde_json::from_value(json!({
            "metadata": {"name": "forms", "namespace": "team-a", "uid": "u"},
            "spec": {"name": "forms", "description": "d", "instructions": "Read.", "files": {"a/b.md": "x"}},
        }))
        .unwrap();
        let value = write::value(&skill_folder::config_map(&whole)).unwrap();
        let cached = CachedSkill::from(Guarded(Ok(whole.clone())));
        let kept = cached.skill().unwrap();
        assert_eq!((kept.spec.instructions.as_str(), kept.spec.files.get("a/b.md").map(String::as_str)), ("", Some("")));
        assert_eq!(cached.layout.digest, whole.spec.digest());
        assert_eq!(cached.layout.config_map, hash_of(&value));
        assert!(cached.is_laid_out_in(&value["data"]));
        let mut other = value["data"].clone();
        other["SKILL.md"] = json!("else");
        assert!(!cached.is_laid_out_in(&other));
        other["SKILL.md"] = value["data"]["SKILL.md"].clone();
        other["more"] = json!("");
        assert!(!cached.is_laid_out_in(&other) && !cached.is_laid_out_in(&Value::Null));
    }
}
