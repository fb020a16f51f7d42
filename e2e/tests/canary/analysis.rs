//! Analysis: a canary that fails is rolled back, one that is as good climbs until it is promoted, and of few requests nothing follows.
//! What was measured is what the pods have written to the platform's database.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use slipway_e2e::{Agent, Api, Call, Team, condition, fresh, long, poll};

use super::{events, payload, standing};
use crate::autoscaling::Hush;
use crate::evaluations::needs_database;

/// A stub that plays scripts fails of this, and one that repeats what it hears does not.
const MESSAGE: &str = "fail broken";
/// Pods write a minute once it is over, and the manager reads once a minute.
const MEASURED: u64 = 300;
/// What is promised of two steps of a minute each.
const PROMOTED: u64 = 360;

/// The Events about an agent that have this reason, with what they say besides their words.
#[track_caller]
fn told(agent: &Agent, reason: &str) -> Vec<(Value, Value)> {
    events(agent, reason).into_iter().map(|event| (event.clone(), payload(&event))).collect()
}

/// Each chat is a conversation of its own. Whether it is answered is not the question here.
fn talk(chat: &Call, enough: &AtomicBool) {
    while !enough.load(Ordering::Relaxed) {
        let reply = chat.send();
        assert!(reply.status == 200 || reply.status >= 500, "{reply:?}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// Talks to the agent as long as `meanwhile` takes.
fn with_talk<T>(chat: &Call, meanwhile: impl FnOnce() -> T) -> T {
    let enough = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| talk(chat, &enough));
        let _hush = Hush(&enough);
        meanwhile()
    })
}

/// A chat by way of the installed REST, which shares conversations by weight.
fn chat(rest: &Api, team: &Team) -> Call {
    rest.call("POST", "/agents/helper/chat").token(&team.token("developer")).json(&json!({"message": MESSAGE}))
}

#[test]
fn a_canary_that_fails_is_rolled_back_and_nobody_asked_for_it() {
    let Some(rest) = Api::installed() else { return };
    let team = Team::new(&fresh("canary-fails"));
    if !needs_database() {
        return;
    }
    let agent = team.agent("helper", &json!({"modelId": "stub-echo"}));
    let before = agent.ready()["spec"].clone();
    let analysis = json!({"intervalSeconds": 60, "minimumRequests": 20});
    agent.patch(&json!({"canary": {"enabled": true, "weight": 50, "modelId": "stub-script", "version": "bad", "analysis": analysis}}));
    agent.until("serving half by its canary", 120, |found| standing(found)["weight"] == 50);
    let found = with_talk(&chat(&rest, &team), || agent.until("without its canary", MEASURED, |found| found["spec"]["canary"].is_null()));
    assert_eq!(found["spec"], before, "nothing else of the spec has changed");
    let events = poll(30, || {
        let events = told(&agent, "AgentCanaryRolledBack");
        if events.is_empty() { Err("it should be told that the canary was rolled back".to_owned()) } else { Ok(events) }
    });
    let [(event, payload)] = &events[..] else { panic!("it is told once: {events:#?}") };
    assert_eq!((&event["type"], &payload["by"], &payload["version"]), (&json!("Warning"), &json!("analysis"), &json!("bad")), "{event:#}");
    assert!(payload["why"].as_str().is_some_and(|why| why.contains("failed, of the stable track's")), "{payload:#}");
    assert_eq!(told(&agent, "AgentCanaryPromoted").len(), 0);
    agent.until("without a trace of its canary", 120, |found| standing(found).is_null());
}

#[test]
fn a_canary_that_is_as_good_climbs_and_is_promoted() {
    let Some(rest) = Api::installed() else { return };
    let team = Team::new(&fresh("canary-climbs"));
    if !needs_database() {
        return;
    }
    let agent = team.agent("helper", &json!({"modelId": "stub-echo", "systemPrompt": "one"}));
    agent.ready();
    let analysis = json!({"intervalSeconds": 60, "minimumRequests": 20, "steps": [50], "gates": {"errorRateIncrease": 5}});
    agent.patch(&json!({"canary": {"enabled": true, "weight": 25, "systemPrompt": "two", "version": "good", "analysis": analysis}}));
    let begun = Instant::now();
    with_talk(&chat(&rest, &team), || {
        agent.until("serving half by its canary", PROMOTED, |found| standing(found)["weight"] == 50 && standing(found)["step"] == 2);
        let found = agent.until("promoted", PROMOTED, |found| found["spec"]["systemPrompt"] == "two");
        assert!(found["spec"]["canary"].is_null(), "the canary is the agent now: {:#}", found["spec"]);
        assert!(begun.elapsed() < Duration::from_secs(PROMOTED), "two steps of a minute took {:?}", begun.elapsed());
        agent.until("without its canary", 120, |found| standing(found).is_null());
    });
    eprintln!("two steps of a minute took {:?}", begun.elapsed());
    let [(event, payload)] = &told(&agent, "AgentCanaryAdvanced")[..] else { panic!("one step is told") };
    assert_eq!((&payload["weight"], &payload["step"], &payload["steps"]), (&json!(50), &json!(2), &json!(2)), "{event:#}");
    let [(event, payload)] = &told(&agent, "AgentCanaryPromoted")[..] else { panic!("the promotion is told once") };
    assert_eq!((&payload["by"], &payload["version"]), (&json!("analysis"), &json!("good")), "{event:#}");
    assert_eq!(agent.get()["spec"]["version"], "good");
}

#[test]
fn of_ten_requests_nothing_follows() {
    let Some(rest) = Api::installed() else { return };
    let team = Team::within(long(), &fresh("canary-quiet"), &json!({}));
    if !needs_database() {
        return;
    }
    let agent = team.agent("helper", &json!({"modelId": "stub-echo"}));
    agent.ready();
    let analysis = json!({"intervalSeconds": 60, "minimumRequests": 20, "timeoutSeconds": 120, "steps": [80]});
    // All requests to the canary fail, which is no evidence when there are ten.
    agent.patch(&json!({"canary": {"enabled": true, "weight": 30, "modelId": "stub-script", "analysis": analysis}}));
    agent.until("serving by its canary", 120, |found| standing(found)["weight"] == 30);
    let chat = chat(&rest, &team);
    for _ in 0..10 {
        chat.send();
    }
    let counted = |found: &Value| ["stable", "canary"].map(|track| standing(found)[track]["requests"].as_i64().unwrap_or_default());
    // What was measured last may come when the step is over.
    let found = agent.until("inconclusive after ten requests", MEASURED, |found| {
        standing(found)["phase"] == "Inconclusive" && counted(found).iter().sum::<i64>() >= 10
    });
    assert_eq!((&standing(&found)["weight"], &standing(&found)["step"]), (&json!(30), &json!(1)), "nothing moves: {:#}", standing(&found));
    assert_eq!(counted(&found).iter().sum::<i64>(), 10, "{:#}", standing(&found));
    let ready = condition(&found, "CanaryReady");
    assert_eq!((&ready["status"], &ready["reason"]), (&json!("False"), &json!("Inconclusive")), "{ready:#}");
    let [(event, payload)] = &told(&agent, "AgentCanaryInconclusive")[..] else { panic!("it is told once") };
    assert_eq!((&event["type"], &payload["step"]), (&json!("Warning"), &json!(1)), "{payload:#}");
    // Until somebody decides.
    agent.patch(&json!({"canary": null}));
    agent.until("without its canary", 120, |found| standing(found).is_null());
}
