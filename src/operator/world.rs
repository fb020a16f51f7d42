//! The cluster as this process knows it: caches that watches fill, and queues that changes fill.
//!
//! Reconcilers read from here and nowhere else, so that an operator at rest is silent.

mod census;
pub mod child;
mod configured;
mod doubts;
mod folded;
mod kept;
pub mod pod;
pub mod references;
pub mod secret;
mod sources;
mod told;

use std::collections::HashSet;
use std::fmt::Debug;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::ApiResource;
use kube::core::DeserializeGuard;
use kube::core::error_boundary::InvalidObject;
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use slipway_api::condition::{self, Finding, READY};
use slipway_api::{KnowledgeBase, Team, Tool, labels};
use slipway_cluster::watch::Readiness;
use slipway_cluster::{Cache, Tasks};
use tokio::time::Instant;

use crate::approval::Reports;
use crate::event::Happening;
use crate::metrics::Metrics;
use crate::rollout::Rollout;
use crate::settings::Settings;
use crate::tenancy::Tenancy;
use crate::visits::Sign;
use crate::write;
use crate::{agent, skill, team};
use child::Child;
use configured::Configured;
use doubts::{Doubts, Due};
pub(crate) use folded::Folded;
pub(crate) use kept::Kept;
use pod::Pods;
use references::References;
use secret::SecretState;
use slipway_cluster::Key;
use slipway_cluster::controller::Requests;
use told::Told;

pub use sources::watch_all;
pub(crate) use sources::{heard_back, namespaced, scopes};

/// The field manager of what is said of objects that cannot be read: what others have said stays theirs.
const MALFORMED: &str = "slipway/malformed";

/// A resource of ours, or what the API server sent in its place.
pub type Guarded<K> = DeserializeGuard<K>;

pub struct World {
    pub client: Client,
    pub settings: Settings,
    pub metrics: Metrics,
    pub events: crate::event::Events,
    /// The watches and controllers, without which this process is of no use.
    pub tasks: Tasks,
    pub tenancy: Option<Tenancy>,

    pub agents: Cache<Kept>,
    pub tools: Cache<Guarded<Tool>>,
    pub knowledge_bases: Cache<Guarded<KnowledgeBase>>,
    pub(crate) skills: Cache<Folded>,
    pub teams: Cache<Guarded<Team>>,
    pub secrets: Cache<SecretState>,
    pub pods: Pods,
    children: [Cache<Child>; ChildKind::ALL.len()],

    pub references: References,
    /// What agents run whose spec does not say it.
    pub(crate) pins: agent::Pins,
    /// Whose pods change because the platform did.
    pub(crate) rollout: Rollout,
    /// How agents are asked something, by who leads; nobody is, without it.
    pub sign: Option<Sign>,
    pub(crate) reports: Reports,
    told: Told,
    doubts: Doubts,
    /// Whether Kubernetes can count objects of our kinds. Once it can, it always can.
    pub(crate) counts: AtomicBool,
    configured: Configured,
    /// Namespaces whose Secrets are known.
    secrets_known: Mutex<HashSet<String>>,

    pub agent_requests: Requests,
    pub tool_requests: Requests,
    pub skill_requests: Requests,
    pub team_requests: Requests,

    /// What agents and teams are made from.
    sources: Readiness,
    /// What is made from them.
    made: Readiness,
}

/// The kinds of object that the operator makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChildKind {
    ConfigMap,
    Deployment,
    Service,
    ServiceAccount,
    Namespace,
    RoleBinding,
    Secret,
    NetworkPolicy,
    ResourceQuota,
    LimitRange,
}

impl ChildKind {
    pub const ALL: [Self; 10] = [
        Self::ConfigMap,
        Self::Deployment,
        Self::Service,
        Self::ServiceAccount,
        Self::Namespace,
        Self::RoleBinding,
        Self::Secret,
        Self::NetworkPolicy,
        Self::ResourceQuota,
        Self::LimitRange,
    ];

