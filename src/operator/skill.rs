//! The skill controller: lays out each Skill's folder in a ConfigMap, which the agents that name it mount, and says
//! whether that could be done.

use std::sync::Arc;

use jiff::Timestamp;
use kube::api::Api;
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};
use slipway_api::condition::{self, Finding, READY};
use slipway_api::skill::{self, SkillPhase};
use slipway_api::{Skill, SkillStatus, Team, ids, labels};
use slipway_cluster::controller::{Next, Phase, RESYNC, Requests};
use slipway_cluster::event::EventSpec;
use slipway_cluster::{Key, Object, write};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::caches::ChildKind;
use crate::caches::skill::CachedSkill;
use crate::children::{self, Outcome};
use crate::context::Context;
use crate::fault::ConditionFault;
use crate::held_skill;
use crate::registry::{Change, Maker, Registered};
use crate::skill_folder::{MANAGER, config_map, config_map_name};

const MAKER: Maker =
    Maker { kind: "Skill", label: labels::SKILL, manager: MANAGER, children: &[ChildKind::ConfigMap], is_namespaced: true };
/// How many Skills are reconciled at once.
const CONCURRENCY: usize = 2;

pub(crate) struct Controller {
    context: Arc<Context>,
    requests: Requests,
}

impl Controller {
    pub(crate) fn new(context: Arc<Context>) -> Self {
        Self { context, requests: Requests::default() }
    }

    fn request_namespace(&self, namespace: &str) {
        self.requests.add_all(self.context.caches.skills.in_namespace(namespace).into_iter().map(|(key, _)| key));
    }
}

impl Registered for Controller {
    fn changed(&self, change: &Change) {
        if let Some(key) = change.of::<Skill>() {
            self.requests.add(key.clone());
        } else if let Some(team) = change.of::<Team>() {
            self.request_namespace(&format!("team-{}", team.name));
        }
        match change {
            Change::Child("Skill", key) => self.requests.add(key.clone()),
            Change::Namespace(namespace) | Change::SecretsRead(namespace) => self.request_namespace(namespace),
            _ => {}
        }
    }

    fn maker(&self) -> Option<&'static Maker> {
        Some(&MAKER)
    }

    fn desired(&self, owner: &Key, _: ChildKind, live: &Object) -> Option<Value> {
        desired(&self.context, owner, live)
    }

    fn start(self: Arc<Self>, phase: &watch::Sender<Phase>) -> Vec<JoinHandle<()>> {
        let (context, requests) = (self.context.clone(), self.requests.clone());
        vec![context.start::<Skill, _>(phase, ("skill", CONCURRENCY, &requests), move |key| {
            let context = self.context.clone();
            async move { reconcile(&context, &key).await }
        })]
    }

    fn request_all(&self) {
        self.requests.add_all(self.context.caches.skills.keys());
    }
}

async fn reconcile(context: &Context, key: &Key) -> Next<write::Error> {
    let Some(object) = context.caches.skills.get(key) else {
        context.untroubled("Skill", key);
        return Ok(None);
    };
    let skill = match object.skill() {
        Ok(skill) if skill.meta().deletion_timestamp.is_some() => return Ok(None),
        Ok(skill) => skill,
        Err(invalid) => {
            context.malformed::<Skill>(key, invalid, SkillPhase::Error, &[(READY, false)]).await?;
            return Ok(Some(RESYNC));
        }
    };
    let outcome = match fault(context, key, &object) {
        Some(fault) => Err(fault),
        None if is_laid_out(context, skill, &object) => Ok(()),
        // Its texts are not kept.
        None => match api(context, key).get_opt(&key.name).await? {
            Some(whole) if whole.uid() == skill.uid() && whole.spec.digest() == object.layout.digest => lay_out(context, &whole).await?,
            // It has changed or gone, which is about to be heard.
            _ => return Ok(Some(RESYNC)),
        },
    };
    let mut before = skill.status.clone().unwrap_or_default();
    before.conditions = condition::ours(before.conditions);
    let digest = object.layout.digest.as_str();
    let status = status(key, outcome.as_ref().map(|()| digest), &before, skill.meta().generation, Timestamp::now());
    if status != before {
        context.write_status(skill, &status, MANAGER).await?;
    }
    let trouble = outcome.err().filter(|fault| fault.reason != "Progressing");
    let trouble = trouble.map(|fault| EventSpec { warning: true, reason: fault.reason.to_owned(), action: "LayOut", note: fault.message });
    let said = |status: &SkillStatus| status.conditions.first().map(|condition| (condition.reason.clone(), condition.message.clone()));
    let due = context.warn("Skill", key, &skill.object_ref(&()), trouble, said(&status) != said(&before)).await;
    Ok(Some(due.map_or(RESYNC, |due| due.min(RESYNC))))
}

fn api(context: &Context, key: &Key) -> Api<Skill> {
    Api::namespaced(context.client.clone(), &key.namespace)
}

