//! The caches. Controllers read from here and nowhere else, so that an operator at rest is silent.
//!
//! Watches write what the API server has, and `children` what it answers to writes. Beside that are findings: results of one
//! controller that others read. Each finding has one writer, which the field names, and is found again after a restart.

pub(crate) mod canary;
pub(crate) mod child;
pub(crate) mod dataset;
pub(crate) mod evaluation_run;
pub(crate) mod flagger;
pub(crate) mod guardrail_policy;
pub(crate) mod integration;
pub(crate) mod observed;
pub(crate) mod platform;
pub(crate) mod pods;
pub(crate) mod routes;
pub(crate) mod secret;
pub(crate) mod skill;

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use kube::api::{ApiResource, GroupVersionKind, TypeMeta};
use slipway_api::condition::Finding;
use slipway_api::guardrail_policy::{PolicyViolations, Violator};
use slipway_api::{EvaluationRun, Ingestion, Integration, KnowledgeBase, Team, Tool};
use slipway_cluster::cached::CachedAgent;
use slipway_cluster::references::References;
use slipway_cluster::watch::Readiness;
use slipway_cluster::{Cache, Guarded, Key};
use slipway_release::Artifact;

use canary::Reading;
use child::Child;
use dataset::CachedDataset;
use flagger::Primary;
use guardrail_policy::{CachedPolicy, Policies, TeamPolicies};
use integration::Delivered;
use observed::Observed;
use platform::PlatformConfig;
use pods::Pods;
use routes::RefusedRoutes;
use secret::SecretState;
use skill::CachedSkill;

use crate::skill_folder::SkillFolder;

#[derive(Default)]
pub(crate) struct Caches {
    pub agents: Cache<CachedAgent>,
    pub tools: Cache<Guarded<Tool>>,
    pub knowledge_bases: Cache<Guarded<KnowledgeBase>>,
    pub ingestions: Cache<Guarded<Ingestion>>,
    pub integrations: Cache<Guarded<Integration>>,
    pub skills: Cache<CachedSkill>,
    pub datasets: Cache<CachedDataset>,
    pub evaluation_runs: Cache<Guarded<EvaluationRun>>,
    pub guardrail_policies: Cache<CachedPolicy>,
    pub teams: Cache<Guarded<Team>>,
    pub secrets: Cache<SecretState>,
    pub pods: Pods,
    pub platform: PlatformConfig,
    /// What agents run whose spec does not say it. The agent controller writes it, and the next four.
    pub pins: Cache<Release>,
    /// The releases that wait for their evaluation, by agent.
    pub held: Cache<HeldRelease>,
    /// Of agents with a gate, the Tools of these releases.
    pub released_tools: Cache<ReleasedTools>,
    /// And their Skills.
    pub released_skills: Cache<ReleasedSkills>,
    /// What agents name.
    pub references: References,
    /// Of agents whose rollouts Flagger drives, its copy of their Deployment.
    pub flagged: Cache<Primary>,
    /// What came of the policies of a team, by the key of the Team. The team controller writes it.
    pub team_policies: Cache<TeamPolicies>,
    /// How often policies were broken in the last 24 hours, by policy; and the open alerts of agents, as a condition of theirs. The look
    /// at agents (`governance`) writes both.
    pub violations: Observed<Violations>,
    pub alerting: Observed<Finding>,
    /// How alerts get to the integrations that ask for them. Their delivery (`alert_delivery`) writes it.
    pub delivered: Observed<Delivered>,
    /// What was measured of agents' canaries. The look at agents writes it.
    pub canary_measured: Observed<Reading>,
    /// What the API server would not take of what leads to an agent. The agent controller writes it.
    pub refused_routes: Cache<RefusedRoutes>,
    children: [Cache<Child>; ChildKind::ALL.len()],
    /// Of optional kinds, whether the cluster has them.
    kinds: [AtomicBool; ChildKind::ALL.len()],
    /// Namespaces whose Secrets are known.
    secrets_known: Mutex<HashSet<String>>,
    /// The watches of what children are made from.
    pub sources: Readiness,
    /// The watches of children and pods.
    pub made: Readiness,
}

/// A release that was read for what it holds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Release {
    /// Of its AgentRelease.
    pub name: String,
    pub uid: String,
    pub artifact: Artifact,
}

/// A release that waits for its evaluation.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct HeldRelease {
    /// The EvaluationRun that decides on it, by name.
    pub run: String,
    pub release: Arc<Release>,
}

/// How often a policy was broken, and by whom.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Violations {
    pub total: PolicyViolations,
    /// The most frequent first.
    pub violators: Vec<Violator>,
}

