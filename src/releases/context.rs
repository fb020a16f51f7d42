//! The cluster as the release controller knows it: Agents, what they name (as digests), the images of their pods, and
//! their AgentReleases (as fingerprints). Far less than the other controllers have, and nothing that they need.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::Api;
use kube::core::NamespaceResourceScope;
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use slipway_api::agent::CONTAINER;
use slipway_api::{
    Agent, AgentRelease, AgentReleaseStatus, AgentSpec, EvaluationRun, Integration, KnowledgeBase, Skill, Tool, Track, labels,
};
use slipway_cluster::Key;
use slipway_cluster::cached::CachedAgent;
use slipway_cluster::controller::Requests;
use slipway_cluster::event::Events;
use slipway_cluster::references::{Kind as ObjectKind, References as ReferenceIndex};
use slipway_cluster::watch::{Readiness, WatchEvent, follow, namespaced, scopes};
use slipway_cluster::{Cache, Guarded, Metrics, Tasks};
use slipway_state::history::History;
use tokio::time::Instant;

use super::author;
use super::debounce::Debounce;
use super::integrated::Integrated;
use super::name::{Name, ReferenceKind};
use super::references::{self, ReferenceState, References};
use super::run::{ReleaseRun, Runs};
use super::shown::Shown;

/// What the controller is told at its start.
#[derive(Debug, Clone, Default)]
pub struct ReleaseSettings {
    /// Only these namespaces are looked at; empty means all.
    pub watch_namespaces: Vec<String>,
    pub max_concurrent_reconciles: usize,
    /// Whether a release may pass its gate by a comparison of words, without a model that judges.
    pub allow_heuristic_gate: bool,
}

/// Who hears of new commits, by namespace.
pub type Moved = Box<dyn Fn(&str) + Send + Sync>;

/// All that the release controller knows.
pub struct Context {
    pub(super) client: Client,
    pub(super) settings: ReleaseSettings,
    pub(super) metrics: Metrics,
    pub(super) events: Events,
    pub(super) tasks: Tasks,
    pub(super) history: Arc<History>,
    /// Hears which namespaces have new commits.
    pub moved: Option<Moved>,
    pub(super) agents: Cache<CachedAgent>,
    things: Cache<Thing>,
    integrated: Integrated,
    releases: RwLock<HashMap<Key, HashMap<String, Shown>>>,
    /// The EvaluationRuns of releases and canaries, by agent.
    runs: RwLock<HashMap<Key, Runs>>,
    images: RwLock<HashMap<Key, BTreeMap<String, Running>>>,
    reference_index: ReferenceIndex,
    debounce: Mutex<HashMap<Key, Debounce>>,
    pub(super) requests: Requests,
    sources: Readiness,
}

/// Something that agents name. Kind and name make up its key.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Thing {
    found: ReferenceState,
    author: String,
}

/// The image of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Running {
    reference: String,
    digest: String,
}

impl Context {
    pub fn new(client: Client, settings: ReleaseSettings, history: Arc<History>, metrics: Metrics, events: Events, tasks: Tasks) -> Self {
        Self {
            client,
            settings,
            metrics,
            events,
            tasks,
            history,
            moved: None,
            agents: Cache::default(),
            things: Cache::default(),
            integrated: Integrated::default(),
            releases: RwLock::default(),
            runs: RwLock::default(),
            images: RwLock::default(),
            reference_index: ReferenceIndex::default(),
            debounce: Mutex::default(),
            requests: Requests::default(),
            sources: Readiness::default(),
        }
    }

    /// Git has moved.
    pub(super) fn moved(&self, namespace: &str) {
        if let Some(moved) = &self.moved {
            moved(namespace);
        }
    }

    /// Whether every watch has told its first list.
    pub fn is_ready(&self) -> bool {
        self.sources.is_ready()
    }

    /// An Agent as the watches have told of it.
    pub fn agent(&self, key: &Key) -> Option<Arc<CachedAgent>> {
        self.agents.get(key)
    }

    pub(super) async fn ready(&self) {
        self.sources.wait().await;
    }

    pub(super) fn watches(&self, namespace: &str) -> bool {
        self.settings.watch_namespaces.is_empty() || self.settings.watch_namespaces.iter().any(|watched| watched == namespace)
    }

