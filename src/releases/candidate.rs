//! The release that waits for its evaluation, and what its run says of it. Pure.
//!
//! A run counts if it is the one that was asked for: its name follows from release and attempt, the release owns it, the operator
//! made it, its spec is what the gate makes of the artifacts, and the evaluation controller alone wrote its status. Whatever else
//! names a release decides nothing.
//!
//! A run of the agent's canary counts too, where the canary has the content of the release: what has passed there is not evaluated a
//! second time ([`on_canary`]). One that failed decides nothing here, as it was of a canary.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, OwnerReference};
use kube::{Resource, ResourceExt};
use slipway_api::canary::CanaryPhase;
use slipway_api::evaluation_run::{EvaluatedTrack, EvaluationPhase, EvaluationProvider, WorstCase};
use slipway_api::release::{RELEASE_CASES_MAX, ReleaseEvaluation};
use slipway_api::{Agent, AgentRelease, EvaluationRun, EvaluationRunSpec, condition};
use slipway_evaluation::{Profile, passes};
use slipway_release::gate::{self, MAX_ATTEMPTS};

use super::history::{AgentHistory, Pending};
use super::plan::Seen;
use super::projection::Shown;

/// The longest verdict that is kept; the resource takes as much.
const MAX_VERDICT_BYTES: usize = 900;
/// How much of the question and the answer of a case, and of its reasons, a release shows.
const MAX_CASE_BYTES: usize = 128;
const MAX_CASE_REASON_BYTES: usize = 256;

/// An EvaluationRun that names a release, or what it evaluates of a canary.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Run {
    /// The UIDs of the AgentReleases that own it.
    owners: Vec<String>,
    /// The UIDs of the Agents that own it, as the operator makes those of canaries.
    agents: Vec<String>,
    /// Whether the operator made it, as far as the book of its writers says.
    is_made: bool,
    /// Whether the evaluation controller has written its status, and nobody else what decides.
    is_judged: bool,
    deleting: bool,
    spec: EvaluationRunSpec,
    phase: Option<EvaluationPhase>,
    provider: Option<EvaluationProvider>,
    score: Option<f64>,
    threshold: Option<f64>,
    passed: Option<bool>,
    means: BTreeMap<String, f64>,
    verdict: Option<String>,
    /// As a release shows them.
    worst_cases: Vec<WorstCase>,
    /// Why it is not done, or ended without scores.
    message: Option<String>,
}

/// Runs by name.
pub(super) type Runs = BTreeMap<String, Run>;

impl Run {
    /// None of a run that decides neither on a release nor on a canary.
    pub(super) fn of(run: &EvaluationRun) -> Option<Self> {
        let is_canarys = run.spec.track == EvaluatedTrack::Canary && run.spec.content.is_some();
        if run.spec.release.is_none() && !is_canarys {
            return None;
        }
        let status = run.status.clone().unwrap_or_default();
        let book = run.managed_fields();
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
            message: status.conditions.into_iter().find(|found| found.type_ == condition::READY).map(|ready| ready.message),
        })
    }
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

/// The release that waits, and where its evaluation stands.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Candidate {
    /// The name of its AgentRelease.
    pub release: String,
    pub evaluation: ReleaseEvaluation,
    pub verdict: Verdict,
}

/// What became of the evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Waits,
    Passed,
    Failed,
}

/// The release that waits; none while it has no AgentRelease, by which its runs are named.
pub(super) fn of(past: &AgentHistory, shown: &[Shown], runs: &Runs, allow_heuristic: bool) -> Option<Candidate> {
    let pending = past.pending.as_ref()?;
    let of_version = shown.iter().filter(|shown| shown.version == Some(pending.version) && !shown.deleting && !shown.uid.is_empty());
    let shown = of_version.min_by_key(|shown| (shown.created, &shown.name))?;
    let wanted = gate::run_spec(&shown.name, past.active.as_ref().map(|active| &active.artifact), &pending.artifact);
    let is_known =
        |known: &&ReleaseEvaluation| (1..=MAX_ATTEMPTS).contains(&known.attempt) && known.run == gate::run_name(&shown.uid, known.attempt);
    let known = shown.evaluation.as_ref().filter(is_known);
    let mut attempt = known.map_or(1, |known| known.attempt);
    let mut said = known.filter(|known| known.passed.is_none()).and_then(|known| known.verdict.clone());
    loop {
        let run = gate::run_name(&shown.uid, attempt);
        let waits = ReleaseEvaluation { run: run.clone(), attempt, verdict: said, ..ReleaseEvaluation::default() };
        let (verdict, evaluation) = match runs.get(&run).map(|found| outcome(found, &shown.uid, &wanted, pending, allow_heuristic)) {
            None | Some(Outcome::Runs) => (Verdict::Waits, waits),
            Some(Outcome::Spent(why)) if attempt < MAX_ATTEMPTS => {
                said = Some(cut(&format!("attempt {attempt} of {MAX_ATTEMPTS} ended without a verdict: {why}")));
                attempt += 1;
                continue;
            }
            Some(Outcome::Spent(why)) => {
                let said = cut(&format!("{MAX_ATTEMPTS} evaluations ended without a verdict; the last one: {why}"));
                (Verdict::Failed, ReleaseEvaluation { passed: Some(false), verdict: Some(said), ..waits })
            }
            Some(Outcome::Scored(scored)) => {
                let verdict = if scored.passed == Some(true) { Verdict::Passed } else { Verdict::Failed };
                (verdict, ReleaseEvaluation { run, attempt, ..*scored })
            }
        };
        return Some(Candidate { release: shown.name.clone(), evaluation, verdict });
    }
}

