//! The next step of a run, pure: from the run, its agent, the agent's pods and their answers.

use std::time::Duration;

use kube::ResourceExt;
use slipway_api::agent::RiskProfile;
use slipway_api::evaluation_run::{EvaluatedTrack, EvaluationPhase, EvaluationProvider, EvaluationRunStatus, Scorer};
use slipway_api::{Agent, EvaluationRun, Track, ids};
use slipway_evaluation::wire::{Progress, Report};
use slipway_evaluation::{Profile, threshold};

/// How long a run waits for an Agent or a Dataset that it names.
pub(super) const ABSENT_TIMEOUT: Duration = Duration::from_mins(10);
/// How long a run waits for a ready pod.
pub(super) const NO_POD_TIMEOUT: Duration = Duration::from_mins(5);
/// How long a run may go without a further case.
pub(super) const NO_PROGRESS_TIMEOUT: Duration = Duration::from_mins(15);
/// How often a run is begun with a pod.
pub(super) const ATTEMPTS_MAX: i32 = 10;
/// The reason of a run that is repeated because its judge failed.
pub(super) const REPEATING: &str = "Repeating";

/// What a run asks for, with the defaults of its agent.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Setup {
    pub profile: Profile,
    pub scorers: Vec<Scorer>,
    /// 0 to 100.
    pub threshold: f64,
    pub judge_model: Option<String>,
}

impl Setup {
    /// What was settled when the run began stays settled, whatever becomes of the agent.
    pub(super) fn of(run: &EvaluationRun, status: &EvaluationRunStatus, agent: &Agent) -> Self {
        let (spec, begun) = (&run.spec, Some(status).filter(|status| status.started_at.is_some()));
        let governance = agent.spec.governance.as_ref();
        let risk = begun.and_then(|status| status.risk_profile).or(spec.risk_profile);
        let profile = Profile::of(risk.or(governance.and_then(|governance| governance.risk_profile)).unwrap_or(RiskProfile::Standard));
        let threshold = threshold(&profile, governance.and_then(|governance| governance.min_quality_score), spec.min_quality_score);
        Self {
            profile,
            scorers: if spec.scorers.is_empty() {
                profile.scorers(!agent.spec.knowledge_bases.is_empty(), !agent.spec.tools.is_empty())
            } else {
                spec.scorers.clone()
            },
            threshold: begun.and_then(|status| status.threshold).unwrap_or(threshold),
            judge_model: match begun {
                Some(status) => status.judge_model.clone(),
                None => spec.judge_model.clone().or_else(|| agent.spec.judge_model.clone()),
            },
        }
    }

    pub(super) const fn provider(&self) -> EvaluationProvider {
        if self.judge_model.is_some() { EvaluationProvider::Slipway } else { EvaluationProvider::Heuristic }
    }
}

pub(super) const fn track(run: &EvaluationRun) -> Track {
    match run.spec.track {
        EvaluatedTrack::Stable => Track::Stable,
        EvaluatedTrack::Candidate => Track::Candidate,
        EvaluatedTrack::Canary => Track::Canary,
    }
}

/// Whether a run decides on a release or on a canary.
pub(super) fn decides(run: &EvaluationRun) -> bool {
    run.spec.release.is_some() || run.spec.content.is_some()
}

/// Whether a run takes no results out of the database, where all of a team's pods can write. One without cases of feedback may answer
/// a progressive-delivery controller, and its id is known before it begins.
pub(super) fn begins_anew(run: &EvaluationRun) -> bool {
    decides(run) || run.spec.exclude_feedback
}

/// The id by which pods and the database know a run's results. One that decides is not to find results of another of its name, which
/// anybody may have made and deleted.
pub(super) fn results_id(run: &EvaluationRun, is_repetition: bool) -> String {
    let name = if decides(run) { String::new() } else { run.name_any() };
    ids::evaluation_results(&name, run.uid().as_deref().unwrap_or_default(), is_repetition)
}

/// Whether a run is repeated because its judge failed.
pub(super) fn repeats(status: &EvaluationRunStatus) -> bool {
    status.conditions.iter().any(|condition| condition.status == "True" && condition.reason == REPEATING)
}

