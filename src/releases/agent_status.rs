//! Our part of an Agent's status: which release runs, what it is pinned at, and the conditions `Released` and `Pinned`.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use serde::Serialize;
use slipway_api::Agent;
use slipway_api::agent::Phase;
use slipway_api::condition::{
    self, APPROVED, Finding, OF_RELEASES, PENDING_EVALUATION, PINNED, READY, RECONCILING, RELEASE_REJECTED, RELEASED,
};
use slipway_release::{Status, content_of};

use super::candidate::{Candidate, on_canary, waiting};
use super::history::AgentHistory;
use super::seen::Seen;

/// What is written.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReleasePart {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_release: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending_release: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending_evaluation: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quality_gate: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pinned_content: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// What should be written, before it has a time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct WantedStatus {
    active_release: Option<i64>,
    pending_release: Option<i64>,
    pending_evaluation: Option<String>,
    quality_gate: Option<i32>,
    pinned_content: Option<String>,
    findings: Vec<Finding>,
    /// Of the spec that the condition Approved speaks of.
    generation: Option<i64>,
}

/// What Git says of the agent, and whether the agent says of itself that this is what its pods run.
pub(super) fn of(seen: &Seen, pin: Option<String>, candidate: Option<&Candidate>) -> WantedStatus {
    let Seen { agent, past, .. } = *seen;
    let number = |version: u64| i64::try_from(version).ok();
    // Without its AgentRelease there is nothing to run yet.
    let pending = past.pending.as_ref().filter(|_| candidate.is_some());
    let wanted = WantedStatus {
        pending_release: pending.and_then(|pending| number(pending.version)),
        pending_evaluation: candidate.map(|candidate| candidate.evaluation.run.clone()),
        generation: agent.metadata.generation,
        ..WantedStatus::default()
    };
    let approval = approval(seen, candidate);
    let Some(active) = &past.active else { return WantedStatus { findings: approval.into_iter().collect(), ..wanted } };
    let message = if runs(agent) {
        format!("release v{} runs", active.version)
    } else {
        format!("release v{} is the active one; whether it runs, the condition Ready says", active.version)
    };
    let mut findings = vec![Finding::new(RELEASED, true, "Active", message)];
    if pin.is_some() {
        let message =
            format!("release v{} counts in place of the spec, which GitOps owns, until the spec's content changes", active.version);
        findings.push(Finding::new(PINNED, true, "OwnedByGitOps", message));
    }
    findings.extend(approval);
    let gate = Some(active.artifact.governance.min_quality_score).filter(|score| *score > 0);
    WantedStatus { active_release: number(active.version), quality_gate: gate, pinned_content: pin, findings, ..wanted }
}

/// Whether a change is held up by the gate: its release waits, or was rejected and no other has become active since.
fn approval(seen: &Seen, candidate: Option<&Candidate>) -> Option<Finding> {
    let Seen { agent, past, .. } = *seen;
    let meanwhile = past.active.as_ref().map_or_else(|| "nothing runs".to_owned(), |active| format!("release v{} runs", active.version));
    if let Some(pending) = &past.pending {
        let waits = waiting(candidate.map(|candidate| &candidate.evaluation));
        return Some(Finding::unknown(
            APPROVED,
            PENDING_EVALUATION,
            format!("release v{} {waits}; {meanwhile} meanwhile", pending.version),
        ));
    }
    // One that made room for another before it was decided says nothing.
    let decided = past.versions.iter().rev().find(|(_, line)| matches!(line.status, Status::Active | Status::Rejected));
    let (version, newest) = decided.filter(|(_, newest)| newest.status == Status::Rejected)?;
    if past.active.as_ref().is_some_and(|active| active.since >= newest.when) {
        return None;
    }
    let content = content_of(agent);
    // What has passed as a canary since is not rejected for ever.
    let rejected = past.rejected.iter().filter(|rejected| on_canary(seen, rejected).is_none()).map(|rejected| &rejected.artifact);
    let mut known = rejected.chain(past.active.as_ref().map(|active| &active.artifact));
    if !known.any(|artifact| content.same_content(artifact)) {
        return Some(Finding::unknown(
            APPROVED,
            PENDING_EVALUATION,
            format!("the spec has yet to become a release; {meanwhile} meanwhile"),
        ));
    }
    let why = newest.reason.as_deref().unwrap_or("it failed its evaluation");
    let message = format!(
        "release v{version} was rejected: {why}; {meanwhile}. Change the agent, or ask for a release of the same (an AgentRelease) to have it evaluated again"
    );
    Some(Finding::new(APPROVED, false, RELEASE_REJECTED, message))
}

