//! The agent controller: gather → resolve → build → apply → report, one file each, for every track of an Agent (`tracks`), and
//! the routes to them (`routing`).

mod apply;
mod build;
mod canary;
mod candidate;
mod content;
mod flagger;
mod foreign;
mod gather;
mod pin;
mod released_skills;
mod released_tools;
mod report;
mod resolve;
mod rollout;
mod routing;
mod run;
mod strays;
#[cfg(test)]
mod tests;
mod track_pods;
mod tracks;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kube::{Resource, ResourceExt};
use serde_json::Value;
use slipway_api::{Agent, GuardrailPolicy, Skill, Team, Tool, Track, labels};
use slipway_cluster::controller::{Next, Phase, RESYNC, Requests};
use slipway_cluster::references::Kind;
use slipway_cluster::{Guarded, Key, Object, write};
use slipway_release::gate;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::admission;
use crate::caches::{ChildKind, pods};
use crate::children;
use crate::context::Context;
use crate::registry::{Change, Maker, Registered};
use apply::Applied;
pub(crate) use build::EVALUATOR;
pub(crate) use content::canary_artifact;
pub(crate) use foreign::{Foreign, foreign};
use pin::SpecSource;
use resolve::{ConditionFault, Resolved};
use rollout::Rollout;
use strays::Strays;
pub(crate) use track_pods::given_up;
use tracks::{Tracks, Workload};

/// The field manager of everything that this controller writes.
const MANAGER: &str = gate::MAKER;

/// When an agent is reconciled again that waits for something to be read.
const WAITING_INTERVAL: Duration = Duration::from_secs(5);

const MAKER: Maker = Maker {
    kind: "Agent",
    label: labels::AGENT,
    manager: MANAGER,
    children: &[
        ChildKind::ConfigMap,
        ChildKind::Deployment,
        ChildKind::Service,
        ChildKind::ServiceAccount,
        ChildKind::HttpRoute,
        ChildKind::VirtualService,
        ChildKind::DestinationRule,
    ],
    is_namespaced: true,
};

pub(crate) struct Controller {
    context: Arc<Context>,
    requests: Requests,
    /// Whose pods change because the platform did.
    rollout: Rollout,
    /// Of each Team what its agents depend on, as last seen.
    teams: Mutex<HashMap<Key, TeamVersion>>,
    /// Of each policy that there is, what keeps agents from being held to it, as last seen.
    policies: Mutex<HashMap<Key, Option<String>>>,
    /// Those whose new pods wait for policies in the team's file.
    waiting: Mutex<HashSet<Key>>,
    strays: Strays,
}

/// All of a Team but its status, which counts its agents and so changes with every one of them: its UID, generation and
/// annotations, and whether it is being deleted.
type TeamVersion = (Option<String>, Option<i64>, BTreeMap<String, String>, bool);

impl Controller {
    pub(crate) fn new(context: Arc<Context>) -> Self {
        let rollout = Rollout::new(context.settings.max_concurrent_rollouts);
        Self {
            context,
            requests: Requests::default(),
            rollout,
            teams: Mutex::default(),
            policies: Mutex::default(),
            waiting: Mutex::default(),
            strays: Strays::default(),
        }
    }

    /// Whether more of the Team has changed than its status.
    fn has_changed(&self, team: &Key) -> bool {
        let mut teams = self.teams.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(object) = self.context.caches.teams.get(team) else {
            teams.remove(team);
            return true;
        };
        let Ok(found) = &object.0 else { return true };
        let is_leaving = found.meta().deletion_timestamp.is_some();
        let now = (found.uid(), found.meta().generation, found.annotations().clone(), is_leaving);
        teams.insert(team.clone(), now.clone()).is_none_or(|before| before != now)
    }

