//! Admission of pods: an Agent gets none before its team has the file of policies, nor, where its conversations lie in the
//! platform's database, before its id there is its own.

use kube::{Resource, ResourceExt};
use serde_json::Value;
use slipway_api::agent::Storage;
use slipway_api::contract::policies;
use slipway_api::guardrail_policy::DEFAULT_NAMES;
use slipway_api::{Agent, Team, Track, ids, labels};
use slipway_cluster::Key;
use slipway_cluster::json::hash;
use slipway_database::{Holder, Home};

use crate::caches::ChildKind;
use crate::children;
use crate::context::Context;
use crate::policy_file;

/// What an Agent waits for before it may have pods on a track, if anything. A track that has pods goes on.
pub(crate) async fn waits(context: &Context, agent: &Agent, track: Track, storage: Storage) -> Option<String> {
    let tenancy = context.tenancy.as_ref()?;
    let rests = agent.stopped_by().is_some() || agent.spec.replicas == 0;
    if storage != Storage::Postgresql || agent.spec.database_url.is_some() || rests {
        return None;
    }
    let key = Key::of(agent);
    let workload = Key::new(&key.namespace, track.workload(&key.name));
    let deployment = context.caches.children(ChildKind::Deployment).get(&workload).filter(|child| child.owner == agent.meta().uid);
    let home = context.caches.team_of(&key.namespace).and_then(|slug| home_of(context, &slug))?;
    let holder = holder(context, &key, agent)?;
    let waits = tenancy.admit(&home, &holder).await.err();
    waits.filter(|_| deployment.and_then(|child| child.deployment.as_ref().map(|it| it.wanted)).unwrap_or(0) == 0)
}

/// What new pods of an Agent wait for that mount the team's policies: the file, with those that hold the agent. kubelet would wait
/// for the file as well, and the Deployment would count that as its own failure; what comes into the file later, a pod may see only
/// after a minute. Pods that are as they should be wait for nothing.
pub(crate) fn waits_for_policies(context: &Context, agent: &Agent, desired: &[(ChildKind, Value)]) -> Option<String> {
    let namespace = agent.namespace().unwrap_or_default();
    let deployment = desired.iter().find(|(kind, _)| *kind == ChildKind::Deployment).map(|(_, value)| value)?;
    let live = context.caches.children(ChildKind::Deployment).get(&Key::new(&*namespace, children::name(deployment)));
    if live.is_some_and(|live| live.owner == agent.meta().uid && live.matches_hash == Some(hash(deployment))) {
        return None;
    }
    let team = Key::new("", context.caches.team_of(&namespace)?);
    let told = context.caches.team_policies.get(&team);
    let Some((told, given)) = told.as_ref().and_then(|told| Some((told, told.given.as_ref()?))) else {
        let file = policies::CONFIG_MAP;
        return Some(format!(
            "waiting for ConfigMap {file} with the team's policies, which pods mount; the Team makes it, or says why not"
        ));
    };
    let team = context.caches.teams.get(&team);
    let required = team.and_then(|team| team.0.as_ref().ok().map(|team| policy_file::required(&team.spec))).unwrap_or_default();
    let named = agent.spec.governance.iter().flat_map(|governance| &governance.policies);
    let named = named.map(|reference| ids::guardrail_policy_name(reference));
    let is_to_come = |name: &String| {
        let policy = context.caches.guardrail_policies.get(&Key::new(&*namespace, name));
        let is_usable = policy.is_some_and(|policy| policy.is_there() && policy.invalid().is_none());
        is_usable && !told.left_out.contains_key(name) && !given.contains(name)
    };
    let name = named.chain(required).chain(DEFAULT_NAMES.map(str::to_owned)).find(is_to_come)?;
    Some(format!("waiting until GuardrailPolicy {name} is in ConfigMap {}, which pods mount", policies::CONFIG_MAP))
}

/// A Team as the database is to know it.
pub(crate) fn home_of(context: &Context, slug: &str) -> Option<Home> {
    let object = context.caches.teams.get(&Key::new("", slug))?;
    let team: &Team = object.0.as_ref().ok()?;
    let created = team.creation_timestamp().map_or(0, |time| time.0.as_second());
    Some(context.tenancy.as_ref()?.home(slug, team.uid().as_deref()?, created, adopts(team)))
}

/// The same of an Agent.
pub(crate) fn holder(context: &Context, key: &Key, agent: &Agent) -> Option<Holder> {
    let uid = agent.uid()?;
    let created = agent.creation_timestamp().map_or(0, |time| time.0.as_second());
    // Before it has pods of its own, all are an earlier Agent's; later, those that are older than it.
    let deployment =
        |track: Track| context.caches.children(ChildKind::Deployment).get(&Key::new(&key.namespace, track.workload(&key.name)));
    let owners: Vec<_> = Track::ALL.into_iter().filter_map(deployment).map(|child| child.owner.clone()).collect();
    let alone = if owners.contains(&Some(uid.clone())) {
        context.caches.pods.oldest(key).is_none_or(|oldest| oldest >= created)
    } else {
        owners.is_empty() && !context.caches.pods.has(key)
    };
    Some(Holder { agent_id: ids::agent(&key.namespace, &key.name), uid, created, adopts: adopts(agent), alone })
}

fn adopts(object: &impl ResourceExt) -> Option<String> {
    object.annotations().get(labels::ADOPT).map(|uid| uid.trim().to_owned()).filter(|uid| !uid.is_empty())
}