/// Why a run waits or has failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cause {
    pub reason: &'static str,
    pub message: String,
}

impl Cause {
    pub(super) fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

/// What keeps a run from being under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// It may go away by itself; the run fails once it has stood so long.
    Waits(Cause, Duration),
    Final(Cause),
}

/// What stands in the way on the agent's side before any pod is looked for.
pub(super) fn obstacle(run: &EvaluationRun, agent: Option<&Agent>) -> Option<Obstacle> {
    let name = &run.spec.agent;
    let Some(agent) = agent else {
        let message = format!("spec.agent: there is no Agent {name} in this namespace; the run waits for it");
        return Some(Obstacle::Waits(Cause::new("AgentNotFound", message), ABSENT_TIMEOUT));
    };
    let is_waiting = agent.status.as_ref().is_some_and(|status| status.pending_release.is_some());
    if track(run) == Track::Candidate && !is_waiting {
        let message = format!("spec.track: Agent {name} has no candidate, as no release of it waits; make a run on the track stable");
        return Some(Obstacle::Final(Cause::new("NoCandidate", message)));
    }
    if track(run) == Track::Canary && !has_canary(agent) {
        let message = format!("spec.track: Agent {name} has no canary now; give it one in spec.canary and make another run");
        return Some(Obstacle::Final(Cause::new("NoCanary", message)));
    }
    if let Some(stopped) = agent.stopped_by() {
        let message = format!("Agent {name} is stopped, as {stopped}; start it and make another run");
        return Some(Obstacle::Final(Cause::new("AgentStopped", message)));
    }
    None
}

/// Whether an agent runs another image than the platform's, which nobody could trust to score itself.
pub(super) fn has_own_image(agent: &Agent, runtime_image: &str) -> bool {
    agent.spec.image.as_ref().is_some_and(|image| image != runtime_image)
}

/// That an agent runs something else than when the run began. Pods of an agent with the platform's image say so by having gone.
pub(super) fn agent_changed(before: &EvaluationRunStatus, run_hash: &str) -> Option<Cause> {
    let is_changed = before.started_at.is_some() && before.run_hash.as_deref().is_some_and(|begun| begun != run_hash);
    is_changed.then(|| Cause::new("AgentChanged", "the agent has changed while it was evaluated; make another run"))
}

/// Whether an agent has a canary that is not about to end.
fn has_canary(agent: &Agent) -> bool {
    agent.canary_status().is_some_and(|canary| canary.phase.is_active())
}

/// Whether a run decides on a canary as it was when the run was made.
pub(super) fn decides_on_canary(run: &EvaluationRun) -> bool {
    track(run) == Track::Canary && run.spec.content.is_some()
}

/// What stands in the way of a run that decides on a canary: that it is another one by now. `content` is what the canary is, as a hash,
/// if that can be said.
pub(super) fn content_changed(run: &EvaluationRun, content: Option<&str>) -> Option<Obstacle> {
    let is_changed = run.spec.content.as_deref().zip(content).is_some_and(|(evaluated, present)| evaluated != present);
    is_changed.then(|| {
        let message = "spec.content: the canary has changed since the run was made; Slipway makes another run of what it is now";
        Obstacle::Final(Cause::new("ContentChanged", message))
    })
}

/// Of an agent that has no ready pod, and is not going to have one where it says why.
pub(super) fn no_pod(run: &EvaluationRun, given_up: Option<&str>) -> Obstacle {
    let (name, track) = (&run.spec.agent, run.spec.track.as_str());
    let message = format!("no pod of Agent {name} on its {track} track is ready with the present configuration");
    match given_up {
        Some(why) => Obstacle::Final(Cause::new("NoPod", format!("{message}: {why}"))),
        None => Obstacle::Waits(Cause::new("NoPod", message), NO_POD_TIMEOUT),
    }
}

/// What one ready pod said of the run.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Said {
    Report(Report),
    /// It does not know the run.
    Unknown,
    /// Nothing that could be used.
    Nothing(String),
}

/// What is to be done next, given that there are ready pods.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    /// The request is to be sent to a pod.
    Begin,
    /// The run is under way, or a pod that may have it under way does not answer.
    Watch {
        finished: Option<usize>,
    },
    /// All cases have their result, which is to be read.
    Finish,
    Fail(Cause),
}