    /// What an agent's names stand for. They are written down, so that a change of them comes back.
    pub(super) fn references(&self, agent: &Key, present: &AgentSpec, other: Option<&AgentSpec>) -> References {
        let names: BTreeSet<Name> = references::names(present).into_iter().chain(other.into_iter().flat_map(references::names)).collect();
        let target = |name: &Name| (object_kind(name.kind), Key::new(&agent.namespace, &name.name));
        self.reference_index.set(agent, names.iter().map(target).collect());
        let found = names
            .into_iter()
            .map(|name| (name.clone(), self.thing(&agent.namespace, &name).map_or(ReferenceState::Missing, |thing| thing.found.clone())));
        References { found: found.collect(), image: self.image(agent, present) }
    }

    /// Who wrote something last that an agent names.
    pub(super) fn author(&self, namespace: &str, name: &Name) -> Option<String> {
        self.thing(namespace, name).map(|thing| thing.author.clone())
    }

    pub(super) fn forget(&self, agent: &Key) {
        self.reference_index.set(agent, HashSet::new());
        self.debounce().remove(agent);
    }

    fn thing(&self, namespace: &str, name: &Name) -> Option<Arc<Thing>> {
        self.things.get(&thing_key(name.kind, &Key::new(namespace, &name.name)))
    }

    /// The digest that all pods of the agent report that run this very image. Those on their way in or out do not count.
    fn image(&self, agent: &Key, spec: &AgentSpec) -> Option<String> {
        let images = self.images.read().unwrap_or_else(PoisonError::into_inner);
        let wanted = |running: &&Running| spec.image.as_ref().is_none_or(|image| *image == running.reference);
        let mut digests = images.get(agent)?.values().filter(wanted).map(|running| running.digest.clone());
        let first = digests.next()?;
        digests.all(|digest| digest == first).then_some(first)
    }

    /// The AgentReleases of an agent.
    pub(super) fn shown(&self, agent: &Key) -> Vec<Shown> {
        let releases = self.releases.read().unwrap_or_else(PoisonError::into_inner);
        releases.get(agent).into_iter().flat_map(HashMap::values).cloned().collect()
    }

    /// The EvaluationRuns of an agent's releases and its canary.
    pub(super) fn runs(&self, agent: &Key) -> Runs {
        self.runs.read().unwrap_or_else(PoisonError::into_inner).get(agent).cloned().unwrap_or_default()
    }

    /// Takes note of an AgentRelease, told by a watch or by the answer to a write, which may come after later news.
    pub(super) fn note(&self, release: &AgentRelease) -> Shown {
        let shown = Shown::of(release);
        let agent = Key::new(release.namespace().unwrap_or_default(), &shown.agent);
        let mut releases = self.releases.write().unwrap_or_else(PoisonError::into_inner);
        let of = releases.entry(agent).or_default();
        let is_old = |known: &Shown| known.uid == shown.uid && known.resource_version > shown.resource_version;
        if !of.get(&shown.name).is_some_and(is_old) {
            of.insert(shown.name.clone(), shown.clone());
        }
        shown
    }

    /// Takes what an AgentRelease kept of a status for all of it. Until it changes the status is not written again, so that what
    /// else is to be done for the agent does not wait for it.
    pub(super) fn accept(&self, agent: &Key, kept: &Shown, status: &AgentReleaseStatus) {
        let mut releases = self.releases.write().unwrap_or_else(PoisonError::into_inner);
        let known = releases.get_mut(agent).and_then(|of| of.get_mut(&kept.name));
        if let Some(known) = known.filter(|known| known.uid == kept.uid && known.resource_version == kept.resource_version) {
            known.accept(status);
        }
    }

    /// Forgets an AgentRelease.
    pub(super) fn gone(&self, agent: &Key, name: &str) {
        let mut releases = self.releases.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(of) = releases.get_mut(agent) {
            of.remove(name);
            if of.is_empty() {
                releases.remove(agent);
            }
        }
    }

    pub(super) fn debounce(&self) -> MutexGuard<'_, HashMap<Key, Debounce>> {
        self.debounce.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long the agent's present content has stood still, in the eyes of this process.
    pub(super) fn still(&self, agent: &Key, now: Instant) -> Debounce {
        *self.debounce().entry(agent.clone()).or_insert_with(|| Debounce::new(now))
    }

