//! What follows from what was measured.

use super::*;

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

/// A canary with analysis in force at this weight since the first second, and what is decided of it.
fn analysed(spec: &str, weight: i32, seen: &CanarySeen, second: i64) -> Option<Decision> {
    let mut agent = agent_with(spec, None);
    give(&mut agent, Some(stood(spec, CanaryPhase::Serving, weight)));
    decide(&agent, seen, at(second))
}

#[test]
fn analysis_moves_on_what_was_measured_and_on_nothing_else() {
    let serving = (Some(true), "Serving");
    let inconclusive = |reason| (CanaryPhase::Inconclusive, vec!["AgentCanaryInconclusive"], (Some(false), reason));
    let with = |reading: Option<Reading>| CanarySeen { reading, ..seen() };
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
            CanarySeen { stable_run_hash: Some("other".to_owned()), ..good(60) },
            60,
            (CanaryPhase::Serving, vec![], serving),
        ),
        ("there is no database", CanarySeen { is_measurable: false, ..good(60) }, 60, inconclusive("NotMeasured")),
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
        let decision = decide(&agent, &CanarySeen { book: Some(book(EndedBy::Spec, None)), ..seen.clone() }, at(second)).unwrap();
        assert_eq!(decision.act, Act::Patch(CanaryEnd::RolledBack));
        let decision = decide(&agent, &CanarySeen { book: Some(book(EndedBy::Spec, Some("Flux"))), ..seen }, at(second)).unwrap();
        assert_eq!(told(&decision).2, ["AgentCanaryRolledBack"]);
        assert_eq!(decision.status.unwrap().phase, CanaryPhase::RolledBack);
    }
}

#[test]
fn a_canary_kept_from_its_weight_is_inconclusive_in_the_end() {
    let quota = Some(PodTrouble { reason: "QuotaExceeded".to_owned(), message: "exceeded quota: pods".to_owned() });
    let refused = CanarySeen { deployment: Some(pods(1, 0)), trouble: quota, ..seen() };
    let few = CanarySeen { deployment: Some(pods(3, 2)), ..seen() };
    let held = CanarySeen { evaluation: Some(evaluated(true, EvaluationState::Runs)), ..seen() };
    let missing = ConditionFault { reason: "SkillNotFound", message: "spec.skills[0]: there is no Skill s".to_owned() };
    let faulty = CanarySeen { fault: Some(missing), is_as_wanted: false, ..seen() };
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
        let later = if phase == inconclusive { second + 60 } else { second };
        let again = decide(&agent, seen, at(later)).unwrap();
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
        let seen = CanarySeen { reading: Some(measured(now, (requests, requests / 100), (2 * requests, requests / 50))), ..seen() };
        let Some(decision) = decide(&agent, &seen, at(now)) else {
            let seen = CanarySeen { book: Some(book(EndedBy::Spec, None)), ..seen };
            break decide(&agent, &seen, at(now)).unwrap();
        };
        let status = decision.status.clone().unwrap();
        weights.push((status.step.unwrap(), status.weight));
        assert!(now < 10_000, "{status:#?}");
        give(&mut agent, decision.status);
    };
    assert_eq!(patched.act, Act::Patch(CanaryEnd::Promoted));
    weights.dedup();
    assert_eq!(weights, [(1, 10), (2, 10), (2, 25), (3, 25), (3, 50)], "a higher weight is in force once there are pods for it");
    let status = patched.status.unwrap();
    let canary = status.canary.unwrap();
    assert_eq!((canary.requests, canary.error_rate_pct, status.steps), (requests, Some(1.0), Some(3)));
    assert!(canary.p95_latency_ms.is_some_and(|p95| p95 > 250.0 && p95.fract() == 0.0));
}

#[test]
fn a_canary_that_nobody_promotes_stays_at_its_last_step() {
    let good = CanarySeen { reading: Some(measured(60, (1000, 10), (1000, 10))), ..seen() };
    let manual = analysed(MANUAL, 10, &good, 60).unwrap();
    assert_eq!(told(&manual), (Some(CanaryPhase::Succeeded), 10, vec![], Act::Nothing, (Some(true), "Succeeded")));
    // One of GitOps', and one that a policy refuses, is asked for once.
    let last = "systemPrompt: old, canary: {enabled: true, weight: 10, systemPrompt: new, analysis: {intervalSeconds: 60}}";
    let owned = CanarySeen { book: Some(book(EndedBy::Spec, Some("spec: it belongs to Flux"))), ..good.clone() };
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
    let broken = CanarySeen { reading: Some(measured(120, (1000, 500), (1000, 10))), ..seen() };
    let why = decide(&agent, &broken, at(120)).unwrap().status.unwrap().message;
    assert!(why.is_some_and(|why| why.contains("failed")));
}

#[test]
fn analysis_pauses_and_an_annotation_holds_it() {
    let good = CanarySeen { reading: Some(measured(60, (1000, 500), (1000, 10))), ..seen() };
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
    let seen = CanarySeen { run_hash: Some("other".to_owned()), reading: Some(measured(60, (1000, 10), (1000, 10))), ..seen() };
    let status = decide(&agent, &seen, at(70)).unwrap().status.unwrap();
    assert_eq!((status.step_started_at, status.step_requests, status.run_hash.as_deref()), (Some(Time(at(70))), 0, Some("other")));
    assert_eq!(status.started_at, Some(Time(at(0))), "it is the same canary");
    // What was counted of the pods before is not taken from what these have: the step begins with none, whatever the weight does.
    let status = decide(&agent, &CanarySeen { deployment: Some(pods(1, 0)), ..seen }, at(70)).unwrap().status.unwrap();
    assert_eq!((status.weight, status.step_requests), (0, 0));
}

#[test]
fn a_step_counts_from_what_was_read_last() {
    let mut agent = agent_with(STEPS, None);
    let figures = TrackFigures { requests: 1000, ..TrackFigures::default() };
    give(&mut agent, Some(CanaryStatus { canary: Some(figures), ..stood(STEPS, CanaryPhase::Serving, 10) }));
    // The database is away, and so are the canary's pods for a moment.
    let away = CanarySeen { deployment: Some(pods(1, 0)), ..seen() };
    let status = decide(&agent, &away, at(9)).unwrap().status.unwrap();
    assert_eq!((status.weight, status.step_requests), (0, 1000));
    let others = CanarySeen { run_hash: Some("other".to_owned()), ..away };
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
