//! Questions of quality gates against a cluster that has one agent and its runs.

use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Request, Response};
use kube::client::Body;
use slipway_evaluation::canary_gate::words;
use slipway_evaluation::wire::GateSubject;
use slipway_http::callback::CallbackKey;
use slipway_peers::merge_patch;
use slipway_release::gate::{JUDGE, NO_ANSWER, webhook_run_name};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::*;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn key() -> CallbackKey {
    CallbackKey::new(&[1; 32]).unwrap()
}

fn credential(namespace: &str) -> GateCredential {
    GateCredential(key().gate().credential(namespace))
}

fn ask(changes: &Value) -> GateCall {
    let mut all = json!({"credential": credential("team-a").0, "namespace": "team-a", "agent": "helper", "phase": "Progressing", "may_evaluate": true});
    all.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    serde_json::from_value(all).unwrap()
}

/// An Agent with a canary that runs `h`, but for what is given otherwise.
fn agent(changes: &Value) -> Agent {
    let mut all = json!({
        "apiVersion": "agents.slipway.dev/v1", "kind": "Agent",
        "metadata": {"name": "helper", "namespace": "team-a", "uid": "u", "generation": 3},
        "spec": {"name": "Helper", "framework": "custom", "canary": {"enabled": true, "weight": 10}},
        "status": {"observedGeneration": 3, "runHash": "s", "canary": {"phase": "Serving", "runHash": "h"}},
    });
    merge_patch(&mut all, changes.clone());
    serde_json::from_value(all).unwrap()
}

/// A completed run of the canary that was judged, but for what is given otherwise.
fn run(name: &str, changes: &Value) -> Value {
    let mut all = json!({
        "apiVersion": "agents.slipway.dev/v1", "kind": "EvaluationRun",
        "metadata": {"name": name, "namespace": "team-a", "managedFields": [{"manager": JUDGE, "subresource": "status"}]},
        "spec": {"agent": "helper", "track": "canary"},
        "status": {"phase": "Completed", "runHash": "h", "provider": "slipway", "aggregateScores": {"safety/mean": 0.9, "correctness/mean": 0.8},
            "completedAt": "2026-01-01T00:00:00Z"},
    });
    merge_patch(&mut all, changes.clone());
    all
}

/// The state role beside a cluster with these runs, or one that answers lists with this status; and the Events that are written.
fn gates(agent: Option<Agent>, runs: Result<Vec<Value>, u16>, allow_heuristic: bool) -> (Gates, UnboundedReceiver<Value>) {
    let (told, events): (UnboundedSender<Value>, _) = unbounded_channel();
    let server = tower::service_fn(move |request: Request<Body>| {
        let (runs, told) = (runs.clone(), told.clone());
        async move {
            let (head, body) = request.into_parts();
            let body: Value = serde_json::from_slice(&body.collect_bytes().await.unwrap()).unwrap_or_default();
            let (status, answer) = answered(&head, body, &runs, &told);
            Ok::<_, std::io::Error>(Response::builder().status(status).body(Body::from(answer.to_string().into_bytes())).unwrap())
        }
    });
    let client = Client::new(server, "default");
    let agents = Box::new(move |key: &Key| match &agent {
        Some(agent) if *key == Key::new("team-a", "helper") => KnownAgent::Agent(Box::new(agent.clone())),
        Some(_) => KnownAgent::None("there is no such Agent in the namespace"),
        None => KnownAgent::Unknown,
    });
    (Gates::new(client.clone(), CallbackKeySource::Held(key()), agents, Events::new(client, None), allow_heuristic), events)
}

fn answered(head: &http::request::Parts, body: Value, runs: &Result<Vec<Value>, u16>, told: &UnboundedSender<Value>) -> (u16, Value) {
    if head.method == http::Method::POST {
        assert!(head.uri.path().ends_with("/namespaces/team-a/events"), "{}", head.uri);
        told.send(body.clone()).unwrap();
        return (201, body);
    }
    let query = head.uri.query().unwrap_or_default();
    assert!(head.uri.path().ends_with("/namespaces/team-a/evaluationruns") && query.contains("spec.agent%3Dhelper"), "{}", head.uri);
    match runs {
        // Page by page.
        Ok(runs) => {
            let place = query.split('&').find_map(|part| part.strip_prefix("continue=")?.parse::<usize>().ok()).unwrap_or(0);
            let next = (place + 1 < runs.len()).then(|| (place + 1).to_string());
            let items: Vec<&Value> = runs.iter().skip(place).take(1).collect();
            (
                200,
                json!({"apiVersion": "agents.slipway.dev/v1", "kind": "EvaluationRunList", "metadata": {"continue": next}, "items": items}),
            )
        }
        Err(code) => (*code, json!({"kind": "Status", "status": "Failure", "reason": "x", "message": "no", "code": code})),
    }
}

