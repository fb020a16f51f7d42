//! What is decided of a canary, row by row.

mod analysis;
mod ended;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use slipway_api::canary::{CanaryPhase, TrackFigures};
use slipway_api::{AgentStatus, EvaluationRunSpec, labels};
use slipway_governance::canary::Evidence;

use super::decision::CanaryEnd;
use super::evaluation::{DecidingRun, Evaluation, EvaluationState};
use super::events::EndedBy;
use super::gather::{Book, Stable};
use super::*;
use crate::agent::pin::tests::agent_of;
use crate::agent::track_pods::PodTrouble;
use crate::caches::canary::{Measured, Reading};
use crate::caches::child::DeploymentState;

const PLAIN: &str = "systemPrompt: old, version: '1', canary: {enabled: true, weight: 10, systemPrompt: new, version: '2'}";
const STEPS: &str =
    "systemPrompt: old, canary: {enabled: true, weight: 10, systemPrompt: new, analysis: {steps: [25, 50], intervalSeconds: 60}}";
const MANUAL: &str =
    "systemPrompt: old, canary: {enabled: true, weight: 10, systemPrompt: new, analysis: {promotion: manual, intervalSeconds: 60}}";

/// This many seconds after the canary began.
fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn pods(wanted: i32, available: i32) -> DeploymentState {
    DeploymentState { wanted, updated: wanted, ready: available, available, total: wanted, current: true, ..DeploymentState::default() }
}

/// All pods are there, and nothing was measured.
fn seen() -> CanarySeen {
    CanarySeen {
        deployment: Some(pods(1, 1)),
        is_as_wanted: true,
        has_services: true,
        fault: None,
        waits: None,
        trouble: None,
        run_hash: Some("h".to_owned()),
        stable_run_hash: Some("s".to_owned()),
        stable: Stable::Rolls("its pods are being replaced".to_owned()),
        stable_version: Some("1".to_owned()),
        evaluation: None,
        is_measurable: true,
        reading: None,
        book: None,
    }
}

fn evaluated(is_gate: bool, state: EvaluationState) -> Evaluation {
    let run = DecidingRun { name: "ev-1".to_owned(), attempt: 1, wanted: EvaluationRunSpec::default() };
    Evaluation { is_gate, run: Some(run), state }
}

fn book(by: EndedBy, barrier: Option<&str>) -> Book {
    Book { by, asked_at: "noon".to_owned(), in_manifest: false, barrier: barrier.map(str::to_owned) }
}

fn agent_with(spec: &str, action: Option<&str>) -> Agent {
    let mut agent = agent_of(spec);
    agent.metadata.generation = Some(4);
    agent.metadata.annotations = action.map(|word| [(labels::CANARY_ACTION.to_owned(), word.to_owned())].into());
    agent
}

fn give(agent: &mut Agent, canary: Option<CanaryStatus>) {
    agent.status = Some(AgentStatus { canary, observed_generation: Some(4), ..AgentStatus::default() });
}

/// The Agent of this spec with its canary in this phase, since the first second.
fn stood(spec: &str, phase: CanaryPhase, weight: i32) -> CanaryStatus {
    let agent = agent_with(spec, None);
    let began = decide(&agent, &seen(), at(0)).unwrap().status.unwrap();
    CanaryStatus { phase, weight, desired_weight: weight.max(began.desired_weight), ..began }
}

/// Whether a condition holds, and its reason.
type Said<'a> = (Option<bool>, &'a str);

/// Phase, weight, Events, what is written besides, and the condition.
fn told(decision: &Decision) -> (Option<CanaryPhase>, i32, Vec<&str>, Act, Said<'_>) {
    let status = decision.status.as_ref();
    let events = decision.events.iter().map(|event| event.reason).collect();
    let finding = decision.finding.as_ref().map_or((None, ""), |finding| (finding.holds, &*finding.reason));
    (status.map(|status| status.phase), status.map_or(0, |status| status.weight), events, decision.act, finding)
}

