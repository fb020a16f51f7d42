//! The statuses of a run, pure: each step makes the next one from the one before, and what changed becomes an Event.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use slipway_api::condition::{self, Finding, READY, RECONCILING, STALLED};
use slipway_api::evaluation_run::{EvaluationPhase, EvaluationProvider, EvaluationRunStatus};
use slipway_api::{EvaluationRun, ids};
use slipway_cluster::event::EventSpec;

use super::outcome::{Found, Unscored};
use super::plan::{Cause, REPEATING, Setup, begins_anew, excerpt, repeats};

const MESSAGE_MAX: usize = 1024;
const VERDICT_MAX: usize = 1024;

/// What a pod was asked to run.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Begun {
    pub dataset: String,
    pub digest: String,
    pub total: usize,
    /// How many of the cases feedback has appended, and the digest over their traces.
    pub feedback: usize,
    pub feedback_digest: Option<String>,
    pub run_hash: Option<String>,
    pub version: Option<i64>,
}

/// The status that a run has, and the time of the step.
pub(super) struct Steps<'a> {
    pub run: &'a EvaluationRun,
    pub before: &'a EvaluationRunStatus,
    pub now: Timestamp,
}

impl Steps<'_> {
    /// The run waits, for a pod or for what it names.
    pub(super) fn waiting(&self, cause: &Cause) -> EvaluationRunStatus {
        let phase = self.before.phase.filter(|phase| *phase == EvaluationPhase::Running).unwrap_or(EvaluationPhase::Pending);
        // That it is repeated has to be known as long as it lasts.
        let reason = if repeats(self.before) { REPEATING } else { cause.reason };
        self.with(phase, [(false, cause.reason), (true, reason), (false, cause.reason)], &cause.message)
    }

    /// A pod has taken the run.
    pub(super) fn began(&self, setup: &Setup, begun: &Begun) -> EvaluationRunStatus {
        let is_new = self.before.started_at.is_none();
        let mut status = self.running();
        status.attempt = Some(self.before.attempt.unwrap_or_default().saturating_add(1));
        if is_new {
            status.started_at = Some(Time(condition::whole_seconds(self.now)));
            status.dataset = Some(begun.dataset.clone());
            status.dataset_digest = Some(begun.digest.clone());
            status.feedback_cases = count(begun.feedback);
            status.feedback_digest.clone_from(&begun.feedback_digest);
            status.run_hash.clone_from(&begun.run_hash);
            status.version = begun.version;
            status.total_cases = count(begun.total);
            status.finished_cases = Some(0);
            status.provider = Some(setup.provider());
            status.judge_model.clone_from(&setup.judge_model);
            status.risk_profile = Some(setup.profile.risk);
            status.threshold = Some(setup.threshold);
        } else if begins_anew(self.run) {
            status.finished_cases = Some(0);
        }
        status
    }

    /// This number of cases has been put to the agent.
    pub(super) fn progressed(&self, finished: usize) -> EvaluationRunStatus {
        let mut status = self.running();
        status.finished_cases = count(finished);
        status
    }

    fn running(&self) -> EvaluationRunStatus {
        let (reason, message) = if repeats(self.before) {
            (REPEATING, "the judge failed in too many cases; the run is repeated once")
        } else {
            ("Running", "the cases are put to the agent")
        };
        self.with(EvaluationPhase::Running, [(false, "Running"), (true, reason), (false, "Running")], message)
    }

    /// The judge failed, and the run is repeated once.
    pub(super) fn repeating(&self, words: &str) -> EvaluationRunStatus {
        let message = format!("the judge failed in too many cases, and the run is repeated once: {words}");
        let reasons = [(false, REPEATING), (true, REPEATING), (false, REPEATING)];
        let mut status = self.with(EvaluationPhase::Running, reasons, &message);
        status.finished_cases = Some(0);
        status
    }

    pub(super) fn completed(&self, found: Found) -> EvaluationRunStatus {
        let reason = if found.passed { "Passed" } else { "NotPassed" };
        let mut status = self.with(EvaluationPhase::Completed, [(true, reason), (false, reason), (false, reason)], &found.verdict);
        status.finished_cases = count(found.finished);
        status.passed_cases = count(found.passed_cases);
        status.score = found.score;
        status.margin = found.margin;
        status.passed = Some(found.passed);
        status.verdict = Some(found.verdict);
        status.aggregate_scores = found.means;
        status.prompts = found.prompts;
        status.worst_cases = found.worst_cases;
        status.usage = Some(found.usage);
        status
    }

    pub(super) fn failed(&self, cause: &Cause) -> EvaluationRunStatus {
        let message = excerpt(&cause.message, MESSAGE_MAX);
        let reasons = [(false, cause.reason), (false, cause.reason), (true, cause.reason)];
        let mut status = self.with(EvaluationPhase::Failed, reasons, &message);
        let mut verdict = format!("FAILED ({message})");
        if matches!(cause.reason, "NoPod" | "Unreachable" | "AgentStopped") {
            status.provider = Some(EvaluationProvider::Mock);
            verdict = format!("FAILED (the agent could not be reached: {message})");
        }
        status.verdict = Some(excerpt(&verdict, VERDICT_MAX));
        status
    }

    /// The run has ended without a verdict. What its cases came to stays known.
    pub(super) fn unscored(&self, unscored: Unscored) -> EvaluationRunStatus {
        let Unscored { cause, finished, prompts, worst_cases, usage } = unscored;
        EvaluationRunStatus { finished_cases: count(finished), prompts, worst_cases, usage: Some(usage), ..self.failed(&cause) }
    }

    pub(super) fn cancelled(&self) -> EvaluationRunStatus {
        let reasons = [(false, "Cancelled"), (false, "Cancelled"), (true, "Cancelled")];
        self.with(EvaluationPhase::Cancelled, reasons, "spec.cancel is true; the run was ended")
    }

    /// `reasons` are those of Ready, Reconciling and Stalled.
    fn with(&self, phase: EvaluationPhase, reasons: [(bool, &str); 3], message: &str) -> EvaluationRunStatus {
        let metadata = &self.run.metadata;
        let kinds = [READY, RECONCILING, STALLED];
        let findings = kinds.into_iter().zip(reasons).map(|(kind, (holds, reason))| Finding::new(kind, holds, reason, message)).collect();
        let ended = phase.is_final().then(|| Time(condition::whole_seconds(self.now)));
        EvaluationRunStatus {
            phase: Some(phase),
            id: metadata.name.as_deref().map(ids::evaluation_run),
            observed_generation: metadata.generation,
            completed_at: self.before.completed_at.clone().or(ended),
            conditions: condition::conditions(findings, &self.before.conditions, metadata.generation, self.now),
            ..self.before.clone()
        }
    }
}