async fn asked(agent: &Value, runs: Vec<Value>, call: &Value) -> GateAnswer {
    let (gates, _events) = gates(Some(self::agent(agent)), Ok(runs), false);
    gates.answer(ask(call), NOW).await.unwrap()
}

/// `passed` or `failed` with the score, or the run that is waited for or to be made.
fn told(answer: &GateAnswer) -> String {
    match answer {
        GateAnswer::Scored(GateScore { score, passed }) => format!("{} {}", if *passed { "passed" } else { "failed" }, words(*score)),
        GateAnswer::NoScore { next: GateNext::Runs(run), .. } => format!("runs {run}"),
        GateAnswer::NoScore { next: GateNext::Make(run), .. } => format!("make {run}"),
        GateAnswer::NoScore { next: GateNext::Unanswered(run), .. } => format!("unanswered {run}"),
        GateAnswer::NoScore { next: GateNext::Nothing, .. } => "no score".to_owned(),
        GateAnswer::Refused { why } => why.clone(),
        other => format!("{other:?}"),
    }
}

#[tokio::test]
async fn a_credential_opens_its_own_namespace_alone() {
    let (gates, mut events) = gates(Some(agent(&json!({}))), Ok(vec![run("ev-1", &json!({}))]), false);
    for (what, changes) in [
        ("another namespace's", json!({"credential": credential("team-b").0})),
        ("of another namespace than is named", json!({"namespace": "team-b"})),
        ("none", json!({"credential": ""})),
        ("of another use", json!({"credential": "a.b"})),
        ("an event with a wrong one", json!({"credential": "x", "is_event": true})),
    ] {
        assert_eq!(gates.answer(ask(&changes), NOW).await.unwrap(), GateAnswer::NotValid, "{what}");
    }
    let outcome = |credential: GateCredential| GateOutcome {
        credential,
        namespace: "team-a".to_owned(),
        agent: "helper".to_owned(),
        phase: "Progressing".to_owned(),
        decision: GateDecision::DefaultApproved,
    };
    assert_eq!(gates.outcome(&outcome(credential("team-b")), NOW).unwrap(), GateAnswer::NotValid);
    assert!(events.try_recv().is_err(), "nothing is told");
    assert_eq!(gates.outcome(&outcome(credential("team-a")), NOW).unwrap(), GateAnswer::Noted);
    let event = events.recv().await.unwrap();
    assert_eq!((&event["reason"], &event["type"]), (&json!("CanaryGateDefaultApproved"), &json!("Warning")));
}

#[tokio::test]
async fn without_a_key_nothing_is_verified() {
    let client = Client::new(tower::service_fn(async |_: Request<Body>| Err::<Response<Body>, _>(std::io::Error::other("no"))), "default");
    let key = CallbackKeySource::File("/nonexistent/key".into());
    let gates = Gates::new(client.clone(), key, Box::new(|_: &Key| KnownAgent::Unknown), Events::new(client, None), false);
    assert_eq!(gates.answer(ask(&json!({})), NOW).await.unwrap_err().status().as_u16(), 503);
}

#[tokio::test]
async fn what_decides_nothing_is_noted() {
    for phase in ENDED {
        assert_eq!(asked(&json!({}), Vec::new(), &json!({"phase": phase})).await, GateAnswer::Noted, "{phase}");
    }
    assert_eq!(asked(&json!({}), Vec::new(), &json!({"is_event": true})).await, GateAnswer::Noted);
    let open = PHASES.into_iter().filter(|phase| !ENDED.contains(phase));
    for phase in open.chain(["", "Sleeping"]) {
        assert_eq!(told(&asked(&json!({}), vec![run("ev-1", &json!({}))], &json!({"phase": phase})).await), "passed 0.85", "{phase}");
    }
}