/// `idle` is the time for which no further case has finished.
pub(super) fn next(run_id: &str, total: Option<usize>, status: &EvaluationRunStatus, said: Vec<Said>, idle: Duration) -> Step {
    let all_unknown = said.iter().all(|said| *said == Said::Unknown);
    let report = said.into_iter().find_map(|said| match said {
        Said::Report(report) if report.run_id == run_id => Some(report),
        _ => None,
    });
    let is_stuck = idle >= NO_PROGRESS_TIMEOUT;
    let stuck = || {
        let message = format!("no further case has finished for {} minutes; the run was ended", NO_PROGRESS_TIMEOUT.as_secs() / 60);
        Step::Fail(Cause::new("NoProgress", message))
    };
    match report {
        Some(report) => match report.status {
            Progress::Running if is_stuck => stuck(),
            Progress::Running => Step::Watch { finished: Some(total.map_or(report.finished, |total| report.finished.min(total))) },
            Progress::Completed => Step::Finish,
            Progress::Failed => {
                let why = report.reason.as_deref().unwrap_or("it gave no reason");
                Step::Fail(Cause::new("RuntimeFailed", format!("the agent's runtime could not carry the run out: {}", excerpt(why, 1024))))
            }
            Progress::Cancelled => Step::Fail(Cause::new("Interrupted", "the run was cancelled in the agent's pod")),
        },
        None if all_unknown && status.attempt.unwrap_or_default() >= ATTEMPTS_MAX => {
            Step::Fail(Cause::new("TooManyAttempts", format!("{ATTEMPTS_MAX} pods have begun the run, and none has finished it")))
        }
        None if is_stuck && status.phase == Some(EvaluationPhase::Running) => stuck(),
        None if all_unknown => Step::Begin,
        None => Step::Watch { finished: None },
    }
}

