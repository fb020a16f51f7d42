//! The layout of a skill's folder in a ConfigMap, and what agents' pods need to know of it.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ObjectMeta;
use kube::{Resource, ResourceExt};
use slipway_api::skill::SkillSpec;
use slipway_api::{Skill, labels, skill};

/// The field manager of everything that is written of skills.
pub(crate) const MANAGER: &str = "slipway/skill";

/// A skill's folder without its texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SkillFolder {
    pub name: String,
    pub description: String,
    /// Of all files but `SKILL.md`.
    pub paths: Vec<String>,
    pub digest: String,
}

impl SkillFolder {
    pub(crate) fn of(spec: &SkillSpec, digest: String) -> Self {
        Self { name: spec.name.clone(), description: spec.description.clone(), paths: spec.files.keys().cloned().collect(), digest }
    }
}

/// The ConfigMap with a skill's folder. No agent's ConfigMap ends like that.
pub(crate) fn config_map_name(skill: &str) -> String {
    format!("{skill}-skill")
}

pub(crate) fn config_map(of: &Skill) -> ConfigMap {
    let name = of.name_any();
    let labels = [(labels::PART_OF, labels::PLATFORM), (labels::MANAGED_BY, labels::OPERATOR), (labels::SKILL, &name)];
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(config_map_name(&name)),
            namespace: of.namespace(),
            labels: Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()),
            owner_references: of.controller_owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        data: Some(of.spec.folder().into_iter().map(|(path, text)| (skill::key(&path), text)).collect()),
        ..ConfigMap::default()
    }
}
