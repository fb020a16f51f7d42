//! Reads from the caches everything that a decision about a canary needs.

use jiff::Timestamp;
use kube::Resource;
use slipway_api::canary::CanaryPhase;
use slipway_api::condition::{APPROVED, RELEASE_REJECTED};
use slipway_api::{Agent, CanaryStatus, Track};
use slipway_cluster::Key;
use slipway_release::content_of;

use super::Brought;
use super::evaluation::{self, Evaluation, EvaluationState};
use super::events::EndedBy;
use crate::agent::Progress;
use crate::agent::pin;
use crate::agent::resolve::{ConditionFault, Resolved};
use crate::agent::track_pods::{self, PodTrouble};
use crate::caches::ChildKind;
use crate::caches::canary::Reading;
use crate::caches::child::DeploymentState;
use crate::children::Outcome;
use crate::context::Context;
use crate::governance::canary::is_recorded;

/// All that is decided by.
#[derive(Debug, Clone)]
pub(super) struct CanarySeen {
    /// Of the canary.
    pub deployment: Option<DeploymentState>,
    /// Whether that is the Deployment which is wanted now.
    pub is_as_wanted: bool,
    /// Whether the Services by which the tracks are told apart are there, and the Agent's own.
    pub has_services: bool,
    pub fault: Option<ConditionFault>,
    /// What the workload waits for.
    pub waits: Option<String>,
    /// What keeps its pods from being ready.
    pub trouble: Option<PodTrouble>,
    pub run_hash: Option<String>,
    /// What the stable track runs.
    pub stable_run_hash: Option<String>,
    pub stable: Stable,
    pub stable_version: Option<String>,
    pub evaluation: Option<Evaluation>,
    /// Whether the platform's database has what both tracks do.
    pub is_measurable: bool,
    pub reading: Option<Reading>,
    /// Read from the API server where it matters.
    pub book: Option<Book>,
}

/// How the stable track stands, beside a canary that was promoted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stable {
    /// All its pods run what the spec says.
    Rolled,
    /// What it waits for.
    Rolls(String),
    /// The verdict on its release.
    Rejected(String),
}

/// Who has written what of the Agent, and whether its spec can be written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Book {
    /// Who has asked for the end of the canary.
    pub by: EndedBy,
    /// When that was asked by annotation.
    pub asked_at: String,
    /// Whether the annotation stands in the manifest of a GitOps tool, which would put it back.
    pub in_manifest: bool,
    /// Why the spec cannot be written.
    pub barrier: Option<String>,
}

impl CanarySeen {
    /// What was measured, if anything follows from it for this step.
    pub(super) fn evidence(&self, status: &CanaryStatus, now: Timestamp) -> Option<&Reading> {
        let is_of_step = |reading: &&Reading| status.step_started_at.as_ref().is_none_or(|begun| reading.read_at >= begun.0);
        self.reading.as_ref().filter(|reading| reading.is_evidence(status, self.stable_run_hash.as_deref(), now)).filter(is_of_step)
    }

    /// What keeps its pods from ever being ready by themselves, of a canary that has this weight. One that serves nobody has nothing of
    /// pods of an earlier configuration, which are there until the new ones are.
    pub(super) fn given_up(&self, weight: i32) -> Option<&PodTrouble> {
        let deployment = self.deployment.as_ref().filter(|_| self.is_as_wanted)?;
        let available = if weight == 0 { 0 } else { deployment.available };
        let state = DeploymentState { available, ..deployment.clone() };
        self.trouble.as_ref().filter(|_| track_pods::is_given_up(&state))
    }

    /// Whether all its pods are there, and found.
    pub(super) fn is_settled(&self) -> bool {
        self.is_as_wanted && self.has_services && self.deployment.as_ref().is_some_and(DeploymentState::settled)
    }

    /// How many pods take requests, of this or of an earlier configuration.
    pub(super) fn serving_pods(&self) -> i32 {
        self.deployment.as_ref().filter(|_| self.has_services).map_or(0, |deployment| deployment.available)
    }

    /// Whether the run that its gates ask for is to be made now.
    pub(super) fn is_run_due(&self) -> bool {
        let is_absent = self.evaluation.as_ref().is_some_and(|evaluation| evaluation.state == EvaluationState::Absent);
        is_absent && self.is_settled() && self.serving_pods() > 0
    }

    /// The score of the canary's evaluation.
    pub(super) fn score(&self) -> Option<f64> {
        let evaluated = self.evaluation.as_ref().and_then(|evaluation| match evaluation.state {
            EvaluationState::Passed(score) => score,
            _ => None,
        });
        evaluated.or_else(|| self.reading.as_ref()?.canary.evidence.score)
    }
}