/// Decides again and again as controllers do, until nothing changes any more.
fn settled(agent: &mut Agent, seen: &CanarySeen, now: Timestamp) -> Decision {
    for _ in 0..5 {
        let decision = decide(agent, seen, now).unwrap();
        if decision.status == agent.status.as_ref().and_then(|status| status.canary.clone()) {
            return decision;
        }
        give(agent, decision.status.clone());
    }
    panic!("it goes on writing: {:#?}", agent.status);
}

#[test]
fn a_canary_begins_with_nobody_and_serves_when_its_pods_are_ready() {
    let mut agent = agent_with(PLAIN, None);
    let none = CanarySeen { deployment: None, is_as_wanted: false, has_services: false, run_hash: None, ..seen() };
    let began = decide(&agent, &none, at(0)).unwrap();
    let progressing = (Some(CanaryPhase::Progressing), 0, vec!["AgentCanaryStarted"], Act::Nothing, (None, "Progressing"));
    assert_eq!(told(&began), progressing);
    let status = began.status.clone().unwrap();
    assert_eq!((status.desired_weight, status.version.as_deref(), status.stable_version.as_deref()), (10, Some("2"), Some("1")));
    assert_eq!((status.content.len(), status.spec_hash.len(), status.step), (64, 64, None));
    assert_eq!(status.started_at, Some(Time(at(0))));
    // Killed before the status is written, it tells the very same Event.
    assert_eq!(decide(&agent, &none, at(7)).unwrap().events, began.events);
    agent.metadata.generation = Some(5);
    assert_eq!(decide(&agent, &none, at(7)).unwrap().events, began.events, "an autoscaler has changed replicas meanwhile");
    give(&mut agent, began.status);
    for seen in [
        CanarySeen { deployment: Some(pods(1, 0)), ..seen() },
        CanarySeen { is_as_wanted: false, ..seen() },
        CanarySeen { has_services: false, ..seen() },
    ] {
        assert_eq!(settled(&mut agent, &seen, at(9)).status.unwrap().share(), 0, "{seen:?}");
    }
    let serves = decide(&agent, &seen(), at(9)).unwrap();
    assert_eq!(told(&serves), (Some(CanaryPhase::Serving), 10, vec![], Act::Nothing, (Some(true), "Serving")));
    let status = serves.status.clone().unwrap();
    assert_eq!((status.run_hash.as_deref(), status.step_started_at), (Some("h"), Some(Time(at(9)))));
    give(&mut agent, serves.status.clone());
    assert_eq!(decide(&agent, &seen(), at(99)).unwrap().status, serves.status, "the same again writes nothing");
}

#[test]
fn a_weight_falls_at_once_and_rises_with_its_pods() {
    let weights = |spec: &str, before: i32, seen: &CanarySeen| {
        let mut agent = agent_with(spec, None);
        give(&mut agent, Some(stood(PLAIN, CanaryPhase::Serving, before)));
        let status = settled(&mut agent, seen, at(9)).status.unwrap();
        (status.weight, status.desired_weight, status.started_at == Some(Time(at(0))))
    };
    let heavy = PLAIN.replace("weight: 10", "weight: 40");
    let (ready, rolling) = (seen(), CanarySeen { is_as_wanted: false, ..seen() });
    for (spec, before, seen, expected) in [
        (&*heavy, 10, &rolling, (10, 40, true)),
        (&*heavy, 10, &ready, (40, 40, true)),
        (PLAIN, 80, &rolling, (10, 10, true)),
        (PLAIN, 10, &CanarySeen { deployment: Some(pods(2, 1)), ..self::seen() }, (10, 10, true)),
        (PLAIN, 10, &CanarySeen { deployment: Some(pods(2, 0)), ..self::seen() }, (0, 10, true)),
        (&*PLAIN.replace("new", "newer"), 10, &ready, (10, 10, false)),
        (&*PLAIN.replace("old", "older, replicas: 3"), 10, &ready, (10, 10, true)),
        (&*PLAIN.replace("systemPrompt: old", "environment: prod"), 10, &ready, (10, 10, false)),
    ] {
        assert_eq!(weights(spec, before, seen), expected, "{spec} {before}");
    }
}