    /// Asks for all agents to be looked at.
    pub(super) fn enqueue_all(&self) {
        self.agents.keys().into_iter().for_each(|key| self.requests.add(key));
        let releases = self.releases.read().unwrap_or_else(PoisonError::into_inner);
        releases.keys().for_each(|key| self.requests.add(key.clone()));
    }
}

fn object_kind(kind: ReferenceKind) -> ObjectKind {
    match kind {
        ReferenceKind::Tool => ObjectKind::of::<Tool>(),
        ReferenceKind::Skill => ObjectKind::of::<Skill>(),
        ReferenceKind::KnowledgeBase => ObjectKind::of::<KnowledgeBase>(),
        ReferenceKind::Integration => ObjectKind::of::<Integration>(),
    }
}

/// Names have no slash in them.
fn thing_key(kind: ReferenceKind, key: &Key) -> Key {
    Key::new(&key.namespace, format!("{}/{}", kind.folder(), key.name))
}

/// Starts every watch. They run until the process ends.
pub fn watch_all(context: &Arc<Context>) {
    for scope in scopes(&context.settings.watch_namespaces) {
        agents(context, scope.clone());
        things(context, scope.clone(), ReferenceKind::Tool, |context, key, tool: &Tool| context.integrated.tool(key, &tool.spec));
        things(context, scope.clone(), ReferenceKind::KnowledgeBase, |_, _, base: &KnowledgeBase| {
            ReferenceState::Digest(references::digest(&base.spec.without_sources()))
        });
        things(context, scope.clone(), ReferenceKind::Skill, |_, _, skill: &Skill| {
            let status = skill.status.as_ref().filter(|status| status.observed_generation == skill.meta().generation);
            status.and_then(|status| status.digest.clone()).map_or(ReferenceState::Missing, ReferenceState::Digest)
        });
        things(context, scope.clone(), ReferenceKind::Integration, |context, key, integration: &Integration| {
            context.integrated.note(key, Some(integration));
            integration.endpoint().map_or(ReferenceState::Missing, |endpoint| ReferenceState::Digest(references::digest(&endpoint)))
        });
        releases(context, scope.clone());
        runs(context, scope.clone());
        pods(context, scope);
    }
}

fn agents(context: &Arc<Context>, scope: Option<String>) {
    context.sources.expect();
    let (context, tasks) = (context.clone(), context.tasks.clone());
    tasks.spawn("watch of Agents", async move {
        let api: Api<Guarded<Agent>> = namespaced(&context.client, scope.as_deref());
        let hear = |heard: WatchEvent<Guarded<Agent>>| match heard {
            WatchEvent::Seen(key, agent) => {
                context.agents.insert(key.clone(), (*agent).into());
                context.requests.add(key);
            }
            WatchEvent::Gone(key, _) => {
                context.agents.remove(&key);
                context.requests.add(key);
            }
            WatchEvent::Listing => {}
            WatchEvent::Listed(keys) => {
                context.agents.retain(scope.as_deref(), &keys).into_iter().for_each(|key| context.requests.add(key));
            }
        };
        follow(api, None, Some(&context.sources), hear).await;
    });
}

/// Looks again at the Tools that name an integration, and at one that may have been looked at before its integration was known.
fn look_again(context: &Context, kind: ReferenceKind, key: &Key) {
    let tools = match kind {
        ReferenceKind::Tool => vec![key.clone()],
        ReferenceKind::Integration => context.integrated.users(key),
        ReferenceKind::Skill | ReferenceKind::KnowledgeBase => Vec::new(),
    };
    for tool in tools {
        let at = thing_key(ReferenceKind::Tool, &tool);
        let has_turned = context.integrated.again(&tool, |found| {
            let before = context.things.get(&at).filter(|before| before.found != found);
            before.map(|before| context.things.insert(at.clone(), Thing { found, author: before.author.clone() })).is_some()
        });
        if has_turned {
            let agents = context.reference_index.to(object_kind(ReferenceKind::Tool), &tool);
            context.requests.add_all(agents);
        }
    }
}

/// The state of references to an object of a kind.
type Look<K> = fn(&Context, &Key, &K) -> ReferenceState;