/// What the run of the agent's canary says of a version: that it passed all that the version is held to. None unless the canary that is
/// there has the content of the version. What was rolled back is evaluated as any other.
pub(super) fn on_canary(seen: &Seen, version: &Pending) -> Option<ReleaseEvaluation> {
    let Seen { agent, past, runs, allow_heuristic, .. } = *seen;
    let canary = agent.canary_status()?;
    let is_ended = matches!(canary.phase, CanaryPhase::RolledBack | CanaryPhase::Draining);
    let name = canary.evaluation.as_ref().filter(|_| !is_ended)?;
    let (uid, key) = (agent.uid()?, gate::content_key(&version.artifact));
    let attempt = (1..=MAX_ATTEMPTS).find(|attempt| *name == gate::canary_run_name(&uid, &key, *attempt))?;
    let active = past.active.as_ref().map(|active| &active.artifact);
    let is_asked_for = |run: &&Run| run.is_made && run.agents.contains(&uid) && gate::satisfies(&run.spec, active, &version.artifact);
    let run = runs.get(name).filter(is_asked_for)?;
    let wanted = gate::canary_run_spec(active, &version.artifact, None);
    match found(run, &wanted, version, allow_heuristic) {
        Outcome::Scored(scored) if scored.passed == Some(true) => Some(ReleaseEvaluation { run: name.clone(), attempt, ..*scored }),
        Outcome::Scored(_) | Outcome::Spent(_) | Outcome::Runs => None,
    }
}

/// What one run came to.
enum Outcome {
    Runs,
    /// It ended, and does not say how good the release is.
    Spent(String),
    Scored(Box<ReleaseEvaluation>),
}

fn outcome(run: &Run, release_uid: &str, wanted: &EvaluationRunSpec, pending: &Pending, allow_heuristic: bool) -> Outcome {
    if !run.is_made || !run.owners.iter().any(|owner| owner == release_uid) || !gate::is_run_spec(&run.spec, wanted) {
        return Outcome::Spent("the run of this name is not the one that Slipway makes".to_owned());
    }
    found(run, wanted, pending, allow_heuristic)
}

/// What a run found that was asked for.
fn found(run: &Run, wanted: &EvaluationRunSpec, pending: &Pending, allow_heuristic: bool) -> Outcome {
    if run.phase.is_some() && !run.is_judged {
        return Outcome::Spent("somebody else has written the status of the run".to_owned());
    }
    let message = || run.message.clone().filter(|message| !message.is_empty()).unwrap_or_else(|| "no reason was told".to_owned());
    match run.phase {
        None | Some(EvaluationPhase::Pending | EvaluationPhase::Running) if run.deleting => {
            return Outcome::Spent("the run was deleted".to_owned());
        }
        None | Some(EvaluationPhase::Pending | EvaluationPhase::Running) => return Outcome::Runs,
        Some(EvaluationPhase::Cancelled) => return Outcome::Spent("the run was cancelled".to_owned()),
        Some(EvaluationPhase::Failed) => return Outcome::Spent(message()),
        Some(EvaluationPhase::Completed) => {}
    }
    let (Some(provider), Some(score), Some(threshold), Some(passed)) = (run.provider, run.score, run.threshold, run.passed) else {
        return Outcome::Spent(run.verdict.clone().unwrap_or_else(message));
    };
    if provider == EvaluationProvider::Mock {
        return Outcome::Spent("the agent was not reached".to_owned());
    }
    let words = run.verdict.clone().unwrap_or_else(|| format!("avg={score}"));
    let asked = f64::from(wanted.min_quality_score.unwrap_or(pending.artifact.governance.min_quality_score));
    let profile = Profile::of(wanted.risk_profile.unwrap_or_default());
    let reaches = match passes(&profile, asked.max(threshold), &run.means) {
        Ok(reaches) => reaches,
        Err(why) => return Outcome::Spent(why),
    };
    let (passed, words) = if !passed {
        (false, words)
    } else if !reaches || threshold < asked {
        (false, format!("{words}, which its scores do not bear out: the gate asks for at least {asked}"))
    } else if provider == EvaluationProvider::Heuristic && !allow_heuristic {
        (false, format!("{words}, judged by a comparison of words, which passes no gate; name a model in spec.judgeModel"))
    } else {
        (true, words)
    };
    Outcome::Scored(Box::new(ReleaseEvaluation {
        score: Some(score),
        threshold: Some(threshold),
        passed: Some(passed),
        verdict: Some(cut(&words)),
        provider: Some(provider),
        ..ReleaseEvaluation::default()
    }))
}