#[test]
fn a_weight_of_the_annotation_counts_before_the_specs() {
    for (word, weight, holds, says) in [
        ("0", 0, Some(true), "0 % of conversations"),
        ("70", 70, Some(true), "70 % of conversations"),
        ("much", 10, Some(true), "is no number from 0 to 100"),
    ] {
        let mut agent = agent_with(PLAIN, None);
        agent.metadata.annotations = Some([(labels::CANARY_WEIGHT.to_owned(), word.to_owned())].into());
        give(&mut agent, Some(stood(PLAIN, CanaryPhase::Serving, 10)));
        let decision = settled(&mut agent, &seen(), at(9));
        let (status, finding) = (decision.status.unwrap(), decision.finding.unwrap());
        assert_eq!((status.weight, status.phase, finding.holds), (weight, CanaryPhase::Serving, holds), "{word}");
        assert!(finding.message.contains(says), "{}", finding.message);
    }
}

#[test]
fn what_is_wrong_takes_users_away() {
    let fault = ConditionFault { reason: "SkillNotFound", message: "spec.skills[0]: there is no Skill s".to_owned() };
    let trouble = PodTrouble { reason: "ImagePullBackOff".to_owned(), message: "not found".to_owned() };
    let stuck = Some(("ProgressDeadlineExceeded".to_owned(), String::new()));
    let given_up = CanarySeen { deployment: Some(DeploymentState { stuck, ..pods(1, 0) }), trouble: Some(trouble.clone()), ..seen() };
    let pulls = CanarySeen { deployment: Some(pods(1, 0)), trouble: Some(trouble), ..seen() };
    let stopped = PLAIN.replace("systemPrompt: old", "systemPrompt: old, suspend: true");
    for (spec, seen, expected) in [
        (PLAIN, CanarySeen { fault: Some(fault), is_as_wanted: false, ..seen() }, (Some(false), "SkillNotFound")),
        (PLAIN, pulls.clone(), (Some(false), "ImagePullBackOff")),
        (STEPS, pulls, (Some(false), "ImagePullBackOff")),
        (PLAIN, given_up.clone(), (Some(false), "ImagePullBackOff")),
        (&*stopped, seen(), (Some(false), "AgentStopped")),
    ] {
        let mut agent = agent_with(spec, None);
        give(&mut agent, Some(stood(spec, CanaryPhase::Serving, 10)));
        let decision = settled(&mut agent, &seen, at(9));
        assert_eq!(told(&decision), (Some(CanaryPhase::Progressing), 0, vec![], Act::Nothing, expected), "{spec}");
    }
    // With analysis somebody asked for a decision.
    let mut agent = agent_with(STEPS, None);
    give(&mut agent, Some(stood(STEPS, CanaryPhase::Progressing, 0)));
    let rolled_back = ends(&mut agent, &given_up, None);
    assert!(rolled_back.is_some_and(|why| why.contains("not found")));
    // Pods of what it was before are still there. They are no reason to wait for the new ones, but where they serve.
    let former = DeploymentState { available: 1, ready: 1, total: 2, ..given_up.deployment.clone().unwrap() };
    let replaced = CanarySeen { deployment: Some(former), ..given_up };
    give(&mut agent, Some(stood(STEPS, CanaryPhase::Progressing, 0)));
    assert!(ends(&mut agent, &replaced, None).is_some_and(|why| why.contains("not found")));
    give(&mut agent, Some(stood(STEPS, CanaryPhase::Serving, 10)));
    assert_eq!(told(&settled(&mut agent, &replaced, at(9))).0, Some(CanaryPhase::Serving));
}

#[test]
fn a_canary_that_has_served_and_crashes_is_rolled_back() {
    let trouble = PodTrouble { reason: "CrashLoopBackOff".to_owned(), message: "restarted 3 times".to_owned() };
    let crashes = |available: i32| CanarySeen { deployment: Some(pods(2, available)), trouble: Some(trouble.clone()), ..seen() };
    let served = |spec: &str, requests: i64| {
        let mut agent = agent_with(spec, None);
        let figures = TrackFigures { requests, ..TrackFigures::default() };
        give(&mut agent, Some(CanaryStatus { canary: Some(figures), ..stood(spec, CanaryPhase::Serving, 10) }));
        agent
    };
    let why = ends(&mut served(STEPS, 50), &crashes(0), None);
    assert_eq!(why.as_deref(), Some("its pods crash: restarted 3 times"));
    let paused = STEPS.replace("analysis: {", "analysis: {paused: true, ");
    for (spec, requests, available) in [(STEPS, 0, 0), (STEPS, 50, 1), (PLAIN, 50, 0), (&*paused, 50, 0)] {
        let decision = settled(&mut served(spec, requests), &crashes(available), at(9));
        let said = decision.finding.unwrap();
        assert_ne!(said.reason, "RolledBack", "{spec} {requests} {available}: {}", said.message);
    }
}