    pub fn resource(self) -> ApiResource {
        use k8s_openapi::api::{apps, core, networking, rbac};
        match self {
            Self::ConfigMap => ApiResource::erase::<core::v1::ConfigMap>(&()),
            Self::Deployment => ApiResource::erase::<apps::v1::Deployment>(&()),
            Self::Service => ApiResource::erase::<core::v1::Service>(&()),
            Self::ServiceAccount => ApiResource::erase::<core::v1::ServiceAccount>(&()),
            Self::Namespace => ApiResource::erase::<core::v1::Namespace>(&()),
            Self::RoleBinding => ApiResource::erase::<rbac::v1::RoleBinding>(&()),
            Self::Secret => ApiResource::erase::<core::v1::Secret>(&()),
            Self::NetworkPolicy => ApiResource::erase::<networking::v1::NetworkPolicy>(&()),
            Self::ResourceQuota => ApiResource::erase::<core::v1::ResourceQuota>(&()),
            Self::LimitRange => ApiResource::erase::<core::v1::LimitRange>(&()),
        }
    }

    /// Who may have made an object of this kind.
    pub fn makers(self) -> &'static [Maker] {
        match self {
            Self::ConfigMap => &[Maker::Agent, Maker::Skill, Maker::Team],
            Self::Deployment | Self::Service | Self::ServiceAccount => &[Maker::Agent],
            Self::Namespace | Self::RoleBinding | Self::Secret | Self::NetworkPolicy | Self::ResourceQuota | Self::LimitRange => {
                &[Maker::Team]
            }
        }
    }
}

/// The kinds of which objects are made, each by its controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Maker {
    Agent,
    Skill,
    Team,
}

impl Maker {
    fn kind(self) -> &'static str {
        match self {
            Self::Agent => "Agent",
            Self::Skill => "Skill",
            Self::Team => "Team",
        }
    }

    /// The label that names the maker, for objects that lost their owner reference.
    fn label(self) -> &'static str {
        match self {
            Self::Agent => labels::AGENT,
            Self::Skill => labels::SKILL,
            Self::Team => labels::TEAM,
        }
    }

    /// The field manager by which it writes.
    fn manager(self) -> &'static str {
        match self {
            Self::Agent => agent::MANAGER,
            Self::Skill => skill::MANAGER,
            Self::Team => team::MANAGER,
        }
    }

    fn requests(self, world: &World) -> &Requests {
        match self {
            Self::Agent => &world.agent_requests,
            Self::Skill => &world.skill_requests,
            Self::Team => &world.team_requests,
        }
    }
}

impl World {
    pub fn new(client: Client, settings: Settings, tenancy: Option<Tenancy>, metrics: Metrics, events: crate::event::Events) -> Self {
        Self {
            rollout: Rollout::new(settings.max_concurrent_rollouts),
            client,
            settings,
            metrics,
            events,
            tasks: Tasks::default(),
            tenancy,
            agents: Cache::default(),
            tools: Cache::default(),
            knowledge_bases: Cache::default(),
            skills: Cache::default(),
            teams: Cache::default(),
            secrets: Cache::default(),
            pods: Pods::default(),
            children: std::array::from_fn(|_| Cache::default()),
            references: References::default(),
            pins: agent::Pins::default(),
            sign: None,
            reports: Reports::default(),
            told: Told::default(),
            doubts: Doubts::default(),
            counts: AtomicBool::new(false),
            configured: Configured::default(),
            secrets_known: Mutex::default(),
            agent_requests: Requests::default(),
            tool_requests: Requests::default(),
            skill_requests: Requests::default(),
            team_requests: Requests::default(),
            sources: Readiness::default(),
            made: Readiness::default(),
        }
    }

    pub fn children(&self, kind: ChildKind) -> &Cache<Child> {
        &self.children[kind as usize]
    }

    /// Whether the Secrets of a namespace are known, so that a missing one is really missing.
    pub fn knows_secrets_of(&self, namespace: &str) -> bool {
        self.secrets_known.lock().unwrap_or_else(PoisonError::into_inner).contains(namespace)
    }

    #[cfg(test)]
    pub(crate) fn know_secrets_of(&self, namespace: &str) {
        self.secrets_known.lock().unwrap_or_else(PoisonError::into_inner).insert(namespace.to_owned());
    }

    /// The slug of the team that owns `namespace`, if one does.
    pub fn team_of(&self, namespace: &str) -> Option<String> {
        let labelled = self.children(ChildKind::Namespace).get(&Key::new("", namespace))?.labelled_team.clone()?;
        (namespace == format!("team-{labelled}") && self.teams.get(&Key::new("", &labelled)).is_some()).then_some(labelled)
    }

