//! A skill's folder as releases hold it: an immutable ConfigMap that is named by the folder's digest, and goes with the last
//! AgentRelease that needs it. Several Agents and releases share one.
//!
//! Whether it holds what its name says is seen from the ConfigMap alone, so that no text is cached for that.

use std::collections::BTreeMap;

use kube::ResourceExt;
use kube::api::{Api, Patch};
use serde_json::{Value, json};
use slipway_api::skill::{self, SKILL_FILE, SkillSpec};
use slipway_api::{Skill, labels};
use slipway_cluster::write::{Error, by};
use slipway_cluster::{Key, Object};

use crate::caches::ChildKind;
use crate::children::{self, Outcome};
use crate::context::Context;
use crate::drift::covers;
use crate::skill_folder::{MANAGER, SkillFolder};

const PREFIX: &str = "skill-";
/// Of a digest in hex.
const DIGEST_LENGTH: usize = 64;

/// What came of holding a folder.
#[derive(Debug)]
pub(crate) enum Holding {
    /// With the UID of the ConfigMap.
    Held(SkillFolder, String),
    /// There is none of that digest.
    Lost,
    /// It cannot be held, in these words.
    Refused(String),
}

/// The ConfigMap with the folder of this digest. No other ConfigMap of ours ends with a digest.
pub(crate) fn config_map_name(digest: &str) -> String {
    format!("{PREFIX}{digest}")
}

fn digest_of(name: &str) -> Option<&str> {
    let digest = name.strip_prefix(PREFIX)?;
    (digest.len() == DIGEST_LENGTH && digest.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(digest)
}

/// Whether the Skill has a folder of this digest now.
pub(crate) fn is_now(context: &Context, of: &Key, digest: &str) -> bool {
    context.caches.skills.get(of).is_some_and(|skill| skill.layout.digest == digest)
}

/// The UID of the ConfigMap, if it was found to be what its name says.
pub(crate) fn uid(context: &Context, namespace: &str, digest: &str) -> Option<String> {
    let child = context.caches.children(ChildKind::ConfigMap).get(&Key::new(namespace, config_map_name(digest)))?;
    (child.matches_hash.is_some() && !child.deleting).then(|| child.uid.clone())
}

/// Makes the folder of this digest be held for an AgentRelease: the one that is held already, or else that of the Skill.
pub(crate) async fn hold(context: &Context, of: &Key, digest: &str, owner: &Value) -> Result<Holding, Error> {
    let (api, name) = (children::api(context, ChildKind::ConfigMap, &of.namespace), config_map_name(digest));
    // It comes from a release, and becomes a part of a path.
    if digest_of(&name).is_none() {
        return Ok(Holding::Lost);
    }
    if let Some(found) = api.get_opt(&name).await?
        && let Some(held) = read(&found, digest)
    {
        own(&api, of, &found, owner).await?;
        return Ok(Holding::Held(held, found.uid().unwrap_or_default()));
    }
    if !is_now(context, of, digest) {
        return Ok(Holding::Lost);
    }
    let skills: Api<Skill> = Api::namespaced(context.client.clone(), &of.namespace);
    // One that has changed meanwhile is about to be heard of.
    let Some(spec) = skills.get_opt(&of.name).await?.map(|found| found.spec).filter(|spec| spec.digest() == digest) else {
        return Ok(Holding::Lost);
    };
    let data = spec.folder().into_iter().map(|(path, text)| (skill::key(&path), Value::String(text))).collect();
    let value = object(of, &name, &json!([owner]), Value::Object(data));
    let owner = owner["uid"].as_str().unwrap_or_default();
    Ok(match children::apply(context, ChildKind::ConfigMap, owner, &value, MANAGER).await? {
        Outcome::Taken => Holding::Refused(format!("ConfigMap {name} exists and is not what its name says; delete it")),
        Outcome::Left => Holding::Refused(format!("ConfigMap {name} belongs to something else, which has yet to go")),
        Outcome::Refused(why) => Holding::Refused(format!("the API server refused ConfigMap {name}: {why}")),
        Outcome::Unchanged | Outcome::Created | Outcome::Updated | Outcome::Repaired => {
            Holding::Held(SkillFolder::of(&spec, digest.to_owned()), uid(context, &of.namespace, digest).unwrap_or_default())
        }
    })
}

/// What such a ConfigMap should be: as it is, if it holds what its name says, and else nothing that there could be. None of any
/// other ConfigMap.
pub(crate) fn desired(of: &Key, live: &Object) -> Option<Value> {
    let name = live.metadata.name.as_deref()?;
    let digest = digest_of(name)?;
    let data = &live.data["data"];
    let is_right = folder(data).is_some_and(|folder| skill::digest(&folder) == digest);
    let owners = serde_json::to_value(&live.metadata.owner_references).ok()?;
    Some(object(of, name, &owners, if is_right { data.clone() } else { json!({SKILL_FILE: 0}) }))
}

fn object(of: &Key, name: &str, owners: &Value, data: Value) -> Value {
    let mut object = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": of.namespace,
            "labels": labels_of(&of.name),
            "annotations": annotations(),
            "ownerReferences": owners,
        },
        "immutable": true,
    });
    object["data"] = data;
    object
}