/// Decides until a patch follows that rolls the canary back, after its reason has been told; the reason.
fn ends(agent: &mut Agent, seen: &CanarySeen, barrier: Option<&str>) -> Option<String> {
    let first = decide(agent, seen, at(999)).unwrap();
    assert_eq!((first.act, first.events.len()), (Act::Nothing, 0), "the status says why before anything else is written");
    give(agent, first.status);
    assert_eq!(decide(agent, seen, at(999)), None, "it has to be known who owns the spec");
    let seen = CanarySeen { book: Some(book(EndedBy::Spec, barrier)), ..seen.clone() };
    let second = decide(agent, &seen, at(999)).unwrap();
    assert_eq!(second.act, Act::Patch(CanaryEnd::RolledBack));
    second.status?.message
}

#[test]
fn with_a_gate_nobody_is_served_before_an_evaluation_has_passed() {
    for (state, weight, act, reason) in [
        (EvaluationState::Unknown, 0, Act::Nothing, "AwaitingEvaluation"),
        (EvaluationState::Absent, 0, Act::MakeRun, "AwaitingEvaluation"),
        (EvaluationState::Runs, 0, Act::Nothing, "AwaitingEvaluation"),
        (EvaluationState::Passed(Some(90.0)), 10, Act::Nothing, "Serving"),
    ] {
        let mut agent = agent_with(PLAIN, None);
        give(&mut agent, Some(stood(PLAIN, CanaryPhase::Progressing, 0)));
        let seen = CanarySeen { evaluation: Some(evaluated(true, state.clone())), ..seen() };
        let decision = settled(&mut agent, &seen, at(9));
        let status = decision.status.unwrap();
        assert_eq!((status.weight, decision.act, &*decision.finding.unwrap().reason), (weight, act, reason), "{state:?}");
        assert_eq!((status.evaluation.as_deref(), status.attempt), (Some("ev-1"), 1));
    }
    // Pods come first.
    let mut agent = agent_with(PLAIN, None);
    let waits = CanarySeen { evaluation: Some(evaluated(true, EvaluationState::Absent)), deployment: Some(pods(1, 0)), ..seen() };
    assert_eq!(settled(&mut agent, &waits, at(9)).act, Act::Nothing);
    for state in [EvaluationState::Failed("avg=50".to_owned()), EvaluationState::Spent("no pod".to_owned())] {
        give(&mut agent, Some(stood(PLAIN, CanaryPhase::Progressing, 0)));
        let why = ends(&mut agent, &CanarySeen { evaluation: Some(evaluated(true, state.clone())), ..seen() }, None).unwrap();
        assert!(why.contains("avg=50") || why.contains("no pod"), "{why}");
        let is_spent = matches!(state, EvaluationState::Spent(_));
        assert_eq!(why.contains("delete that EvaluationRun"), is_spent, "it says what is to be done: {why}");
    }
    // One that is asked for a score alone serves meanwhile, and goes on where no score came of it.
    for (state, act) in [
        (EvaluationState::Absent, Act::MakeRun),
        (EvaluationState::Runs, Act::Nothing),
        (EvaluationState::Spent("no pod".to_owned()), Act::Nothing),
    ] {
        give(&mut agent, Some(stood(PLAIN, CanaryPhase::Serving, 10)));
        let decision = settled(&mut agent, &CanarySeen { evaluation: Some(evaluated(false, state)), ..seen() }, at(9));
        assert_eq!((decision.act, decision.status.unwrap().weight), (act, 10));
    }
}