/// Watches a kind that agents name. Of each object only the state of references to it is kept.
fn things<K>(context: &Arc<Context>, scope: Option<String>, kind: ReferenceKind, look: Look<K>)
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + DeserializeOwned + Clone + std::fmt::Debug + Send + Sync + 'static,
{
    context.sources.expect();
    let (context, tasks) = (context.clone(), context.tasks.clone());
    tasks.spawn(format!("watch of {}", K::plural(&())), async move {
        let api: Api<Guarded<K>> = namespaced(&context.client, scope.as_deref());
        let changed =
            |key: &Key| context.reference_index.to(object_kind(kind), key).into_iter().for_each(|agent| context.requests.add(agent));
        let mut known: HashSet<Key> = HashSet::new();
        let hear = |heard: WatchEvent<Guarded<K>>| match heard {
            WatchEvent::Seen(key, object) => {
                let found = if let Ok(object) = &object.0 {
                    look(&context, &key, object)
                } else {
                    forget(&context, kind, &key);
                    ReferenceState::Missing
                };
                let thing = Thing { found, author: author::of_spec(object.meta()) };
                known.insert(key.clone());
                let before = context.things.insert(thing_key(kind, &key), thing.clone());
                if before.is_none_or(|before| before.found != thing.found) {
                    changed(&key);
                }
                look_again(&context, kind, &key);
            }
            WatchEvent::Gone(key, _) => {
                known.remove(&key);
                gone(&context, kind, &key);
                changed(&key);
            }
            WatchEvent::Listing => {}
            WatchEvent::Listed(keys) => {
                let missing: Vec<Key> = known.iter().filter(|key| !keys.contains(*key)).cloned().collect();
                for key in missing {
                    known.remove(&key);
                    gone(&context, kind, &key);
                    changed(&key);
                }
            }
        };
        follow(api, None, Some(&context.sources), hear).await;
    });
}

/// Forgets what is there no more.
fn gone(context: &Context, kind: ReferenceKind, key: &Key) {
    context.things.remove(&thing_key(kind, key));
    forget(context, kind, key);
    look_again(context, kind, key);
}

/// Forgets what is known of a Tool or an Integration besides the state of references to it.
fn forget(context: &Context, kind: ReferenceKind, key: &Key) {
    match kind {
        ReferenceKind::Tool => context.integrated.forget(key),
        ReferenceKind::Integration => context.integrated.note(key, None),
        ReferenceKind::Skill | ReferenceKind::KnowledgeBase => {}
    }
}

fn releases(context: &Arc<Context>, scope: Option<String>) {
    context.sources.expect();
    let (context, tasks) = (context.clone(), context.tasks.clone());
    tasks.spawn("watch of AgentReleases", async move {
        // Those that cannot be read say nothing; the API server keeps them from being made.
        let api: Api<Guarded<AgentRelease>> = namespaced(&context.client, scope.as_deref());
        let hear = |heard: WatchEvent<Guarded<AgentRelease>>| match heard {
            WatchEvent::Seen(key, release) => {
                let Ok(release) = &release.0 else { return };
                context.note(release);
                context.requests.add(Key::new(key.namespace, &release.spec.agent));
            }
            WatchEvent::Gone(key, release) => {
                let Ok(release) = &release.0 else { return };
                let agent = Key::new(&key.namespace, &release.spec.agent);
                context.gone(&agent, &key.name);
                context.requests.add(agent);
            }
            WatchEvent::Listing => {}
            WatchEvent::Listed(keys) => {
                let mut releases = context.releases.write().unwrap_or_else(PoisonError::into_inner);
                for (agent, of) in releases.iter_mut().filter(|(agent, _)| scope.as_ref().is_none_or(|scope| agent.namespace == *scope)) {
                    let before = of.len();
                    of.retain(|name, _| keys.contains(&Key::new(&agent.namespace, name)));
                    if of.len() != before {
                        context.requests.add(agent.clone());
                    }
                }
                releases.retain(|_, of| !of.is_empty());
            }
        };
        follow(api, None, Some(&context.sources), hear).await;
    });
}

