//! Steps 18 to 21: changes that have to pass an evaluation. What it comes to is computed from the prompt and the cases.

use serde_json::{Value, json};
use slipway_e2e::{condition, kubectl};

use crate::history::stand;
use crate::marks::{Means, cases};
use crate::stage::{GUIDE, Stage, until};
use crate::sums::assert_close;

/// What the page asks for.
const GATE: f64 = 75.0;

/// The evaluation of a release, and the EvaluationRun that made it.
#[track_caller]
fn evaluated(stage: &Stage, version: u64) -> (Value, Value) {
    let list = stage.harbor.kubectl(format!("get agentreleases --field-selector spec.agent={GUIDE}")).json();
    let found = list["items"].as_array().into_iter().flatten().find(|release| release["status"]["version"] == version).cloned();
    let release = found.unwrap_or_else(|| panic!("there should be a release v{version}: {list:#}"));
    let run = release["status"]["evaluation"]["run"].as_str().unwrap_or_else(|| panic!("v{version} should be evaluated: {release:#}"));
    let run = stage.harbor.get(&format!("evaluationrun/{run}"));
    (release, run)
}

/// That a release was evaluated as the story computes it.
#[track_caller]
fn is_judged(stage: &Stage, version: u64, prompt: &str) -> (Value, Value) {
    let (release, run) = evaluated(stage, version);
    let (status, means) = (&run["status"], Means::of(prompt, &cases(stage)));
    // The cases that feedback has appended decide on no release.
    assert_eq!((&status["totalCases"], &run["spec"]["track"]), (&json!(5), &json!("candidate")), "{run:#}");
    means.assert_are(&status["aggregateScores"]);
    assert_close("score", &status["score"], means.score(), 0.05);
    let passes = means.score() >= GATE;
    assert_eq!((&status["passed"], &release["status"]["evaluation"]["passed"]), (&json!(passes), &json!(passes)), "{run:#}");
    let verdict = status["verdict"].as_str().unwrap_or_default();
    let (word, sign) = if passes { ("PASSED", ">=") } else { ("FAILED", "<") };
    let shown = verdict.strip_prefix(&format!("{word} (avg=")).and_then(|rest| rest.split_once(&format!(" {sign} {GATE})")));
    let shown: f64 =
        shown.and_then(|(average, _)| average.parse().ok()).unwrap_or_else(|| panic!("v{version} has another verdict: {verdict}"));
    assert!((shown - means.score()).abs() < 0.11, "v{version} should have {}: {verdict}", means.score());
    (release, run)
}

/// Waits until nothing is left of a candidate.
#[track_caller]
fn has_no_candidate(stage: &Stage) {
    until("nothing is left of the candidate", 90, || {
        let name = format!("deployment/{GUIDE}-candidate configmap/{GUIDE}-candidate-config");
        let left = stage.harbor.kubectl(format!("get {name} --ignore-not-found -o name")).ok();
        if left.is_empty() { Ok(()) } else { Err(json!(left)) }
    });
}

#[track_caller]
fn prompt(stage: &Stage) -> String {
    stage.guide().get()["spec"]["systemPrompt"].as_str().unwrap_or_default().to_owned()
}

/// The pods that serve.
#[track_caller]
fn pods(stage: &Stage) -> Vec<Value> {
    let pods = stage.guide().pods();
    let stable = pods.iter().filter(|pod| pod["metadata"]["labels"]["agents.slipway.dev/track"] == "stable");
    let mut uids: Vec<Value> = stable.map(|pod| pod["metadata"]["uid"].clone()).collect();
    uids.sort_by_key(ToString::to_string);
    uids
}

#[track_caller]
fn runs(stage: &Stage) -> usize {
    stage.harbor.kubectl("get evaluationruns").json()["items"].as_array().map_or(0, Vec::len)
}

#[track_caller]
fn says(stage: &Stage, question: &str) -> Value {
    let path = format!("/agents/{GUIDE}/chat");
    stage.call("dev", "harbor", "POST", &path).json(&json!({"message": question})).expect(200)["data"]["output"].clone()
}

pub(crate) fn a_gate(stage: &mut Stage) {
    stage.play("A gate");
    stand(stage, &["archived", "archived", "active"]);
    let prompt = prompt(stage);
    is_judged(stage, 3, &prompt);
    has_no_candidate(stage);
    stage.guide().ready();
}

pub(crate) fn one_that_fails(stage: &mut Stage) {
    let before = pods(stage);
    stage.play("A change that fails");
    stand(stage, &["archived", "archived", "active", "rejected"]);
    let (release, _) = is_judged(stage, 4, &prompt(stage));
    let why = condition(&release, "Ready")["message"].as_str().unwrap_or_default();
    assert!(why.starts_with("[REJECTED: "), "{why}");
    let list = stage.get("vic", "harbor", &format!("/agents/{GUIDE}/releases"));
    assert!(list[0]["changelog"].as_str().is_some_and(|words| words.contains("[REJECTED: ")) || list[0]["reason"].is_string(), "{list:#}");
    let found = stage.guide().until("stalled", 60, |found| condition(found, "Ready")["reason"] == "ReleaseRejected");
    assert_eq!((condition(&found, "Ready")["status"].as_str(), &found["status"]["activeRelease"]), (Some("False"), &json!(3)), "{found:#}");
    assert_eq!(stage.get("vic", "harbor", &format!("/agents/{GUIDE}"))["status"], "eval_failed");
    assert_eq!(says(stage, "Is 17 larger?"), "Harbor: Is 17 larger?", "what passed goes on answering");
    has_no_candidate(stage);
    assert_eq!(pods(stage), before, "the pods that serve were never touched");

    // The same content again is not evaluated again.
    let made = runs(stage);
    stage.play("The same once more");
    stage.guide().until("described", 60, |found| found["spec"]["description"] == "Answers what guests ask most.");
    if let Some(follower) = &stage.follower {
        follower.controller.round();
    }
    assert_eq!((runs(stage), says(stage, "Is 17 larger?")), (made, json!("Harbor: Is 17 larger?")));
    stand(stage, &["archived", "archived", "active", "rejected"]);
}

pub(crate) fn one_that_passes(stage: &mut Stage) {
    stage.play("A change that passes");
    stand(stage, &["archived", "archived", "archived", "rejected", "active"]);
    is_judged(stage, 5, &prompt(stage));
    has_no_candidate(stage);
    stage.guide().ready();
}

pub(crate) fn who_lowers_it(stage: &mut Stage) {
    stage.play("Who may lower it");
    let patch = json!({"spec": {"governance": {"minQualityScore": 10}}});
    let lowers = |person: &str| {
        let account = format!("system:serviceaccount:team-harbor:{person}");
        let line = format!("patch agent {GUIDE} -n team-harbor --type merge --dry-run=server --as {account} -p");
        kubectl(line).arg(&patch)
    };
    let refused = lowers("dev").refused();
    assert!(refused.contains("-gate") && refused.contains("minQualityScore"), "{refused}");
    lowers("ann").ok();
    lowers("vic").refused();
    assert_eq!(stage.guide().get()["spec"]["governance"]["minQualityScore"], json!(75));
}