/// The Tools and KnowledgeBases that an agent's releases name, and the servers of its models, as they were then.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ReleasedTools {
    /// Their specs as JSON, by the digest that releases have.
    pub specs: BTreeMap<String, String>,
    /// The releases whose ConfigMaps were looked for, by version, and why one cannot be made.
    pub releases: BTreeMap<u64, Option<String>>,
}

/// The Skills that an agent's releases name, as far as they are held.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ReleasedSkills {
    /// By the digest that releases have.
    pub folders: BTreeMap<String, Arc<SkillFolder>>,
    /// The releases whose Skills were looked for, by version, and why one cannot be held.
    pub releases: BTreeMap<u64, Option<String>>,
    /// The UIDs of the ConfigMaps that these releases own, by version and digest: another one has yet to be told of them.
    pub owned: BTreeMap<(u64, String), String>,
}

impl Caches {
    pub(crate) fn children(&self, kind: ChildKind) -> &Cache<Child> {
        &self.children[kind as usize]
    }

    /// Whether the cluster has this kind.
    pub(crate) fn has_kind(&self, kind: ChildKind) -> bool {
        !kind.is_optional() || self.kinds[kind as usize].load(Ordering::SeqCst)
    }

    /// Takes note of whether the cluster has an optional kind. Of one that is gone, so are all objects.
    pub(crate) fn know_kind(&self, kind: ChildKind, is_there: bool) {
        self.kinds[kind as usize].store(is_there, Ordering::SeqCst);
        if !is_there {
            self.children(kind).retain(None, &HashSet::new());
        }
    }

    /// Whether the Secrets of a namespace are known, so that a missing one is really missing.
    pub(crate) fn knows_secrets_of(&self, namespace: &str) -> bool {
        self.secrets_known.lock().unwrap_or_else(PoisonError::into_inner).contains(namespace)
    }

    /// The Secrets of a namespace have been read; whether for the first time.
    pub(crate) fn know_secrets_of(&self, namespace: &str) -> bool {
        self.secrets_known.lock().unwrap_or_else(PoisonError::into_inner).insert(namespace.to_owned())
    }

    /// Forgets all Secrets of a namespace.
    pub(crate) fn forget_secrets_of(&self, namespace: &str) {
        self.secrets_known.lock().unwrap_or_else(PoisonError::into_inner).remove(namespace);
        self.secrets.retain(Some(namespace), &HashSet::new());
        self.children(ChildKind::Secret).retain(Some(namespace), &HashSet::new());
    }

    /// The slug of the team that owns `namespace`, if one does.
    pub(crate) fn team_of(&self, namespace: &str) -> Option<String> {
        let labelled = self.children(ChildKind::Namespace).get(&Key::new("", namespace))?.labelled_team.clone()?;
        (namespace == format!("team-{labelled}") && self.teams.get(&Key::new("", &labelled)).is_some()).then_some(labelled)
    }

    /// The policies of a namespace, without those that are on their way out.
    pub(crate) fn policies_of(&self, namespace: &str) -> Policies {
        let all = self.guardrail_policies.in_namespace(namespace).into_iter();
        all.filter(|(_, policy)| policy.is_there()).map(|(key, policy)| (key.name, policy)).collect()
    }

    /// Whether every watch has told its first list.
    pub(crate) fn is_ready(&self) -> bool {
        self.sources.is_ready() && self.made.is_ready()
    }

    pub(crate) async fn ready(&self) {
        self.sources.wait().await;
        self.made.wait().await;
    }
}

/// The kinds of object that the operator makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum ChildKind {
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
    Job,
    HttpRoute,
    VirtualService,
    DestinationRule,
}

impl ChildKind {
    pub(crate) const ALL: [Self; 14] = [
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
        Self::Job,
        Self::HttpRoute,
        Self::VirtualService,
        Self::DestinationRule,
    ];

    /// Whether the kind is another project's, which a cluster may not have.
    pub(crate) const fn is_optional(self) -> bool {
        matches!(self, Self::HttpRoute | Self::VirtualService | Self::DestinationRule)
    }

    pub(crate) fn resource(self) -> ApiResource {
        use k8s_openapi::api::{apps, batch, core, networking, rbac};
        let others =
            |group: &str, kind: &str, plural: &str| ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, "v1", kind), plural);
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
            Self::Job => ApiResource::erase::<batch::v1::Job>(&()),
            Self::HttpRoute => others("gateway.networking.k8s.io", "HTTPRoute", "httproutes"),
            Self::VirtualService => others("networking.istio.io", "VirtualService", "virtualservices"),
            Self::DestinationRule => others("networking.istio.io", "DestinationRule", "destinationrules"),
        }
    }

    pub(crate) fn types(self) -> TypeMeta {
        let resource = self.resource();
        TypeMeta { api_version: resource.api_version, kind: resource.kind }
    }
}