    /// Whether every watch has told its first list.
    pub fn is_ready(&self) -> bool {
        self.sources.is_ready() && self.made.is_ready()
    }

    pub async fn ready(&self) {
        self.sources.wait().await;
        self.made.wait().await;
    }

    /// Asks for everything to be looked at.
    pub fn enqueue_all(&self) {
        self.agents.keys().into_iter().for_each(|key| self.agent_requests.add(key));
        self.tools.keys().into_iter().for_each(|key| self.tool_requests.add(key));
        self.skills.keys().into_iter().for_each(|key| self.skill_requests.add(key));
        self.teams.keys().into_iter().for_each(|key| self.team_requests.add(key));
    }

    /// The platform has changed, or may have before this process began to lead.
    pub(crate) fn begin_rollout(&self) {
        let generation = |key: &Key| self.agents.get(key).and_then(|kept| kept.generation);
        self.rollout.begin(self.agents.keys().into_iter().map(|key| {
            let generation = generation(&key);
            (key, generation)
        }));
    }

    /// Agents whose pods are being replaced, by whoever led before.
    pub(crate) fn resume_rollouts(&self) {
        let deployments = self.children(ChildKind::Deployment);
        let replacing = |key: &Key| deployments.get(key).and_then(|child| child.deployment.clone()).is_some_and(|it| it.is_replacing());
        self.agents.keys().into_iter().filter(replacing).for_each(|key| self.rollout.resume(key));
    }

    /// Says of an object that it cannot be read, if that has not been said yet. An Event says it at once: the API server may
    /// refuse even a status for an object that breaks its own schema. What else its status holds is there when it can be
    /// read again.
    pub(crate) async fn malformed<K>(
        &self,
        key: &Key,
        invalid: &InvalidObject,
        phase: impl Serialize,
        conditions: &[(&'static str, bool)],
    ) -> Result<(), write::Error>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug,
    {
        let message = format!("this object does not fit the present schema: {}; apply it again", invalid.error);
        let generation = invalid.metadata.generation;
        if !self.told.is_news(&K::kind(&()), key, &(&invalid.metadata.uid, generation, &message)) {
            return Ok(());
        }
        let about = ObjectReference {
            api_version: Some(K::api_version(&()).into_owned()),
            kind: Some(K::kind(&()).into_owned()),
            name: Some(key.name.clone()),
            namespace: Some(key.namespace.clone()),
            uid: invalid.metadata.uid.clone(),
            ..ObjectReference::default()
        };
        let happening = Happening { warning: true, reason: "Malformed".to_owned(), action: "Read", note: message.clone() };
        self.events.publish(&about, happening).await;
        let words = |kind: &str| if kind == READY { &*message } else { "see the condition Ready" };
        let findings = conditions.iter().map(|(kind, holds)| Finding::new(kind, *holds, "Malformed", words(kind))).collect();
        let conditions = condition::conditions(findings, &[], generation, Timestamp::now());
        let status = json!({"phase": phase, "observedGeneration": generation, "conditions": conditions});
        let written = write::status::<K>(&self.client, key, &status, MALFORMED).await;
        written.map(drop).inspect_err(|error| self.told.unsaid(&K::kind(&()), key, error))
    }

    /// Tells of trouble once it has stood for a while; says when it is due, if it waits. `is_news` says whether it differs
    /// from what the object's status said before.
    pub(crate) async fn warn(
        &self,
        kind: &'static str,
        key: &Key,
        about: &ObjectReference,
        trouble: Option<Happening>,
        is_news: bool,
    ) -> Option<Duration> {
        match (self.doubts.weigh(kind, key, trouble.is_some(), is_news, Instant::now()), trouble) {
            (Due::Now, Some(happening)) => {
                self.events.publish(about, happening).await;
                None
            }
            (Due::In(wait), _) => Some(wait),
            _ => None,
        }
    }

    /// An object that is gone is in no trouble any more.
    pub(crate) fn untroubled(&self, kind: &'static str, key: &Key) {
        self.doubts.weigh(kind, key, false, false, Instant::now());
    }
}
