//! One step, done: a write to Git, or a write to the cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{Api, DeleteParams, Patch, PostParams};
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};
use slipway_api::{Agent, AgentRelease, AgentReleaseStatus, AgentSpec, condition, labels};
use slipway_cluster::event::EventSpec;
use slipway_cluster::quota;
use slipway_cluster::write;
use slipway_cluster::{Key, Object};
use slipway_release::Status;
use slipway_state::history::{HistoryFault, SUPERSEDED};

use super::agent_status::ReleasePart;
use super::context::Context;
use super::draft::{By, Draft};
use super::history::AgentHistory;
use super::shown::Shown;
use super::step::Step;
use super::{MANAGER, author, git, projection};

/// The field manager of what is written to specs that people own.
const SPECS: &str = "slipway-release";

/// What kept a step from being done.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error(transparent)]
    Write(#[from] write::Error),
    #[error("the release history: {0}")]
    History(#[from] HistoryFault),
}

impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Self {
        Self::Write(error.into())
    }
}

/// What a step brought about that the caches may not know yet.
#[derive(Default)]
pub(super) struct Done {
    pub agent: Option<Agent>,
    /// Git has moved.
    pub history: bool,
}

pub(super) async fn act(context: &Context, key: &Key, agent: &Agent, past: &AgentHistory, step: Step) -> Result<Done, Error> {
    let now = Timestamp::now();
    match step {
        Step::Wait(_) => Ok(Done::default()),
        Step::Refuse { version, why } => {
            let note = format!("release {version} is not deployed: {why}");
            let event = EventSpec { warning: true, reason: "ReleaseRefused".to_owned(), action: "Deploy", note };
            let payload = json!({"version": version, "message": why});
            context.events.publish_once(&about(agent), event, &payload, &[&version, &agent.resource_version().unwrap_or_default()]).await;
            remove_annotation(context, agent).await
        }
        Step::RemoveAnnotation { news } => {
            if news {
                tell(context, agent, past).await;
            }
            remove_annotation(context, agent).await
        }
        Step::Activate { version, note } => {
            let manifest = manifest(context, key, agent, version).await?;
            let (of, agent, noted) = (key, key.clone(), note.clone());
            let done = git::on(&context.history, move |history| git::activate(history, &agent, version, &noted, manifest, now)).await?;
            context.moved(&of.namespace);
            tracing::info!(agent = %of, version, commit = done.commit, note = %note, "a release was deployed again");
            Ok(Done { history: true, ..Done::default() })
        }
        Step::Record(draft) => record(context, key, agent, *draft).await,
        Step::Approve { version, evaluated } => {
            let manifest = manifest(context, key, agent, version).await?;
            let (of, evaluation) = (key.clone(), evaluated.clone());
            let done = git::on(&context.history, move |history| git::approve(history, &of, version, &evaluation, manifest, now)).await?;
            context.moved(&key.namespace);
            tracing::info!(agent = %key, version, commit = done.commit, %evaluated, "a release has passed its evaluation");
            Ok(Done { history: true, ..Done::default() })
        }
        Step::Reject { version, evaluated } => {
            let note = format!("release v{version} was rejected: {evaluated}");
            let event = EventSpec { warning: true, reason: condition::RELEASE_REJECTED.to_owned(), action: "Evaluate", note };
            let payload = json!({"version": version, "evaluation": evaluated.0});
            context.events.publish_once(&about(agent), event, &payload, &["rejected", &version.to_string(), &evaluated.0.run]).await;
            withdraw(context, key, version, (Status::Rejected, evaluated.to_string())).await
        }
        Step::Supersede { version, by } => {
            withdraw(context, key, version, (Status::Archived, format!("{SUPERSEDED}v{by}, whose content the agent has again"))).await
        }
        Step::Revert { patch, rejected } => {
            let version = past.active.as_ref().map_or(0, |active| active.version);
            let note = format!("the spec had the content of release v{rejected}, which was rejected; it is set back to release v{version}");
            let event = EventSpec { warning: true, reason: "ReleaseReverted".to_owned(), action: "Evaluate", note };
            let payload = json!({"version": version, "rejected": rejected});
            let generation = agent.metadata.generation.unwrap_or_default().to_string();
            context.events.publish_once(&about(agent), event, &payload, &["reverted", &rejected.to_string(), &generation]).await;
            patched(context, key, agent, past, patch).await
        }
        Step::Patch { patch, news } => {
            if news {
                tell(context, agent, past).await;
            }
            patched(context, key, agent, past, patch).await
        }
        Step::CreateRelease { version } => show_release(context, key, agent, past, version).await,
        Step::WriteReleaseStatus { name, status } => mark(context, key, &name, &status).await,
        Step::Prune { name } => {
            let api: Api<AgentRelease> = Api::namespaced(context.client.clone(), &key.namespace);
            match api.delete(&name, &DeleteParams::default()).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Err(error) => return Err(error.into()),
            }
            context.gone(key, &name);
            Ok(Done::default())
        }
        Step::WriteAgentStatus { part, news } => {
            if news {
                tell(context, agent, past).await;
            }
            if let Some(version) = part.pending_release
                && agent.status.as_ref().and_then(|status| status.pending_release) != Some(version)
            {
                let note = format!("release v{version} was made and waits for its evaluation");
                let event = EventSpec { warning: false, reason: "ReleasePending".to_owned(), action: "Evaluate", note };
                let payload = json!({"version": version, "run": part.pending_evaluation});
                context.events.publish_once(&about(agent), event, &payload, &["pending", &version.to_string()]).await;
            }
            stand_agent(context, key, &part).await
        }
    }
}