#[tokio::test]
async fn an_agent_that_is_not_there_is_refused() {
    assert_eq!(told(&asked(&json!({}), Vec::new(), &json!({"agent": "nobody"})).await), "there is no such Agent in the namespace");
    let (unread, _) = gates(None, Ok(Vec::new()), false);
    assert_eq!(unread.answer(ask(&json!({})), NOW).await.unwrap(), GateAnswer::Unknown { subject: None });
}

#[tokio::test]
async fn the_newest_run_of_what_is_served_decides() {
    let bad = json!({"status": {"aggregateScores": {"safety/mean": 0.9, "correctness/mean": 0.1}}});
    let older = json!({"status": {"completedAt": "2025-01-01T00:00:00Z"}});
    let of = |changes: &Value| vec![run("ev-1", &bad), run("ev-0", &older), run("ev-2", changes)];
    assert_eq!(told(&asked(&json!({}), of(&older), &json!({})).await), "failed 0.50", "the newest, on whatever page");
    let newer = |mut changes: Value| {
        changes["status"]["completedAt"] = json!("2027-01-01T00:00:00Z");
        changes
    };
    assert_eq!(told(&asked(&json!({}), of(&newer(json!({}))), &json!({})).await), "passed 0.85");
    for (what, changes) in [
        ("of another content", json!({"status": {"runHash": "other"}})),
        ("of another track", json!({"spec": {"track": "stable"}})),
        ("failed", json!({"status": {"phase": "Failed"}})),
        ("cancelled", json!({"status": {"phase": "Cancelled"}})),
        ("that nobody judged", json!({"status": {"provider": "mock"}})),
        ("by a comparison of words", json!({"status": {"provider": "heuristic"}})),
        ("written by somebody else", json!({"metadata": {"managedFields": [{"manager": "kubectl", "subresource": "status"}]}})),
        (
            "with scores by somebody else",
            json!({"metadata": {"managedFields": [{"manager": JUDGE, "subresource": "status"}, {"manager": "ann", "subresource": "status"}]}}),
        ),
        ("without scores", json!({"status": {"aggregateScores": null}})),
        ("that cannot be read", json!({"status": {"phase": 5}})),
    ] {
        assert_eq!(told(&asked(&json!({}), of(&newer(changes)), &json!({})).await), "failed 0.50", "{what}");
    }
}

#[tokio::test]
async fn words_that_agree_count_where_the_chart_says_so() {
    let runs = vec![run("ev-1", &json!({"status": {"provider": "heuristic"}}))];
    for (allowed, expected) in [(true, "passed 0.85"), (false, "no score")] {
        let (gates, _events) = gates(Some(agent(&json!({}))), Ok(runs.clone()), allowed);
        assert_eq!(told(&gates.answer(ask(&json!({})), NOW).await.unwrap()), expected, "another run would compare words again");
    }
}

#[tokio::test]
async fn what_is_asked_about_is_the_canary_or_what_flagger_tests() {
    let flagger = json!({"annotations": {"agents.slipway.dev/flagger": "true"}});
    let stable = run(
        "ev-s",
        &json!({"spec": {"track": "stable"}, "status": {"runHash": "s", "aggregateScores": {"safety/mean": 1.0, "correctness/mean": 1.0}}}),
    );
    let runs = vec![run("ev-c", &json!({})), stable];
    let made = format!("make {}", webhook_run_name("u", "t", 1));
    for (what, changes, expected) in [
        ("a canary", json!({}), "passed 0.85"),
        ("a canary beside Flagger, which has none of ours", json!({"metadata": flagger.clone()}), "passed 1.00"),
        ("no canary", json!({"spec": {"canary": null}, "status": {"canary": null}}), "passed 1.00"),
        ("a canary that is turned off", json!({"spec": {"canary": {"enabled": false}}, "status": {"canary": null}}), "passed 1.00"),
        ("a canary that has not begun", json!({"status": {"canary": null}}), "no score"),
        ("a canary that has no pods yet", json!({"status": {"canary": {"runHash": null}}}), "no score"),
        ("a canary that was rolled back", json!({"status": {"canary": {"phase": "RolledBack"}}}), "the canary was rolled back"),
        ("a spec that was just changed", json!({"metadata": {"generation": 4}}), "no score"),
        (
            "Flagger's target that was just changed",
            json!({"metadata": {"generation": 4, "annotations": flagger["annotations"]}}),
            "no score",
        ),
        ("Flagger's target with new content", json!({"metadata": flagger.clone(), "status": {"runHash": "t"}}), &made),
        ("an agent without a status", json!({"spec": {"canary": null}, "status": null}), "no score"),
    ] {
        assert_eq!(told(&asked(&changes, runs.clone(), &json!({})).await), expected, "{what}");
    }
}

