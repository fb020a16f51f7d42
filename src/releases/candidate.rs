//! The release that waits for its evaluation, and what its run says of it. Pure.
//!
//! A run counts if it is the one that was asked for: its name follows from release and attempt, the release owns it, the operator
//! made it, its spec is what the gate makes of the artifacts, and the evaluation controller alone wrote its status. Whatever else
//! names a release decides nothing.
//!
//! A run of the agent's canary counts too, where the canary has the content of the release: what has passed there is not evaluated a
//! second time ([`on_canary`]). One that failed decides nothing here, as it was of a canary.

use kube::ResourceExt;
use slipway_api::EvaluationRunSpec;
use slipway_api::canary::CanaryPhase;
use slipway_api::evaluation_run::{EvaluationPhase, EvaluationProvider};
use slipway_api::release::ReleaseEvaluation;
use slipway_evaluation::{Profile, passes};
use slipway_release::gate::{self, MAX_ATTEMPTS};

use super::history::{AgentHistory, Pending};
use super::run::{ReleaseRun, Runs};
use super::seen::Seen;
use super::shown::Shown;

/// The longest verdict that is kept; the resource takes as much.
const MAX_VERDICT_BYTES: usize = 900;

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
            Some(Outcome::Silent(why)) => {
                let said = cut(&format!("the evaluation ended without a verdict, and is not repeated: {why}"));
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
    let is_asked_for =
        |run: &&ReleaseRun| run.is_made && run.agents.contains(&uid) && gate::satisfies(&run.spec, active, &version.artifact);
    let run = runs.get(name).filter(is_asked_for)?;
    let wanted = gate::canary_run_spec(active, &version.artifact, None);
    match found(run, &wanted, version, allow_heuristic) {
        Outcome::Scored(scored) if scored.passed == Some(true) => Some(ReleaseEvaluation { run: name.clone(), attempt, ..*scored }),
        Outcome::Scored(_) | Outcome::Spent(_) | Outcome::Silent(_) | Outcome::Runs => None,
    }
}

/// What one run came to.
enum Outcome {
    Runs,
    /// It ended, and does not say how good the release is.
    Spent(String),
    /// The same, and another one would end no better.
    Silent(String),
    Scored(Box<ReleaseEvaluation>),
}

fn outcome(run: &ReleaseRun, release_uid: &str, wanted: &EvaluationRunSpec, pending: &Pending, allow_heuristic: bool) -> Outcome {
    if !run.is_made || !run.owners.iter().any(|owner| owner == release_uid) || !gate::is_run_spec(&run.spec, wanted) {
        return Outcome::Spent("the run of this name is not the one that Slipway makes".to_owned());
    }
    found(run, wanted, pending, allow_heuristic)
}

/// What a run found that was asked for.
fn found(run: &ReleaseRun, wanted: &EvaluationRunSpec, pending: &Pending, allow_heuristic: bool) -> Outcome {
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
        Some(EvaluationPhase::Failed) if run.reason.as_deref() == Some(gate::NO_ANSWER) => return Outcome::Silent(message()),
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

/// What a release waits for.
pub(super) fn waiting(evaluation: Option<&ReleaseEvaluation>) -> String {
    let Some(evaluation) = evaluation else { return "waits for its evaluation".to_owned() };
    let why = evaluation.verdict.as_ref().map(|why| format!("; {why}")).unwrap_or_default();
    format!("waits for its evaluation: EvaluationRun {}, attempt {} of {MAX_ATTEMPTS}{why}", evaluation.run, evaluation.attempt)
}

/// On one line, so that it can stand in the history.
fn cut(words: &str) -> String {
    let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
    words[..words.floor_char_boundary(MAX_VERDICT_BYTES)].to_owned()
}
