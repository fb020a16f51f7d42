//! Synchronizes the cluster and the state repositories: creates agents that only Git has, deploys the active release of
//! Git, and releases agents that only the cluster has. A failure of one agent does not stop the others.

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt, stream};
use kube::ResourceExt;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, ObjectMeta};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use slipway_api::names::{AgentName, TeamSlug};
use slipway_api::yaml::{self, YamlError};
use slipway_api::{Agent, AgentRelease, AgentReleaseSpec, condition, ids, labels};
use slipway_http::{Error, StatusCode};
use slipway_release::wire::Known;

use crate::answer::Plain;
use crate::call::{Call, IDEMPOTENCY_KEY};
use crate::releases::{active, author, wish};
use crate::{cluster_error, gitops, write};

/// The number of agents in progress.
const CONCURRENT_AGENTS: usize = 8;
const PAGE_SIZE: u32 = 500;
const CHANGELOG: &str = "found in the cluster by a sync";

/// What a sync came to.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "PlatformSync")]
pub(crate) struct SyncReport {
    /// How many agents were made, changed or released.
    synced: usize,
    results: Vec<AgentOutcome>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "PlatformSyncResult")]
pub(crate) struct AgentOutcome {
    /// The agent's slug.
    agent: String,
    namespace: String,
    agent_id: String,
    action: Action,
    message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "PlatformSyncAction")]
pub(crate) enum Action {
    /// The agent, or its first release.
    Created,
    /// Another release is to run.
    Updated,
    Skipped,
    Error,
}

type Done = Result<(Action, String), Error>;

pub(crate) async fn sync(mut call: Call) -> Result<Plain<SyncReport>, Error> {
    // A sync is idempotent by itself.
    call.headers.remove(IDEMPOTENCY_KEY);
    let context = &call.context;
    let watched = |namespace: &str| {
        let only = &context.settings.watch_namespaces;
        only.is_empty() || only.iter().any(|known| known == namespace)
    };
    let known: Vec<Known> = context.state.agents().await?.data.into_iter().filter(|known| watched(&known.namespace)).collect();
    let namespaces = context.caches.teams.names("").into_iter().filter_map(|slug| TeamSlug::new(slug).ok()).map(|team| team.namespace());
    let teams: BTreeSet<String> = namespaces.filter(|namespace| watched(namespace)).collect();
    let mut present = BTreeMap::new();
    for namespace in &teams {
        for agent in agents(&call, namespace).await? {
            present.insert((namespace.clone(), agent.name_any()), agent);
        }
    }
    let mut tasks = Vec::new();
    for known in known {
        let found = present.remove(&(known.namespace.clone(), known.slug.clone()));
        match (known.deleted, found) {
            // An agent that reuses the name of a deleted one, or one that is about to be deleted.
            (true, Some(agent)) => tasks.push(Task::Release(agent)),
            (true, None) => {}
            (false, found) => {
                let of_team = teams.contains(&known.namespace);
                tasks.push(Task::Follow(known, of_team, found));
            }
        }
    }
    tasks.extend(present.into_values().map(Task::Release));
    let dealt_with: Vec<_> = tasks.into_iter().map(|task| task.done(&call)).collect();
    let mut results: Vec<AgentOutcome> = stream::iter(dealt_with).buffer_unordered(CONCURRENT_AGENTS).collect().await;
    results.sort_by(|one, other| (&one.namespace, &one.agent).cmp(&(&other.namespace, &other.agent)));
    let synced = results.iter().filter(|result| matches!(result.action, Action::Created | Action::Updated)).count();
    Ok(Plain(SyncReport { synced, results }))
}

/// The work for one agent.
enum Task {
    /// Bring the cluster to the state of Git: whether the namespace is a team's, and the present agent.
    Follow(Known, bool, Option<Agent>),
    /// Release the agent of the cluster.
    Release(Agent),
}

impl Task {
    async fn done(self, call: &Call) -> AgentOutcome {
        let (namespace, agent) = match &self {
            Self::Follow(known, ..) => (known.namespace.clone(), known.slug.clone()),
            Self::Release(agent) => (agent.namespace().unwrap_or_default(), agent.name_any()),
        };
        let done = match self {
            Self::Follow(known, of_team, found) => follow(call, &known, of_team, found).await,
            Self::Release(agent) => release(call, &agent).await,
        };
        let (action, message) = done.unwrap_or_else(|error| (Action::Error, log_cause(call, &error)));
        AgentOutcome { agent_id: ids::agent(&namespace, &agent), agent, namespace, action, message }
    }
}

/// Logs the cause, and returns the message.
fn log_cause(call: &Call, error: &Error) -> String {
    if let Some(cause) = error.cause() {
        tracing::warn!(%cause, request = call.id.as_str(), "one agent could not be synced");
    }
    error.message().to_owned()
}

