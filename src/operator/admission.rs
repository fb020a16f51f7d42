//! Which pods may begin: an Agent's that keeps its words in the platform's database, once its id there is its own.

use kube::{Resource, ResourceExt};
use slipway_api::agent::Storage;
use slipway_api::{Agent, Team, Track, ids, labels};
use slipway_cluster::Key;
use slipway_database::{Holder, Home};

use crate::caches::ChildKind;
use crate::context::Context;

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
