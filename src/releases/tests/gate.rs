//! The gate: each row of the table of releases, and runs that decide nothing.

mod canary;

use serde_json::{Value, json};
use slipway_api::EvaluationRun;
use slipway_release::Status;
use slipway_release::gate::{MAX_ATTEMPTS, NO_ANSWER, run_name, run_spec};

use super::cluster::Cluster;
use crate::seen::Patience;
use crate::step::{Step, Wait};

const GATED: &str = "systemPrompt: p1, judgeModel: 'openai:/j', governance: {minQualityScore: 75, evalDataset: golden}";

impl Cluster {
    fn status(&self) -> slipway_api::AgentStatus {
        self.agent.status.clone().unwrap_or_default()
    }

    /// The reason of the condition Approved.
    fn approval(&self) -> Option<String> {
        self.status().conditions.into_iter().find(|condition| condition.type_ == "Approved").map(|condition| condition.reason)
    }

    /// The run that the release that waits should have.
    fn run(&self, status: &Value) -> EvaluationRun {
        let pending = self.past.pending.as_ref().expect("a release should wait");
        let version = i64::try_from(pending.version).unwrap();
        let release = self.releases.values().find(|release| release.status.as_ref().and_then(|status| status.version) == Some(version));
        let release = release.expect("it should have an AgentRelease");
        let (name, uid) = (release.metadata.name.clone().unwrap(), release.metadata.uid.clone().unwrap());
        let evaluation = release.status.as_ref().unwrap().evaluation.clone().unwrap();
        assert_eq!(evaluation.run, run_name(&uid, evaluation.attempt));
        assert_eq!(self.status().pending_evaluation.as_ref(), Some(&evaluation.run));
        let spec = run_spec(&name, self.past.active.as_ref().map(|active| &active.artifact), &pending.artifact);
        let owner = json!({"apiVersion": "agents.slipway.dev/v1", "kind": "AgentRelease", "name": name, "uid": uid});
        let book = json!([
            {"manager": "slipway/agent", "operation": "Update", "fieldsV1": {"f:spec": {"f:agent": {}}}},
            {"manager": "slipway/evaluation", "operation": "Apply", "subresource": "status", "fieldsV1": {"f:status": {"f:phase": {}}}},
        ]);
        let metadata = json!({"name": evaluation.run, "namespace": "team-a", "ownerReferences": [owner], "managedFields": book});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status})).unwrap()
    }

    fn ends(&mut self, status: &Value) {
        let run = self.run(status);
        self.runs.insert(run.metadata.name.clone().unwrap(), run);
        self.clock += 5;
        self.settle();
        self.check();
    }

    fn passes(&mut self) {
        self.ends(&completed(true, 91.5, "slipway"));
    }

    fn fails(&mut self) {
        self.ends(&completed(false, 40.0, "slipway"));
    }

    fn phase(&self, version: u64) -> Status {
        self.past.versions[&version].status
    }
}

fn completed(passed: bool, score: f64, provider: &str) -> Value {
    let verdict = if passed { format!("PASSED (avg={score} >= 75)") } else { format!("FAILED (avg={score} < 75)") };
    let means = json!({"safety/mean": score / 100.0, "correctness/mean": score / 100.0});
    json!({"phase": "Completed", "provider": provider, "score": score, "threshold": 75, "passed": passed, "verdict": verdict,
        "aggregateScores": means})
}

/// Somebody else has written these fields of the status.
fn writes(run: &mut EvaluationRun, manager: &str, fields: &Value) {
    let entry = json!({"manager": manager, "operation": "Apply", "subresource": "status", "fieldsV1": {"f:status": fields}});
    run.metadata.managed_fields.as_mut().unwrap().push(serde_json::from_value(entry).unwrap());
}

/// A status that somebody has bent.
fn bent(mut status: Value, with: &Value) -> Value {
    status.as_object_mut().unwrap().extend(with.as_object().unwrap().clone());
    status
}