/// All agents of a namespace, from the API server.
async fn agents(call: &Call, namespace: &str) -> Result<Vec<Agent>, Error> {
    let api: Api<Agent> = Api::namespaced(call.client(), namespace);
    let mut parameters = ListParams::default().limit(PAGE_SIZE);
    let mut agents = Vec::new();
    loop {
        let page = api.list(&parameters).await.map_err(|error| cluster_error::from_kube(error, "agents"))?;
        agents.extend(page.items);
        match page.metadata.continue_.filter(|next| !next.is_empty()) {
            Some(next) => parameters = parameters.continue_token(&next),
            None => return Ok(agents),
        }
    }
}

async fn follow(call: &Call, known: &Known, of_team: bool, found: Option<Agent>) -> Done {
    let refuse = |message: String| Err(Error::bad_request(message));
    if let Some(fault) = &known.fault {
        return refuse(fault.clone());
    }
    if !of_team {
        return refuse(format!("namespace {} is no team's; make the team first", known.namespace));
    }
    let Some(version) = known.active else { return Ok((Action::Skipped, "no release of it is active".to_owned())) };
    let Some(agent) = found else { return create(call, known, version).await };
    let what = format!("agent {}", known.slug);
    if agent.metadata.deletion_timestamp.is_some() {
        return Ok((Action::Skipped, format!("{what} is being deleted")));
    }
    if active(&agent) == Some(version) {
        return Ok((Action::Skipped, said(&agent, version)));
    }
    if let Some(owner) = gitops::owner(&agent.metadata) {
        return Ok((Action::Skipped, format!("{what} belongs to {owner}, which says what it is; deploying v{version} pins it")));
    }
    let api: Api<Agent> = Api::namespaced(call.client(), &known.namespace);
    let before = active(&agent).map_or_else(|| "no release".to_owned(), |active| format!("v{active}"));
    write::change(call, &api, &known.slug, &what, |_: &Agent| Ok(wish(version))).await?;
    Ok((Action::Updated, format!("v{version} is to run in place of {before}")))
}

/// The message for an agent whose active release is up to date.
fn said(agent: &Agent, version: u64) -> String {
    let status = agent.status.clone().unwrap_or_default();
    let of = |kind: &str| status.conditions.iter().find(|condition| condition.type_ == kind);
    let holds = |kind: &str| of(kind).is_some_and(|condition| condition.status == "True");
    let current = status.observed_generation == agent.metadata.generation;
    match of(condition::READY) {
        _ if agent.stopped_by().is_some() => format!("v{version} is active; the agent is stopped"),
        Some(_) if current && holds(condition::READY) && !holds(condition::RECONCILING) => format!("v{version} runs"),
        Some(ready) if current => format!("v{version} is active and does not run in all pods yet: {}: {}", ready.reason, ready.message),
        _ => format!("v{version} is active; whether it runs is not known yet"),
    }
}

async fn create(call: &Call, known: &Known, version: u64) -> Done {
    let manifest = known.manifest.as_deref().unwrap_or_default();
    let agent = agent(manifest, &known.namespace, &known.slug).map_err(Error::bad_request)?;
    let api: Api<DynamicObject> = Api::namespaced_with(call.client(), &known.namespace, &ApiResource::erase::<Agent>(&()));
    write::create(call, &api, agent, &format!("agent {}", known.slug)).await?;
    Ok((Action::Created, format!("made as v{version} has it")))
}

/// The agent of a manifest. Only its spec is used: other fields could grant rights.
fn agent(manifest: &str, namespace: &str, slug: &str) -> Result<DynamicObject, String> {
    let wrong = |why: &str| format!("deploy/{slug}.yaml {why}");
    let document: Value = yaml::read(manifest).map_err(|error| match error {
        YamlError::Alias { .. } => wrong(&format!("has {error}")),
        YamlError::Malformed(_) => wrong("is no YAML"),
    })?;
    let kind = ApiResource::erase::<Agent>(&());
    if document["apiVersion"] != *kind.api_version || document["kind"] != *kind.kind {
        return Err(wrong(&format!("is no {} of {}", kind.kind, kind.api_version)));
    }
    let name = AgentName::new(slug).map_err(|error| wrong(&format!("cannot be an agent's: {error}")))?;
    if document["metadata"]["name"] != *name.as_str() {
        return Err(wrong(&format!("is of another agent: {}", document["metadata"]["name"])));
    }
    let spec = document.get("spec").filter(|spec| spec.is_object()).ok_or_else(|| wrong("has no spec"))?;
    let mut agent = DynamicObject::new(name.as_str(), &kind).data(serde_json::json!({ "spec": spec }));
    agent.metadata.namespace = Some(namespace.to_owned());
    Ok(agent)
}

