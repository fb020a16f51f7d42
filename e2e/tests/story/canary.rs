//! Steps 22 to 25: a canary in a repository, its share of conversations, the quality gate's webhook, its promotion while people talk,
//! and a way back.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use slipway_e2e::{Call, TrackedChat, Tracks, condition};

use crate::history::{pulled, stand};
use crate::project::read;
use crate::stage::{GUIDE, Stage, until};
use crate::sums::assert_share;

const CONVERSATIONS: usize = 1_000;
const REPEATED: usize = 100;
const WEIGHT: u32 = 30;
const TRACKS: Tracks = Tracks { message: "Ahoy", stable: "Harbor: Ahoy", canary: "Harbor Canary: Ahoy" };

#[track_caller]
fn chat(stage: &Stage) -> Call {
    stage.call("dev", "harbor", "POST", &format!("/agents/{GUIDE}/chat"))
}

/// How many Events about the agent have this reason.
#[track_caller]
fn told(stage: &Stage, reason: &str) -> usize {
    let list = stage.harbor.kubectl("get events.events.k8s.io").json();
    let is_one = |event: &&Value| event["reason"] == reason && event["regarding"]["kind"] == "Agent" && event["regarding"]["name"] == GUIDE;
    list["items"].as_array().into_iter().flatten().filter(is_one).count()
}

/// How often pods were made for a candidate.
#[track_caller]
fn candidates(stage: &Stage) -> usize {
    let line = format!("get events --field-selector involvedObject.name={GUIDE}-candidate,reason=ScalingReplicaSet");
    let list = stage.harbor.kubectl(line).json();
    let is_up = |event: &&Value| event["message"].as_str().unwrap_or_default().contains(" up ");
    list["items"].as_array().into_iter().flatten().filter(is_up).count()
}

pub(crate) fn a_canary(stage: &mut Stage) {
    stage.play("A canary");
    let found = stage.guide().get();
    let run = found["status"]["canary"]["evaluation"].as_str().unwrap_or_else(|| panic!("a gate asks for a run: {:#}", found["status"]));
    let run = stage.harbor.get(&format!("evaluationrun/{run}"));
    assert_eq!((&run["spec"]["track"], &run["status"]["passed"]), (&json!("canary"), &json!(true)), "{run:#}");
    let deployment = stage.harbor.get(&format!("deployment/{GUIDE}-canary"));
    assert_eq!(deployment["spec"]["template"]["metadata"]["labels"]["version"], "canary", "{:#}", deployment["metadata"]);
    for child in ["service", "configmap"] {
        let name = if child == "service" { format!("{GUIDE}-canary") } else { format!("{GUIDE}-canary-config") };
        assert!(stage.harbor.get(&format!("{child}/{name}")).is_object(), "the canary should have {child} {name}");
    }
    let canary = stage.get("vic", "harbor", &format!("/agents/{GUIDE}/canary"));
    assert_eq!((&canary["enabled"], &canary["weight"]), (&json!(true), &json!(WEIGHT)), "{canary:#}");
    assert_eq!((&canary["stable_version"], &canary["canary_version"]), (&json!("v5"), &json!("canary")), "{canary:#}");

    // Each of REST's pods hears of a weight a moment later.
    let chat = chat(stage);
    until("some conversation is the canary's", 30, || {
        let told = TRACKS.ask(&chat, &vec![None; 40]);
        if told.iter().any(|(_, is_canarys)| *is_canarys) { Ok(()) } else { Err(json!(told.len())) }
    });
    let first = TRACKS.ask(&chat, &vec![None; CONVERSATIONS]);
    assert_share(first.iter().filter(|(_, is_canarys)| *is_canarys).count(), first.len(), WEIGHT);
    let again: Vec<TrackedChat> = first.into_iter().take(REPEATED).collect();
    let ids: Vec<_> = again.iter().map(|(id, _)| Some(id.clone())).collect();
    for _ in 0..CONVERSATIONS / REPEATED {
        assert_eq!(TRACKS.ask(&chat, &ids), again, "nobody moves while the weight stays");
    }
    let refused = stage.call("dev", "harbor", "POST", &format!("/agents/{GUIDE}/canary/promote")).expect(409);
    assert!(refused["message"].as_str().is_some_and(|words| words.contains("gitops")), "the owner should be named: {refused}");
}

pub(crate) fn the_webhook(stage: &mut Stage) {
    stage.play("What a rollout asks");
    stand(stage, &["archived", "archived", "archived", "rejected", "active"]);
}

