//! First step: read from the caches all that an Agent names.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use slipway_api::agent::RUNTIME_SECRET;
use slipway_api::guardrail_policy::DEFAULT;
use slipway_api::integration::ModelEndpoint;
use slipway_api::{Agent, EvaluationRun, GuardrailPolicy, Integration, KnowledgeBase, Skill, Team, Tool, Track, ids};
use slipway_cluster::references::Kind;
use slipway_cluster::{Guarded, Key};

use super::flagger;
use super::released_skills;
use super::released_tools::{self, Differs, InForce};
use super::tracks::Workload;
use crate::caches::guardrail_policy::{CachedPolicy, TeamPolicies};
use crate::caches::secret::SecretState;
use crate::caches::skill::CachedSkill;
use crate::context::Context;
use crate::fault::ConditionFault;
use crate::integrations;
use crate::skill_folder::SkillFolder;

/// What an Agent names, as far as it exists, and what surrounds it.
pub(super) struct Seen {
    pub team: Option<(String, Arc<Guarded<Team>>)>,
    /// With what their integrations give.
    pub tools: Vec<(String, Option<Arc<Guarded<Tool>>>)>,
    /// Why integrations give Tools nothing, by Tool.
    pub tool_faults: BTreeMap<String, ConditionFault>,
    /// Tools, and the Secrets of their integrations, which they use without a label.
    pub opened: BTreeSet<(String, String)>,
    /// The server of its models, if it names an integration for that.
    pub model: Option<Result<ModelEndpoint, ConditionFault>>,
    pub knowledge_bases: Vec<(String, Option<Arc<Guarded<KnowledgeBase>>>)>,
    pub skills: Vec<(String, Option<Arc<CachedSkill>>)>,
    /// Those whose folder is held for the release, by Skill: it counts in the place of what the Skill is.
    pub held_skills: BTreeMap<String, Arc<SkillFolder>>,
    /// Those that it names one by one.
    pub policies: Vec<(String, Option<Arc<CachedPolicy>>)>,
    /// What came of the policies of the team, where that is known.
    pub team_policies: Option<Arc<TeamPolicies>>,
    pub secrets: BTreeMap<String, Arc<SecretState>>,
    /// False while the namespace's Secrets have not been read yet.
    pub secrets_known: bool,
    pub mlflow_uri: Option<String>,
    /// What of the Tools, Skills and KnowledgeBases, and of the server of its models, is something else than the release has that says
    /// which they are.
    pub differs: Option<Differs>,
    /// See [`flagger`].
    pub primary_ready: bool,
    pub replicas_elsewhere: bool,
}

/// Notes in the reverse index what the workloads of an Agent name, and the runs that decide on them, so that a change of
/// it is heard of. It belongs before [`gather`]: what changes after it is noted is heard of, and what changed before is read.
pub(super) fn note<'a>(key: &Key, workloads: &[Workload], runs: impl Iterator<Item = &'a str>, context: &Context) {
    let named: Vec<Named> = workloads.iter().map(|workload| Named::of(&workload.agent)).collect();
    let mut targets: HashSet<_> = named.iter().flat_map(Named::targets).collect();
    targets.extend(runs.map(|run| (Kind::of::<EvaluationRun>(), Key::new(&key.namespace, run))));
    context.caches.references.set(key, targets.clone());
    for workload in workloads {
        let InForce { tools, knowledge_bases: _, model, differs: _ } = released_tools::in_force(workload, context);
        let key_of_model = model.and_then(Result::ok).and_then(|model| model.key);
        targets.extend(key_of_model.map(|(secret, _)| (Kind::of::<Secret>(), Key::new(&key.namespace, secret))));
        let tools = || tools.iter().filter_map(|(_, tool)| tool.as_ref());
        targets.extend(header_secrets(tools()).map(|name| (Kind::of::<Secret>(), Key::new(&key.namespace, name))));
        targets.extend(tool_integrations(tools()).map(|name| (Kind::of::<Integration>(), integrations::key(&key.namespace, name))));
    }
    context.caches.references.set(key, targets);
}

pub(super) fn gather(workload: &Workload, context: &Context) -> Seen {
    let named = Named::of(&workload.agent);
    let namespace = &named.agent.namespace;
    let InForce { tools, knowledge_bases, model, mut differs } = released_tools::in_force(workload, context);
    let held_skills = released_skills::in_force(workload, differs.as_mut(), context);
    let mut secrets = named.secrets.clone();
    secrets.extend(header_secrets(tools.iter().filter_map(|(_, tool)| tool.as_ref())).map(str::to_owned));
    let key = model.as_ref().and_then(|model| model.as_ref().ok()?.key.as_ref());
    secrets.extend(key.map(|(secret, _)| secret.clone()));
    let (tool_faults, opened) = integrated(&tools, namespace, context);
    let slug = context.caches.team_of(namespace);
    let is_stable = workload.track == Track::Stable;
    Seen {
        team_policies: slug.as_ref().and_then(|slug| context.caches.team_policies.get(&Key::new("", slug))),
        team: slug.and_then(|slug| context.caches.teams.get(&Key::new("", &slug)).map(|team| (slug, team))),
        knowledge_bases,
        skills: named.skills.iter().map(|key| (key.name.clone(), context.caches.skills.get(key))).collect(),
        held_skills,
        policies: named.policies.iter().map(|key| (key.name.clone(), context.caches.guardrail_policies.get(key))).collect(),
        secrets: secrets.into_iter().filter_map(|name| context.caches.secrets.get(&named.key(&name)).map(|state| (name, state))).collect(),
        secrets_known: context.caches.knows_secrets_of(namespace),
        mlflow_uri: context.mlflow_uri(),
        tools,
        tool_faults,
        opened,
        model,
        differs,
        primary_ready: is_stable && flagger::is_primary_ready(&workload.agent, context),
        replicas_elsewhere: is_stable && flagger::replicas_elsewhere(&workload.agent, context),
    }
}