/// Requests the first release of an agent.
async fn release(call: &Call, agent: &Agent) -> Done {
    let slug = agent.name_any();
    if agent.metadata.deletion_timestamp.is_some() {
        return Ok((Action::Skipped, format!("agent {slug} is being deleted")));
    }
    if agent.stopped_by().is_some() && agent.status.as_ref().is_none_or(|status| status.first_deployed_at.is_none()) {
        return Ok((Action::Skipped, format!("agent {slug} was never deployed")));
    }
    let namespace = agent.namespace().unwrap_or_default();
    let api: Api<AgentRelease> = Api::namespaced(call.client(), &namespace);
    // A second sync before the release is made requests the same one.
    let uid: String = agent.uid().unwrap_or_default().chars().filter(char::is_ascii_hexdigit).take(8).collect();
    let release = AgentRelease {
        metadata: ObjectMeta {
            name: Some(format!("{slug}-s{uid}")),
            namespace: Some(namespace.clone()),
            labels: Some([(labels::AGENT.to_owned(), slug.clone())].into()),
            ..ObjectMeta::default()
        },
        spec: AgentReleaseSpec { agent: slug.clone(), changelog: Some(CHANGELOG.to_owned()), author: author(&call.caller) },
        status: None,
    };
    match write::create(call, &api, release, &format!("release of agent {slug}")).await {
        Ok(_) => Ok((Action::Created, "its first release is being made".to_owned())),
        Err(error) if error.status() == StatusCode::CONFLICT => Ok((Action::Skipped, "its first release was asked for already".to_owned())),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_release_runs_when_the_agent_says_that_its_pods_are_as_they_should_be() {
        let agent = |suspend: bool, observed: u32, ready: &str, reconciling: &str, reason: &str| -> Agent {
            let condition = |kind: &str, status: &str| json!({"type": kind, "status": status, "reason": reason, "message": "why", "lastTransitionTime": "2026-01-01T00:00:00Z"});
            serde_json::from_value(json!({
                "metadata": {"name": "helper", "generation": 4}, "spec": {"name": "H", "framework": "custom", "suspend": suspend},
                "status": {"observedGeneration": observed, "conditions": [condition("Ready", ready), condition("Reconciling", reconciling)]},
            }))
            .unwrap()
        };
        for (agent, says) in [
            (agent(false, 4, "True", "False", "DeploymentReady"), "v3 runs"),
            (agent(false, 4, "True", "True", "Progressing"), "v3 is active and does not run in all pods yet: Progressing: why"),
            (agent(false, 4, "False", "False", "ImagePullBackOff"), "v3 is active and does not run in all pods yet: ImagePullBackOff: why"),
            (agent(false, 3, "True", "False", "DeploymentReady"), "v3 is active; whether it runs is not known yet"),
            (agent(true, 4, "True", "False", "Suspended"), "v3 is active; the agent is stopped"),
        ] {
            assert_eq!(said(&agent, 3), says);
        }
    }

    #[test]
    fn of_a_manifest_counts_the_spec_of_the_agent_that_it_is_named_after() {
        let manifest = |kind: &str, name: &str, spec: &str| {
            format!(
                "apiVersion: agents.slipway.dev/v1\nkind: {kind}\nmetadata:\n  name: {name}\n  namespace: team-b\n  annotations: {{a: b}}\n{spec}"
            )
        };
        let spec = "spec:\n  name: Helper\n  framework: custom\n";
        let made = agent(&manifest("Agent", "helper", spec), "team-a", "helper").unwrap();
        assert_eq!(
            serde_json::to_value(made).unwrap(),
            json!({"apiVersion": "agents.slipway.dev/v1", "kind": "Agent", "metadata": {"name": "helper", "namespace": "team-a"},
                "spec": {"name": "Helper", "framework": "custom"}})
        );
        let canary = format!("{spec}  canary: {{enabled: true, weight: 5, overrides: {{description: x}}}}\n");
        let made = agent(&manifest("Agent", "helper", &canary), "team-a", "helper").unwrap();
        let expected = json!({"enabled": true, "weight": 5, "overrides": {"description": "x"}});
        assert_eq!(made.data["spec"]["canary"], expected, "as kubectl would have it");
        for (manifest, slug, says) in [
            (manifest("Agent", "other", spec), "helper", "is of another agent"),
            (manifest("Secret", "helper", spec), "helper", "is no Agent"),
            (manifest("Agent", "helper", ""), "helper", "has no spec"),
            (manifest("Agent", "helper-canary", spec), "helper-canary", "cannot be an agent's"),
            ("a: [".to_owned(), "helper", "is no YAML"),
            (manifest("Agent", "helper", &format!("{spec}  tools: &a [b]\n")), "helper", "has an anchor or alias at line 10"),
            (String::new(), "helper", "is no Agent"),
        ] {
            let error = agent(&manifest, "team-a", slug).unwrap_err();
            assert!(error.contains(says), "{manifest}: {error}");
        }
    }
}
