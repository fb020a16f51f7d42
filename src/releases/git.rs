//! The history as the controller asks it: off the threads that others run on, and in the controller's words.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use slipway_cluster::Key;
use slipway_release::{Artifact, Current, Status};
use slipway_state::history::{Author, Draft, History, HistoryFault, Recorded, Row, Transition, VersionStatus};

use super::evaluated::Evaluated;
use super::history::{Active, AgentHistory, Pending, Version};
use super::note::Note;
use super::seen::RequestedRelease;
use super::shown::Shown;

/// How many of the newest versions are looked at: more than the cluster keeps.
const NEWEST: usize = 5;

/// Does something with the history that blocks.
pub(super) async fn on<T: Send + 'static>(
    history: &Arc<History>,
    work: impl FnOnce(&History) -> Result<T, HistoryFault> + Send + 'static,
) -> Result<T, HistoryFault> {
    let history = history.clone();
    match tokio::task::spawn_blocking(move || work(&history)).await {
        Ok(result) => result,
        Err(error) => Err(HistoryFault::Busy(format!("the history was left before it had answered: {error}"))),
    }
}

/// What Git says of an agent, with these versions besides those that matter anyway.
fn past(history: &History, agent: &Key, others: impl Iterator<Item = u64>) -> Result<AgentHistory, HistoryFault> {
    let mut past = AgentHistory::default();
    let page = history.list(&agent.namespace, &agent.name, None, NEWEST)?;
    past.highest = page.rows.first().map_or(0, |row| row.version);
    let active = match history.current(&agent.namespace, &agent.name) {
        Ok(Some(Current::Release(artifact))) => Some(*artifact),
        Ok(Some(Current::Gone(_)) | None) => None,
        Err(HistoryFault::Damaged(why)) => {
            past.damaged = Some(why);
            None
        }
        Err(fault) => return Err(fault),
    };
    let mut missing: BTreeSet<u64> = others.chain(active.as_ref().map(|artifact| artifact.metadata.version)).collect();
    for row in page.rows {
        missing.remove(&row.version);
        past.take(row);
    }
    for version in missing {
        let page = history.list(&agent.namespace, &agent.name, Some(version.saturating_add(1)), 1)?;
        page.rows.into_iter().filter(|row| row.version == version).for_each(|row| past.take(row));
    }
    let of = |status: Status| past.versions.iter().rev().filter(move |(_, line)| line.status == status).map(|(version, _)| *version);
    let (pending, rejected) = (of(Status::PendingEval).next(), of(Status::Rejected).collect::<Vec<_>>());
    past.pending = pending.map(|version| held(history, agent, version)).transpose()?.flatten();
    for version in rejected {
        past.rejected.extend(held(history, agent, version)?);
    }
    let Some(current) = active else { return Ok(past) };
    let version = current.metadata.version;
    let status = history.status(&agent.namespace, &agent.name, version)?;
    // As it was recorded: what the cluster shows is the file of the version, unless somebody has spoilt that.
    let artifact = match history.release(&agent.namespace, &agent.name, version) {
        Err(HistoryFault::Damaged(_) | HistoryFault::Missing(_)) => current,
        found => found?,
    };
    let since = status.as_ref().map_or(artifact.metadata.timestamp, |status| status.when);
    let reason = status.and_then(|status| status.reason);
    let (note, evaluated) = (Note::read(reason.as_deref()), Evaluated::read(reason.as_deref(), true));
    past.active = Some(Active { version, since, artifact, note, evaluated });
    Ok(past)
}

/// A version that is not active; none that cannot be believed.
fn held(history: &History, agent: &Key, version: u64) -> Result<Option<Pending>, HistoryFault> {
    match history.release(&agent.namespace, &agent.name, version) {
        Ok(artifact) => Ok(Some(Pending { version, artifact })),
        Err(HistoryFault::Damaged(_) | HistoryFault::Missing(_)) => Ok(None),
        Err(fault) => Err(fault),
    }
}

impl AgentHistory {
    fn take(&mut self, row: Row) {
        // What is not believed is told when it is asked for, and not shown.
        let (Ok(summary), Some(status)) = (row.summary, row.status) else { return };
        let (name, commit) = row.recorded.unzip();
        let version = Version {
            name,
            status: status.status,
            reason: status.reason,
            when: status.when,
            previous: summary.previous,
            author: summary.author,
            timestamp: summary.timestamp,
            changelog: summary.changelog,
            checksum: summary.checksum,
            commit,
        };
        self.versions.insert(row.version, version);
    }
}

