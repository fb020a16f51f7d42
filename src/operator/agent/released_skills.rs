//! The Skills of an agent with a gate, as its active release and the one that waits name them. Each folder is held in a ConfigMap
//! of its digest (`held_skill`) from when the release is first seen, so that the Skill may change or be deleted. Pods mount that
//! ConfigMap from the beginning, so that none has to be replaced then.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use slipway_api::{Agent, ids};
use slipway_cluster::{Key, write};

use super::released_tools::Differs;
use super::tracks::Workload;
use super::{candidate, pin};
use crate::caches::{Release, ReleasedSkills};
use crate::context::Context;
use crate::held_skill::{self, Holding};
use crate::skill_folder::SkillFolder;

fn version(release: &Release) -> u64 {
    release.artifact.metadata.version
}

/// Whether it can be said what is held for a release.
pub(super) fn is_read(agent: &Agent, release: &Release, context: &Context) -> bool {
    let known = context.caches.released_skills.get(&Key::of(agent));
    release.artifact.resolved.skills.is_empty() || known.is_some_and(|known| known.releases.contains_key(&version(release)))
}

/// Reads what is held for the releases of an Agent with a gate, unless that is known, and holds what is not.
pub(super) async fn read(agent: &Agent, context: &Context) -> Result<(), write::Error> {
    let (key, cache) = (Key::of(agent), &context.caches.released_skills);
    let pending = pin::pending(agent, context).map(|held| held.release.clone());
    let releases = [(pin::approved(agent, context), true), (pending, false)].into_iter();
    let releases = releases.filter_map(|(release, is_active)| Some((release?, is_active)));
    let releases: Vec<(Arc<Release>, bool)> = releases.filter(|(release, _)| !release.artifact.resolved.skills.is_empty()).collect();
    if releases.is_empty() {
        cache.remove(&key);
        return Ok(());
    }
    let before = cache.get(&key);
    let mut known = before.as_deref().cloned().unwrap_or_default();
    let is_named = |digest: &String| releases.iter().any(|(release, _)| release.artifact.resolved.skills.values().any(|of| of == digest));
    known.folders.retain(|digest, _| is_named(digest));
    known.releases.retain(|of, _| releases.iter().any(|(release, _)| version(release) == *of));
    known.owned.retain(|(of, _), _| releases.iter().any(|(release, _)| version(release) == *of));
    for (release, is_active) in releases {
        read_one(&key, release, is_active, &mut known, context).await?;
    }
    if before.as_deref() != Some(&known) {
        cache.insert(key, known);
    }
    Ok(())
}

async fn read_one(
    agent: &Key,
    mut release: Arc<Release>,
    is_active: bool,
    known: &mut ReleasedSkills,
    context: &Context,
) -> Result<(), write::Error> {
    let version = version(&release);
    let is_new = !known.releases.contains_key(&version);
    let is_due = |(skill, digest): &(Key, String)| {
        let there = held_skill::uid(context, &agent.namespace, digest);
        let is_other = || there.is_none() || there.as_ref() != known.owned.get(&(version, digest.clone()));
        // Of what is not held there is nothing to be had but what the Skill is.
        let is_to_be_had = || there.is_some() || held_skill::is_now(context, skill, digest);
        is_new || if known.folders.contains_key(digest) { is_other() } else { is_to_be_had() }
    };
    let named = release.artifact.resolved.skills.iter();
    let named = named.map(|(name, digest)| (Key::new(&agent.namespace, name), digest.clone()));
    let due: Vec<(Key, String)> = named.filter(is_due).collect();
    if due.is_empty() {
        return Ok(());
    }
    if !is_new && is_active {
        // It may have gone with an AgentRelease that somebody has deleted, in whose place there is another.
        match pin::read_again(agent, version, context).await? {
            Some(again) if again.artifact == release.artifact => release = again,
            _ => return Ok(()),
        }
    }
    let mut owner = candidate::owner(&release);
    // Others may need it too.
    owner["controller"] = false.into();
    let mut trouble = None;
    for (skill, digest) in due {
        let folder = match held_skill::hold(context, &skill, &digest, &owner).await? {
            Holding::Held(folder, uid) => {
                known.owned.insert((version, digest.clone()), uid);
                Some(shared(context, &agent.namespace, folder))
            }
            Holding::Lost => None,
            Holding::Refused(why) => {
                trouble = Some(why);
                None
            }
        };
        known.folders.remove(&digest);
        known.folders.extend(folder.map(|folder| (digest, folder)));
    }
    if let Some(why) = trouble.as_ref().filter(|_| known.releases.get(&version) != Some(&trouble)) {
        tracing::warn!(agent = %agent, release = release.name, why, "a skill that a release was made with cannot be held");
    }
    known.releases.insert(version, trouble);
    Ok(())
}

/// The same folder as another agent has it, so that there is one of it.
fn shared(context: &Context, namespace: &str, folder: SkillFolder) -> Arc<SkillFolder> {
    let all = context.caches.released_skills.in_namespace(namespace);
    let same = all.iter().find_map(|(_, known)| known.folders.get(&folder.digest).filter(|same| ***same == folder));
    same.cloned().unwrap_or_else(|| Arc::new(folder))
}

/// The folders that are held for the release of a workload, by Skill. Of others the Skill counts as it is. What is not as the release
/// has it is noted in `differs`.
pub(super) fn in_force(workload: &Workload, differs: Option<&mut Differs>, context: &Context) -> BTreeMap<String, Arc<SkillFolder>> {
    let mut folders = BTreeMap::new();
    let (Some(release), Some(differs)) = (&workload.release, differs) else { return folders };
    let agent = Key::of(&*workload.agent);
    let known = context.caches.released_skills.get(&agent);
    differs.skills_trouble = known.as_ref().and_then(|known| known.releases.get(&version(release)).cloned().flatten());
    for name in workload.agent.spec.skills.iter().map(|reference| ids::skill_name(reference)) {
        let Some(wanted) = release.artifact.resolved.skills.get(&name) else { continue };
        let is_now = held_skill::is_now(context, &Key::new(&agent.namespace, &name), wanted);
        let folder = known.as_ref().and_then(|known| known.folders.get(wanted));
        if !is_now {
            if folder.is_some() { &mut differs.kept_skills } else { &mut differs.lost_skills }.push(name.clone());
        }
        folders.extend(folder.map(|folder| (name, folder.clone())));
    }
    folders
}
