//! What the cluster shows of the history: an AgentRelease for each version that is kept, with a status that says what
//! Git says.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};
use slipway_api::condition::{self, Finding, PENDING_EVALUATION, READY, RECONCILING};
use slipway_api::release::ReleaseEvaluation;
use slipway_api::{Agent, AgentRelease, AgentReleaseStatus, labels};
use slipway_release::Status;

use super::candidate::{Candidate, waiting};
use super::evaluated::Evaluated;
use super::history::{AgentHistory, Version};
use super::run::{Runs, worst_cases};
use super::shown::{MAX_NAME_CHARS, ReleaseRequest, Shown};
use super::step::Step;

/// The longest author and changelog in one.
const MAX_AUTHOR_BYTES: usize = 256;
const MAX_CHANGELOG_BYTES: usize = 4096;
/// How many releases stay that were not made because nothing had changed.
const MAX_SKIPPED: usize = 3;

/// The next thing that the cluster does not show as it is.
pub(super) fn step(past: &AgentHistory, shown: &[Shown], candidate: Option<&Candidate>, runs: &Runs) -> Option<Step> {
    let mark = |shown| mark(past, shown, candidate, runs);
    // One that is being deleted is in the way of another until it is gone, which is told.
    let staying = || shown.iter().filter(|shown| !shown.deleting);
    let kept: Vec<(&u64, &Version)> = past.kept().collect();
    // The active one first: it is what matters most, and others become archived by it.
    let active = past.active.as_ref().map(|active| active.version);
    let ordered = kept
        .iter()
        .filter(|(version, _)| Some(**version) == active)
        .chain(kept.iter().rev().filter(|(version, _)| Some(**version) != active));
    for (version, _) in ordered {
        if !shown.iter().any(|shown| shown.version == Some(**version)) {
            return Some(Step::CreateRelease { version: **version });
        }
        if let Some(step) = staying().filter(|shown| shown.version == Some(**version)).find_map(mark) {
            return Some(step);
        }
    }
    if let Some(step) = staying().find_map(mark) {
        return Some(step);
    }
    // Of those that were told that nothing had changed the last ones stay, so that they can be read.
    let mut skipped: Vec<&Shown> = staying().filter(|shown| shown.is_skipped() && !shown.gitops).collect();
    skipped.sort_by_key(|shown| (std::cmp::Reverse(shown.created), &shown.name));
    if let Some(old) = skipped.get(MAX_SKIPPED) {
        return Some(Step::Prune { name: old.name.clone() });
    }
    // What could not be read is not taken for old.
    let is_old = |version| past.versions.contains_key(&version) && !kept.iter().any(|(kept, _)| **kept == version);
    staying()
        .filter(|shown| !shown.gitops)
        .find(|shown| shown.version.is_some_and(is_old))
        .map(|shown| Step::Prune { name: shown.name.clone() })
}

fn mark(past: &AgentHistory, shown: &Shown, candidate: Option<&Candidate>, runs: &Runs) -> Option<Step> {
    differs(past, shown, candidate, runs).map(|status| Step::WriteReleaseStatus { name: shown.name.clone(), status: Box::new(status) })
}

/// What makes an AgentRelease say what Git says, if it does not already.
pub(super) fn differs(past: &AgentHistory, shown: &Shown, candidate: Option<&Candidate>, runs: &Runs) -> Option<AgentReleaseStatus> {
    let version = shown.version?;
    let line = past.versions.get(&version)?;
    let evaluation = evaluation(past, version, line, shown, candidate).map(|evaluation| with_cases(evaluation, shown, runs));
    let status = AgentReleaseStatus { run_hash: shown.run_hash.clone(), ..status(past, version, line, evaluation) };
    (!shown.says(&status)).then_some(status)
}