/// What an Agent's own fields name.
struct Named {
    agent: Key,
    tools: Vec<Key>,
    knowledge_bases: Vec<Key>,
    skills: Vec<Key>,
    policies: Vec<Key>,
    integrations: Vec<Key>,
    secrets: BTreeSet<String>,
}

impl Named {
    fn of(agent: &Agent) -> Self {
        let spec = &agent.spec;
        let named = Self {
            agent: Key::of(agent),
            tools: Vec::new(),
            knowledge_bases: Vec::new(),
            skills: Vec::new(),
            policies: Vec::new(),
            integrations: Vec::new(),
            secrets: BTreeSet::new(),
        };
        let policies = spec.governance.iter().flat_map(|governance| &governance.policies).filter(|reference| *reference != DEFAULT);
        let team = [RUNTIME_SECRET.to_owned()];
        let secrets = spec.env_secrets.iter().chain(&spec.credential_secret).chain(&spec.database_credentials_secret).chain(&team);
        Self {
            tools: spec.tools.iter().map(|name| named.key(name)).collect(),
            knowledge_bases: spec.knowledge_bases.iter().map(|reference| named.key(&ids::knowledge_base_name(reference))).collect(),
            skills: spec.skills.iter().map(|reference| named.key(&ids::skill_name(reference))).collect(),
            policies: policies.map(|reference| named.key(&ids::guardrail_policy_name(reference))).collect(),
            integrations: spec.model_integration.iter().map(|reference| integrations::key(&named.agent.namespace, reference)).collect(),
            secrets: secrets.cloned().collect(),
            ..named
        }
    }

    /// Whatever an Agent names is in its own namespace.
    fn key(&self, name: &str) -> Key {
        Key::new(&self.agent.namespace, name)
    }

    fn targets(&self) -> HashSet<(Kind, Key)> {
        let tools = self.tools.iter().map(|key| (Kind::of::<Tool>(), key.clone()));
        let knowledge_bases = self.knowledge_bases.iter().map(|key| (Kind::of::<KnowledgeBase>(), key.clone()));
        let secrets = self.secrets.iter().map(|name| (Kind::of::<Secret>(), self.key(name)));
        let skills = self.skills.iter().map(|key| (Kind::of::<Skill>(), key.clone()));
        let policies = self.policies.iter().map(|key| (Kind::of::<GuardrailPolicy>(), key.clone()));
        let integrations = self.integrations.iter().map(|key| (Kind::of::<Integration>(), key.clone()));
        tools.chain(knowledge_bases).chain(skills).chain(policies).chain(integrations).chain(secrets).collect()
    }
}

/// Why integrations give Tools nothing, and whose Secrets they open for which.
fn integrated(
    tools: &[(String, Option<Arc<Guarded<Tool>>>)],
    namespace: &str,
    context: &Context,
) -> (BTreeMap<String, ConditionFault>, BTreeSet<(String, String)>) {
    let (mut faults, mut opened) = (BTreeMap::new(), BTreeSet::new());
    for (name, tool) in tools {
        let Some(Ok(tool)) = tool.as_ref().map(|tool| &tool.0) else { continue };
        if tool.spec.lacks_server() {
            faults.extend(integrations::tool(&context.caches, namespace, &tool.spec).err().map(|fault| (name.clone(), fault)));
        }
        opened.extend(integrations::opened(&context.caches, namespace, &tool.spec).map(|secret| (name.clone(), secret)));
    }
    (faults, opened)
}

/// The integrations that the tools name.
fn tool_integrations<'a>(tools: impl Iterator<Item = &'a Arc<Guarded<Tool>>>) -> impl Iterator<Item = &'a str> {
    tools.filter_map(|tool| tool.0.as_ref().ok()).filter_map(|tool| tool.spec.integration.as_deref())
}

/// The Secrets that hold values of the tools' headers.
fn header_secrets<'a>(tools: impl Iterator<Item = &'a Arc<Guarded<Tool>>>) -> impl Iterator<Item = &'a str> {
    tools.filter_map(|tool| tool.0.as_ref().ok()).flat_map(|tool| &tool.spec.headers_from).map(|header| header.secret.as_str())
}