pub(super) fn gather(agent: &Agent, progress: &Progress, context: &Context) -> CanarySeen {
    let (key, stood) = (Key::of(agent), agent.canary_status());
    let Brought { fault, waits, run_hash } = progress.canary.clone();
    let active = agent.status.as_ref().and_then(|status| status.active_release);
    let version = match &progress.resolved {
        Resolved::Plan(plan) => plan.version.clone().or_else(|| active.map(|version| format!("v{version}"))),
        Resolved::Fault(_) | Resolved::Unknown(_) => stood.and_then(|stood| stood.stable_version.clone()),
    };
    let is_service = |name: String| {
        let child = context.caches.children(ChildKind::Service).get(&Key::new(&key.namespace, name));
        child.is_some_and(|child| child.owner == agent.meta().uid && !child.deleting)
    };
    CanarySeen {
        deployment: track_pods::deployment(agent, Track::Canary, context),
        is_as_wanted: is_unchanged(progress, Track::Canary.workload(&key.name)),
        has_services: is_service(Track::Canary.workload(&key.name)) && is_service(Track::primary(&key.name)),
        fault,
        waits,
        trouble: track_pods::trouble(agent, Track::Canary, context),
        run_hash,
        stable_run_hash: progress.applied.run_hash.clone().or_else(|| agent.status.as_ref()?.run_hash.clone()),
        stable: stable(agent, progress, context),
        stable_version: version,
        evaluation: agent.canary().and_then(|canary| evaluation::of(agent, canary, stood, context)),
        is_measurable: context.tenancy.is_some() && is_recorded(agent),
        reading: context.caches.canary_measured.of(&key).flatten(),
        book: None,
    }
}

/// Whether the Deployment of that name was as it should be already, so that its status is that of the pods which are wanted.
fn is_unchanged(progress: &Progress, name: String) -> bool {
    progress.applied.outcomes.contains(&(ChildKind::Deployment, name, Outcome::Unchanged))
}

fn stable(agent: &Agent, progress: &Progress, context: &Context) -> Stable {
    let mut conditions = agent.status.iter().flat_map(|status| &status.conditions);
    let rejected = conditions.find(|found| (&*found.type_, &*found.status, &*found.reason) == (APPROVED, "False", RELEASE_REJECTED));
    if pin::is_held(agent, context) {
        // It may speak of an earlier spec.
        let rejected = rejected.filter(|found| found.observed_generation == agent.meta().generation);
        let waits = || Stable::Rolls("its release has yet to pass the evaluation gate".to_owned());
        return rejected.map_or_else(waits, |rejected| Stable::Rejected(rejected.message.clone()));
    }
    if let Some(rejected) = rejected.filter(|_| is_set_back(agent)) {
        return Stable::Rejected(rejected.message.clone());
    }
    let deployment = track_pods::deployment(agent, Track::Stable, context);
    if is_unchanged(progress, Key::of(agent).name) && deployment.as_ref().is_some_and(DeploymentState::settled) {
        return Stable::Rolled;
    }
    let fault = match &progress.resolved {
        Resolved::Fault(fault) => Some(format!("{}: {}", fault.reason, fault.message)),
        Resolved::Plan(_) | Resolved::Unknown(_) => None,
    };
    let trouble = || track_pods::trouble(agent, Track::Stable, context).map(|trouble| trouble.said());
    Stable::Rolls(fault.or_else(trouble).unwrap_or_else(|| "its pods are being replaced".to_owned()))
}

/// Whether the spec has another content by now than the canary that was promoted, as it has once its release was rejected.
fn is_set_back(agent: &Agent) -> bool {
    let is_other = |canary: &CanaryStatus| content_of(agent).content_hash() != canary.content;
    agent.canary_status().is_some_and(|canary| canary.phase == CanaryPhase::Promoting && is_other(canary))
}

#[cfg(test)]
mod tests {
    use slipway_api::AgentStatus;
    use slipway_api::condition::{self, Finding};

    use super::*;
    use crate::agent::apply::Applied;
    use crate::agent::pin::tests::agent_of;
    use crate::testing::context;

    #[tokio::test]
    async fn a_promotion_whose_spec_was_set_back_was_rejected() {
        let context = context();
        let (old, new) = (agent_of("systemPrompt: old"), agent_of("systemPrompt: new"));
        let progress = Progress {
            resolved: Resolved::Unknown("it"),
            applied: Applied::default(),
            candidate: None,
            canary: Brought::default(),
            error: None,
        };
        let found = |agent: &Agent, reason: &str| {
            let finding = Finding::new(APPROVED, false, reason, "avg=50");
            let conditions = condition::conditions(vec![finding], &[], Some(3), Timestamp::UNIX_EPOCH);
            let promoted = content_of(&new).content_hash();
            let canary = Some(CanaryStatus { phase: CanaryPhase::Promoting, content: promoted, ..CanaryStatus::default() });
            let status = Some(AgentStatus { canary, conditions, ..AgentStatus::default() });
            stable(&Agent { status, ..agent.clone() }, &progress, &context)
        };
        // A manager that was away while the verdict stood beside the promoted spec finds the spec as it was before.
        assert_eq!(found(&old, RELEASE_REJECTED), Stable::Rejected("avg=50".to_owned()));
        assert!(matches!(found(&old, "Other"), Stable::Rolls(_)));
        assert!(matches!(found(&new, RELEASE_REJECTED), Stable::Rolls(_)), "it may speak of an earlier release");
    }
}