async fn patched(context: &Context, key: &Key, agent: &Agent, past: &AgentHistory, patch: Value) -> Result<Done, Error> {
    let api: Api<Agent> = Api::namespaced(context.client.clone(), &key.namespace);
    let params = write::by(SPECS);
    let agent = match api.patch(&key.name, &params, &Patch::Merge(patch)).await {
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 422) => {
            // It is tried again: a policy may change its mind.
            refused(context, agent, past, &status.message).await;
            return Err(kube::Error::Api(status).into());
        }
        patched => patched?,
    };
    Ok(Done { agent: Some(agent), ..Done::default() })
}

async fn withdraw(context: &Context, key: &Key, version: u64, to: (Status, String)) -> Result<Done, Error> {
    let (of, status, now) = (key.clone(), to.0, Timestamp::now());
    let done = git::on(&context.history, move |history| git::withdraw(history, &of, version, to, now)).await?;
    context.moved(&key.namespace);
    tracing::info!(agent = %key, version, commit = done.commit, status = status.as_str(), "a release does not wait any more");
    Ok(Done { history: true, ..Done::default() })
}

/// Tells that what is active in the history may not be what the Agent has.
async fn refused(context: &Context, agent: &Agent, past: &AgentHistory, why: &str) {
    let note = format!("the release that was asked for cannot be deployed: {why}; allow it, or ask for another");
    let event = EventSpec { warning: true, reason: "ReleaseRefused".to_owned(), action: "Deploy", note };
    let version = past.active.as_ref().map_or(0, |active| active.version);
    let payload = json!({"version": version, "message": why});
    context.events.publish_once(&about(agent), event, &payload, &[&version.to_string(), why]).await;
}

pub(super) fn about(agent: &Agent) -> ObjectReference {
    agent.object_ref(&())
}

async fn remove_annotation(context: &Context, agent: &Agent) -> Result<Done, Error> {
    let key = Key::of(agent);
    let api: Api<Agent> = Api::namespaced(context.client.clone(), &key.namespace);
    let patch = json!({"metadata": {"resourceVersion": agent.resource_version(), "annotations": {labels::DEPLOY_RELEASE: Value::Null}}});
    let params = write::by(SPECS);
    let agent = api.patch(&key.name, &params, &Patch::Merge(patch)).await?;
    Ok(Done { agent: Some(agent), ..Done::default() })
}

/// The plain manifest of a version that is to be active, for other clusters.
async fn manifest(context: &Context, key: &Key, agent: &Agent, version: u64) -> Result<Option<String>, Error> {
    let of = key.clone();
    let artifact = git::on(&context.history, move |history| history.release(&of.namespace, &of.name, version)).await?;
    let spec = slipway_release::spec(&artifact, &agent.spec).map_err(|fault| HistoryFault::Refused(fault.to_string()))?;
    Ok(Some(plain(&Agent { spec, ..agent.clone() })))
}

/// An Agent as somebody would have written it, without its canary: that is no part of a release, and ends with one.
pub(super) fn plain(agent: &Agent) -> String {
    slipway_release::yaml(&json!({
        "apiVersion": Agent::api_version(&()),
        "kind": Agent::kind(&()),
        "metadata": {"name": agent.name_any(), "namespace": agent.namespace()},
        "spec": AgentSpec { canary: None, ..agent.spec.clone() },
    }))
}

async fn record(context: &Context, key: &Key, agent: &Agent, draft: Draft) -> Result<Done, Error> {
    let Draft { key: name, mut artifact, by } = draft;
    let author = match by {
        By::Known(author) => author,
        By::Spec => author::of_spec(agent.meta()),
        By::Named(thing) => context.author(&key.namespace, &thing).unwrap_or_else(|| author::PLATFORM.to_owned()),
        By::Nobody => author::PLATFORM.to_owned(),
    };
    artifact.metadata.author.clone_from(&author);
    let spec = slipway_release::spec(&artifact, &agent.spec).map_err(|fault| HistoryFault::Refused(fault.to_string()))?;
    let manifest = Some(plain(&Agent { spec, ..agent.clone() }));
    let draft = slipway_state::history::Draft { name, artifact, author: git::author(&author), manifest };
    let namespace = key.namespace.clone();
    let done = git::on(&context.history, move |history| git::record(history, &namespace, draft)).await?;
    context.moved(&key.namespace);
    tracing::info!(agent = %key, version = done.version, commit = done.commit, author, "a release was recorded");
    Ok(Done { history: true, ..Done::default() })
}