fn count(of: usize) -> Option<i32> {
    i32::try_from(of).ok()
}

/// How a run ended or began, as metrics count it.
pub(super) fn outcome(before: &EvaluationRunStatus, now: &EvaluationRunStatus) -> Option<&'static str> {
    if before.phase == now.phase {
        return None;
    }
    match now.phase? {
        EvaluationPhase::Pending => None,
        EvaluationPhase::Running => Some("started"),
        EvaluationPhase::Completed if now.passed == Some(true) => Some("passed"),
        EvaluationPhase::Completed => Some("not_passed"),
        EvaluationPhase::Failed => Some("failed"),
        EvaluationPhase::Cancelled => Some("cancelled"),
    }
}

/// An Event about a run.
#[derive(Debug)]
pub(super) struct RunEvent {
    pub spec: EventSpec,
    pub payload: Value,
    /// Which one of its reason it is. The note does not tell: the next manager may find the run a few cases further.
    pub which: String,
}

/// The Event of a step, if it is one of which people want to hear.
pub(super) fn event(before: &EvaluationRunStatus, now: &EvaluationRunStatus) -> Option<RunEvent> {
    let verdict = || now.verdict.clone().unwrap_or_default();
    let Some(outcome) = outcome(before, now) else { return progress_event(before, now) };
    let (warning, reason, note, payload) = match outcome {
        "started" => {
            let (cases, dataset) = (now.total_cases.unwrap_or_default(), now.dataset.as_deref().unwrap_or_default());
            let note = format!("{cases} cases of Dataset {dataset} are put to the agent");
            (false, "EvaluationStarted", note, json!({"dataset": dataset, "total": cases}))
        }
        "passed" | "not_passed" => {
            let payload = json!({"passed": now.passed, "score": now.score, "threshold": now.threshold});
            (false, "EvaluationCompleted", verdict(), payload)
        }
        "failed" => {
            let stalled = now.conditions.iter().find(|condition| condition.type_ == STALLED);
            (true, "EvaluationFailed", verdict(), json!({"reason": stalled.map(|stalled| &*stalled.reason)}))
        }
        _ => (false, "EvaluationCancelled", "spec.cancel is true; the run was ended".to_owned(), json!({})),
    };
    let spec = EventSpec { warning, reason: reason.to_owned(), action: "Evaluate", note };
    // A run begins once and ends once.
    Some(RunEvent { spec, payload, which: String::new() })
}

