//! The gate and the agent's canary: what has passed there is released at once, and nothing else that is said of a canary counts.

use serde_json::{Value, json};
use slipway_api::canary::CanaryPhase;
use slipway_api::{Agent, AgentStatus, CanaryStatus, EvaluationRun};
use slipway_release::gate::{canary_run_name, canary_run_spec, content_key};
use slipway_release::{Status, content_of, promotion};

use super::{Cluster, completed, gated, writes};
use crate::seen::Patience;
use crate::step::{Step, Wait};

impl Cluster {
    /// Gives the agent a canary with this prompt, and the run that the operator makes of it.
    fn begins(&mut self, prompt: &str, score: Option<i32>, status: &Value) {
        self.edit(&json!({"spec": {"canary": {"enabled": true, "weight": 10, "systemPrompt": prompt}}}));
        let spec = self.agent.canary().unwrap().promoted(&self.agent.spec);
        let promoted = content_of(&Agent { spec, ..self.agent.clone() });
        let name = canary_run_name("u1", &content_key(&promoted), 1);
        let canary = CanaryStatus { phase: CanaryPhase::Serving, evaluation: Some(name.clone()), attempt: 1, ..CanaryStatus::default() };
        self.agent.status.get_or_insert_with(AgentStatus::default).canary = Some(canary);
        let owner = json!({"apiVersion": "agents.slipway.dev/v1", "kind": "Agent", "name": "helper", "uid": "u1"});
        let book = json!([
            {"manager": "slipway/agent", "operation": "Update", "fieldsV1": {"f:spec": {"f:agent": {}}}},
            {"manager": "slipway/evaluation", "operation": "Apply", "subresource": "status", "fieldsV1": {"f:status": {"f:phase": {}}}},
        ]);
        let metadata = json!({"name": name, "namespace": "team-a", "ownerReferences": [owner], "managedFields": book});
        let spec = canary_run_spec(self.past.active.as_ref().map(|active| &active.artifact), &promoted, score);
        self.runs.insert(name, serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status})).unwrap());
    }

    /// What the operator and REST write to make the canary's configuration the agent's.
    fn promote(&mut self) {
        let patch = promotion(&self.agent.spec).unwrap();
        self.edit(&patch);
    }

    fn only_run(&mut self) -> &mut EvaluationRun {
        self.runs.values_mut().next().unwrap()
    }
}

/// A gated agent whose canary has passed and was promoted just now.
pub(super) fn promoted() -> Cluster {
    let mut cluster = gated();
    cluster.runs.clear();
    cluster.begins("p2", None, &completed(true, 91.5, "slipway"));
    cluster.promote();
    cluster
}

#[test]
fn what_has_passed_as_a_canary_is_released_without_a_candidate() {
    let mut cluster = gated();
    cluster.runs.clear();
    cluster.begins("p2", None, &completed(true, 91.5, "slipway"));
    assert_eq!(cluster.settle(), Wait::Done);
    assert_eq!((cluster.active(), cluster.past.highest), (Some(1), 1), "a canary is no release");
    cluster.promote();
    while cluster.steps(1).is_none() {
        assert_eq!(cluster.status().pending_evaluation, None, "no candidate is asked for");
    }
    cluster.check();
    assert_eq!((cluster.active(), cluster.phase(2), cluster.approval()), (Some(2), Status::Active, None));
    let release = cluster.releases.values().find(|release| release.status.as_ref().unwrap().version == Some(2)).unwrap();
    let evaluation = release.status.as_ref().unwrap().evaluation.clone().unwrap();
    assert_eq!((Some(&evaluation.run), evaluation.score, evaluation.passed), (cluster.runs.keys().next(), Some(91.5), Some(true)));
    assert!(cluster.told.last().unwrap().starts_with("approved v2"), "{:?}", cluster.told);
}

#[test]
fn more_than_the_gate_asks_for_is_enough_and_less_is_not() {
    for score in [Some(80), None, Some(1)] {
        let mut cluster = gated();
        cluster.runs.clear();
        let mut status = completed(true, 91.5, "slipway");
        status["threshold"] = json!(score.unwrap_or(75).max(75));
        cluster.begins("p2", score, &status);
        cluster.promote();
        cluster.settle();
        assert_eq!(cluster.active(), Some(2), "{score:?}: the gate's 75 counts in any case");
    }
    let mut cluster = promoted();
    cluster.only_run().spec.min_quality_score = Some(74);
    cluster.settle();
    assert_eq!((cluster.active(), cluster.status().pending_release), (Some(1), Some(2)));
}