/// On one line, so that it can stand in the history.
fn cut(words: &str) -> String {
    begin(&words.split_whitespace().collect::<Vec<_>>().join(" "), MAX_VERDICT_BYTES)
}

fn begin(text: &str, most: usize) -> String {
    text[..text.floor_char_boundary(most)].to_owned()
}

fn shortened(case: WorstCase) -> WorstCase {
    WorstCase {
        input: begin(&case.input, MAX_CASE_BYTES),
        output: case.output.map(|output| begin(&output, MAX_CASE_BYTES)),
        reason: begin(&case.reason, MAX_CASE_REASON_BYTES),
        ..case
    }
}

/// The cases of a run that went worst. None of a run that somebody else has made or written.
pub(super) fn worst_cases(runs: &Runs, name: &str) -> Vec<WorstCase> {
    runs.get(name).filter(|run| run.is_made && run.is_judged).map(|run| run.worst_cases.clone()).unwrap_or_default()
}

/// What the history keeps beside a version that was evaluated. It is one sentence, which people read too; cases do not stand in it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Evaluated(pub ReleaseEvaluation);

const RUN: &str = "; run ";
const ATTEMPT: &str = ", attempt ";
const SCORE: &str = ", score ";
const OF: &str = " of ";
const BY: &str = ", judged by ";

impl fmt::Display for Evaluated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(ReleaseEvaluation { run, attempt, score, threshold, passed, verdict, provider, worst_cases: _ }) = self;
        let otherwise = if *passed == Some(true) { "PASSED" } else { "FAILED" };
        write!(f, "{}{RUN}{run}{ATTEMPT}{attempt}", verdict.as_deref().unwrap_or(otherwise))?;
        if let (Some(score), Some(threshold)) = (score, threshold) {
            write!(f, "{SCORE}{score}{OF}{threshold}")?;
        }
        provider.map_or(Ok(()), |provider| write!(f, "{BY}{}", provider.as_str()))
    }
}

impl Evaluated {
    /// Reads what [`Display`](fmt::Display) wrote. What somebody else wrote says nothing.
    pub(super) fn read(reason: Option<&str>, passed: bool) -> Option<Self> {
        let (verdict, rest) = reason?.rsplit_once(RUN)?;
        let (run, rest) = rest.split_once(ATTEMPT)?;
        let (rest, provider) = match rest.split_once(BY) {
            Some((rest, word)) => {
                let all = [EvaluationProvider::Slipway, EvaluationProvider::Heuristic, EvaluationProvider::Mock];
                (rest, Some(all.into_iter().find(|provider| provider.as_str() == word)?))
            }
            None => (rest, None),
        };
        let (attempt, scores) = match rest.split_once(SCORE) {
            Some((attempt, scores)) => (attempt, Some(scores.split_once(OF)?)),
            None => (rest, None),
        };
        Some(Self(ReleaseEvaluation {
            run: run.to_owned(),
            attempt: attempt.parse().ok()?,
            score: scores.map(|(score, _)| score.parse()).transpose().ok()?,
            threshold: scores.map(|(_, threshold)| threshold.parse()).transpose().ok()?,
            passed: Some(passed),
            verdict: Some(verdict.to_owned()),
            provider,
            worst_cases: Vec::new(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_evaluated_is_read_as_it_was_written() {
        let evaluation = |verdict: &str, passed, score: Option<f64>, provider| {
            Evaluated(ReleaseEvaluation {
                run: "ev-0".to_owned(),
                attempt: 2,
                score,
                threshold: score.map(|_| 75.0),
                passed: Some(passed),
                verdict: Some(verdict.to_owned()),
                provider,
                worst_cases: Vec::new(),
            })
        };
        for (written, text) in [
            (
                evaluation("PASSED (avg=91.2 >= 75)", true, Some(91.2), Some(EvaluationProvider::Slipway)),
                "PASSED (avg=91.2 >= 75); run ev-0, attempt 2, score 91.2 of 75, judged by slipway",
            ),
            (evaluation("no answer; run away, attempt 9", false, None, None), "no answer; run away, attempt 9; run ev-0, attempt 2"),
        ] {
            assert_eq!(written.to_string(), text);
            assert_eq!(Evaluated::read(Some(text), written.0.passed == Some(true)), Some(written));
        }
        for other in [None, Some(""), Some("superseded by v3"), Some("deployed again; by ann"), Some("x; run ev-0, attempt many")] {
            assert_eq!(Evaluated::read(other, true), None, "{other:?}");
        }
    }
}