fn runs(context: &Arc<Context>, scope: Option<String>) {
    context.sources.expect();
    let (context, tasks) = (context.clone(), context.tasks.clone());
    tasks.spawn("watch of EvaluationRuns", async move {
        let api: Api<Guarded<EvaluationRun>> = namespaced(&context.client, scope.as_deref());
        let hear = |heard: WatchEvent<Guarded<EvaluationRun>>| {
            let mut runs = context.runs.write().unwrap_or_else(PoisonError::into_inner);
            match heard {
                WatchEvent::Seen(key, found) => {
                    let Ok(found) = &found.0 else { return };
                    let Some(run) = ReleaseRun::of(found) else { return };
                    let agent = Key::new(key.namespace, &found.spec.agent);
                    let of = runs.entry(agent.clone()).or_default();
                    if of.insert(key.name, run.clone()).is_none_or(|before| before != run) {
                        context.requests.add(agent);
                    }
                }
                WatchEvent::Gone(key, found) => {
                    let Ok(found) = &found.0 else { return };
                    let agent = Key::new(key.namespace, &found.spec.agent);
                    if runs.get_mut(&agent).is_some_and(|of| of.remove(&key.name).is_some()) {
                        context.requests.add(agent);
                    }
                }
                WatchEvent::Listing => {}
                WatchEvent::Listed(keys) => {
                    for (agent, of) in runs.iter_mut().filter(|(agent, _)| scope.as_ref().is_none_or(|scope| agent.namespace == *scope)) {
                        let before = of.len();
                        of.retain(|name, _| keys.contains(&Key::new(&agent.namespace, name)));
                        if of.len() != before {
                            context.requests.add(agent.clone());
                        }
                    }
                }
            }
            runs.retain(|_, of| !of.is_empty());
        };
        follow(api, None, Some(&context.sources), hear).await;
    });
}

fn pods(context: &Arc<Context>, scope: Option<String>) {
    context.sources.expect();
    let (context, tasks) = (context.clone(), context.tasks.clone());
    tasks.spawn("watch of Pods", async move {
        let api: Api<Pod> = namespaced(&context.client, scope.as_deref());
        let hear = |heard: WatchEvent<Pod>| {
            let mut images = context.images.write().unwrap_or_else(PoisonError::into_inner);
            match heard {
                WatchEvent::Seen(key, pod) => {
                    let Some(agent) = agent_of(&pod) else { return };
                    let of = images.entry(agent.clone()).or_default();
                    let before = match running(&pod) {
                        Some(now) => of.insert(key.name, now.clone()).is_none_or(|before| before != now),
                        None => of.remove(&key.name).is_some(),
                    };
                    if before {
                        context.requests.add(agent);
                    }
                }
                WatchEvent::Gone(key, pod) => {
                    let Some(agent) = agent_of(&pod) else { return };
                    if let Some(of) = images.get_mut(&agent) {
                        of.remove(&key.name);
                    }
                    context.requests.add(agent);
                }
                WatchEvent::Listing => {}
                WatchEvent::Listed(keys) => {
                    for (agent, of) in images.iter_mut().filter(|(agent, _)| scope.as_ref().is_none_or(|scope| agent.namespace == *scope)) {
                        of.retain(|name, _| keys.contains(&Key::new(&agent.namespace, name)));
                    }
                }
            }
            images.retain(|_, of| !of.is_empty());
        };
        follow(api, Some(labels::AGENT), Some(&context.sources), hear).await;
    });
}

/// The agent of a pod. What a canary's pods run says nothing of the release beside which they run.
fn agent_of(pod: &Pod) -> Option<Key> {
    let is_canarys = pod.labels().get(labels::TRACK).is_some_and(|track| track == Track::Canary.as_str());
    Some(Key::new(pod.namespace()?, pod.labels().get(labels::AGENT).filter(|_| !is_canarys)?))
}

/// The image of a pod that stays and has told it.
fn running(pod: &Pod) -> Option<Running> {
    if pod.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let container = pod.spec.as_ref()?.containers.iter().find(|container| container.name == CONTAINER)?;
    let status = pod.status.as_ref()?.container_statuses.iter().flatten().find(|status| status.name == CONTAINER)?;
    Some(Running { reference: container.image.clone()?, digest: references::digest_of(&status.image_id)? })
}

/// How long after an Agent was seen to go its history is closed: one that comes back at once goes on with it.
pub(super) const GRACE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_canarys_pods_tell_no_image_of_the_release() {
        let of = |track: &str| {
            let pod =
                format!("{{metadata: {{name: p, namespace: team-a, labels: {{{}: helper, {}: {track}}}}}}}", labels::AGENT, labels::TRACK);
            agent_of(&serde_yaml::from_str(&pod).unwrap())
        };
        assert_eq!([of("stable"), of("candidate")], [(); 2].map(|()| Some(Key::new("team-a", "helper"))));
        assert_eq!(of("canary"), None);
    }
}