/// Says what pods of the active release run, as the operator says, if its AgentRelease does not say so already. It has to be
/// known that the Agent is as that release has it.
pub(super) fn run_hash(agent: &Agent, past: &AgentHistory, shown: &[Shown], runs: &Runs) -> Option<Step> {
    let status = agent.status.as_ref().filter(|status| status.observed_generation == agent.meta().generation)?;
    let active = past.active.as_ref()?;
    // Approved a moment ago, it does not run yet, and nothing of the spec tells that.
    let moves = status.conditions.iter().any(|condition| condition.type_ == RECONCILING && condition.status == "True");
    if active.evaluated.is_some() && moves {
        return None;
    }
    let active = active.version;
    let shown = shown.iter().find(|shown| shown.version == Some(active) && !shown.deleting)?;
    let run_hash = Some(status.run_hash.clone()?).filter(|hash| shown.run_hash.as_ref() != Some(hash))?;
    let line = past.versions.get(&active)?;
    let evaluation = evaluation(past, active, line, shown, None).map(|evaluation| with_cases(evaluation, shown, runs));
    let status = AgentReleaseStatus { run_hash: Some(run_hash), ..self::status(past, active, line, evaluation) };
    Some(Step::WriteReleaseStatus { name: shown.name.clone(), status: Box::new(status) })
}

/// What an AgentRelease says of its evaluation: what Git says of one that was decided, what its run says while it waits, and
/// what was said before of one that was archived since.
fn evaluation(
    past: &AgentHistory,
    version: u64,
    line: &Version,
    shown: &Shown,
    candidate: Option<&Candidate>,
) -> Option<ReleaseEvaluation> {
    let decided = |passed| Evaluated::read(line.reason.as_deref(), passed).map(|evaluated| evaluated.0);
    match line.status {
        Status::PendingEval if past.pending.as_ref().is_some_and(|pending| pending.version == version) => {
            candidate.filter(|candidate| candidate.release == shown.name).map(|candidate| candidate.evaluation.clone())
        }
        Status::Active => decided(true).or_else(|| shown.evaluation.clone()),
        Status::Rejected => decided(false).or_else(|| shown.evaluation.clone()),
        _ => shown.evaluation.clone(),
    }
}

/// An evaluation with the cases that went worst, which Git does not keep. What was shown of them stays when their run is gone.
fn with_cases(mut evaluation: ReleaseEvaluation, shown: &Shown, runs: &Runs) -> ReleaseEvaluation {
    let before = shown.evaluation.as_ref().filter(|before| before.run == evaluation.run && !before.worst_cases.is_empty());
    evaluation.worst_cases = before.map_or_else(|| worst_cases(runs, &evaluation.run), |before| before.worst_cases.clone());
    evaluation
}

/// The status of the AgentRelease of a version.
fn status(past: &AgentHistory, version: u64, line: &Version, evaluation: Option<ReleaseEvaluation>) -> AgentReleaseStatus {
    let number = |version: u64| i64::try_from(version).unwrap_or(i64::MAX);
    let active = past.active.as_ref().filter(|active| active.version == version);
    let pending = past.pending.as_ref().filter(|pending| pending.version == version);
    let artifact = active.map(|active| &active.artifact).or_else(|| pending.map(|pending| &pending.artifact));
    AgentReleaseStatus {
        version: Some(number(version)),
        previous: Some(number(line.previous)),
        phase: Some(line.status),
        checksum: Some(line.checksum.clone()),
        run_hash: None,
        timestamp: Some(Time(condition::whole_seconds(line.timestamp))),
        commit: line.commit.clone(),
        artifact: artifact.map(slipway_release::Artifact::to_yaml),
        conditions: vec![ready(line, active.and_then(|active| active.note.edited_words()).as_deref(), evaluation.as_ref())],
        evaluation,
    }
}

