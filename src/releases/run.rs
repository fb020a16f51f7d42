//! An EvaluationRun as far as it decides on a release: who made and owns it, who wrote its status, and what it found.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, OwnerReference};
use kube::{Resource, ResourceExt};
use slipway_api::evaluation_run::{EvaluatedTrack, EvaluationPhase, EvaluationProvider, WorstCase};
use slipway_api::release::RELEASE_CASES_MAX;
use slipway_api::{Agent, AgentRelease, EvaluationRun, EvaluationRunSpec, condition};
use slipway_release::gate;

/// How much of the question and the answer of a case, and of its reasons, a release shows.
const MAX_CASE_BYTES: usize = 128;
const MAX_CASE_REASON_BYTES: usize = 256;

/// An EvaluationRun that names a release, or what it evaluates of a canary.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ReleaseRun {
    /// The UIDs of the AgentReleases that own it.
    pub owners: Vec<String>,
    /// The UIDs of the Agents that own it, as the operator makes those of canaries.
    pub agents: Vec<String>,
    /// Whether the operator made it, as far as the book of its writers says.
    pub is_made: bool,
    /// Whether the evaluation controller has written its status, and nobody else what decides.
    pub is_judged: bool,
    pub deleting: bool,
    pub spec: EvaluationRunSpec,
    pub phase: Option<EvaluationPhase>,
    pub provider: Option<EvaluationProvider>,
    pub score: Option<f64>,
    pub threshold: Option<f64>,
    pub passed: Option<bool>,
    pub means: BTreeMap<String, f64>,
    pub verdict: Option<String>,
    /// As a release shows them.
    pub worst_cases: Vec<WorstCase>,
    /// Why it is not done, or ended without scores: in a word, and in a sentence.
    pub reason: Option<String>,
    pub message: Option<String>,
}

/// Runs by name.
pub(super) type Runs = BTreeMap<String, ReleaseRun>;

impl ReleaseRun {
    /// None of a run that decides neither on a release nor on a canary.
    pub(super) fn of(run: &EvaluationRun) -> Option<Self> {
        let is_canarys = run.spec.track == EvaluatedTrack::Canary && run.spec.content.is_some();
        if run.spec.release.is_none() && !is_canarys {
            return None;
        }
        let status = run.status.clone().unwrap_or_default();
        let book = run.managed_fields();
        let ready = status.conditions.into_iter().find(|found| found.type_ == condition::READY);
        let (reason, message) = ready.map(|ready| (ready.reason, ready.message)).unzip();
        Some(Self {
            is_made: book.iter().any(|entry| entry.subresource.is_none() && entry.manager.as_deref() == Some(gate::MAKER)),
            is_judged: is_judged(run),
            deleting: run.metadata.deletion_timestamp.is_some(),
            owners: owners::<AgentRelease>(run),
            agents: owners::<Agent>(run),
            spec: run.spec.clone(),
            phase: status.phase,
            provider: status.provider,
            score: status.score,
            threshold: status.threshold,
            passed: status.passed,
            means: status.aggregate_scores,
            verdict: status.verdict,
            worst_cases: status.worst_cases.into_iter().take(RELEASE_CASES_MAX).map(shortened).collect(),
            reason,
            message,
        })
    }
}

fn shortened(case: WorstCase) -> WorstCase {
    WorstCase {
        input: begin(&case.input, MAX_CASE_BYTES),
        output: case.output.map(|output| begin(&output, MAX_CASE_BYTES)),
        reason: begin(&case.reason, MAX_CASE_REASON_BYTES),
        ..case
    }
}

fn begin(text: &str, most: usize) -> String {
    text[..text.floor_char_boundary(most)].to_owned()
}

/// The cases of a run that went worst. None of a run that somebody else has made or written.
pub(super) fn worst_cases(runs: &Runs, name: &str) -> Vec<WorstCase> {
    runs.get(name).filter(|run| run.is_made && run.is_judged).map(|run| run.worst_cases.clone()).unwrap_or_default()
}

/// The UIDs of those of a kind that own a run.
fn owners<K: Resource<DynamicType = ()>>(run: &EvaluationRun) -> Vec<String> {
    let is_of_kind = |owner: &&OwnerReference| owner.kind == K::kind(&()) && owner.api_version == K::api_version(&());
    run.owner_references().iter().filter(is_of_kind).map(|owner| owner.uid.clone()).collect()
}

/// Whether the evaluation controller has written the status of a run, and nobody else what decides.
pub fn is_judged(run: &EvaluationRun) -> bool {
    let mut writers = run.managed_fields().iter().filter(|entry| entry.subresource.as_deref() == Some("status"));
    let is_judge = |entry: &ManagedFieldsEntry| entry.manager.as_deref() == Some(gate::JUDGE);
    writers.clone().any(is_judge) && writers.all(|entry| is_judge(entry) || is_harmless(entry))
}

/// Whether somebody else has written of the status only what decides nothing: a callback, or that MLflow has the run.
fn is_harmless(entry: &ManagedFieldsEntry) -> bool {
    let owned = entry.fields_v1.as_ref().and_then(|fields| fields.0.as_object()?.get("f:status")?.as_object());
    let owns_only = |field: &str| owned.is_some_and(|owned| owned.keys().all(|key| key == field || key == "."));
    match entry.manager.as_deref() {
        Some(gate::CALLBACK) => owns_only("f:callback"),
        Some(gate::DELIVERY) => owns_only("f:conditions"),
        _ => false,
    }
}