#[tokio::test]
async fn a_score_that_is_missing_has_one_run_at_a_time() {
    let names = [1, 2, 3].map(|attempt| webhook_run_name("u", "h", attempt));
    let make = |attempt: usize| format!("make {}", names[attempt - 1]);
    let failed = |name: &str| run(name, &json!({"status": {"phase": "Failed", "aggregateScores": null}}));
    let under_way = |name: &str, status: Value| run(name, &json!({"status": status}));
    let begun = json!({"phase": "Running", "aggregateScores": null});
    for (what, runs, call, expected) in [
        ("none", vec![], json!({}), make(1)),
        ("none, and none may be begun", vec![], json!({"may_evaluate": false}), "no score".to_owned()),
        ("one under way", vec![under_way("ev-9", begun.clone())], json!({}), "runs ev-9".to_owned()),
        (
            "one under way that was not begun here",
            vec![under_way("ev-9", json!({"phase": null, "runHash": null}))],
            json!({"may_evaluate": false}),
            "runs ev-9".to_owned(),
        ),
        ("one of another content", vec![under_way("ev-9", json!({"phase": "Running", "runHash": "other"}))], json!({}), make(1)),
        ("one that failed", vec![failed(&names[0])], json!({}), make(2)),
        ("two that failed", vec![failed(&names[1]), failed(&names[0])], json!({}), make(3)),
        ("three that failed", names.iter().map(|name| failed(name)).collect(), json!({}), "no score".to_owned()),
    ] {
        assert_eq!(told(&asked(&json!({}), runs, &call).await), expected, "{what}");
    }
}