/// The Event of a run that has passed another quarter of its cases. Of the last one its end tells.
fn progress_event(before: &EvaluationRunStatus, now: &EvaluationRunStatus) -> Option<RunEvent> {
    let (finished, total) = (now.finished_cases?, now.total_cases.filter(|total| *total > 0)?);
    let quarters = |finished: i32| i64::from(finished) * 4 / i64::from(total);
    let quarter = quarters(finished);
    let is_due = (1..4).contains(&quarter) && quarter > quarters(before.finished_cases.unwrap_or_default());
    if now.phase != Some(EvaluationPhase::Running) || !is_due {
        return None;
    }
    let note = format!("{finished} of {total} cases have been put to the agent");
    let spec = EventSpec { warning: false, reason: "EvaluationProgressed".to_owned(), action: "Evaluate", note };
    let round = if repeats(now) { REPEATING } else { "" };
    Some(RunEvent { spec, payload: json!({"finished": finished, "total": total}), which: format!("{quarter}{round}") })
}

#[cfg(test)]
mod tests {
    use slipway_api::agent::RiskProfile;
    use slipway_evaluation::Profile;

    use super::*;

    fn run() -> EvaluationRun {
        serde_yaml::from_str("{metadata: {name: ev-1, generation: 1}, spec: {agent: helper}}").unwrap()
    }