/// People who talk, in threads of their own, while something happens: how many were answered, and what went wrong.
fn meanwhile(calls: &[Call], happens: impl FnOnce()) -> (usize, Vec<String>) {
    let (is_over, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (over, count) = (&is_over, &answered);
    let faults = thread::scope(|scope| {
        let people: Vec<_> = calls.iter().map(|call| scope.spawn(move || talks(call, over, count))).collect();
        // Whatever becomes of it, nobody talks for ever.
        let happened = std::panic::catch_unwind(std::panic::AssertUnwindSafe(happens));
        over.store(true, Ordering::Relaxed);
        let faults: Vec<String> = people.into_iter().flat_map(|person| person.join().unwrap()).collect();
        if let Err(panic) = happened {
            std::panic::resume_unwind(panic);
        }
        faults
    });
    (answered.into_inner(), faults)
}

/// One of them, and what they were answered but what they should be.
fn talks(call: &Call, is_over: &AtomicBool, answered: &AtomicUsize) -> Vec<String> {
    let mut faults = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        match call.try_send() {
            Ok(reply) if reply.status == 200 && reply.body.contains("Ahoy") => {
                answered.fetch_add(1, Ordering::Relaxed);
            }
            Ok(reply) if reply.status == 429 => {}
            Ok(reply) => faults.push(format!("{reply:?}")),
            Err(error) => faults.push(error.to_string()),
        }
        thread::sleep(Duration::from_millis(40));
    }
    faults
}

pub(crate) fn its_promotion(stage: &mut Stage) {
    let (before, promoted) = (candidates(stage), told(stage, "AgentCanaryPromoted"));
    let call = chat(stage).json(&json!({"message": "Ahoy"}));
    let calls = vec![call; 3];
    let (answered, faults) = meanwhile(&calls, || stage.play("Its promotion"));
    assert!(faults.is_empty(), "{} of {} chats failed: {faults:#?}", faults.len(), answered + faults.len());
    assert!(answered > 100, "{answered} chats are too few");
    stand(stage, &["archived", "archived", "archived", "rejected", "archived", "active"]);
    until("the end of the canary is told once", 60, || {
        let now = told(stage, "AgentCanaryPromoted");
        if now == promoted + 1 { Ok(()) } else { Err(json!(now)) }
    });
    assert_eq!(candidates(stage), before, "what has passed as a canary is not evaluated again");
    until("nothing is left of the canary", 120, || {
        let names = format!("deployment/{GUIDE}-canary service/{GUIDE}-canary service/{GUIDE}-primary configmap/{GUIDE}-canary-config");
        let left = stage.harbor.kubectl(format!("get {names} --ignore-not-found -o name")).ok();
        if left.is_empty() { Ok(()) } else { Err(json!(left)) }
    });
    stage.guide().ready();
    assert!(TRACKS.said(&chat(stage), None).1, "everybody is answered as the canary did");
}

pub(crate) fn a_way_back(stage: &mut Stage) {
    stage.play("A way back");
    let list = stage.harbor.kubectl("get events.events.k8s.io").json();
    let told = list["items"].as_array().into_iter().flatten().find(|event| event["reason"] == "ReleaseDeployed").cloned();
    let told = told.unwrap_or_else(|| panic!("an Event should tell of the way back: {list:#}"));
    let payload = told["metadata"]["annotations"]["agents.slipway.dev/payload"].as_str().unwrap_or_default();
    let payload: Value = serde_json::from_str(payload).unwrap_or_default();
    assert_eq!(payload["version"], json!(5), "{told:#}");
    let found = stage.guide().until("at v5", 90, |found| found["status"]["activeRelease"] == 5);
    assert_eq!(condition(&found, "Pinned")["status"], "True", "{found:#}");
    assert_ne!(found["spec"]["systemPrompt"], json!(null), "the spec is the repository's, and stays");
    stand(stage, &["archived", "archived", "archived", "rejected", "active", "archived"]);
    let clone = pulled(stage);
    let current: Value = serde_yaml::from_str(&read(&clone, "current.yaml")).unwrap();
    assert_eq!((&current["metadata"]["version"], &current["metadata"]["status"]), (&json!(5), &json!("active")), "{current:#}");
    until("everybody is answered as v5 did", 60, || {
        let told = TRACKS.said(&chat(stage), None);
        if told.1 { Err(json!(told.0)) } else { Ok(()) }
    });
    let refused = stage.call("dev", "harbor", "POST", &format!("/agents/{GUIDE}/releases/4/deploy")).send();
    assert_eq!(refused.status, 409, "a release that was rejected is not deployed: {refused:?}");
    stage.play("And on");
    stand(stage, &["archived", "archived", "archived", "rejected", "archived", "archived", "active"]);
    let found = stage.guide().until("at v7", 90, |found| found["status"]["activeRelease"] == 7);
    assert!(condition(&found, "Pinned").is_null(), "{found:#}");
    stage.guide().ready();
}