    /// Whether a policy came, went, or can be used or not otherwise than before. What else changes of it is no matter of agents'
    /// objects: pods read it from the team's file.
    fn has_turned(&self, policy: &Key) -> bool {
        let found = self.context.caches.guardrail_policies.get(policy).filter(|found| found.is_there());
        let mut policies = self.policies.lock().unwrap_or_else(PoisonError::into_inner);
        match found {
            Some(found) => {
                let now = found.invalid();
                policies.insert(policy.clone(), now.clone()).is_none_or(|before| before != now)
            }
            None => policies.remove(policy).is_some(),
        }
    }

    fn waits_for_policies(&self, agent: &Key, waits: bool) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waits {
            waiting.insert(agent.clone());
        } else if !waiting.is_empty() {
            waiting.remove(agent);
        }
    }

    fn request_waiting(&self, namespace: &str) {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        self.requests.add_all(waiting.iter().filter(|agent| agent.namespace == namespace).cloned());
    }

    fn request_namespace(&self, namespace: &str) {
        self.requests.add_all(self.context.caches.agents.in_namespace(namespace).into_iter().map(|(key, _)| key));
    }

    /// Agents with a gate that name a Skill of which a folder came or went.
    fn request_holding(&self, skill: &Key) {
        let caches = &self.context.caches;
        let named = caches.references.to(Kind::of::<Skill>(), skill).into_iter();
        self.requests.add_all(named.filter(|agent| caches.released_skills.get(agent).is_some()));
    }

    /// Agents to which something may lead that is of others' kinds.
    fn request_routed(&self) {
        let agents = &self.context.caches.agents;
        let is_routed = |key: &Key| agents.get(key).is_some_and(|agent| agent.canary || agent.exposed);
        self.requests.add_all(agents.keys().into_iter().filter(is_routed));
    }

    /// The platform has changed, or may have before this process began to lead.
    fn begin_rollout(&self) {
        let agents = &self.context.caches.agents;
        let generation = |key: &Key| agents.get(key).and_then(|agent| agent.generation);
        self.rollout.begin(agents.keys().into_iter().map(|key| {
            let generation = generation(&key);
            (key, generation)
        }));
    }

    /// Agents whose pods are being replaced, by a manager that led before.
    fn resume_rollouts(&self) {
        let caches = &self.context.caches;
        let deployments = caches.children(ChildKind::Deployment);
        let replacing = |key: &Key| deployments.get(key).and_then(|child| child.deployment.clone()).is_some_and(|it| it.is_replacing());
        caches.agents.keys().into_iter().filter(replacing).for_each(|key| self.rollout.resume(key));
    }
}

impl Registered for Controller {
    fn changed(&self, change: &Change) {
        if let Some(agent) = change.of::<Agent>() {
            return self.requests.add(agent.clone());
        }
        if let Some(team) = change.of::<Team>() {
            if self.has_changed(team) {
                self.request_namespace(&format!("team-{}", team.name));
            }
            return;
        }
        if let Some(policy) = change.of::<GuardrailPolicy>()
            && !self.has_turned(policy)
        {
            return;
        }
        match change {
            Change::Object(kind, key) => self.requests.add_all(self.context.caches.references.to(*kind, key)),
            Change::Child("Agent", key) | Change::Pods(key) | Change::Alerting(key) | Change::CanaryMeasured(key) => {
                self.requests.add(key.clone());
            }
            Change::Child("Skill", skill) => self.request_holding(skill),
            Change::Kinds => self.request_routed(),
            Change::Namespace(namespace) | Change::SecretsRead(namespace) => self.request_namespace(namespace),
            Change::Platform => {
                self.begin_rollout();
                self.request_all();
            }
            Change::TeamPolicies(team) => self.request_waiting(&format!("team-{}", team.name)),
            Change::Database { ready: true } => self.request_all(),
            Change::Child(..)
            | Change::Database { .. }
            | Change::Knowledge
            | Change::RowsInTheWay(_)
            | Change::Violations(_)
            | Change::Delivering(_) => {}
        }
    }