/// The release that somebody wants to run again.
pub(super) fn asked(history: &History, agent: &Key, version: u64) -> Result<RequestedRelease, HistoryFault> {
    let found = match history.release(&agent.namespace, &agent.name, version) {
        Ok(artifact) => deployable(artifact, history.status(&agent.namespace, &agent.name, version)?),
        Err(fault @ (HistoryFault::Refused(_) | HistoryFault::Missing(_) | HistoryFault::Damaged(_))) => Err(fault.to_string()),
        Err(fault) => return Err(fault),
    };
    Ok(RequestedRelease { version, found })
}

/// A version that is to be deployed again and where it stands, or why its file alone does not say.
pub(super) fn deployable(artifact: Artifact, status: Option<VersionStatus>) -> Result<(Artifact, Status), String> {
    let status = match status {
        None => artifact.metadata.status,
        Some(status) if status.was_rejected() => Status::Rejected,
        Some(status) if status.was_superseded() => {
            return Err("it was superseded before it was evaluated; apply what it says to have it evaluated".to_owned());
        }
        Some(status) => status.status,
    };
    Ok((artifact, status))
}

/// The AgentReleases of an agent with the versions that they stand for (those of their requests or, if the controller
/// made them, of their names), and what Git says of these and the agent, if that is not known yet.
pub(super) fn seen(
    history: &History,
    agent: &Key,
    mut all: Vec<Shown>,
    known: Option<AgentHistory>,
) -> Result<(Vec<Shown>, AgentHistory), HistoryFault> {
    for shown in &mut all {
        shown.version = recorded_as(history, agent, &shown.key())?;
        if shown.version.is_none() && shown.is_made {
            shown.version = recorded_as(history, agent, &shown.name)?.or(shown.numbered);
        }
    }
    let past = known.map_or_else(|| past(history, agent, all.iter().filter_map(|shown| shown.version)), Ok)?;
    Ok((all, past))
}

/// The version that a person's release was recorded as.
fn recorded_as(history: &History, agent: &Key, release: &str) -> Result<Option<u64>, HistoryFault> {
    let found = history.named(&agent.namespace, release)?;
    Ok(found.filter(|(of, _)| *of == agent.name).map(|(_, recorded)| recorded.version))
}

pub(super) fn record(history: &History, namespace: &str, draft: Draft) -> Result<Recorded, HistoryFault> {
    history.record(namespace, draft)
}

pub(super) fn activate(
    history: &History,
    agent: &Key,
    version: u64,
    note: &Note,
    manifest: Option<String>,
    when: Timestamp,
) -> Result<Recorded, HistoryFault> {
    let author = author(note.by.as_deref().unwrap_or(super::author::PLATFORM));
    let transition = Transition { agent: agent.name.clone(), version, author, when, reason: note.reason() };
    history.activate(&agent.namespace, transition, manifest)
}

/// Makes a version active that has passed its evaluation.
pub(super) fn approve(
    history: &History,
    agent: &Key,
    version: u64,
    evaluated: &Evaluated,
    manifest: Option<String>,
    when: Timestamp,
) -> Result<Recorded, HistoryFault> {
    history.activate(&agent.namespace, by_platform(agent, version, evaluated.to_string(), when), manifest)
}

/// Rejects or archives a version that waits.
pub(super) fn withdraw(
    history: &History,
    agent: &Key,
    version: u64,
    (status, reason): (Status, String),
    when: Timestamp,
) -> Result<Recorded, HistoryFault> {
    history.set_status(&agent.namespace, by_platform(agent, version, reason, when), status)
}

fn by_platform(agent: &Key, version: u64, reason: String, when: Timestamp) -> Transition {
    Transition { agent: agent.name.clone(), version, author: author(super::author::PLATFORM), when, reason: Some(reason) }
}

/// An author as Git writes one: a name, and an address where there is one.
pub(super) fn author(name: &str) -> Author {
    let email = if name.contains('@') && !name.contains(' ') && !name.starts_with(super::author::MANAGER) { name } else { "" };
    Author { name: name.to_owned(), email: email.to_owned() }
}

/// Whether the history of an agent is open. What cannot be read must not outlive its agent either.
pub(super) fn lives(history: &History, agent: &Key) -> Result<bool, HistoryFault> {
    Ok(match history.current(&agent.namespace, &agent.name) {
        Ok(Some(Current::Release(_))) | Err(HistoryFault::Damaged(_)) => true,
        Ok(Some(Current::Gone(_))) => false,
        // None of its versions has passed its gate.
        Ok(None) => !history.list(&agent.namespace, &agent.name, None, 1)?.rows.is_empty(),
        Err(fault) => return Err(fault),
    })
}
