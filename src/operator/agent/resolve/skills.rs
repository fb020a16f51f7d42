//! `RUNTIME_SKILLS`, and where the skills' files come from.

use std::collections::BTreeMap;

use slipway_api::condition::READY;
use slipway_api::contract::{self, SkillConfig};
use slipway_api::skill::{self, SkillPhase};

use super::{Stop, fault, json};
use crate::agent::gather::Seen;
use crate::caches::skill::CachedSkill;
use crate::skill_folder::SkillFolder;
use crate::{held_skill, skill_folder};

/// A ConfigMap whose keys are the files of one folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::agent) struct Folder {
    pub name: String,
    pub config_map: String,
    /// Key → path within the folder.
    pub files: Vec<(String, String)>,
}

pub(super) fn skills(seen: &Seen, variables: &mut BTreeMap<&'static str, String>) -> Result<Vec<Folder>, Stop> {
    let (mut configs, mut folders) = (Vec::<SkillConfig>::new(), Vec::new());
    for (at, (name, skill)) in seen.skills.iter().enumerate() {
        let field = format!("spec.skills[{at}]");
        let (folder, config_map) = match seen.held_skills.get(name) {
            Some(held) => ((**held).clone(), held_skill::config_map_name(&held.digest)),
            None => (present(&field, name, skill.as_deref())?, skill_folder::config_map_name(name)),
        };
        if configs.iter().any(|other| other.name == folder.name) {
            let why = format!("is called {}, as another one of this agent is; change spec.name of one of them", folder.name);
            return Err(invalid(&field, name, &why));
        }
        let files = folder.paths.iter().map(String::as_str).chain([skill::SKILL_FILE]);
        folders.push(Folder {
            name: folder.name.clone(),
            config_map,
            files: files.map(|path| (skill::key(path), path.to_owned())).collect(),
        });
        configs.push(SkillConfig {
            path: format!("{}/{}", contract::SKILLS_FOLDER, folder.name),
            name: folder.name,
            description: folder.description,
            digest: folder.digest,
        });
    }
    if !configs.is_empty() {
        variables.insert(contract::SKILLS, json(&configs));
    }
    Ok(folders)
}

fn invalid(field: &str, name: &str, why: &str) -> Stop {
    fault("SkillInvalid", format!("{field}: Skill {name} {why}"))
}

/// The folder of a Skill as it is.
fn present(field: &str, name: &str, skill: Option<&CachedSkill>) -> Result<SkillFolder, Stop> {
    let Some(object) = skill else {
        return Err(fault("SkillNotFound", format!("{field}: there is no Skill {name} in this namespace")));
    };
    let object = object.skill().map_err(|broken| invalid(field, name, &format!("cannot be read: {}", broken.error)))?;
    let status = object.status.clone().unwrap_or_default();
    if status.observed_generation.is_none() || status.observed_generation != object.metadata.generation {
        return Err(Stop::Unknown("the files of a Skill"));
    }
    let (Some(SkillPhase::Available), Some(digest)) = (status.phase, status.digest) else {
        let why = status.conditions.iter().find(|condition| condition.type_ == READY).map(|condition| condition.message.as_str());
        return Err(invalid(field, name, &format!("cannot be used: {}", why.unwrap_or("it has not said why"))));
    };
    Ok(SkillFolder::of(&object.spec, digest))
}