    fn maker(&self) -> Option<&'static Maker> {
        Some(&MAKER)
    }

    fn found(&self, owner: &Key, kind: ChildKind, name: &str) {
        let is_known = Track::ALL.into_iter().any(|track| build::is_name(&owner.name, track, kind, name));
        if !is_known && !routing::is_name(&owner.name, kind, name) {
            self.strays.insert(owner, kind, name);
        }
    }

    fn desired(&self, owner: &Key, kind: ChildKind, live: &Object) -> Option<Value> {
        desired(&self.context, owner, kind, live.metadata.name.as_deref()?)
    }

    fn start(self: Arc<Self>, phase: &watch::Sender<Phase>) -> Vec<JoinHandle<()>> {
        self.begin_rollout();
        self.resume_rollouts();
        let (context, requests) = (self.context.clone(), self.requests.clone());
        let concurrency = context.settings.max_concurrent_reconciles;
        vec![context.start::<Agent, _>(phase, ("agent", concurrency, &requests), move |key| {
            let controller = self.clone();
            async move { reconcile(&controller, &key).await }
        })]
    }

    fn request_all(&self) {
        self.requests.add_all(self.context.caches.agents.keys());
    }
}

/// Brings the cluster to what an Agent says, as far as that can be done now.
async fn reconcile(controller: &Controller, key: &Key) -> Next<write::Error> {
    let context = &*controller.context;
    let Some(cached) = context.caches.agents.get(key) else {
        context.caches.references.set(key, HashSet::new());
        context.caches.pins.remove(key);
        context.caches.held.remove(key);
        context.caches.released_tools.remove(key);
        context.caches.released_skills.remove(key);
        context.caches.flagged.remove(key);
        context.caches.refused_routes.remove(key);
        context.untroubled("Agent", key);
        controller.strays.forget(key);
        controller.waits_for_policies(key, false);
        apply::leave_turn(controller, key);
        return Ok(None);
    };
    let agent = match cached.agent() {
        Ok(agent) => agent,
        Err(invalid) => {
            apply::leave_turn(controller, key);
            report::malformed(context, key, &invalid).await?;
            return Ok(Some(RESYNC));
        }
    };
    if agent.meta().deletion_timestamp.is_some() {
        apply::leave_turn(controller, key);
        return Ok(None);
    }
    if let Err(error) = read(&agent, context).await {
        apply::keep(&agent, context).await?;
        return Err(error);
    }
    let mut progress = if let Some(tracks) = tracks::of(&agent, context) {
        gather::note(key, &tracks.workloads, deciding_runs(&agent), context);
        bring(&agent, &tracks, controller).await?
    } else {
        let resolved = Resolved::Unknown("the release that it runs");
        Progress {
            resolved,
            applied: apply::keep(&agent, context).await?,
            candidate: None,
            canary: canary::Brought::default(),
            error: None,
        }
    };
    if let Err(error) = flagger::bring(&agent, &progress.resolved, context).await {
        progress.error.get_or_insert(error);
    }
    let (canary, failed) = canary::step(&agent, &progress, context).await;
    progress.error = progress.error.take().or(failed);
    let canary_next = canary.next;
    let sooner = report::report(&agent, &progress, canary, controller).await?;
    // An error that is reported and retried keeps no release from being evaluated.
    candidate::begin(&agent, &progress.applied.outcomes, context).await?;
    if let Some(error) = progress.error.take() {
        return Err(error);
    }
    let Progress { resolved, applied, .. } = progress;
    let is_unknown = matches!(resolved, Resolved::Unknown(_)) && pin::source(&agent) != SpecSource::Nothing;
    let waits = is_unknown || applied.left.is_some() || flagger::is_moving(key, context);
    let next = if waits { WAITING_INTERVAL } else { RESYNC };
    Ok([Some(next), sooner, canary_next].into_iter().flatten().min())
}