/// By which the watch finds it, and tells of the Skill.
fn labels_of(skill: &str) -> Value {
    json!({labels::PART_OF: labels::PLATFORM, labels::MANAGED_BY: labels::OPERATOR, labels::SKILL: skill})
}

/// Flagger would leave a copy of each version behind, and this one does not change.
fn annotations() -> Value {
    json!({labels::CONFIG_TRACKING: "disabled"})
}

/// The folder that a ConfigMap holds, if it is that of this digest and stays so.
fn read(config_map: &Object, digest: &str) -> Option<SkillFolder> {
    let stays = config_map.data["immutable"] == true && config_map.metadata.deletion_timestamp.is_none();
    let mut folder = folder(&config_map.data["data"]).filter(|folder| stays && skill::digest(folder) == digest)?;
    let text = folder.remove(SKILL_FILE)?;
    let spec = SkillSpec::from_markdown(&text, folder).ok()?;
    Some(SkillFolder::of(&spec, digest.to_owned()))
}

/// The files in a ConfigMap's data, by path.
fn folder(data: &Value) -> Option<BTreeMap<String, String>> {
    data.as_object()?.iter().map(|(key, text)| Some((skill::path(key)?, text.as_str()?.to_owned()))).collect()
}

/// Keeps the ConfigMap while this AgentRelease is there, and has the watch tell of it.
async fn own(api: &Api<Object>, of: &Key, found: &Object, owner: &Value) -> Result<(), Error> {
    let is_owned = found.owner_references().iter().any(|known| owner["uid"] == known.uid);
    let is_labelled = |skill: &String| covers(&labels_of(skill), &json!(found.labels()));
    let is_marked = found.labels().get(labels::SKILL).is_some_and(is_labelled) && covers(&annotations(), &json!(found.annotations()));
    if is_owned && is_marked {
        return Ok(());
    }
    // Owners are merged by their UID, so that many agents with the same skill are in nobody's way. Another object is a conflict.
    let mut change = json!({"metadata": {"uid": found.uid(), "ownerReferences": [owner]}});
    if !is_marked {
        change["metadata"]["labels"] = labels_of(&of.name);
        change["metadata"]["annotations"] = annotations();
    }
    api.patch(&found.name_any(), &by(MANAGER), &Patch::Strategic(change)).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(immutable: bool, change: impl FnOnce(&mut Value)) -> (String, Object) {
        let files = BTreeMap::from([("a/b_c.md".to_owned(), "x".to_owned())]);
        let spec = SkillSpec { name: "forms".into(), description: "d".into(), instructions: "Read.".into(), files, ..SkillSpec::default() };
        let data = spec.folder().into_iter().map(|(path, text)| (skill::key(&path), Value::String(text))).collect();
        let name = config_map_name(&spec.digest());
        let mut object = object(&Key::new("team-a", "forms"), &name, &json!([{"uid": "r1"}]), Value::Object(data));
        object["immutable"] = json!(immutable);
        object["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "AgentRelease", "name": "r", "uid": "r1"}]);
        change(&mut object["data"]);
        (spec.digest(), serde_json::from_value(object).unwrap())
    }

    #[test]
    fn a_folder_is_believed_that_has_the_digest_and_stays() {
        let (digest, live) = held(true, |_| {});
        let found = read(&live, &digest).unwrap();
        assert_eq!((found.name.as_str(), found.description.as_str(), found.paths), ("forms", "d", vec!["a/b_c.md".to_owned()]));
        assert!(read(&live, &"0".repeat(DIGEST_LENGTH)).is_none());
        for (what, (digest, live)) in [
            ("somebody may change it", held(false, |_| {})),
            ("a text is another", held(true, |data| data["SKILL.md"] = json!("---\nname: forms\ndescription: d\n---\n\nHarm."))),
            ("there is a file more", held(true, |data| data["more"] = json!(""))),
        ] {
            assert!(read(&live, &digest).is_none(), "{what}");
        }
    }

    #[test]
    fn a_config_map_is_judged_by_its_name() {
        let of = Key::new("team-a", "forms");
        let (_, right) = held(true, |_| {});
        let live = serde_json::to_value(&right).unwrap();
        let wanted = desired(&of, &right).unwrap();
        assert_eq!((&wanted["data"], &wanted["immutable"]), (&live["data"], &json!(true)));
        assert_eq!(wanted["metadata"]["ownerReferences"], live["metadata"]["ownerReferences"], "whom it belongs to does not matter");
        let (_, wrong) = held(true, |data| data["SKILL.md"] = json!("else"));
        assert_ne!(desired(&of, &wrong).unwrap()["data"], serde_json::to_value(&wrong).unwrap()["data"]);
        let mut other = right;
        other.metadata.name = Some("forms-skill".to_owned());
        assert_eq!(desired(&of, &other), None);
    }
}