fn failed() -> Value {
    let ready = json!({"type": "Ready", "status": "False", "reason": "Unreachable", "message": "no pod answered", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    json!({"phase": "Failed", "provider": "mock", "conditions": [ready]})
}

/// A run whose agent gave no answers.
fn unanswered(reason: &str) -> Value {
    let mut status = bent(failed(), &json!({"provider": "slipway"}));
    status["conditions"][0]["reason"] = json!(reason);
    status["conditions"][0]["message"] = json!("the agent gave no answer to 8 of 8 cases, and the other 92 of 100 were not run");
    status
}

/// An agent with a gate whose first release has passed.
fn gated() -> Cluster {
    let mut cluster = Cluster::new(GATED);
    cluster.settle();
    cluster.passes();
    assert_eq!(cluster.active(), Some(1));
    cluster
}

#[test]
fn a_first_gated_release_waits_alone_and_is_active_when_it_passes() {
    let mut cluster = Cluster::new(GATED);
    let without_image = Patience { content: true, image: false };
    assert!(matches!(cluster.next(without_image), Step::Record(_)), "no pod could tell which image it runs");
    assert_eq!(cluster.settle(), Wait::Done);
    cluster.check();
    assert_eq!((cluster.active(), cluster.phase(1), cluster.status().pending_release), (None, Status::PendingEval, Some(1)));
    assert_eq!((cluster.approval().as_deref(), cluster.status().quality_gate), (Some("PendingEvaluation"), None));
    assert_eq!(cluster.phases(), [(1, "pending_eval", true)]);
    cluster.passes();
    assert_eq!((cluster.active(), cluster.approval(), cluster.status().quality_gate), (Some(1), None, Some(75)));
    let evaluation = cluster.releases.values().next().unwrap().status.as_ref().unwrap().evaluation.clone().unwrap();
    assert_eq!((evaluation.score, evaluation.threshold, evaluation.passed), (Some(91.5), Some(75.0), Some(true)));
    assert_eq!(cluster.told, ["approved v1 by slipway"].map(|_| cluster.told[0].as_str()), "{:?}", cluster.told);
    assert!(cluster.told[0].starts_with("approved v1"), "{:?}", cluster.told);
}

#[test]
fn a_gated_change_waits_and_what_was_active_stays_until_it_passes() {
    let mut cluster = gated();
    cluster.prompt("p2");
    cluster.settle();
    cluster.check();
    assert_eq!((cluster.active(), cluster.status().pending_release, cluster.phase(2)), (Some(1), Some(2), Status::PendingEval));
    assert_eq!(cluster.phases(), [(1, "active", true), (2, "pending_eval", true)]);
    cluster.passes();
    assert_eq!((cluster.active(), cluster.phase(1)), (Some(2), Status::Archived));
    assert_eq!(cluster.phases(), [(1, "archived", false), (2, "active", true)]);
    assert_eq!(cluster.agent.spec.system_prompt.as_deref(), Some("p2"));
    let scores: Vec<_> = cluster.releases.values().map(|release| release.status.clone().unwrap().evaluation.unwrap().score).collect();
    assert_eq!(scores, [Some(91.5), Some(91.5)], "what was said of one that is archived stays");
}

#[test]
fn a_change_that_fails_is_rejected_and_the_spec_goes_back() {
    let mut cluster = gated();
    cluster.prompt("p2");
    cluster.edit(&json!({"spec": {"replicas": 3}}));
    cluster.settle();
    cluster.fails();
    assert_eq!((cluster.active(), cluster.phase(2), cluster.approval().as_deref()), (Some(1), Status::Rejected, Some("ReleaseRejected")));
    assert_eq!((cluster.agent.spec.system_prompt.as_deref(), cluster.agent.spec.replicas), (Some("p1"), 3), "replicas are no content");
    let rejected = cluster.releases.values().find(|release| release.status.as_ref().unwrap().version == Some(2)).unwrap();
    let condition = &rejected.status.as_ref().unwrap().conditions[0];
    assert!(condition.message.starts_with("[REJECTED: FAILED (avg=40 < 75); run ev-"), "{}", condition.message);
    // The same once more is not evaluated again, and goes back; asked for, it is.
    cluster.prompt("p2");
    cluster.settle();
    cluster.check();
    assert_eq!((cluster.past.highest, cluster.agent.spec.system_prompt.as_deref()), (2, Some("p1")));
    cluster.prompt("p2");
    cluster.ask("again", "please");
    cluster.settle();
    assert_eq!((cluster.past.highest, cluster.phase(3), cluster.status().pending_release), (3, Status::PendingEval, Some(3)));
    cluster.passes();
    assert_eq!((cluster.active(), cluster.agent.spec.system_prompt.as_deref(), cluster.approval()), (Some(3), Some("p2"), None));
}

#[test]
fn a_release_shows_the_worst_cases_of_its_run_and_git_has_none() {
    let case = |at: i32| {
        let reason = format!("correctness 0.25: {}", "r".repeat(1000));
        json!({"case": at, "score": 0.25, "input": "é".repeat(256), "output": "No.", "reason": reason})
    };
    let cases: Vec<Value> = (0..20).map(case).collect();
    let mut cluster = gated();
    cluster.prompt("p2");
    cluster.settle();
    cluster.ends(&bent(completed(false, 40.0, "slipway"), &json!({"worstCases": cases})));
    assert_eq!(cluster.phase(2), Status::Rejected);
    let shown = |cluster: &Cluster| {
        let mut all = cluster.releases.values().filter_map(|release| release.status.clone());
        all.find(|status| status.version == Some(2)).unwrap().evaluation.unwrap()
    };
    let evaluation = shown(&cluster);
    assert_eq!(evaluation.worst_cases.iter().map(|case| case.case).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    let first = &evaluation.worst_cases[0];
    assert_eq!((first.score, first.input.len(), first.output.as_deref(), first.reason.len()), (Some(0.25), 128, Some("No."), 256));
    let line = cluster.past.versions[&2].reason.clone().unwrap();
    assert!(line.starts_with("FAILED (avg=40 < 75); run ev-") && !line.contains("correctness"), "{line}");
    // The run goes, and what was shown of it stays.
    cluster.runs.clear();
    cluster.prompt("p3");
    cluster.settle();
    cluster.passes();
    assert_eq!((cluster.active(), shown(&cluster)), (Some(3), evaluation));
}

#[test]
fn cases_of_a_run_that_somebody_else_has_written_are_not_shown() {
    let mut cluster = gated();
    cluster.prompt("p2");
    cluster.settle();
    cluster.fails();
    let name =
        cluster.releases.values().filter_map(|release| release.status.as_ref()?.evaluation.clone()).find(|of| of.passed == Some(false));
    let run = cluster.runs.get_mut(&name.unwrap().run).unwrap();
    run.status.as_mut().unwrap().worst_cases = vec![slipway_api::evaluation_run::WorstCase::default()];
    writes(run, "kubectl-edit", &json!({"f:worstCases": {}}));
    cluster.clock += 5;
    cluster.settle();
    cluster.check();
    let shown = cluster.releases.values().filter_map(|release| release.status.as_ref()?.evaluation.as_ref());
    assert_eq!(shown.map(|evaluation| evaluation.worst_cases.len()).collect::<Vec<_>>(), [0, 0]);
}

#[test]
fn a_rejected_spec_that_gitops_owns_stays_and_is_not_evaluated_again() {
    let mut cluster = gated();
    cluster.owner = Some("Kustomization flux-system/apps".to_owned());
    cluster.prompt("p2");
    cluster.settle();
    cluster.fails();
    for _ in 0..3 {
        cluster.clock += 600;
        assert_eq!(cluster.settle(), Wait::Done);
        assert_eq!((cluster.past.highest, cluster.agent.spec.system_prompt.as_deref()), (2, Some("p2")));
        assert_eq!(cluster.approval().as_deref(), Some("ReleaseRejected"));
    }
    // What waits to become a release is not called rejected, whatever was before.
    let generation = |cluster: &Cluster| {
        let conditions = cluster.status().conditions;
        conditions.iter().find(|condition| condition.type_ == "Approved").unwrap().observed_generation
    };
    assert_eq!(generation(&cluster), cluster.agent.metadata.generation);
    cluster.prompt("p3");
    assert_ne!(generation(&cluster), cluster.agent.metadata.generation);
    while let step @ Step::WriteAgentStatus { .. } = cluster.next(Patience { content: false, image: false }) {
        cluster.take(step);
    }
    assert_eq!((generation(&cluster), cluster.approval().as_deref()), (cluster.agent.metadata.generation, Some("PendingEvaluation")));
    cluster.settle();
    assert_eq!((cluster.status().pending_release, cluster.approval().as_deref()), (Some(3), Some("PendingEvaluation")));
    cluster.prompt("p2");
    cluster.settle();
    assert_eq!((cluster.past.highest, cluster.phase(3)), (3, Status::Archived), "the engine applies what was rejected before");
    assert_eq!((cluster.active(), cluster.approval().as_deref()), (Some(1), Some("ReleaseRejected")));
}

#[test]
fn a_first_release_that_fails_has_nothing_to_go_back_to() {
    let mut cluster = Cluster::new(GATED);
    cluster.settle();
    cluster.fails();
    assert_eq!((cluster.active(), cluster.phase(1), cluster.agent.spec.system_prompt.as_deref()), (None, Status::Rejected, Some("p1")));
    assert_eq!(cluster.approval().as_deref(), Some("ReleaseRejected"));
    cluster.prompt("p2");
    cluster.settle();
    cluster.passes();
    assert_eq!((cluster.active(), cluster.approval()), (Some(2), None));
}

#[test]
fn a_newer_change_takes_the_place_of_the_one_that_waits() {
    let mut cluster = gated();
    cluster.prompt("p2");
    cluster.settle();
    let old = cluster.run(&completed(true, 99.0, "slipway"));
    cluster.prompt("p3");
    cluster.settle();
    cluster.check();
    assert_eq!((cluster.phase(2), cluster.status().pending_release), (Status::Archived, Some(3)));
    cluster.runs.insert(old.metadata.name.clone().unwrap(), old);
    cluster.settle();
    assert_eq!(cluster.active(), Some(1), "the run of a release that does not wait any more decides nothing");
    // Back at what is active, nothing waits, and what is said later of what waited is not heeded.
    let run = cluster.run(&completed(true, 99.0, "slipway"));
    cluster.prompt("p1");
    cluster.runs.insert(run.metadata.name.clone().unwrap(), run);
    cluster.settle();
    cluster.check();
    assert_eq!((cluster.active(), cluster.phase(3), cluster.status().pending_release), (Some(1), Status::Archived, None));
    assert_eq!(cluster.past.highest, 3);
}

#[test]
fn the_gate_cannot_be_lowered_by_what_it_holds() {
    let mut cluster = gated();
    cluster.edit(&json!({"spec": {"governance": null, "judgeModel": "stub:/j", "systemPrompt": "p2"}}));
    cluster.settle();
    assert_eq!((cluster.active(), cluster.status().pending_release), (Some(1), Some(2)));
    let spec = cluster.run(&json!({})).spec;
    assert_eq!(
        (spec.min_quality_score, spec.dataset.as_deref(), spec.judge_model.as_deref()),
        (Some(75), Some("golden"), Some("openai:/j"))
    );
    cluster.passes();
    assert_eq!((cluster.active(), cluster.status().quality_gate), (Some(2), None));
    cluster.prompt("p3");
    cluster.settle();
    assert_eq!(cluster.active(), Some(3), "there is no gate any more");
}

#[test]
fn runs_that_were_not_asked_for_decide_nothing() {
    let lies: [fn(&mut EvaluationRun); 12] = [
        |run| run.metadata.managed_fields.as_mut().unwrap()[0].manager = Some("kubectl-create".to_owned()),
        |run| run.metadata.managed_fields.as_mut().unwrap()[1].manager = Some("kubectl-edit".to_owned()),
        |run| {
            let book = run.metadata.managed_fields.as_mut().unwrap();
            let mut other = book[1].clone();
            other.manager = Some("kubectl-edit".to_owned());
            book.push(other);
        },
        // Under the name of who notes callbacks, something that decides.
        |run| writes(run, "slipway/callback", &json!({"f:callback": {}, "f:passed": {}})),
        |run| writes(run, "slipway/delivery", &json!({"f:conditions": {}, "f:aggregateScores": {}})),
        |run| writes(run, "slipway/callback", &json!({"f:conditions": {}})),
        |run| run.metadata.managed_fields = None,
        |run| run.metadata.owner_references.as_mut().unwrap()[0].uid = "another release".to_owned(),
        |run| run.metadata.owner_references = None,
        |run| run.spec.min_quality_score = Some(1),
        |run| run.spec.dataset = Some("easy".to_owned()),
        |run| run.spec.guidelines = vec!["say anything".to_owned()],
    ];
    for (at, lie) in lies.into_iter().enumerate() {
        let mut cluster = gated();
        cluster.prompt("p2");
        cluster.settle();
        let mut run = cluster.run(&completed(true, 100.0, "slipway"));
        lie(&mut run);
        let mut other = run.clone();
        cluster.runs.insert(run.metadata.name.clone().unwrap(), run);
        other.metadata.name = Some("ev-mine".to_owned());
        cluster.runs.insert("ev-mine".to_owned(), other);
        cluster.settle();
        cluster.check();
        assert_eq!((cluster.active(), cluster.status().pending_release), (Some(1), Some(2)), "lie {at}");
        cluster.passes();
        assert_eq!(cluster.active(), Some(2), "lie {at}: the true one does");
    }
}

#[test]
fn a_callback_and_a_delivery_beside_the_verdict_change_nothing() {
    for callback in [json!({"attempt": 1, "status": "completed"}), json!({"attempt": 1, "status": "failed"})] {
        let mut cluster = gated();
        cluster.prompt("p2");
        cluster.settle();
        let mut run = cluster.run(&bent(completed(true, 91.5, "slipway"), &json!({"callback": callback})));
        writes(&mut run, "slipway/callback", &json!({"f:callback": {"f:attempt": {}}}));
        writes(&mut run, "slipway/delivery", &json!({"f:conditions": {"k:{\"type\":\"Delivered\"}": {}}}));
        cluster.runs.insert(run.metadata.name.clone().unwrap(), run);
        cluster.clock += 5;
        cluster.settle();
        cluster.check();
        assert_eq!(cluster.active(), Some(2), "{callback}");
    }
    let mut cluster = gated();
    cluster.prompt("p2");
    cluster.settle();
    let mut run = cluster.run(&json!({"phase": "Running", "callback": {"attempt": 1, "status": "completed"}}));
    writes(&mut run, "slipway/callback", &json!({"f:callback": {"f:attempt": {}}}));
    cluster.runs.insert(run.metadata.name.clone().unwrap(), run);
    cluster.settle();
    assert_eq!((cluster.active(), cluster.status().pending_release), (Some(1), Some(2)), "a callback is no verdict");
}

#[test]
fn scores_that_do_not_reach_the_gate_pass_nothing_whatever_is_said() {
    let passed = || completed(true, 91.5, "slipway");
    for (status, says) in [
        (bent(passed(), &json!({"score": 10, "aggregateScores": {"safety/mean": 1, "correctness/mean": 0.1}})), "at least 75"),
        (bent(passed(), &json!({"aggregateScores": {"safety/mean": 0.74, "correctness/mean": 0.74}, "threshold": 5})), "at least 75"),
        (bent(passed(), &json!({"threshold": 5})), "at least 75"),
        (bent(passed(), &json!({"threshold": 99})), "at least 75"),
        (bent(passed(), &json!({"aggregateScores": {"safety/mean": 0.7, "correctness/mean": 1}})), "at least 75"),
        (bent(passed(), &json!({"aggregateScores": {"correctness/mean": 1}})), "at least 75"),
        (bent(passed(), &json!({"passed": false, "verdict": "FAILED (for a reason)"})), "FAILED (for a reason)"),
        (completed(true, 90.0, "heuristic"), "a comparison of words"),
    ] {
        let mut cluster = gated();
        cluster.prompt("p2");
        cluster.settle();
        cluster.ends(&status);
        assert_eq!((cluster.active(), cluster.phase(2)), (Some(1), Status::Rejected), "{status}");
        let reason = cluster.past.versions[&2].reason.clone().unwrap();
        assert!(reason.contains(says), "{reason}");
    }
    // What nothing can be read from is no verdict.
    for with in [
        json!({"aggregateScores": {"safety/mean": 7, "correctness/mean": 1}}),
        json!({"aggregateScores": null}),
        json!({"provider": "mock"}),
    ] {
        let mut cluster = gated();
        cluster.prompt("p2");
        cluster.settle();
        let run = cluster.status().pending_evaluation;
        cluster.ends(&bent(passed(), &with));
        assert_eq!((cluster.active(), cluster.phase(2)), (Some(1), Status::PendingEval), "{with}");
        assert_ne!(cluster.status().pending_evaluation, run, "{with}: another run");
    }
    let mut cluster = gated();
    cluster.allow_heuristic = true;
    cluster.prompt("p2");
    cluster.settle();
    cluster.ends(&completed(true, 90.0, "heuristic"));
    assert_eq!(cluster.active(), Some(2));
}

#[test]
fn a_run_without_scores_is_repeated_and_at_last_the_release_is_rejected() {
    let undecided = json!({"phase": "Completed", "provider": "slipway", "score": 80, "threshold": 75, "verdict": "the judge failed"});
    let mut cluster = gated();
    cluster.prompt("p2");
    cluster.settle();
    for (attempt, status) in (1..MAX_ATTEMPTS).zip([failed(), undecided]) {
        let name = cluster.status().pending_evaluation.unwrap();
        cluster.ends(&status);
        assert_ne!(cluster.status().pending_evaluation, Some(name.clone()), "another run");
        // What is deleted meanwhile is not begun again.
        cluster.runs.remove(&name);
        cluster.settle();
        assert_eq!((cluster.active(), cluster.status().pending_release), (Some(1), Some(2)), "after attempt {attempt}");
    }
    let message = cluster.status().conditions.iter().find(|condition| condition.type_ == "Approved").unwrap().message.clone();
    assert!(message.contains("attempt 3 of 3") && message.contains("the judge failed"), "{message}");
    cluster.ends(&json!({"phase": "Cancelled"}));
    assert_eq!((cluster.active(), cluster.phase(2)), (Some(1), Status::Rejected));
    assert!(cluster.past.versions[&2].reason.as_ref().unwrap().contains("3 evaluations ended without a verdict"));
}

#[test]
fn a_release_that_gives_no_answer_is_rejected_by_its_first_run() {
    let mut cluster = gated();
    cluster.prompt("p2");
    cluster.settle();
    let first = cluster.status().pending_evaluation;
    // A model that is away may be back.
    cluster.ends(&unanswered("AgentUnavailable"));
    assert_eq!((cluster.active(), cluster.phase(2)), (Some(1), Status::PendingEval));
    assert_ne!(cluster.status().pending_evaluation, first, "another run");
    cluster.ends(&unanswered(NO_ANSWER));
    assert_eq!((cluster.active(), cluster.phase(2)), (Some(1), Status::Rejected));
    let why = cluster.past.versions[&2].reason.clone().unwrap_or_default();
    let words = "the evaluation ended without a verdict, and is not repeated: the agent gave no answer to 8 of 8 cases";
    assert!(why.starts_with(words) && why.contains("attempt 2"), "{why}");
    assert_eq!(cluster.agent.spec.system_prompt.as_deref(), Some("p1"), "the spec goes back");
}

#[test]
fn an_archived_release_is_brought_back_at_once_and_nothing_waits_any_more() {
    let mut cluster = gated();
    cluster.prompt("p2");
    cluster.settle();
    cluster.passes();
    cluster.prompt("p3");
    cluster.settle();
    cluster.deploy("3");
    cluster.settle();
    assert!(cluster.told.last().unwrap().contains("waits for its evaluation"), "{:?}", cluster.told);
    let run = cluster.run(&completed(true, 99.0, "slipway"));
    cluster.deploy("1");
    cluster.runs.insert(run.metadata.name.clone().unwrap(), run);
    cluster.settle();
    cluster.check();
    assert_eq!((cluster.active(), cluster.phase(3), cluster.agent.spec.system_prompt.as_deref()), (Some(1), Status::Archived, Some("p1")));
}

#[test]
fn a_release_asked_for_while_the_same_waits_is_skipped() {
    let mut cluster = gated();
    cluster.prompt("p2");
    cluster.settle();
    cluster.ask("mine", "c");
    cluster.settle();
    let status = cluster.releases["mine"].status.clone().unwrap();
    assert_eq!((status.version, status.phase, cluster.past.highest), (Some(2), Some(Status::Skipped), 2));
    assert!(status.conditions[0].message.contains("v2, which waits for its evaluation"), "{}", status.conditions[0].message);
}

#[test]
fn a_run_that_is_held_up_in_its_deletion_holds_up_nothing() {
    let mut cluster = gated();
    cluster.prompt("p2");
    cluster.settle();
    let mut run = cluster.run(&json!({"phase": "Running"}));
    run.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    cluster.runs.insert(run.metadata.name.clone().unwrap(), run);
    cluster.settle();
    assert!(cluster.status().conditions.iter().any(|condition| condition.message.contains("attempt 2 of 3; attempt 1 of 3")));
    cluster.passes();
    assert_eq!(cluster.active(), Some(2));
}

#[test]
fn what_was_put_aside_before_it_was_evaluated_is_not_deployed() {
    let mut cluster = gated();
    cluster.prompt("p2");
    cluster.settle();
    cluster.prompt("p3");
    cluster.settle();
    cluster.passes();
    cluster.deploy("2");
    cluster.settle();
    cluster.check();
    assert!(cluster.told.last().unwrap().contains("superseded before it was evaluated"), "{:?}", cluster.told);
    assert_eq!((cluster.active(), cluster.phase(2), cluster.agent.spec.system_prompt.as_deref()), (Some(3), Status::Archived, Some("p3")));
}

/// Stories with a gate, each with what the next run says.
fn stories() -> Vec<(&'static str, Cluster)> {
    let waiting = |mut cluster: Cluster| {
        cluster.prompt("p2");
        cluster.settle();
        cluster
    };
    let with_run = |mut cluster: Cluster, status: &Value| {
        let run = cluster.run(status);
        cluster.runs.insert(run.metadata.name.clone().unwrap(), run);
        cluster
    };
    let first = Cluster::new(GATED);
    let mut passed_first = Cluster::new(GATED);
    passed_first.settle();
    let mut changed = gated();
    changed.prompt("p2");
    let mut newer = waiting(gated());
    newer.prompt("p3");
    let mut back = waiting(gated());
    back.prompt("p1");
    let mut rolled_back = waiting(gated());
    rolled_back.passes();
    rolled_back.prompt("p3");
    rolled_back.settle();
    rolled_back.deploy("1");
    let mut owned = waiting(gated());
    owned.owner = Some("Flux".to_owned());
    vec![
        ("first", first),
        ("first passed", with_run(passed_first, &completed(true, 80.0, "slipway"))),
        ("changed", changed),
        ("passed", with_run(waiting(gated()), &completed(true, 80.0, "slipway"))),
        ("failed", with_run(waiting(gated()), &completed(false, 10.0, "slipway"))),
        ("failed, owned by GitOps", with_run(owned, &completed(false, 10.0, "slipway"))),
        ("repeated", with_run(waiting(gated()), &failed())),
        ("without an answer", with_run(waiting(gated()), &unanswered(NO_ANSWER))),
        ("newer", newer),
        ("back", back),
        ("rolled back", rolled_back),
        ("passed as a canary", canary::promoted()),
    ]
}

#[test]
fn wherever_the_process_ends_a_gate_comes_to_the_same_end() {
    for (story, cluster) in stories() {
        let mut whole = cluster.clone();
        whole.settle();
        whole.check();
        let mut steps = 0;
        while cluster.clone().steps(steps + 1).is_none() {
            steps += 1;
            let mut killed = cluster.clone();
            killed.steps(steps);
            killed.clock += 1_000;
            killed.settle();
            killed.check();
            let end =
                |cluster: &Cluster| (cluster.active(), cluster.past.highest, cluster.phases(), cluster.approval(), cluster.told.clone());
            assert_eq!(end(&killed), end(&whole), "{story}, killed after write {steps}");
            assert_eq!(killed.agent.spec, whole.agent.spec, "{story}, killed after write {steps}");
            assert_eq!(killed.status().pending_evaluation, whole.status().pending_evaluation, "{story}, killed after write {steps}");
        }
        assert!(steps > 0, "{story} has no writes");
    }
}