/// The runs that decide on what an Agent is to run, by name: on its release that waits, and on its canary.
fn deciding_runs(agent: &Agent) -> impl Iterator<Item = &str> {
    pin::pending_run(agent).into_iter().chain(agent.canary_status().and_then(|canary| canary.evaluation.as_deref()))
}

/// Reads the releases that an Agent runs or evaluates, and the Tools, KnowledgeBases and Skills that these name, as far as that is not
/// known; and what Flagger has made of it.
async fn read(agent: &Agent, context: &Context) -> Result<(), write::Error> {
    pin::read(agent, context).await?;
    released_tools::read(agent, context).await?;
    released_skills::read(agent, context).await?;
    flagger::read(agent, context).await
}

/// What came of a reconcile.
struct Progress {
    /// Of the stable track.
    resolved: Resolved,
    /// Of the stable track, with the outcomes of all.
    applied: Applied,
    /// The fault of the candidate, or what it waits for.
    candidate: Option<String>,
    /// What came of the canary.
    canary: canary::Brought,
    /// What is reported and tried again.
    error: Option<write::Error>,
}

/// Makes all workloads of an Agent be as they should, and removes what none of them wants.
async fn bring(agent: &Agent, tracks: &Tracks<'_>, controller: &Controller) -> Result<Progress, write::Error> {
    let context = &*controller.context;
    let mut progress = Progress {
        resolved: Resolved::Unknown("what it is to run"),
        applied: Applied::default(),
        candidate: None,
        canary: canary::Brought::default(),
        error: None,
    };
    let (mut wanted, mut outcomes, mut is_complete) = (HashSet::new(), Vec::new(), true);
    controller.waits_for_policies(&Key::of(agent), false);
    if !tracks.kept.is_empty() {
        apply::keep(agent, context).await?;
        wanted.extend(tracks.kept.iter().flat_map(|track| build::names(&agent.name_any(), *track)));
    }
    for workload in &tracks.workloads {
        let Workload { track, agent: effective, .. } = workload;
        let resolved = resolved(agent, workload, context);
        let mut applied = match &resolved {
            Resolved::Plan(plan) => {
                let mut desired = build::build(plan).into_values()?;
                wanted.extend(desired.iter().map(|(kind, value)| (*kind, children::name(value).to_owned())));
                let without_policies = admission::waits_for_policies(context, effective, &desired);
                if without_policies.is_some() {
                    controller.waits_for_policies(&Key::of(agent), true);
                    // Nobody's turn is taken for it, as this may last.
                    desired.retain(|(kind, _)| !matches!(kind, ChildKind::ConfigMap | ChildKind::Deployment));
                } else if *track == Track::Stable {
                    // The platform replaces the pods of few agents at a time, so that they go on serving; other tracks need not.
                    desired = apply::in_turn(desired, agent, controller);
                }
                let waits = admission::waits(context, effective, *track, plan.storage).await;
                if waits.is_some() {
                    desired.retain(|(kind, _)| *kind != ChildKind::Deployment);
                }
                let waits = without_policies.or(waits);
                let mut applied = match apply::apply(desired, plan, context).await {
                    // Whatever keeps a canary from being made, it can be ended, and the agent says how it is.
                    Err(error) if *track == Track::Canary => Applied::failed(error),
                    applied => applied?,
                };
                applied.left = applied.left.or(waits);
                applied
            }
            Resolved::Fault(_) | Resolved::Unknown(_) => apply::keep(agent, context).await?,
        };
        let is_faulty = matches!(resolved, Resolved::Fault(_)) || applied.fault.is_some();
        if is_faulty && *track == Track::Stable {
            // It may take long to mend, and others need not wait for that.
            apply::leave_turn(controller, &Key::of(agent));
        }
        is_complete &= applied.is_complete;
        outcomes.append(&mut applied.outcomes);
        progress.error = progress.error.or(applied.error.take());
        match track {
            Track::Stable => (progress.resolved, progress.applied) = (resolved, applied),
            Track::Candidate => progress.candidate = candidate::trouble(&resolved, &applied),
            Track::Canary => progress.canary = canary::Brought::of(&resolved, &applied),
        }
    }
    routing::bring(agent, &mut wanted, &mut outcomes, context).await;
    progress.applied.outcomes = outcomes;
    if is_complete {
        apply::remove_orphans(agent, &wanted, controller).await?;
    }
    Ok(progress)
}