fn ready(line: &Version, edited: Option<&str>, evaluation: Option<&ReleaseEvaluation>) -> Condition {
    let (holds, reason, message) = match line.status {
        Status::Active => (
            true,
            "Active",
            edited.map_or_else(
                || "this is the agent's active release".to_owned(),
                |edited| format!("this is the agent's active release, but with the present content, save of Tools that a gate kept, of what was edited since: {edited}"),
            ),
        ),
        Status::PendingEval => (false, PENDING_EVALUATION, waiting(evaluation)),
        Status::Rejected => {
            (false, "Rejected", line.reason.as_ref().map_or_else(|| "failed its evaluation".to_owned(), |why| format!("[REJECTED: {why}]")))
        }
        Status::Archived => (true, "Archived", "another release is active".to_owned()),
        Status::Deleted => (false, "Deleted", "its agent was deleted".to_owned()),
        // Git has no such version.
        Status::Skipped => (true, "Skipped", "nothing had changed".to_owned()),
    };
    Condition {
        type_: READY.to_owned(),
        status: if holds { "True" } else { "False" }.to_owned(),
        reason: reason.to_owned(),
        message,
        last_transition_time: Time(condition::whole_seconds(line.when)),
        observed_generation: None,
    }
}

/// What makes a release that was asked for when nothing had changed say which version stands.
pub(super) fn skips(shown: &Shown, request: &ReleaseRequest, version: u64, (stands, now): (&str, Timestamp)) -> Option<AgentReleaseStatus> {
    let message = format!("nothing has changed since v{version}, which {stands}; no version was made");
    let conditions = condition::conditions(vec![Finding::new(READY, true, "Skipped", message)], &request.conditions, None, now);
    let version = i64::try_from(version).ok();
    let status = AgentReleaseStatus { version, phase: Some(Status::Skipped), conditions, ..AgentReleaseStatus::default() };
    (!shown.says(&status)).then_some(status)
}

/// What makes a release that cannot be made yet say so, if it does not already.
pub(super) fn waits(shown: &Shown, request: &ReleaseRequest, reason: &str, message: &str, now: Timestamp) -> Option<AgentReleaseStatus> {
    let conditions = condition::conditions(vec![Finding::new(READY, false, reason, message)], &request.conditions, None, now);
    let status = AgentReleaseStatus { conditions, ..AgentReleaseStatus::default() };
    (!shown.says(&status)).then_some(status)
}

/// The AgentRelease of a version that was made without one.
pub(super) fn release(agent: &Agent, name: &str, version: u64, line: &Version) -> Value {
    let cut = |text: &str, most: usize| text[..text.floor_char_boundary(most)].to_owned();
    let owner = agent.controller_owner_ref(&()).map(|mut owner| {
        // Nobody's deletion has to wait for it.
        owner.block_owner_deletion = None;
        owner
    });
    let mut body = json!({
        "apiVersion": AgentRelease::api_version(&()),
        "kind": AgentRelease::kind(&()),
        "metadata": {
            "name": name,
            "namespace": agent.namespace(),
            "labels": {
                labels::NAME: agent.name_any(),
                labels::PART_OF: labels::PLATFORM,
                labels::MANAGED_BY: labels::OPERATOR,
                labels::AGENT: agent.name_any(),
                labels::RELEASE: version.to_string(),
            },
            "ownerReferences": owner.into_iter().collect::<Vec<_>>(),
        },
        "spec": {"agent": agent.name_any(), "author": cut(&line.author, MAX_AUTHOR_BYTES)},
    });
    if !line.changelog.is_empty() {
        body["spec"]["changelog"] = json!(cut(&line.changelog, MAX_CHANGELOG_BYTES));
    }
    body
}

/// Its name: that under which Git has it, if it can be one and is free, or else one with its number.
pub(super) fn names(agent: &Agent, version: u64, line: &Version) -> impl Iterator<Item = String> {
    let (end, name) = (format!("-v{version}"), agent.name_any());
    let numbered = format!("{}{end}", name[..name.floor_char_boundary(MAX_NAME_CHARS - end.len())].trim_end_matches('-'));
    let known = line.name.clone().filter(|name| name.len() <= MAX_NAME_CHARS && !name.contains('.'));
    known.into_iter().chain([numbered])
}