/// Whether an agent has said, of its present spec, that its pods are all as they should be.
fn runs(agent: &Agent) -> bool {
    let Some(status) = &agent.status else { return false };
    let holds = |kind: &str, value: &str| status.conditions.iter().any(|condition| condition.type_ == kind && condition.status == value);
    status.observed_generation == agent.metadata.generation
        && status.phase == Some(Phase::Running)
        && holds(READY, "True")
        && holds(RECONCILING, "False")
}

/// What to say when Git cannot be asked: all else stays.
pub(super) fn unavailable(agent: &Agent, reason: &str, message: &str) -> WantedStatus {
    let status = agent.status.clone().unwrap_or_default();
    let kept = [PINNED, APPROVED].into_iter().filter_map(|kind| {
        let found = status.conditions.iter().find(|condition| condition.type_ == kind)?;
        let holds = (found.status != "Unknown").then_some(found.status == "True");
        Some(Finding { kind, holds, reason: found.reason.clone(), message: found.message.clone() })
    });
    let findings = [Finding::new(RELEASED, false, reason, message)].into_iter().chain(kept).collect();
    WantedStatus {
        active_release: status.active_release,
        pending_release: status.pending_release,
        pending_evaluation: status.pending_evaluation,
        quality_gate: status.quality_gate,
        pinned_content: status.pinned_content,
        findings,
        generation: status
            .conditions
            .iter()
            .find(|condition| condition.type_ == APPROVED)
            .and_then(|approved| approved.observed_generation),
    }
}

/// The version that the Agent's status names.
pub(super) fn agent_release(agent: &Agent) -> Option<u64> {
    agent.status.as_ref()?.active_release.and_then(|version| u64::try_from(version).ok())
}

/// What to say when the cluster has seen releases that Git does not have: nothing is recorded upon a history that was
/// lost, and nothing of it is deleted from the cluster.
pub(super) fn lost(agent: &Agent, past: &AgentHistory) -> Option<WantedStatus> {
    let known = agent_release(agent)?;
    (known > past.highest).then(|| {
        let message = format!(
            "release v{known} is the active one, but the history ends at v{}; restore {}.git from a mirror or a backup. To begin anew instead: \
             kubectl patch agent {} --subresource=status --type=merge -p '{{\"status\":{{\"activeRelease\":null}}}}'",
            past.highest,
            agent.namespace().unwrap_or_default(),
            agent.name_any(),
        );
        unavailable(agent, "HistoryLost", &message)
    })
}

/// What has to be written, unless the Agent says so already.
pub(super) fn differs(agent: &Agent, wanted: &WantedStatus, now: Timestamp) -> Option<ReleasePart> {
    let status = agent.status.clone().unwrap_or_default();
    let before: Vec<Condition> = status.conditions.into_iter().filter(|condition| OF_RELEASES.contains(&&*condition.type_)).collect();
    let mut conditions = condition::conditions(wanted.findings.clone(), &before, None, now);
    for approved in conditions.iter_mut().filter(|condition| condition.type_ == APPROVED) {
        approved.observed_generation = wanted.generation;
    }
    let part = ReleasePart {
        active_release: wanted.active_release,
        pending_release: wanted.pending_release,
        pending_evaluation: wanted.pending_evaluation.clone(),
        quality_gate: wanted.quality_gate,
        pinned_content: wanted.pinned_content.clone(),
        conditions,
    };
    let mut before = ReleasePart {
        active_release: status.active_release,
        pending_release: status.pending_release,
        pending_evaluation: status.pending_evaluation,
        quality_gate: status.quality_gate,
        pinned_content: status.pinned_content,
        conditions: before,
    };
    before.conditions.sort_by_key(|condition| OF_RELEASES.iter().position(|kind| *kind == condition.type_));
    (part != before).then_some(part)
}