#[test]
fn what_else_is_said_of_a_canary_decides_nothing() {
    type Lie = (&'static str, fn(&mut Cluster));
    let lies: [Lie; 16] = [
        ("deleted", |cluster| cluster.runs.clear()),
        ("failed", |cluster| cluster.only_run().status = serde_json::from_value(completed(false, 40.0, "slipway")).unwrap()),
        ("under way", |cluster| cluster.only_run().status = serde_json::from_value(json!({"phase": "Running"})).unwrap()),
        ("cancelled", |cluster| cluster.only_run().status = serde_json::from_value(json!({"phase": "Cancelled"})).unwrap()),
        ("compared by words", |cluster| cluster.only_run().status = serde_json::from_value(completed(true, 91.5, "heuristic")).unwrap()),
        ("not reached", |cluster| cluster.only_run().status = serde_json::from_value(completed(true, 91.5, "mock")).unwrap()),
        ("scores that do not bear it out", |cluster| {
            cluster.only_run().status.as_mut().unwrap().aggregate_scores.values_mut().for_each(|mean| *mean = 0.5);
        }),
        ("another content", |cluster| cluster.only_run().spec.content = Some("0".repeat(64))),
        ("another dataset", |cluster| cluster.only_run().spec.dataset = Some("easy".to_owned())),
        ("another judge", |cluster| cluster.only_run().spec.judge_model = Some("stub:/echo".to_owned())),
        ("rules of its own", |cluster| cluster.only_run().spec.guidelines = vec!["say anything".to_owned()]),
        ("made by somebody", |cluster| {
            cluster.only_run().metadata.managed_fields.as_mut().unwrap()[0].manager = Some("kubectl-create".to_owned());
        }),
        ("judged by somebody", |cluster| writes(cluster.only_run(), "kubectl-edit", &json!({"f:passed": {}}))),
        ("of another agent of the name", |cluster| cluster.only_run().metadata.owner_references.as_mut().unwrap()[0].uid = "u0".to_owned()),
        ("not the canary's", |cluster| {
            let canary = cluster.agent.status.as_mut().unwrap().canary.as_mut().unwrap();
            canary.evaluation = Some("ev-mine".to_owned());
            let run = cluster.runs.values().next().unwrap().clone();
            cluster.runs.insert("ev-mine".to_owned(), run);
        }),
        ("of a canary that was rolled back", |cluster| {
            cluster.agent.status.as_mut().unwrap().canary.as_mut().unwrap().phase = CanaryPhase::RolledBack;
        }),
    ];
    for (what, lie) in lies {
        let mut cluster = promoted();
        lie(&mut cluster);
        cluster.settle();
        cluster.check();
        assert_eq!((cluster.active(), cluster.phase(2)), (Some(1), Status::PendingEval), "{what}: the candidate is evaluated");
        assert!(cluster.status().pending_evaluation.is_some_and(|run| !cluster.runs.contains_key(&run)), "{what}");
        cluster.passes();
        assert_eq!(cluster.active(), Some(2), "{what}");
    }
}

#[test]
fn a_canary_that_lowers_the_gate_is_held_to_what_serves() {
    let mut cluster = gated();
    cluster.runs.clear();
    cluster.begins("p2", None, &completed(true, 91.5, "slipway"));
    // As if somebody had let the promotion ask for less.
    cluster.promote();
    cluster.edit(&json!({"spec": {"governance": {"minQualityScore": 1}}}));
    cluster.settle();
    assert_eq!((cluster.active(), cluster.status().pending_release), (Some(1), Some(2)), "that is another content");
    assert_eq!(cluster.run(&json!({})).spec.min_quality_score, Some(75));
}

#[test]
fn what_was_rejected_is_released_once_it_has_passed_as_a_canary() {
    let mut cluster = gated();
    cluster.prompt("p2");
    cluster.settle();
    cluster.fails();
    assert_eq!((cluster.phase(2), cluster.agent.spec.system_prompt.as_deref()), (Status::Rejected, Some("p1")));
    cluster.runs.clear();
    cluster.begins("p2", None, &completed(true, 91.5, "slipway"));
    cluster.promote();
    // Before it is a release again, nobody calls it rejected, which would end the canary.
    while let step @ Step::WriteAgentStatus { .. } = cluster.next(Patience { content: false, image: false }) {
        cluster.take(step);
    }
    assert_eq!(cluster.approval().as_deref(), Some("PendingEvaluation"));
    cluster.settle();
    cluster.check();
    assert_eq!((cluster.active(), cluster.phase(3), cluster.approval()), (Some(3), Status::Active, None));
    assert_eq!(cluster.agent.spec.system_prompt.as_deref(), Some("p2"), "and nothing is set back");
    // Without that it is.
    let mut cluster = gated();
    cluster.prompt("p2");
    cluster.settle();
    cluster.fails();
    cluster.runs.clear();
    cluster.begins("p2", None, &completed(false, 40.0, "slipway"));
    cluster.promote();
    cluster.settle();
    assert_eq!((cluster.active(), cluster.past.highest, cluster.agent.spec.system_prompt.as_deref()), (Some(1), 2, Some("p1")));
}

#[test]
fn weights_and_their_end_write_nothing_to_the_history() {
    let mut cluster = gated();
    cluster.runs.clear();
    cluster.begins("p2", None, &json!({}));
    cluster.settle();
    for edit in [json!({"weight": 50}), json!({"analysis": {"steps": [60]}}), json!({"overrides": {"environment": "next"}})] {
        cluster.edit(&json!({"spec": {"canary": edit}}));
        assert_eq!(cluster.settle(), Wait::Done);
    }
    cluster.edit(&json!({"spec": {"canary": null}}));
    cluster.settle();
    assert_eq!((cluster.active(), cluster.past.highest, cluster.told.len()), (Some(1), 1, 1));
    let mut whole = cluster.agent.clone();
    whole.spec.canary = serde_json::from_value(json!({"enabled": true, "weight": 10, "systemPrompt": "p2"})).unwrap();
    assert_eq!(crate::act::plain(&whole), crate::act::plain(&cluster.agent), "nor is a canary in the manifest for other clusters");
}