/// Whether the ConfigMap was found to be as the skill wants it.
fn is_laid_out(context: &Context, skill: &Skill, cached: &CachedSkill) -> bool {
    let key = Key::new(skill.namespace().unwrap_or_default(), config_map_name(&skill.name_any()));
    let child = context.caches.children(ChildKind::ConfigMap).get(&key);
    child.is_some_and(|child| child.matches_hash == Some(cached.layout.config_map) && child.owner == skill.uid())
}

fn fault(context: &Context, key: &Key, skill: &CachedSkill) -> Option<ConditionFault> {
    if context.caches.team_of(&key.namespace).is_none() {
        let message = format!(
            "namespace {} belongs to no Team; agents, and what they use, are in namespaces named team-<slug> (kubectl get teams)",
            key.namespace
        );
        return Some(ConditionFault { reason: "NotATeamNamespace", message });
    }
    skill.layout.fault.clone().map(|message| ConditionFault { reason: "FieldInvalid", message })
}

async fn lay_out(context: &Context, skill: &Skill) -> Result<Result<(), ConditionFault>, write::Error> {
    let value = write::value(&config_map(skill))?;
    let name = config_map_name(&skill.name_any());
    let outcome = children::apply(context, ChildKind::ConfigMap, skill.uid().as_deref().unwrap_or_default(), &value, MANAGER).await?;
    Ok(match outcome {
        Outcome::Taken => {
            let message = format!("ConfigMap {name} exists and does not belong to this Skill; delete it or give the Skill another name");
            Err(ConditionFault { reason: "NameTaken", message })
        }
        Outcome::Left => Err(ConditionFault {
            reason: "Progressing",
            message: format!("ConfigMap {name} of an earlier Skill of this name has yet to go"),
        }),
        Outcome::Refused(why) => {
            let message = format!("the API server refused ConfigMap {name}: {why}");
            Err(ConditionFault { reason: children::reason_of_refusal(&why), message })
        }
        Outcome::Unchanged | Outcome::Created | Outcome::Updated | Outcome::Repaired => Ok(()),
    })
}

/// What a Skill's ConfigMap should be, if that can be said now. The texts are those that `live` has, if they are the right
/// ones, else none that there could be.
fn desired(context: &Context, key: &Key, live: &Object) -> Option<Value> {
    if let Some(held) = held_skill::desired(key, live) {
        return Some(held);
    }
    let object = context.caches.skills.get(key)?;
    let skill = object.skill().ok()?;
    if fault(context, key, &object).is_some() {
        return None;
    }
    let mut wanted = write::value(&config_map(skill)).ok()?;
    let data = &live.data["data"];
    wanted["data"] = if object.is_laid_out_in(data) { data.clone() } else { json!({skill::SKILL_FILE: 0}) };
    Some(wanted)
}

/// The digest of a folder that is laid out, or what keeps it from being so.
fn status(key: &Key, digest: Result<&str, &ConditionFault>, before: &SkillStatus, generation: Option<i64>, now: Timestamp) -> SkillStatus {
    let finding = match digest {
        Ok(_) => Finding::new(READY, true, "Valid", "agents can use this skill"),
        Err(fault) => Finding::new(READY, false, fault.reason, &*fault.message),
    };
    SkillStatus {
        phase: Some(if digest.is_ok() { SkillPhase::Available } else { SkillPhase::Error }),
        id: Some(ids::skill(&key.name)),
        digest: digest.ok().map(str::to_owned),
        observed_generation: generation,
        conditions: condition::conditions(vec![finding], &before.conditions, generation, now),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skill() -> Skill {
        let yaml = "{metadata: {name: forms, namespace: team-a, uid: u}, spec: {name: fill-forms, description: d, instructions: Read.\
                    , files: {references/a_b.md: x}}}";
        serde_yaml::from_str(yaml).unwrap()
    }

    #[test]
    fn the_folder_is_in_the_config_map() {
        let value = write::value(&config_map(&skill())).unwrap();
        assert_eq!(value["metadata"]["name"], "forms-skill");
        assert_eq!(value["metadata"]["ownerReferences"][0]["kind"], "Skill");
        assert_eq!(value["data"]["references_-a__b.md"], "x");
        assert_eq!(value["data"]["SKILL.md"], "---\nname: fill-forms\ndescription: d\n---\n\nRead.");
    }

    #[test]
    fn a_fault_takes_the_digest_away() {
        let (key, now) = (Key::new("team-a", "forms"), Timestamp::UNIX_EPOCH);
        let good = status(&key, Ok("d1"), &SkillStatus::default(), Some(1), now);
        assert_eq!((good.phase, good.digest.as_deref(), good.id.as_deref()), (Some(SkillPhase::Available), Some("d1"), Some("sk_forms")));
        let fault = ConditionFault { reason: "FieldInvalid", message: "spec.files".to_owned() };
        let bad = status(&key, Err(&fault), &good, Some(2), now);
        assert_eq!((bad.phase, bad.digest.as_deref()), (Some(SkillPhase::Error), None));
        assert_eq!(bad.conditions[0].reason, "FieldInvalid");
    }
}