    fn told(status: &EvaluationRunStatus) -> String {
        let conditions = status.conditions.iter().map(|condition| format!("{}={} {}", condition.type_, condition.status, condition.reason));
        conditions.collect::<Vec<_>>().join(", ")
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn setup() -> Setup {
        Setup { profile: Profile::of(RiskProfile::Low), scorers: Vec::new(), threshold: 60.0, judge_model: Some("stub:/echo".to_owned()) }
    }

    fn begun() -> Begun {
        Begun {
            dataset: "d".to_owned(),
            digest: "x".to_owned(),
            total: 2,
            feedback: 1,
            feedback_digest: Some("y".to_owned()),
            run_hash: Some("h".to_owned()),
            version: Some(3),
        }
    }

    #[test]
    fn a_run_goes_from_pending_to_its_end() {
        let run = run();
        let step = |before: &EvaluationRunStatus, second, of: &dyn Fn(Steps<'_>) -> EvaluationRunStatus| {
            let now = of(Steps { run: &run, before, now: at(second) });
            let event = event(before, &now).map(|event| event.spec.reason).unwrap_or_default();
            (now, event)
        };
        let begun = begun();
        let cause = Cause::new("NoPod", "no pod is ready");
        let (waiting, event) = step(&EvaluationRunStatus::default(), 1, &|steps| steps.waiting(&cause));
        assert_eq!((told(&waiting).as_str(), event.as_str()), ("Ready=False NoPod, Reconciling=True NoPod, Stalled=False NoPod", ""));
        assert_eq!((waiting.id.as_deref(), waiting.phase), (Some("ev_1"), Some(EvaluationPhase::Pending)));

        let (running, event) = step(&waiting, 2, &|steps| steps.began(&setup(), &begun));
        assert_eq!((event.as_str(), running.attempt, running.started_at.clone()), ("EvaluationStarted", Some(1), Some(Time(at(2)))));
        assert_eq!((running.provider, running.threshold, running.version), (Some(EvaluationProvider::Slipway), Some(60.0), Some(3)));
        assert_eq!((running.feedback_cases, running.feedback_digest.as_deref()), (Some(1), Some("y")));
        let (again, event) = step(&running, 3, &|steps| steps.began(&setup(), &Begun { total: 9, ..begun.clone() }));
        assert_eq!((again.attempt, again.started_at.clone(), again.total_cases, event.as_str()), (Some(2), Some(Time(at(2))), Some(2), ""));
        let (lost, _) = step(&again, 4, &|steps| steps.waiting(&cause));
        assert_eq!((lost.phase, told(&lost).contains("Reconciling=True NoPod")), (Some(EvaluationPhase::Running), true));

        let (repeating, _) = step(&again, 5, &|steps| steps.repeating("2 of 2 cases"));
        let (progressed, event) = step(&repeating, 6, &|steps| steps.progressed(1));
        assert_eq!(event, "EvaluationProgressed");
        let (lost, _) = step(&progressed, 7, &|steps| steps.waiting(&cause));
        assert!([&repeating, &progressed, &lost].into_iter().all(repeats) && !repeats(&again), "it is known to the end");

        let (unreached, event) = step(&waiting, 8, &|steps| steps.failed(&cause));
        assert_eq!((unreached.provider, unreached.score, event.as_str()), (Some(EvaluationProvider::Mock), None, "EvaluationFailed"));
        assert_eq!(unreached.verdict.as_deref(), Some("FAILED (the agent could not be reached: no pod is ready)"));
        assert_eq!(told(&unreached), "Ready=False NoPod, Reconciling=False NoPod, Stalled=True NoPod");
        let (ended, event) = step(&again, 9, &|steps| steps.cancelled());
        assert_eq!((ended.completed_at, event.as_str()), (Some(Time(at(9))), "EvaluationCancelled"));
    }

    #[test]
    fn a_run_that_begins_anew_counts_its_cases_anew() {
        for (spec, finished) in [
            (json!({"agent": "helper"}), 1),
            (json!({"agent": "helper", "excludeFeedback": true}), 0),
            (json!({"agent": "helper", "release": "helper-v3"}), 0),
            (json!({"agent": "helper", "content": "abc"}), 0),
        ] {
            let run: EvaluationRun = serde_json::from_value(json!({"metadata": {"name": "ev-1"}, "spec": spec})).unwrap();
            let began = |before: &EvaluationRunStatus| Steps { run: &run, before, now: at(1) }.began(&setup(), &begun());
            let running = began(&EvaluationRunStatus::default());
            let progressed = Steps { run: &run, before: &running, now: at(2) }.progressed(1);
            let again = began(&progressed);
            assert_eq!((again.attempt, again.finished_cases), (Some(2), Some(finished)), "{spec}");
        }
    }

    #[test]
    fn each_quarter_of_a_run_is_told_once() {
        let at = |finished| EvaluationRunStatus {
            phase: Some(EvaluationPhase::Running),
            total_cases: Some(20),
            finished_cases: finished,
            ..EvaluationRunStatus::default()
        };
        for (before, now, is_told) in [
            (None, 4, false),
            (None, 5, true),
            (Some(4), 5, true),
            (Some(5), 9, false),
            (Some(9), 19, true),
            (Some(15), 19, false),
            (Some(19), 20, false),
            (Some(15), 0, false),
        ] {
            let told = event(&at(before), &at(Some(now)));
            assert_eq!(told.is_some(), is_told, "{before:?} {now}");
            if let Some(RunEvent { spec, payload, .. }) = told {
                assert_eq!((&*spec.reason, payload), ("EvaluationProgressed", json!({"finished": now, "total": 20})));
            }
        }
        // A manager was killed after the Event of 5 cases, and the next one finds 7.
        let which = |now: &EvaluationRunStatus| event(&at(None), now).unwrap().which;
        let reasons = [(false, REPEATING), (true, REPEATING), (false, REPEATING)];
        let before = at(Some(7));
        let again = Steps { run: &run(), before: &before, now: Timestamp::UNIX_EPOCH }.with(EvaluationPhase::Running, reasons, "");
        assert_eq!(which(&at(Some(5))), which(&at(Some(7))));
        assert_ne!(which(&at(Some(5))), which(&at(Some(10))));
        assert_ne!(which(&again), which(&at(Some(7))), "a run that is repeated tells of its quarters again");
    }
}