/// What an Agent's child of that kind and name should be, if that can be said now. It is asked whenever a child arrives on a
/// watch, by standing-by replicas too, and changes nothing.
fn desired(context: &Context, key: &Key, kind: ChildKind, name: &str) -> Option<Value> {
    let agent = context.caches.agents.get(key)?.agent().ok()?;
    if kind == ChildKind::ConfigMap
        && let Some(of_release) = released_tools::desired(context, &agent, name)
    {
        return Some(of_release);
    }
    if routing::is_name(&key.name, kind, name) {
        let of_name = |(of_kind, value): &(ChildKind, Value)| *of_kind == kind && children::name(value) == name;
        return routing::routes(&agent, context).into_iter().find(of_name).map(|(_, value)| value);
    }
    let of_name = |workload: &Workload| build::is_name(&key.name, workload.track, kind, name);
    let workload = tracks::of(&agent, context)?.workloads.into_iter().find(of_name)?;
    match resolved(&agent, &workload, context) {
        Resolved::Plan(plan) => build::child(&plan, kind, name).ok()?,
        _ => None,
    }
}

/// What a workload of an Agent is to be. Of a canary that could not be promoted there is none.
fn resolved(agent: &Agent, workload: &Workload, context: &Context) -> Resolved {
    let invalid = agent.canary().filter(|_| workload.track == Track::Canary).and_then(|canary| canary.fault(&agent.spec));
    if let Some(message) = invalid {
        return Resolved::Fault(ConditionFault { reason: "InvalidCanary", message: message.to_owned() });
    }
    resolve::resolve(&workload.agent, workload.track, &gather::gather(workload, context), &context.settings)
}

/// The Agent with the spec that is in force on a track, and the configuration that the track's pods have then, if that can be
/// said now.
pub(crate) fn on_track(context: &Context, agent: &Agent, track: Track) -> Option<(Agent, u64)> {
    let workload = tracks::of(agent, context)?.workloads.into_iter().find(|workload| workload.track == track)?;
    let Resolved::Plan(plan) = resolved(agent, &workload, context) else { return None };
    Some((workload.agent.into_owned(), pods::config(Some(&build::config_hash(&plan)))))
}

/// A Tool of an agent that stands for a server which speaks mcp.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Offering {
    /// The name that the model knows.
    pub name: String,
    pub tool: Key,
    pub server: String,
}

/// The servers that the pods of an agent's stable track use which run with the present configuration, and which that is.
pub(crate) fn offerings(context: &Context, key: &Key) -> Option<(u64, Vec<Offering>)> {
    let agent = context.caches.agents.get(key)?.agent().ok()?;
    let workloads = tracks::of(&agent, context)?.workloads;
    let workload = workloads.into_iter().find(|workload| workload.track == Track::Stable)?;
    let seen = gather::gather(&workload, context);
    let Resolved::Plan(plan) = resolve::resolve(&workload.agent, workload.track, &seen, &context.settings) else { return None };
    let offering = |(name, tool): &(String, Option<Arc<Guarded<Tool>>>)| {
        let spec = &tool.as_ref()?.0.as_ref().ok()?.spec;
        let server = spec.server().filter(|_| spec.enabled)?;
        Some(Offering { name: spec.name.clone(), tool: Key::new(&key.namespace, name), server })
    };
    Some((pods::config(Some(&build::config_hash(&plan))), seen.tools.iter().filter_map(offering).collect()))
}
