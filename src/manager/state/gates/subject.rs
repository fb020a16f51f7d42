//! What of an agent a quality gate is about, and what the agent's runs say of that. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use slipway_api::canary::CanaryPhase;
use slipway_api::condition::READY;
use slipway_api::evaluation_run::{EvaluatedTrack, EvaluationPhase, EvaluationProvider};
use slipway_api::{Agent, AgentSpec, EvaluationRun};
use slipway_evaluation::wire::{GateNext, GateScore, GateSubject};
use slipway_evaluation::{Profile, canary_gate};
use slipway_release::gate::{self, MAX_ATTEMPTS};
use slipway_releases::is_judged;

/// The canary, if there is one; else what the agent's Deployment runs, which is what Flagger tests. Fails with the reason why the
/// gate stays shut.
pub(super) fn of(agent: &Agent, allow_heuristic: bool) -> Result<GateSubject, &'static str> {
    let is_flaggers = agent.is_flaggers();
    let status = agent.status.as_ref();
    // What runs is another thing in a moment.
    let status = status.filter(|status| status.observed_generation.is_some() && status.observed_generation == agent.metadata.generation);
    let wanted = agent.canary().filter(|_| !is_flaggers);
    let canary = status.and_then(|status| status.canary.as_ref()).filter(|_| !is_flaggers);
    let (track, run_hash) = match canary {
        Some(canary) if canary.phase == CanaryPhase::RolledBack => return Err("the canary was rolled back"),
        Some(canary) => (EvaluatedTrack::Canary, canary.run_hash.clone()),
        None if wanted.is_some() => (EvaluatedTrack::Canary, None),
        None => (EvaluatedTrack::Stable, status.and_then(|status| status.run_hash.clone())),
    };
    let profile = |spec: &AgentSpec| spec.governance.as_ref().and_then(|governance| governance.risk_profile).unwrap_or_default();
    // A canary does not lower what is asked of it.
    let own = profile(&agent.spec);
    let profile = wanted.map_or(own, |canary| gate::stricter(own, profile(&canary.over(&agent.spec))));
    Ok(GateSubject { track, run_hash: run_hash.filter(|hash| !hash.is_empty()), profile, allow_heuristic })
}

/// A run of the agent.
#[derive(Debug, Clone)]
pub(super) struct GateRun {
    name: String,
    track: EvaluatedTrack,
    phase: Option<EvaluationPhase>,
    run_hash: Option<String>,
    provider: Option<EvaluationProvider>,
    scores: BTreeMap<String, f64>,
    completed: Option<Timestamp>,
    /// Whether it failed as the agent gives no answers.
    is_unanswered: bool,
    /// Whether the evaluation controller alone has written its status.
    is_judged: bool,
    deleting: bool,
}

impl GateRun {
    pub(super) fn of(run: &EvaluationRun) -> Self {
        let status = run.status.clone().unwrap_or_default();
        let is_unanswered = |found: &Condition| found.type_ == READY && found.reason == gate::NO_ANSWER;
        Self {
            is_unanswered: status.phase == Some(EvaluationPhase::Failed) && status.conditions.iter().any(is_unanswered),
            name: run.name_any(),
            track: run.spec.track,
            phase: status.phase,
            run_hash: status.run_hash,
            provider: status.provider,
            scores: status.aggregate_scores,
            completed: status.completed_at.map(|time| time.0),
            is_judged: is_judged(run),
            deleting: run.metadata.deletion_timestamp.is_some(),
        }
    }

    fn is_final(&self) -> bool {
        self.phase.is_some_and(EvaluationPhase::is_final)
    }

    /// Whether it says something of what is asked about.
    fn is_of(&self, subject: &GateSubject) -> bool {
        self.track == subject.track && subject.run_hash.is_some() && self.run_hash == subject.run_hash && self.is_judged
    }

    /// Whether it has scored what is asked about.
    fn has_scored(&self, subject: &GateSubject) -> bool {
        self.is_of(subject) && self.phase == Some(EvaluationPhase::Completed)
    }
}

/// What the runs say.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum SubjectScore {
    Scored { run: String, score: GateScore },
    NoScore(GateNext),
}

/// The newest score of what is asked about, or how one may come about.
pub(super) fn find(runs: &[GateRun], subject: &GateSubject, agent_uid: &str, may_evaluate: bool) -> SubjectScore {
    let profile = Profile::of(subject.profile);
    let counts = |run: &&GateRun| match run.provider {
        Some(EvaluationProvider::Slipway) => true,
        Some(EvaluationProvider::Heuristic) => subject.allow_heuristic,
        // Nobody judged.
        Some(EvaluationProvider::Mock) | None => false,
    };
    let has_scored: Vec<&GateRun> = runs.iter().filter(|run| run.has_scored(subject)).collect();
    let judged = has_scored.iter().copied().filter(counts).filter_map(|run| Some((run, canary_gate::judge(&profile, &run.scores)?)));
    if let Some((run, score)) = judged.max_by_key(|(run, _)| (run.completed, run.name.clone())) {
        return SubjectScore::Scored { run: run.name.clone(), score };
    }
    // Words alone are compared where no model judges, and would be in another run.
    let is_hopeless = has_scored.iter().any(|run| run.provider == Some(EvaluationProvider::Heuristic));
    SubjectScore::NoScore(next(runs, subject, agent_uid, may_evaluate && !is_hopeless))
}

fn next(runs: &[GateRun], subject: &GateSubject, agent_uid: &str, may_evaluate: bool) -> GateNext {
    let Some(hash) = &subject.run_hash else { return GateNext::Nothing };
    let is_under_way = |run: &&GateRun| {
        let fits = run.track == subject.track && run.run_hash.as_ref().is_none_or(|found| found == hash);
        fits && !run.is_final() && !run.deleting
    };
    if let Some(run) = runs.iter().find(is_under_way) {
        return GateNext::Runs(run.name.clone());
    }
    let names: Vec<String> = (1..=MAX_ATTEMPTS).map(|attempt| gate::webhook_run_name(agent_uid, hash, attempt)).collect();
    // Of the runs that were begun here: one that somebody else made may have had other cases.
    if let Some(run) = runs.iter().find(|run| run.is_unanswered && run.is_of(subject) && names.contains(&run.name)) {
        return GateNext::Unanswered(run.name.clone());
    }
    let free = names.into_iter().find(|name| !runs.iter().any(|run| run.name == *name)).filter(|_| may_evaluate);
    free.map_or(GateNext::Nothing, GateNext::Make)
}