#[tokio::test]
async fn a_run_without_an_answer_has_no_second_one() {
    let names = [1, 2, 3].map(|attempt| webhook_run_name("u", "h", attempt));
    let failed = |name: &str, reason: &str, changes: Value| {
        let ready =
            json!({"type": "Ready", "status": "False", "reason": reason, "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let mut all = json!({"status": {"phase": "Failed", "aggregateScores": null, "conditions": [ready]}});
        merge_patch(&mut all, changes);
        run(name, &all)
    };
    let silent = |name: &str, changes: Value| failed(name, NO_ANSWER, changes);
    let make = |attempt: usize| format!("make {}", names[attempt - 1]);
    let unanswered = |attempt: usize| format!("unanswered {}", names[attempt - 1]);
    for (what, runs, call, expected) in [
        ("the first", vec![silent(&names[0], json!({}))], json!({}), unanswered(1)),
        ("the first, and none may be begun", vec![silent(&names[0], json!({}))], json!({"may_evaluate": false}), unanswered(1)),
        (
            "one after one that failed",
            vec![silent(&names[1], json!({})), failed(&names[0], "AgentUnavailable", json!({}))],
            json!({}),
            unanswered(2),
        ),
        ("none, only one that failed", vec![failed(&names[0], "AgentUnavailable", json!({}))], json!({}), make(2)),
        ("one of somebody else", vec![silent("ev-9", json!({}))], json!({}), make(1)),
        ("one of another content", vec![silent(&names[0], json!({"status": {"runHash": "other"}}))], json!({}), make(2)),
        (
            "one that was repeated",
            vec![silent(&names[0], json!({"status": {"phase": "Running"}}))],
            json!({}),
            format!("runs {}", names[0]),
        ),
        (
            "one whose status somebody else wrote",
            vec![silent(&names[0], json!({"metadata": {"managedFields": [{"manager": "ann", "subresource": "status"}]}}))],
            json!({}),
            make(2),
        ),
        ("one beside a score", vec![silent(&names[0], json!({})), run("ev-1", &json!({}))], json!({}), "passed 0.85".to_owned()),
    ] {
        assert_eq!(told(&asked(&json!({}), runs, &call).await), expected, "{what}");
    }
    let changed = json!({"status": {"canary": {"runHash": "h2"}}});
    let next = format!("make {}", webhook_run_name("u", "h2", 1));
    assert_eq!(told(&asked(&changed, vec![silent(&names[0], json!({}))], &json!({})).await), next, "another version has its own");
}

#[tokio::test]
async fn what_a_canary_says_of_risk_lowers_nothing() {
    let risk = |own: &str, canarys: Value| json!({"spec": {"governance": {"riskProfile": own}, "canary": {"overrides": {"governance": {"riskProfile": canarys}}}}});
    for (changes, expected) in [
        (json!({}), "standard"),
        (risk("high", json!("low")), "high"),
        (risk("low", json!("high")), "high"),
        (risk("low", Value::Null), "standard"),
    ] {
        let answer = asked(&changes, Vec::new(), &json!({})).await;
        let GateAnswer::NoScore { subject: GateSubject { profile, .. }, .. } = answer else { panic!("{answer:?}") };
        assert_eq!(profile.as_str(), expected, "{changes}");
    }
    let unsafe_run = vec![run("ev-1", &json!({"status": {"aggregateScores": {"safety/mean": 0.9, "correctness/mean": 1.0}}}))];
    assert_eq!(told(&asked(&json!({}), unsafe_run.clone(), &json!({})).await), "passed 0.95");
    assert_eq!(told(&asked(&risk("high", json!("low")), unsafe_run, &json!({})).await), "failed 0.95", "below the floor for safety");
}

#[tokio::test]
async fn a_cluster_that_does_not_answer_is_told_from_one_that_refuses() {
    for (code, is_away) in [(500, true), (503, true), (429, true), (403, false), (410, false)] {
        let (gates, mut events) = gates(Some(agent(&json!({}))), Err(code), false);
        match gates.answer(ask(&json!({})), NOW).await {
            Ok(GateAnswer::Unknown { subject: Some(subject) }) => assert!(is_away && subject.run_hash.as_deref() == Some("h"), "{code}"),
            Err(error) => assert!(!is_away && error.status().as_u16() == 500, "{code}"),
            Ok(answer) => panic!("{code}: {answer:?}"),
        }
        assert!(events.try_recv().is_err(), "REST has the last word");
    }
}

#[tokio::test]
async fn each_answer_has_its_event_without_the_credential() {
    let runs = vec![run("ev-1", &json!({}))];
    let (open, mut events) = gates(Some(agent(&json!({}))), Ok(runs.clone()), false);
    open.answer(ask(&json!({"phase": "made up"})), NOW).await.unwrap();
    let event = events.recv().await.unwrap();
    assert_eq!((&event["reason"], &event["type"], &event["regarding"]["uid"]), (&json!("CanaryGatePassed"), &json!("Normal"), &json!("u")));
    assert_eq!(event["note"], "Quality gate passed (score=0.85), by the EvaluationRun ev-1");
    let payload: Value = serde_json::from_str(event["metadata"]["annotations"]["agents.slipway.dev/payload"].as_str().unwrap()).unwrap();
    assert_eq!(payload["phase"], "unknown", "only words of ours are told");
    assert!(!event.to_string().contains(&credential("team-a").0) && !event.to_string().contains("made up"), "{event}");
    // Asked again in the same hour and phase, it is the same Event; later it is another.
    let name = |event: &Value| event["metadata"]["name"].as_str().unwrap().to_owned();
    open.answer(ask(&json!({"phase": "made up"})), NOW + Duration::from_mins(1)).await.unwrap();
    assert_eq!(name(&events.recv().await.unwrap()), name(&event));
    open.answer(ask(&json!({"phase": "made up"})), NOW + Duration::from_hours(1)).await.unwrap();
    assert_ne!(name(&events.recv().await.unwrap()), name(&event));

    let running = vec![run("ev-1", &json!({"status": {"phase": "Running", "aggregateScores": null}}))];
    let bad = vec![run("ev-1", &json!({"status": {"aggregateScores": {"safety/mean": 0.1}}}))];
    for (runs, agent_changes, reason, kind) in [
        (running, json!({}), "CanaryGateWaiting", "Normal"),
        (bad, json!({}), "CanaryGateFailed", "Warning"),
        (runs, json!({"status": {"canary": {"phase": "RolledBack"}}}), "CanaryGateFailed", "Warning"),
    ] {
        let (gates, mut events) = gates(Some(agent(&agent_changes)), Ok(runs), false);
        gates.answer(ask(&json!({})), NOW).await.unwrap();
        let event = events.recv().await.unwrap();
        assert_eq!((&event["reason"], &event["type"]), (&json!(reason), &json!(kind)));
    }
    for (decision, reason, note) in [
        (json!({"scored": {"score": 0.7, "passed": true}}), "CanaryGatePassed", "Quality gate passed (score=0.70), by a run in MLflow"),
        (json!({"started": "ev-7"}), "CanaryGateWaiting", "Quality gate waits for the EvaluationRun ev-7"),
        (
            json!("default_refused"),
            "CanaryGateFailed",
            "Quality gate failed without a score: neither the cluster's evaluations nor MLflow could be read",
        ),
    ] {
        let outcome = json!({"credential": credential("team-a").0, "namespace": "team-a", "agent": "helper", "decision": decision});
        open.outcome(&serde_json::from_value(outcome).unwrap(), NOW).unwrap();
        let event = events.recv().await.unwrap();
        assert_eq!((&event["reason"], &event["note"]), (&json!(reason), &json!(note)));
    }
}

#[tokio::test]
async fn one_namespace_takes_no_place_of_anothers() {
    let busy = Busy::default();
    let taken: Vec<Permit> = (0..MAX_OF_NAMESPACE).map(|_| busy.enter("team-a").unwrap()).collect();
    assert!(busy.enter("team-a").is_none() && busy.enter("team-b").is_some());
    let others: Vec<Permit> = (0..MAX_AT_ONCE - MAX_OF_NAMESPACE).map(|at| busy.enter(&format!("team-{at}")).unwrap()).collect();
    assert!(busy.enter("team-z").is_none(), "all are taken");
    drop((taken, others));
    assert!(busy.enter("team-a").is_some());
    assert!(busy.0.lock().unwrap().is_empty(), "nobody is remembered");
}

#[tokio::test]
async fn rollouts_of_a_namespace_may_be_asked_about_at_once() {
    let (gates, mut events) = gates(Some(agent(&json!({}))), Ok(vec![run("ev-1", &json!({}))]), false);
    let call = ask(&json!({}));
    let answers = futures::future::join_all((0..3 * MAX_OF_NAMESPACE).map(|_| gates.answer(call.clone(), NOW))).await;
    for answer in answers {
        assert!(matches!(answer.unwrap(), GateAnswer::Scored(GateScore { passed: true, .. })));
    }
    assert!(events.recv().await.is_some());
    // For ever nobody waits.
    let taken: Vec<Permit> = (0..MAX_OF_NAMESPACE).map(|_| gates.busy.enter("team-b").unwrap()).collect();
    assert_eq!(gates.permit("team-b").await.err().unwrap().status(), 503);
    drop(taken);
    assert!(gates.permit("team-b").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn what_opened_by_default_is_told_when_the_cluster_is_back() {
    let (told, mut events) = unbounded_channel::<Value>();
    let tries = Arc::new(AtomicUsize::new(0));
    let server = tower::service_fn(move |request: Request<Body>| {
        let (told, tries) = (told.clone(), tries.clone());
        async move {
            if tries.fetch_add(1, Ordering::SeqCst) < 10 {
                return Err(std::io::Error::other("the cluster is away"));
            }
            let body: Value = serde_json::from_slice(&request.into_body().collect_bytes().await.unwrap()).unwrap();
            told.send(body.clone()).unwrap();
            Ok(Response::builder().status(201).body(Body::from(body.to_string().into_bytes())).unwrap())
        }
    });
    let client = Client::new(server, "default");
    let agents = Box::new(|_: &Key| KnownAgent::Agent(Box::new(agent(&json!({})))));
    let gates = Gates::new(client.clone(), CallbackKeySource::Held(key()), agents, Events::new(client, None), false);
    let outcome = json!({"credential": credential("team-a").0, "namespace": "team-a", "agent": "helper", "decision": "default_approved"});
    let outcome: GateOutcome = serde_json::from_value(outcome).unwrap();
    for _ in 0..3 {
        assert_eq!(gates.outcome(&outcome, NOW).unwrap(), GateAnswer::Noted);
    }
    assert_eq!(events.recv().await.unwrap()["reason"], "CanaryGateDefaultApproved");
    sleep(2 * INSIST_PAUSE).await;
    assert!(events.try_recv().is_err(), "asked three times, it is told once");
    assert!(gates.insisted.lock().unwrap().is_empty(), "and then no more is to be told");
}
