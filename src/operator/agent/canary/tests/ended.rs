//! How a canary ends.

use super::*;

#[test]
fn an_annotation_ends_a_canary_in_the_spec_or_in_its_status() {
    let flux = Some("spec: it belongs to Flux");
    let refused = || (Some(CanaryPhase::Serving), 10, vec!["AgentCanaryRefused"], Act::DropAnnotation, (None, ""));
    for (word, barrier, expected) in [
        ("promote", None, (Some(CanaryPhase::Serving), 10, vec![], Act::Patch(CanaryEnd::Promoted), (None, ""))),
        ("rollback", None, (Some(CanaryPhase::Serving), 10, vec![], Act::Patch(CanaryEnd::RolledBack), (None, ""))),
        ("promote", flux, refused()),
        ("rollback", flux, (Some(CanaryPhase::RolledBack), 0, vec!["AgentCanaryRolledBack"], Act::Nothing, (Some(false), "RolledBack"))),
        ("pause", None, refused()),
    ] {
        let mut agent = agent_with(PLAIN, Some(word));
        give(&mut agent, Some(stood(PLAIN, CanaryPhase::Serving, 10)));
        assert_eq!(decide(&agent, &seen(), at(9)), None, "{word}: it has to be known who asks");
        let decision = decide(&agent, &CanarySeen { book: Some(book(EndedBy::Annotation, barrier)), ..seen() }, at(9)).unwrap();
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
        let decision = decide(&agent, &CanarySeen { book: Some(book(EndedBy::Annotation, None)), ..seen() }, at(9)).unwrap();
        assert_eq!((decision.act, decision.events.len()), (Act::DropAnnotation, 0), "{spec} {phase:?}");
        assert_eq!(decision.status.is_some(), phase.is_some(), "a canary begins when it is gone");
    }
}

#[test]
fn an_annotation_in_a_manifest_counts_once_and_stays() {
    use CanaryPhase::{RolledBack, Serving};
    let flux = Book { in_manifest: true, ..book(EndedBy::Annotation, Some("spec: it belongs to Flux")) };
    let known = CanarySeen { book: Some(flux), ..seen() };
    let newer = PLAIN.replace("new", "newer");
    let remark = "stands in a manifest";
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
        assert_eq!(last.finding.as_ref().unwrap().message.matches(remark).count(), 1, "{word}");
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
    assert!(begun.finding.unwrap().message.contains(remark));
}

#[test]
fn a_promotion_does_not_meet_another_canary() {
    let newer = PLAIN.replace("new", "newer");
    let mut agent = agent_with(&newer, Some("promote"));
    let stood = stood(PLAIN, CanaryPhase::Serving, 10);
    give(&mut agent, Some(stood.clone()));
    let known = CanarySeen { book: Some(book(EndedBy::Annotation, None)), ..seen() };
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
    assert_eq!(
        told(&settled(&mut agent, &CanarySeen { book: Some(book(EndedBy::Rest, None)), ..seen() }, at(9))).3,
        Act::Patch(CanaryEnd::RolledBack)
    );
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
        let seen = CanarySeen { book: Some(book(by, None)), ..seen() };
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
        let seen = CanarySeen { stable: stable.clone(), deployment: Some(deployment), ..seen() };
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
    let decision = decide(&agent, &CanarySeen { book: Some(book(EndedBy::Spec, None)), ..seen() }, at(9)).unwrap();
    let expected = (Some(CanaryPhase::Draining), 0, vec!["AgentCanaryRolledBack"], Act::Nothing, (None, "Draining"));
    assert_eq!(told(&decision), expected);
}
