//! What is decided of a canary, row by row.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use slipway_api::canary::{CanaryPhase, TrackFigures};
use slipway_api::{AgentStatus, EvaluationRunSpec, labels};
use slipway_governance::canary::Evidence;

use super::decision::End;
use super::evaluation::{Evaluation, Run, State};
use super::events::EndedBy;
use super::seen::{Book, Stable};
use super::*;
use crate::agent::pin::tests::agent_of;
use crate::agent::track_pods::Trouble;
use crate::caches::child::DeploymentState;
use crate::governance::canary::{Measured, Reading};

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
fn seen() -> Seen {
    Seen {
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

fn evaluated(is_gate: bool, state: State) -> Evaluation {
    let run = Run { name: "ev-1".to_owned(), attempt: 1, wanted: EvaluationRunSpec::default() };
    Evaluation { is_gate, run: Some(run), state }
}

fn book(by: EndedBy, barrier: Option<&str>) -> Book {
    Book { by, asked_at: "noon".to_owned(), in_manifest: false, barrier: barrier.map(str::to_owned) }
}

/// Requests of both tracks, and how many of them failed, read at that second.
fn measured(second: i64, canary: (i64, i64), stable: (i64, i64)) -> Reading {
    let of = |(ended, errors): (i64, i64)| {
        let mut latency = vec![0; 16];
        latency[5] = ended;
        Measured { requests: ended, evidence: Evidence { ended, errors, latency, score: None }, is_partial: false }
    };
    let (run_hash, stable_run_hash) = (Some("h".to_owned()), Some("s".to_owned()));
    Reading { read_at: at(second), since: at(0), run_hash, stable_run_hash, canary: of(canary), stable: of(stable) }
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
fn settled(agent: &mut Agent, seen: &Seen, now: Timestamp) -> Decision {
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
    let none = Seen { deployment: None, is_as_wanted: false, has_services: false, run_hash: None, ..seen() };
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
    for seen in
        [Seen { deployment: Some(pods(1, 0)), ..seen() }, Seen { is_as_wanted: false, ..seen() }, Seen { has_services: false, ..seen() }]
    {
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
    let weights = |spec: &str, before: i32, seen: &Seen| {
        let mut agent = agent_with(spec, None);
        give(&mut agent, Some(stood(PLAIN, CanaryPhase::Serving, before)));
        let status = settled(&mut agent, seen, at(9)).status.unwrap();
        (status.weight, status.desired_weight, status.started_at == Some(Time(at(0))))
    };
    let heavy = PLAIN.replace("weight: 10", "weight: 40");
    let (ready, rolling) = (seen(), Seen { is_as_wanted: false, ..seen() });
    for (spec, before, seen, expected) in [
        (&*heavy, 10, &rolling, (10, 40, true)),
        (&*heavy, 10, &ready, (40, 40, true)),
        (PLAIN, 80, &rolling, (10, 10, true)),
        (PLAIN, 10, &Seen { deployment: Some(pods(2, 1)), ..self::seen() }, (10, 10, true)),
        (PLAIN, 10, &Seen { deployment: Some(pods(2, 0)), ..self::seen() }, (0, 10, true)),
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
    let fault = Fault { reason: "SkillNotFound", message: "spec.skills[0]: there is no Skill s".to_owned() };
    let trouble = Trouble { reason: "ImagePullBackOff".to_owned(), message: "not found".to_owned() };
    let stuck = Some(("ProgressDeadlineExceeded".to_owned(), String::new()));
    let given_up = Seen { deployment: Some(DeploymentState { stuck, ..pods(1, 0) }), trouble: Some(trouble.clone()), ..seen() };
    let pulls = Seen { deployment: Some(pods(1, 0)), trouble: Some(trouble), ..seen() };
    let stopped = PLAIN.replace("systemPrompt: old", "systemPrompt: old, suspend: true");
    for (spec, seen, expected) in [
        (PLAIN, Seen { fault: Some(fault), is_as_wanted: false, ..seen() }, (Some(false), "SkillNotFound")),
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
    let replaced = Seen { deployment: Some(former), ..given_up };
    give(&mut agent, Some(stood(STEPS, CanaryPhase::Progressing, 0)));
    assert!(ends(&mut agent, &replaced, None).is_some_and(|why| why.contains("not found")));
    give(&mut agent, Some(stood(STEPS, CanaryPhase::Serving, 10)));
    assert_eq!(told(&settled(&mut agent, &replaced, at(9))).0, Some(CanaryPhase::Serving));
}

#[test]
fn a_canary_that_has_served_and_crashes_is_rolled_back() {
    let trouble = Trouble { reason: "CrashLoopBackOff".to_owned(), message: "restarted 3 times".to_owned() };
    let crashes = |available: i32| Seen { deployment: Some(pods(2, available)), trouble: Some(trouble.clone()), ..seen() };
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
fn ends(agent: &mut Agent, seen: &Seen, barrier: Option<&str>) -> Option<String> {
    let first = decide(agent, seen, at(999)).unwrap();
    assert_eq!((first.act, first.events.len()), (Act::Nothing, 0), "the status says why before anything else is written");
    give(agent, first.status);
    assert_eq!(decide(agent, seen, at(999)), None, "it has to be known who owns the spec");
    let seen = Seen { book: Some(book(EndedBy::Spec, barrier)), ..seen.clone() };
    let second = decide(agent, &seen, at(999)).unwrap();
    assert_eq!(second.act, Act::Patch(End::RolledBack));
    second.status?.message
}

#[test]
fn with_a_gate_nobody_is_served_before_an_evaluation_has_passed() {
    for (state, weight, act, reason) in [
        (State::Unknown, 0, Act::Nothing, "AwaitingEvaluation"),
        (State::Absent, 0, Act::MakeRun, "AwaitingEvaluation"),
        (State::Runs, 0, Act::Nothing, "AwaitingEvaluation"),
        (State::Passed(Some(90.0)), 10, Act::Nothing, "Serving"),
    ] {
        let mut agent = agent_with(PLAIN, None);
        give(&mut agent, Some(stood(PLAIN, CanaryPhase::Progressing, 0)));
        let seen = Seen { evaluation: Some(evaluated(true, state.clone())), ..seen() };
        let decision = settled(&mut agent, &seen, at(9));
        let status = decision.status.unwrap();
        assert_eq!((status.weight, decision.act, &*decision.finding.unwrap().reason), (weight, act, reason), "{state:?}");
        assert_eq!((status.evaluation.as_deref(), status.attempt), (Some("ev-1"), 1));
    }
    // Pods come first.
    let mut agent = agent_with(PLAIN, None);
    let waits = Seen { evaluation: Some(evaluated(true, State::Absent)), deployment: Some(pods(1, 0)), ..seen() };
    assert_eq!(settled(&mut agent, &waits, at(9)).act, Act::Nothing);
    for state in [State::Failed("avg=50".to_owned()), State::Spent("no pod".to_owned())] {
        give(&mut agent, Some(stood(PLAIN, CanaryPhase::Progressing, 0)));
        let why = ends(&mut agent, &Seen { evaluation: Some(evaluated(true, state.clone())), ..seen() }, None).unwrap();
        assert!(why.contains("avg=50") || why.contains("no pod"), "{why}");
        let is_spent = matches!(state, State::Spent(_));
        assert_eq!(why.contains("delete that EvaluationRun"), is_spent, "it says what is to be done: {why}");
    }
    // One that is asked for a score alone serves meanwhile, and goes on where no score came of it.
    for (state, act) in [(State::Absent, Act::MakeRun), (State::Runs, Act::Nothing), (State::Spent("no pod".to_owned()), Act::Nothing)] {
        give(&mut agent, Some(stood(PLAIN, CanaryPhase::Serving, 10)));
        let decision = settled(&mut agent, &Seen { evaluation: Some(evaluated(false, state)), ..seen() }, at(9));
        assert_eq!((decision.act, decision.status.unwrap().weight), (act, 10));
    }
}

#[test]
fn an_annotation_ends_a_canary_in_the_spec_or_in_its_status() {
    let flux = Some("spec: it belongs to Flux");
    let refused = || (Some(CanaryPhase::Serving), 10, vec!["AgentCanaryRefused"], Act::DropAnnotation, (None, ""));
    for (word, barrier, expected) in [
        ("promote", None, (Some(CanaryPhase::Serving), 10, vec![], Act::Patch(End::Promoted), (None, ""))),
        ("rollback", None, (Some(CanaryPhase::Serving), 10, vec![], Act::Patch(End::RolledBack), (None, ""))),
        ("promote", flux, refused()),
        ("rollback", flux, (Some(CanaryPhase::RolledBack), 0, vec!["AgentCanaryRolledBack"], Act::Nothing, (Some(false), "RolledBack"))),
        ("pause", None, refused()),
    ] {
        let mut agent = agent_with(PLAIN, Some(word));
        give(&mut agent, Some(stood(PLAIN, CanaryPhase::Serving, 10)));
        assert_eq!(decide(&agent, &seen(), at(9)), None, "{word}: it has to be known who asks");
        let decision = decide(&agent, &Seen { book: Some(book(EndedBy::Annotation, barrier)), ..seen() }, at(9)).unwrap();
        assert_eq!(told(&decision), expected, "{word} {barrier:?}");
    }
    // It is taken away where it meets no canary that can end.
    for (spec, phase) in [
        (PLAIN, None),
        ("replicas: 1", None),
        (PLAIN, Some(CanaryPhase::Promoting)),
        (PLAIN, Some(CanaryPhase::Draining)),
        (PLAIN, Some(CanaryPhase::RolledBack)),
    ] {
        let mut agent = agent_with(spec, Some("rollback"));
        give(&mut agent, phase.map(|phase| stood(PLAIN, phase, 0)));
        let decision = decide(&agent, &Seen { book: Some(book(EndedBy::Annotation, None)), ..seen() }, at(9)).unwrap();
        assert_eq!((decision.act, decision.events.len()), (Act::DropAnnotation, 0), "{spec} {phase:?}");
        assert_eq!(decision.status.is_some(), phase.is_some(), "a canary begins when it is gone");
    }
}

#[test]
fn an_annotation_in_a_manifest_counts_once_and_stays() {
    use CanaryPhase::{RolledBack, Serving};
    let flux = Book { in_manifest: true, ..book(EndedBy::Annotation, Some("spec: it belongs to Flux")) };
    let known = Seen { book: Some(flux), ..seen() };
    let newer = PLAIN.replace("new", "newer");
    let note = "stands in a manifest";
    for (word, event, phase) in [
        ("promote", "AgentCanaryRefused", Serving),
        ("pause", "AgentCanaryRefused", Serving),
        ("rollback", "AgentCanaryRolledBack", RolledBack),
    ] {
        let mut agent = agent_with(PLAIN, Some(word));
        give(&mut agent, Some(stood(PLAIN, Serving, 10)));
        let first = decide(&agent, &known, at(9)).unwrap();
        assert_eq!((told(&first).2, first.act), (vec![event], Act::Nothing), "{word}");
        give(&mut agent, first.status);
        let last = settled(&mut agent, &known, at(99));
        assert_eq!((last.status.as_ref().unwrap().phase, last.events.len(), last.act), (phase, 0, Act::Nothing), "{word}");
        assert_eq!(last.finding.as_ref().unwrap().message.matches(note).count(), 1, "{word}");
        assert_eq!(decide(&agent, &seen(), at(99)), Some(last), "nobody need be asked any more");
        // The next canary has nothing of it, until it says something else.
        let status = agent.status.clone();
        agent = Agent { status, ..agent_with(&newer, Some(word)) };
        let next = settled(&mut agent, &known, at(100));
        assert_eq!((told(&next).0, next.act), (Some(Serving), Act::Nothing), "{word}");
        let other = if word == "rollback" { "promote" } else { "rollback" };
        let status = agent.status.clone();
        agent = Agent { status, ..agent_with(&newer, Some(other)) };
        assert_eq!(decide(&agent, &known, at(101)).unwrap().events.len(), 1, "{other}");
        agent.metadata.annotations = None;
        let status = decide(&agent, &known, at(101)).unwrap().status.unwrap();
        assert_eq!((status.phase, status.counted_action), (Serving, None), "{word}");
    }
    // One that has counted does not say how a later canary ends.
    let mut agent = agent_with("systemPrompt: new, version: '2'", Some("rollback"));
    give(&mut agent, Some(CanaryStatus { counted_action: Some("rollback".to_owned()), ..stood(PLAIN, Serving, 10) }));
    let ended = decide(&agent, &known, at(9)).unwrap();
    assert_eq!((ended.events[0].reason, &ended.events[0].payload["by"]), ("AgentCanaryPromoted", &json!("spec")));
    // It is left alone where there is no canary, and is no canary's that begins beside it.
    let none = decide(&agent_with("replicas: 1", Some("rollback")), &known, at(9)).unwrap();
    assert_eq!((none.status, none.act, none.next), (None, Act::Nothing, None));
    let begun = settled(&mut agent_with(PLAIN, Some("rollback")), &known, at(9));
    assert_eq!((told(&begun).0, begun.act), (Some(Serving), Act::Nothing));
    assert!(begun.finding.unwrap().message.contains(note));
}

#[test]
fn a_promotion_does_not_meet_another_canary() {
    let newer = PLAIN.replace("new", "newer");
    let mut agent = agent_with(&newer, Some("promote"));
    let stood = stood(PLAIN, CanaryPhase::Serving, 10);
    give(&mut agent, Some(stood.clone()));
    let known = Seen { book: Some(book(EndedBy::Annotation, None)), ..seen() };
    let decision = decide(&agent, &known, at(9)).unwrap();
    let expected = (Some(CanaryPhase::Progressing), 0, vec!["AgentCanaryRefused"], Act::DropAnnotation, (None, "Progressing"));
    assert_eq!(told(&decision), expected);
    // As long as the annotation is there, it is no canary of the new spec.
    give(&mut agent, decision.status);
    let again = decide(&agent, &known, at(10)).unwrap();
    assert_eq!(told(&again), expected);
    assert_eq!(again.status.map(|status| status.content), Some(stood.content));
    agent.metadata.annotations = None;
    assert_eq!(told(&decide(&agent, &seen(), at(11)).unwrap()).2, ["AgentCanaryStarted"]);
    // It is rolled back as the one before would have been.
    let mut agent = agent_with(&newer, Some("rollback"));
    give(&mut agent, Some(self::stood(PLAIN, CanaryPhase::Serving, 10)));
    assert_eq!(told(&settled(&mut agent, &Seen { book: Some(book(EndedBy::Rest, None)), ..seen() }, at(9))).3, Act::Patch(End::RolledBack));
}

#[test]
fn a_weight_of_the_annotation_does_not_meet_the_next_canary() {
    use CanaryPhase::{Draining, Promoting, RolledBack, Serving};
    let gone = |run_hash: Option<&str>, phase| CanaryStatus { run_hash: run_hash.map(str::to_owned), ..stood(PLAIN, phase, 0) };
    for (status, after, act) in [
        (None, 5, Act::Nothing),
        (Some(stood(PLAIN, Serving, 10)), 5, Act::Nothing),
        (Some(stood(PLAIN, Promoting, 10)), 5, Act::Nothing),
        (Some(stood(PLAIN, Draining, 0)), 5, Act::DropAnnotation),
        (Some(gone(Some("h"), RolledBack)), 99, Act::DropAnnotation),
        (Some(gone(None, RolledBack)), 5, Act::DropAnnotation),
        // Who keeps it in Git is not fought.
        (Some(gone(None, RolledBack)), 99, Act::Nothing),
    ] {
        let mut agent = agent_with(PLAIN, None);
        agent.metadata.annotations = Some([(labels::CANARY_WEIGHT.to_owned(), "80".to_owned())].into());
        let what = format!("{status:?} {after}");
        give(&mut agent, status);
        assert_eq!(decide(&agent, &seen(), at(after)).unwrap().act, act, "{what}");
    }
}

#[test]
fn a_spec_without_its_canary_was_promoted_or_rolled_back() {
    let rolled_back = |warning| ("AgentCanaryRolledBack", warning, CanaryPhase::Draining, 0);
    let promoted = ("AgentCanaryPromoted", false, CanaryPhase::Promoting, 10);
    for (what, spec, word, by, expected) in [
        ("REST promotes", "systemPrompt: new, version: '2'", Some("promote"), EndedBy::Rest, promoted),
        ("analysis promotes", "systemPrompt: new, version: '2'", Some("promote"), EndedBy::Analysis, promoted),
        ("Git has what the canary was", "systemPrompt: new, version: '2'", None, EndedBy::Spec, promoted),
        ("REST rolls back", "systemPrompt: old, version: '1'", Some("rollback"), EndedBy::Rest, rolled_back(false)),
        ("analysis rolls back", "systemPrompt: old, version: '1'", Some("rollback"), EndedBy::Analysis, rolled_back(true)),
        ("the canary is taken out", "systemPrompt: old, version: '1'", None, EndedBy::Spec, rolled_back(false)),
        ("the canary is disabled", &*PLAIN.replace("true", "false"), None, EndedBy::Spec, rolled_back(false)),
        ("something else was made of it", "systemPrompt: other", None, EndedBy::Spec, rolled_back(false)),
    ] {
        let mut agent = agent_with(spec, word);
        let status = CanaryStatus { message: Some("too slow".to_owned()), ..stood(PLAIN, CanaryPhase::Serving, 10) };
        give(&mut agent, Some(status));
        assert_eq!(decide(&agent, &seen(), at(9)), None, "{what}: it has to be known who has written that");
        let seen = Seen { book: Some(book(by, None)), ..seen() };
        let decision = decide(&agent, &seen, at(9)).unwrap();
        let [event] = &*decision.events else { panic!("{what}: {decision:#?}") };
        let status = decision.status.clone().unwrap();
        assert_eq!((event.reason, event.warning, status.phase, status.weight), expected, "{what}");
        assert_eq!(event.payload["by"], by.word());
        assert_eq!(event.payload["why"] == "too slow", event.warning, "{what}: {}", event.payload);
        assert_eq!(decision.act, Act::Nothing, "the annotation stays until the status says what came of it");
        // Killed before the status was written, it tells the same, and later never again.
        assert_eq!(decide(&agent, &seen, at(99)).unwrap().events, decision.events);
        give(&mut agent, Some(status));
        assert_eq!(told(&decide(&agent, &seen, at(10)).unwrap()).2, [""; 0]);
    }
}

#[test]
fn a_promotion_keeps_users_until_the_stable_track_has_rolled() {
    let promoting = || stood(PLAIN, CanaryPhase::Promoting, 10);
    for (stable, deployment, phase, weight, events) in [
        (Stable::Rolls("pods".to_owned()), pods(1, 1), CanaryPhase::Promoting, 10, vec![]),
        (Stable::Rolls("pods".to_owned()), pods(1, 0), CanaryPhase::Promoting, 0, vec![]),
        (Stable::Rolled, pods(1, 1), CanaryPhase::Draining, 0, vec![]),
        (Stable::Rejected("avg=50".to_owned()), pods(1, 1), CanaryPhase::Draining, 0, vec!["AgentCanaryRolledBack"]),
    ] {
        let mut agent = agent_with("systemPrompt: new", None);
        give(&mut agent, Some(promoting()));
        let seen = Seen { stable: stable.clone(), deployment: Some(deployment), ..seen() };
        let decision = decide(&agent, &seen, at(50)).unwrap();
        let (found, share, told, act, _) = told(&decision);
        assert_eq!((found, share, told, act), (Some(phase), weight, events, Act::Nothing), "{stable:?}");
        let began = decision.status.unwrap().step_started_at;
        assert_eq!(began == Some(Time(at(50))), phase == CanaryPhase::Draining, "{stable:?}");
    }
}

#[test]
fn a_canary_has_ended_once_nobody_is_sent_to_it_for_ten_seconds() {
    for (spec, after, ended) in [("replicas: 1", 0, false), ("replicas: 1", 9, false), ("replicas: 1", 10, true), (PLAIN, 10, true)] {
        let mut agent = agent_with(spec, None);
        give(&mut agent, Some(stood(PLAIN, CanaryPhase::Draining, 0)));
        let decision = decide(&agent, &seen(), at(after)).unwrap();
        assert_eq!((decision.status.is_none(), decision.next.is_none()), (ended, ended), "{after}");
    }
    // One that its status alone has rolled back has no pods any more then, and stays so.
    let mut agent = agent_with(PLAIN, None);
    give(&mut agent, Some(stood(PLAIN, CanaryPhase::RolledBack, 0)));
    for (after, has_pods) in [(9, true), (10, false), (10_000, false)] {
        let status = decide(&agent, &seen(), at(after)).unwrap().status.unwrap();
        assert_eq!((status.phase, status.run_hash.is_some()), (CanaryPhase::RolledBack, has_pods), "{after}");
    }
    // The spec lets go of it while users are being taken away: its pods have their time even so.
    for (after, stays) in [(9, true), (10, false)] {
        let mut ended = agent_with("systemPrompt: old", None);
        give(&mut ended, Some(stood(PLAIN, CanaryPhase::RolledBack, 0)));
        let status = decide(&ended, &seen(), at(after)).unwrap().status;
        assert_eq!(status.map(|status| (status.phase, status.share())), stays.then_some((CanaryPhase::RolledBack, 0)), "{after}");
    }
    let heavier = PLAIN.replace("weight: 10", "weight: 20");
    for (spec, phase) in [
        (&*heavier, Some(CanaryPhase::RolledBack)),
        (&*PLAIN.replace("new", "newer"), Some(CanaryPhase::Serving)),
        ("systemPrompt: old", None),
        (&*PLAIN.replace("true", "false"), None),
    ] {
        let status = agent.status.clone();
        agent = Agent { status, ..agent_with(spec, None) };
        assert_eq!(decide(&agent, &seen(), at(99)).unwrap().status.map(|status| status.phase), phase, "{spec}");
    }
}

#[test]
fn flagger_has_no_canary_beside() {
    let mut agent = agent_with(PLAIN, None);
    agent.metadata.annotations = Some([(labels::FLAGGER.to_owned(), "true".to_owned())].into());
    assert_eq!(told(&decide(&agent, &seen(), at(0)).unwrap()), (None, 0, vec![], Act::Nothing, (Some(false), "FlaggerMode")));
    give(&mut agent, Some(stood(PLAIN, CanaryPhase::Serving, 10)));
    let decision = decide(&agent, &Seen { book: Some(book(EndedBy::Spec, None)), ..seen() }, at(9)).unwrap();
    let expected = (Some(CanaryPhase::Draining), 0, vec!["AgentCanaryRolledBack"], Act::Nothing, (None, "Draining"));
    assert_eq!(told(&decision), expected);
}

/// A canary with analysis in force at this weight since the first second, and what is decided of it.
fn analysed(spec: &str, weight: i32, seen: &Seen, second: i64) -> Option<Decision> {
    let mut agent = agent_with(spec, None);
    give(&mut agent, Some(stood(spec, CanaryPhase::Serving, weight)));
    decide(&agent, seen, at(second))
}

#[test]
fn analysis_moves_on_what_was_measured_and_on_nothing_else() {
    let serving = (Some(true), "Serving");
    let inconclusive = |reason| (CanaryPhase::Inconclusive, vec!["AgentCanaryInconclusive"], (Some(false), reason));
    let with = |reading: Option<Reading>| Seen { reading, ..seen() };
    let good = |second| with(Some(measured(second, (1000, 10), (1000, 10))));
    for (what, seen, second, (phase, events, finding)) in [
        ("a step has its time", good(59), 59, (CanaryPhase::Serving, vec![], serving)),
        ("all gates are kept", good(60), 60, (CanaryPhase::Serving, vec!["AgentCanaryAdvanced"], serving)),
        ("three requests", with(Some(measured(60, (3, 0), (1000, 10)))), 60, (CanaryPhase::Serving, vec![], serving)),
        ("three of the stable track", with(Some(measured(60, (1000, 10), (3, 0)))), 60, (CanaryPhase::Serving, vec![], serving)),
        ("three requests for long", with(Some(measured(600, (3, 0), (1000, 10)))), 600, inconclusive("Inconclusive")),
        ("nobody has looked", with(None), 60, (CanaryPhase::Serving, vec![], serving)),
        ("nobody has looked for long", with(None), 600, inconclusive("NotMeasured")),
        ("figures of long ago", good(60), 599, (CanaryPhase::Serving, vec![], serving)),
        (
            "the stable track has rolled since",
            Seen { stable_run_hash: Some("other".to_owned()), ..good(60) },
            60,
            (CanaryPhase::Serving, vec![], serving),
        ),
        ("there is no database", Seen { is_measurable: false, ..good(60) }, 60, inconclusive("NotMeasured")),
    ] {
        let decision = analysed(STEPS, 10, &seen, second).unwrap_or_else(|| panic!("{what}"));
        assert_eq!(told(&decision), (Some(phase), 10, events, Act::Nothing, finding), "{what}");
    }
    // What is wholly broken does not wait for its time.
    for (canary, second) in [((1000, 200), 60), ((100, 90), 30)] {
        let mut agent = agent_with(STEPS, None);
        give(&mut agent, Some(stood(STEPS, CanaryPhase::Serving, 10)));
        let seen = with(Some(measured(second, canary, (1000, 10))));
        let first = decide(&agent, &seen, at(second)).unwrap();
        let said = first.status.as_ref().and_then(|status| status.message.clone());
        assert!(said.is_some_and(|why| why.contains("failed")), "{first:#?}");
        give(&mut agent, first.status);
        let decision = decide(&agent, &Seen { book: Some(book(EndedBy::Spec, None)), ..seen.clone() }, at(second)).unwrap();
        assert_eq!(decision.act, Act::Patch(End::RolledBack));
        let decision = decide(&agent, &Seen { book: Some(book(EndedBy::Spec, Some("Flux"))), ..seen }, at(second)).unwrap();
        assert_eq!(told(&decision).2, ["AgentCanaryRolledBack"]);
        assert_eq!(decision.status.unwrap().phase, CanaryPhase::RolledBack);
    }
}

#[test]
fn a_canary_kept_from_its_weight_is_inconclusive_in_the_end() {
    let quota = Some(Trouble { reason: "QuotaExceeded".to_owned(), message: "exceeded quota: pods".to_owned() });
    let refused = Seen { deployment: Some(pods(1, 0)), trouble: quota, ..seen() };
    let few = Seen { deployment: Some(pods(3, 2)), ..seen() };
    let held = Seen { evaluation: Some(evaluated(true, State::Runs)), ..seen() };
    let missing = Fault { reason: "SkillNotFound", message: "spec.skills[0]: there is no Skill s".to_owned() };
    let faulty = Seen { fault: Some(missing), is_as_wanted: false, ..seen() };
    let new = |spec: &str| stood(spec, CanaryPhase::Progressing, 0);
    let rising = CanaryStatus { desired_weight: 25, step: Some(2), ..stood(STEPS, CanaryPhase::Serving, 10) };
    let (paused, stopped) = (STEPS.replace("analysis: {", "analysis: {paused: true, "), STEPS.replace("old", "old, suspend: true"));
    let (waits, inconclusive) = (CanaryPhase::Progressing, CanaryPhase::Inconclusive);
    for (spec, status, seen, second, phase, reason) in [
        (STEPS, new(STEPS), &refused, 599, waits, "QuotaExceeded"),
        (STEPS, new(STEPS), &refused, 600, inconclusive, "QuotaExceeded"),
        (STEPS, new(STEPS), &few, 600, inconclusive, "Inconclusive"),
        (STEPS, new(STEPS), &held, 600, inconclusive, "Inconclusive"),
        (STEPS, new(STEPS), &faulty, 600, inconclusive, "SkillNotFound"),
        (STEPS, rising, &few, 600, inconclusive, "Inconclusive"),
        // Of one that has served that begins now.
        (STEPS, stood(STEPS, CanaryPhase::Serving, 10), &faulty, 600, waits, "SkillNotFound"),
        // Nobody has asked for a decision.
        (PLAIN, new(PLAIN), &refused, 9999, waits, "QuotaExceeded"),
        (&*paused, new(&paused), &refused, 9999, waits, "QuotaExceeded"),
        (&*stopped, new(&stopped), &refused, 9999, waits, "AgentStopped"),
    ] {
        let mut agent = agent_with(spec, None);
        let weight = if phase == inconclusive { status.weight } else { 0 };
        give(&mut agent, Some(status));
        let first = decide(&agent, seen, at(second)).unwrap();
        let events = if phase == inconclusive { vec!["AgentCanaryInconclusive"] } else { vec![] };
        assert_eq!(told(&first), (Some(phase), weight, events, Act::Nothing, (Some(false), reason)), "{spec} {second} {seen:?}");
        give(&mut agent, first.status.clone());
        let again = decide(&agent, seen, at(second + 60)).unwrap();
        assert_eq!((again.status, again.events.len()), (first.status, 0), "it is told once");
    }
    // Pods that come in the end are no reason to go on waiting.
    let mut agent = agent_with(STEPS, None);
    give(&mut agent, Some(CanaryStatus { phase: inconclusive, ..new(STEPS) }));
    assert_eq!(told(&settled(&mut agent, &seen(), at(700))).0, Some(CanaryPhase::Serving));
    // One that was stopped has its time from now on.
    give(&mut agent, Some(new(STEPS)));
    let said = Finding::new(CANARY_READY, false, "AgentStopped", "spec.suspend is true");
    agent.status.as_mut().unwrap().conditions = slipway_api::condition::conditions(vec![said], &[], Some(4), at(0));
    let status = decide(&agent, &refused, at(9999)).unwrap().status.unwrap();
    assert_eq!((status.phase, status.step_started_at), (waits, Some(Time(at(9999)))));
}

#[test]
fn a_canary_climbs_its_steps_and_is_promoted() {
    let mut agent = agent_with(STEPS, None);
    give(&mut agent, Some(stood(STEPS, CanaryPhase::Progressing, 0)));
    let (mut weights, mut now, mut requests) = (Vec::new(), 0, 0);
    let patched = loop {
        (now, requests) = (now + 30, requests + 200);
        let seen = Seen { reading: Some(measured(now, (requests, requests / 100), (2 * requests, requests / 50))), ..seen() };
        let Some(decision) = decide(&agent, &seen, at(now)) else {
            let seen = Seen { book: Some(book(EndedBy::Spec, None)), ..seen };
            break decide(&agent, &seen, at(now)).unwrap();
        };
        let status = decision.status.clone().unwrap();
        weights.push((status.step.unwrap(), status.weight));
        assert!(now < 10_000, "{status:#?}");
        give(&mut agent, decision.status);
    };
    assert_eq!(patched.act, Act::Patch(End::Promoted));
    weights.dedup();
    assert_eq!(weights, [(1, 10), (2, 10), (2, 25), (3, 25), (3, 50)], "a higher weight is in force once there are pods for it");
    let status = patched.status.unwrap();
    let canary = status.canary.unwrap();
    assert_eq!((canary.requests, canary.error_rate_pct, status.steps), (requests, Some(1.0), Some(3)));
    assert!(canary.p95_latency_ms.is_some_and(|p95| p95 > 250.0 && p95.fract() == 0.0));
}

#[test]
fn a_canary_that_nobody_promotes_stays_at_its_last_step() {
    let good = Seen { reading: Some(measured(60, (1000, 10), (1000, 10))), ..seen() };
    let manual = analysed(MANUAL, 10, &good, 60).unwrap();
    assert_eq!(told(&manual), (Some(CanaryPhase::Succeeded), 10, vec![], Act::Nothing, (Some(true), "Succeeded")));
    // One of GitOps', and one that a policy refuses, is asked for once.
    let last = "systemPrompt: old, canary: {enabled: true, weight: 10, systemPrompt: new, analysis: {intervalSeconds: 60}}";
    let owned = Seen { book: Some(book(EndedBy::Spec, Some("spec: it belongs to Flux"))), ..good.clone() };
    let succeeded = analysed(last, 10, &owned, 60).unwrap();
    let expected = (Some(CanaryPhase::Succeeded), 10, vec!["AgentCanaryRefused"], Act::Nothing, (Some(true), "Succeeded"));
    assert_eq!(told(&succeeded), expected);
    assert!(succeeded.finding.as_ref().unwrap().message.contains("Flux"));
    let mut agent = agent_with(last, None);
    give(&mut agent, succeeded.status.clone());
    let again = decide(&agent, &good, at(61)).unwrap();
    assert_eq!((again.status, again.events, again.finding), (succeeded.status.clone(), vec![], succeeded.finding));
    agent.metadata.generation = Some(5);
    assert_eq!(decide(&agent, &good, at(62)), None, "its spec has changed, so that it is tried again");
    assert_eq!(decide(&agent, &owned, at(62)).unwrap().events, succeeded.events, "for the same reason it is refused once");
    // It is ended even so where it breaks.
    agent.metadata.generation = Some(4);
    let broken = Seen { reading: Some(measured(120, (1000, 500), (1000, 10))), ..seen() };
    let why = decide(&agent, &broken, at(120)).unwrap().status.unwrap().message;
    assert!(why.is_some_and(|why| why.contains("failed")));
}

#[test]
fn analysis_pauses_and_an_annotation_holds_it() {
    let good = Seen { reading: Some(measured(60, (1000, 500), (1000, 10))), ..seen() };
    let paused = STEPS.replace("analysis: {", "analysis: {paused: true, ");
    let decision = analysed(&paused, 10, &good, 60).unwrap();
    assert_eq!(told(&decision), (Some(CanaryPhase::Paused), 10, vec![], Act::Nothing, (Some(true), "Paused")));
    assert_eq!(decision.status.unwrap().canary.unwrap().requests, 1000, "figures go on being read");
    let mut agent = agent_with(STEPS, None);
    agent.metadata.annotations = Some([(labels::CANARY_WEIGHT.to_owned(), "10".to_owned())].into());
    give(&mut agent, Some(stood(STEPS, CanaryPhase::Serving, 10)));
    assert_eq!(decide(&agent, &good, at(60)).unwrap().status.unwrap().phase, CanaryPhase::Paused);
}

#[test]
fn other_pods_begin_a_step_anew() {
    let mut agent = agent_with(STEPS, None);
    give(&mut agent, Some(stood(STEPS, CanaryPhase::Serving, 10)));
    let seen = Seen { run_hash: Some("other".to_owned()), reading: Some(measured(60, (1000, 10), (1000, 10))), ..seen() };
    let status = decide(&agent, &seen, at(70)).unwrap().status.unwrap();
    assert_eq!((status.step_started_at, status.step_requests, status.run_hash.as_deref()), (Some(Time(at(70))), 0, Some("other")));
    assert_eq!(status.started_at, Some(Time(at(0))), "it is the same canary");
    // What was counted of the pods before is not taken from what these have: the step begins with none, whatever the weight does.
    let status = decide(&agent, &Seen { deployment: Some(pods(1, 0)), ..seen }, at(70)).unwrap().status.unwrap();
    assert_eq!((status.weight, status.step_requests), (0, 0));
}

#[test]
fn a_step_counts_from_what_was_read_last() {
    let mut agent = agent_with(STEPS, None);
    let figures = TrackFigures { requests: 1000, ..TrackFigures::default() };
    give(&mut agent, Some(CanaryStatus { canary: Some(figures), ..stood(STEPS, CanaryPhase::Serving, 10) }));
    // The database is away, and so are the canary's pods for a moment.
    let away = Seen { deployment: Some(pods(1, 0)), ..seen() };
    let status = decide(&agent, &away, at(9)).unwrap().status.unwrap();
    assert_eq!((status.weight, status.step_requests), (0, 1000));
    let others = Seen { run_hash: Some("other".to_owned()), ..away };
    let status = decide(&agent, &others, at(9)).unwrap().status.unwrap();
    assert_eq!((status.step_requests, status.canary), (0, None), "other pods have had none");
}

#[test]
fn a_canary_is_the_same_with_another_weight_and_other_pods() {
    let of = |more: Value| {
        let mut whole = json!({"enabled": true, "weight": 10});
        whole.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        spec_hash(&serde_json::from_value(whole).unwrap())
    };
    let plain = of(json!({}));
    for (more, same) in [
        (json!({"weight": 20}), true),
        (json!({"replicas": 3}), true),
        (json!({"analysis": {"steps": [50]}}), true),
        (json!({"modelId": "m"}), false),
        (json!({"overrides": {"environment": "e"}}), false),
    ] {
        assert_eq!(of(more.clone()) == plain, same, "{more}");
    }
}
