//! Which pods may begin: an Agent's that keeps its words in the platform's database, once its id there is its own.

use k8s_openapi::api::core::v1::Namespace;
use kube::api::Api;
use kube::{Resource, ResourceExt};
use slipway_api::agent::Storage;
use slipway_api::{Agent, Team, ids, labels};
use slipway_database::{Holder, Home};

use crate::world::{ChildKind, World};
use slipway_cluster::Key;

/// The namespace that every cluster has had since it was made, so that its UID is the cluster's.
const FIRST: &str = "kube-system";

/// What an Agent waits for before it may have pods, if anything. One that has pods goes on.
pub(crate) async fn waits(world: &World, agent: &Agent, storage: Storage) -> Option<String> {
    let tenancy = world.tenancy.as_ref()?;
    let rests = agent.stopped_by().is_some() || agent.spec.replicas == 0;
    if storage != Storage::Postgresql || agent.spec.database_url.is_some() || rests {
        return None;
    }
    let key = Key::of(agent);
    let deployment = world.children(ChildKind::Deployment).get(&key).filter(|child| child.owner == agent.meta().uid);
    let home = world.team_of(&key.namespace).and_then(|slug| world.home_of(&slug))?;
    let holder = world.holder(&key, agent)?;
    let waits = tenancy.admit(&home, &holder).await.err();
    waits.filter(|_| deployment.and_then(|child| child.deployment.as_ref().map(|it| it.wanted)).unwrap_or(0) == 0)
}

/// The cluster's UID; empty where this manager may not ask for it.
pub(super) async fn cluster(world: &World) -> String {
    let api: Api<Namespace> = Api::all(world.client.clone());
    loop {
        match api.get_metadata_opt(FIRST).await {
            Ok(found) => return found.and_then(|found| found.metadata.uid).unwrap_or_default(),
            Err(kube::Error::Api(refused)) if refused.code == 403 => {
                tracing::warn!(%refused.message, "rows of Agents that went unseen are kept longer, since the cluster cannot be told from others");
                return String::new();
            }
            Err(error) => tracing::warn!(%error, "which cluster this is could not be asked; it is tried again"),
        }
        tokio::time::sleep(super::FIRST_PAUSE).await;
    }
}

impl World {
    /// A Team as the database is to know it.
    pub(crate) fn home_of(&self, slug: &str) -> Option<Home> {
        let object = self.teams.get(&Key::new("", slug))?;
        let team: &Team = object.0.as_ref().ok()?;
        let created = team.creation_timestamp().map_or(0, |time| time.0.as_second());
        Some(self.tenancy.as_ref()?.home(slug, team.uid().as_deref()?, created, adopts(team)))
    }

    /// The same of an Agent.
    pub(crate) fn holder(&self, key: &Key, agent: &Agent) -> Option<Holder> {
        let uid = agent.uid()?;
        let created = agent.creation_timestamp().map_or(0, |time| time.0.as_second());
        // Before it has pods of its own, all are an earlier Agent's; later, those that are older than it.
        let alone = match self.children(ChildKind::Deployment).get(key) {
            Some(child) if child.owner.as_ref() == Some(&uid) => self.pods.oldest(key).is_none_or(|oldest| oldest >= created),
            Some(_) => false,
            None => !self.pods.has(key),
        };
        Some(Holder { agent_id: ids::agent(&key.namespace, &key.name), uid, created, adopts: adopts(agent), alone })
    }
}

fn adopts(object: &impl ResourceExt) -> Option<String> {
    object.annotations().get(labels::ADOPT).map(|uid| uid.trim().to_owned()).filter(|uid| !uid.is_empty())
}