async fn show_release(context: &Context, key: &Key, agent: &Agent, past: &AgentHistory, version: u64) -> Result<Done, Error> {
    let Some(line) = past.versions.get(&version) else { return Ok(Done::default()) };
    let resource = kube::api::ApiResource::erase::<AgentRelease>(&());
    let api: Api<Object> = Api::namespaced_with(context.client.clone(), &key.namespace, &resource);
    let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
    let mut taken = None;
    for name in projection::names(agent, version, line) {
        let body = projection::release(agent, &name, version, line);
        let object: Object = serde_json::from_value(body).map_err(write::Error::from)?;
        let was_known = context.shown(key).iter().any(|shown| shown.name == name);
        match quota::retry_on_quota_conflict(|| api.create(&params, &object)).await {
            Ok(made) => {
                note(context, made)?;
                return Ok(Done::default());
            }
            Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {
                // We may have made it and not have heard of it yet. One that we knew of stands for something else.
                let there = api.get_opt(&name).await?;
                if there.map(|there| note(context, there)).transpose()?.is_some_and(|there| there.request.is_none() && !was_known) {
                    return Ok(Done::default());
                }
                taken = Some(kube::Error::Api(status));
            }
            Err(error) => return Err(error.into()),
        }
    }
    taken.map_or_else(|| Ok(Done::default()), |taken| Err(taken.into()))
}

pub(super) async fn mark(context: &Context, key: &Key, name: &str, status: &AgentReleaseStatus) -> Result<Done, Error> {
    match write::status::<AgentRelease>(&context.client, &Key::new(&key.namespace, name), status, MANAGER).await? {
        // One that is not known any more has gone since it was written.
        Some(object) if context.shown(key).iter().any(|shown| shown.name == name) => {
            let shown = note(context, object)?;
            if !shown.says(status) {
                tracing::warn!(agent = %key, name, "an AgentRelease does not keep all of its status: its definition is older, or a part is somebody else's");
                context.accept(key, &shown, status);
            }
        }
        Some(_) => {}
        None => context.gone(key, name),
    }
    Ok(Done::default())
}

fn note(context: &Context, object: Object) -> Result<Shown, Error> {
    let release: AgentRelease = serde_json::to_value(object).and_then(serde_json::from_value).map_err(write::Error::from)?;
    Ok(context.note(&release))
}

async fn stand_agent(context: &Context, key: &Key, part: &ReleasePart) -> Result<Done, Error> {
    let written = write::status::<Agent>(&context.client, key, part, MANAGER).await?;
    let agent = written.map(|object| serde_json::to_value(object).and_then(serde_json::from_value)).transpose();
    Ok(Done { agent: agent.map_err(write::Error::from)?, ..Done::default() })
}

/// Tells of the release that runs now. Twice is once.
async fn tell(context: &Context, agent: &Agent, past: &AgentHistory) {
    let Some(active) = &past.active else { return };
    let previous = super::agent_status::agent_release(agent).unwrap_or(0);
    let (reason, action, verb) = if active.is_again() {
        ("ReleaseDeployed", "Deploy", "was deployed again")
    } else if active.evaluated.is_some() {
        ("ReleaseApproved", "Evaluate", "has passed its evaluation and runs")
    } else {
        ("ReleaseCreated", "Release", "was made and runs")
    };
    let mut note = format!("release v{} {verb}, by {}", active.version, active.author());
    let mut payload = json!({"version": active.version, "previous": previous, "author": active.author()});
    if let Some(edited) = active.note.edited_words() {
        note = format!("{note}; edited since, so that their present content runs: {edited}");
        let names: BTreeMap<_, _> =
            active.note.edited.iter().map(|(name, digest)| (format!("{}/{}", name.kind.folder(), name.name), digest)).collect();
        payload["edited"] = json!(names);
    }
    let event = EventSpec { warning: false, reason: reason.to_owned(), action, note };
    context.events.publish_once(&about(agent), event, &payload, &[&active.version.to_string(), &active.since.to_string()]).await;
}

/// Says on the Agent that Git cannot be asked.
pub(super) async fn unavailable(context: &Arc<Context>, key: &Key, agent: &Agent, fault: &HistoryFault) {
    let (reason, message) = match fault {
        HistoryFault::Damaged(why) => ("HistoryDamaged", why.clone()),
        fault => ("StateUnavailable", format!("releases wait: {fault}")),
    };
    let wanted = super::agent_status::unavailable(agent, reason, &message);
    if let Some(part) = super::agent_status::differs(agent, &wanted, Timestamp::now())
        && let Err(error) = stand_agent(context, key, &part).await
    {
        tracing::warn!(agent = %key, %error, "that releases wait could not be said");
    }
}