/// The first characters of a text.
pub(super) fn excerpt(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some(_) => text.chars().take(most - 1).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use slipway_api::canary::CanaryPhase;

    use super::*;

    fn run(spec: &str) -> EvaluationRun {
        serde_yaml::from_str(&format!("{{metadata: {{name: r}}, spec: {{agent: helper, {spec}}}}}")).unwrap()
    }

    fn agent(spec: &str) -> Agent {
        serde_yaml::from_str(&format!("{{metadata: {{name: helper}}, spec: {{name: helper, framework: custom, {spec}}}}}")).unwrap()
    }

    #[test]
    fn what_a_run_leaves_out_comes_from_its_agent_and_then_the_profile() {
        let cases = [
            ("", "", ("rp_standard", 75.0, 3, None)),
            ("", "governance: {riskProfile: low}", ("rp_low", 60.0, 2, None)),
            ("", "governance: {minQualityScore: 0}", ("rp_standard", 75.0, 3, None)),
            ("", "governance: {minQualityScore: 80}, judgeModel: 'stub:/echo'", ("rp_standard", 80.0, 3, Some("stub:/echo"))),
            (
                "minQualityScore: 50, judgeModel: 'openai:/x'",
                "governance: {minQualityScore: 80}",
                ("rp_standard", 50.0, 3, Some("openai:/x")),
            ),
            ("riskProfile: high", "", ("rp_high", 90.0, 4, None)),
            ("riskProfile: high", "tools: [clock]", ("rp_high", 90.0, 5, None)),
            ("riskProfile: high", "tools: [clock], knowledgeBases: [docs]", ("rp_high", 90.0, 6, None)),
            ("", "knowledgeBases: [docs]", ("rp_standard", 75.0, 3, None)),
            ("scorers: [fluency]", "", ("rp_standard", 75.0, 1, None)),
        ];
        for (spec, of, (id, threshold, scorers, judge)) in cases {
            let setup = Setup::of(&run(spec), &EvaluationRunStatus::default(), &agent(of));
            let found = (setup.profile.id, setup.threshold, setup.scorers.len(), setup.judge_model.as_deref());
            assert_eq!(found, (id, threshold, scorers, judge), "{spec} {of}");
        }
        let begun: EvaluationRunStatus =
            serde_json::from_value(json!({"startedAt": "2026-01-01T00:00:00Z", "threshold": 60.0, "riskProfile": "low"})).unwrap();
        let setup = Setup::of(&run(""), &begun, &agent("governance: {minQualityScore: 99, riskProfile: high}, judgeModel: 'stub:/echo'"));
        assert_eq!((setup.profile.id, setup.threshold, setup.judge_model), ("rp_low", 60.0, None), "a change of the agent does not count");
    }

    #[test]
    fn what_stands_in_the_way_says_the_way_out() {
        let cases = [
            (None, Some(("AgentNotFound", false))),
            (Some(""), None),
            (Some("image: 'example.com/own:1'"), None),
            (Some("suspend: true"), Some(("AgentStopped", true))),
        ];
        for (spec, expected) in cases {
            let agent = spec.map(agent);
            let found = obstacle(&run(""), agent.as_ref()).map(|obstacle| match obstacle {
                Obstacle::Waits(cause, _) => (cause.reason, false),
                Obstacle::Final(cause) => (cause.reason, true),
            });
            assert_eq!(found, expected, "{spec:?}");
        }
        let mut agent = agent("");
        let found = obstacle(&run("track: candidate"), Some(&agent));
        assert!(matches!(found, Some(Obstacle::Final(Cause { reason: "NoCandidate", .. }))), "{found:?}");
        agent.status = Some(slipway_api::AgentStatus { pending_release: Some(2), ..slipway_api::AgentStatus::default() });
        assert_eq!(obstacle(&run("track: candidate"), Some(&agent)), None);
    }

    #[test]
    fn an_image_of_ones_own_is_told_from_the_platforms() {
        let platform = "slipway.dev/slipway-runtime:1";
        let own =
            ["", "image: 'slipway.dev/slipway-runtime:1'", "image: 'example.com/own:1'"].map(|spec| has_own_image(&agent(spec), platform));
        assert_eq!(own, [false, false, true]);
        let begun: EvaluationRunStatus = serde_json::from_value(json!({"startedAt": "2026-01-01T00:00:00Z", "runHash": "h1"})).unwrap();
        assert_eq!(agent_changed(&begun, "h2").map(|cause| cause.reason), Some("AgentChanged"));
        assert_eq!((agent_changed(&begun, "h1"), agent_changed(&EvaluationRunStatus::default(), "h1")), (None, None));
    }

    #[test]
    fn a_run_that_decides_has_results_of_its_own() {
        let of = |uid: &str, spec: &str| -> EvaluationRun {
            let name = "ev-01jabcdefghjkmnpqrstvwxyz0";
            serde_yaml::from_str(&format!("{{metadata: {{name: {name}, uid: {uid}}}, spec: {{agent: helper, {spec}}}}}")).unwrap()
        };
        let id = |uid: &str, spec: &str| results_id(&of(uid, spec), false);
        assert_eq!([id("u", ""), id("v", "track: canary")], ["ev_01jabcdefghjkmnpqrstvwxyz0"; 2].map(str::to_owned));
        let content = format!("track: canary, content: {}", "0a".repeat(32));
        for spec in ["release: helper-v2", &content] {
            assert_ne!(id("u", spec), id("u", ""), "{spec}");
            assert_ne!(id("u", spec), id("v", spec), "{spec}: of another of the name");
            assert_ne!(id("u", spec), results_id(&of("u", spec), true), "{spec}: of its repetition");
        }
    }

    #[test]
    fn a_canary_is_evaluated_while_it_is_there() {
        use CanaryPhase::{Draining, Inconclusive, Paused, Progressing, Promoting, RolledBack, Serving, Succeeded};
        let reason = |spec: &str, phase: Option<CanaryPhase>| {
            let canary = phase.map(|phase| slipway_api::CanaryStatus { phase, ..slipway_api::CanaryStatus::default() });
            let status = slipway_api::AgentStatus { canary, ..slipway_api::AgentStatus::default() };
            match obstacle(&run("track: canary"), Some(&Agent { status: Some(status), ..agent(spec) })) {
                None => "none",
                Some(Obstacle::Final(cause)) => cause.reason,
                Some(Obstacle::Waits(..)) => "waits",
            }
        };
        for (phase, expected) in [
            (None, "NoCanary"),
            (Some(Progressing), "none"),
            (Some(Serving), "none"),
            (Some(Paused), "none"),
            (Some(Inconclusive), "none"),
            (Some(Succeeded), "none"),
            (Some(Promoting), "NoCanary"),
            (Some(Draining), "NoCanary"),
            (Some(RolledBack), "NoCanary"),
        ] {
            assert_eq!(reason("", phase), expected, "{phase:?}");
        }
        assert_eq!(reason("image: 'example.com/own:1'", Some(Progressing)), "none");
        assert_eq!(reason("suspend: true", Some(Serving)), "AgentStopped");
    }

    #[test]
    fn a_run_of_a_canary_that_was_changed_ends() {
        let (one, other) = ("0a".repeat(32), "0b".repeat(32));
        let of = |spec: &str, present: Option<&str>| content_changed(&run(spec), present).is_some();
        let decides = format!("track: canary, content: {one}");
        assert!(of(&decides, Some(&other)));
        assert!(!of(&decides, Some(&one)));
        assert!(!of(&decides, None), "what it names is not known yet");
        assert!(!of("track: canary", Some(&other)), "a run of whatever is there");
        assert_eq!(
            [&*decides, "track: canary", &format!("content: {one}")].map(|spec| decides_on_canary(&run(spec))),
            [true, false, false]
        );
    }

    #[test]
    fn the_next_step_follows_from_what_pods_say() {
        let (id, minute) = ("ev_1", Duration::from_mins(1));
        let report = |run_id: &str, status, finished| {
            Said::Report(Report {
                run_id: run_id.to_owned(),
                status,
                reason: None,
                total: 999,
                finished,
                prompts: Vec::new(),
                results: Vec::new(),
            })
        };
        let running = EvaluationRunStatus { phase: Some(EvaluationPhase::Running), attempt: Some(1), ..EvaluationRunStatus::default() };
        let worn = EvaluationRunStatus { attempt: Some(ATTEMPTS_MAX), ..running.clone() };
        let fresh = EvaluationRunStatus::default();
        let nothing = || Said::Nothing("refused".to_owned());
        let cases: [(&str, &EvaluationRunStatus, Vec<Said>, Duration, &str); 13] = [
            ("nobody knows it", &fresh, vec![Said::Unknown, Said::Unknown], minute, "begin"),
            ("its pod has restarted", &running, vec![Said::Unknown], minute, "begin"),
            ("its pods restart again and again", &worn, vec![Said::Unknown], minute, "TooManyAttempts"),
            ("one that may have it is silent", &running, vec![nothing(), Said::Unknown], minute, "watch None"),
            ("silent for too long", &running, vec![nothing()], minute * 15, "NoProgress"),
            ("a fresh run waits for a silent pod", &fresh, vec![nothing()], minute * 15, "watch None"),
            ("under way", &running, vec![Said::Unknown, report(id, Progress::Running, 2)], minute, "watch Some(2)"),
            ("more cases than there are", &running, vec![report(id, Progress::Running, 77)], minute, "watch Some(5)"),
            ("no further case", &running, vec![report(id, Progress::Running, 1)], minute * 15, "NoProgress"),
            ("done", &running, vec![report(id, Progress::Completed, 1)], minute * 99, "finish"),
            ("an answer for another run", &running, vec![report("ev_2", Progress::Completed, 1)], minute, "watch None"),
            ("the runtime gave up", &running, vec![report(id, Progress::Failed, 0)], minute, "RuntimeFailed"),
            ("cancelled elsewhere", &running, vec![report(id, Progress::Cancelled, 0)], minute, "Interrupted"),
        ];
        for (what, status, said, idle, expected) in cases {
            let found = match next(id, Some(5), status, said, idle) {
                Step::Begin => "begin".to_owned(),
                Step::Watch { finished } => format!("watch {finished:?}"),
                Step::Finish => "finish".to_owned(),
                Step::Fail(cause) => cause.reason.to_owned(),
            };
            assert_eq!(found, expected, "{what}");
        }
    }

    #[test]
    fn an_excerpt_has_its_length() {
        assert_eq!((excerpt("short", 5), excerpt("longer", 5)), ("short".to_owned(), "long…".to_owned()));
    }
}
