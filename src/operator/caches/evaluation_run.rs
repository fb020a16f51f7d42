//! An EvaluationRun as it is cached: without what is large in it. Thousands are kept in a team's namespace, and the controllers ask of
//! one that has ended how it ended. Whoever needs its guidelines reads them from the API server (`evaluation_run::cases`).

use kube::Resource;
use slipway_api::EvaluationRun;
use slipway_api::condition::{RECONCILING, STALLED};
use slipway_api::evaluation_run::{EvaluationPhase, EvaluationRunSpec};
use slipway_cluster::Guarded;
use slipway_cluster::cached::trimmed;

/// The run without labels and annotations, and without the texts of its guidelines: one empty guideline stands for them, so that the run
/// is not taken for one that has none. Of a run that has ended, the worst cases go too, and the messages that only repeat that of `Ready`.
/// A status that has ended is not written again, but for the condition `Delivered`, which has a field manager of its own.
pub(crate) fn shortened(mut object: Guarded<EvaluationRun>) -> Guarded<EvaluationRun> {
    let metadata = object.meta_mut();
    (metadata.labels, metadata.annotations) = (None, None);
    if let Ok(run) = &mut object.0 {
        if !run.spec.guidelines.is_empty() {
            run.spec.guidelines = vec![String::new()];
        }
        if let Some(status) = &mut run.status
            && status.phase.is_some_and(EvaluationPhase::is_final)
        {
            status.worst_cases = Vec::new();
            for condition in &mut status.conditions {
                if [RECONCILING, STALLED].contains(&&*condition.type_) {
                    condition.message = String::new();
                }
            }
        }
    }
    trimmed(object)
}

/// Whether a run has guidelines that the cache has not.
pub(crate) fn lacks_guidelines(spec: &EvaluationRunSpec) -> bool {
    spec.guidelines.iter().any(String::is_empty)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use slipway_release::gate;

    use super::*;

    fn run(phase: &str) -> Value {
        let condition = |kind: &str, status: &str| {
            json!({"type": kind, "status": status, "reason": "Passed", "message": "PASSED (avg=80 >= 75)",
                "lastTransitionTime": "2026-01-01T00:00:00Z"})
        };
        json!({
            "metadata": {"name": "ev-1", "namespace": "team-a", "uid": "u", "generation": 1, "resourceVersion": "7",
                "labels": {"agents.slipway.dev/agent": "helper"}, "annotations": {"example.slipway.dev/note": "x"}},
            "spec": {"agent": "helper", "track": "canary", "content": "0".repeat(64), "guidelines": ["Be kind.", "Be brief."],
                "ttlSecondsAfterFinished": 60},
            "status": {
                "phase": phase, "dataset": "golden", "datasetDigest": "d", "runHash": "h", "provider": "slipway", "score": 80.0,
                "threshold": 75.0, "passed": true, "verdict": "PASSED (avg=80 >= 75)", "totalCases": 2, "prompts": ["safety@1"],
                "aggregateScores": {"safety/mean": 0.8}, "startedAt": "2026-01-01T00:00:00Z", "completedAt": "2026-01-01T00:00:05Z",
                "worstCases": [{"case": 0, "input": "one", "reason": "safety: rude"}],
                "conditions": [condition("Ready", "True"), condition("Reconciling", "False"), condition("Delivered", "True")],
            },
        })
    }

    fn cached(whole: &Value) -> EvaluationRun {
        shortened(Guarded(Ok(serde_json::from_value(whole.clone()).unwrap()))).0.unwrap()
    }

    #[test]
    fn an_ended_run_keeps_all_that_the_controllers_read() {
        let whole = run("Completed");
        let mut expected = whole.clone();
        for part in ["labels", "annotations"] {
            expected["metadata"].as_object_mut().unwrap().remove(part);
        }
        expected["spec"]["guidelines"] = json!([""]);
        expected["status"].as_object_mut().unwrap().remove("worstCases");
        expected["status"]["conditions"][1]["message"] = json!("");
        let expected: EvaluationRun = serde_json::from_value(expected).unwrap();
        let kept = cached(&whole);
        assert_eq!((&kept.metadata, &kept.spec, &kept.status), (&expected.metadata, &expected.spec, &expected.status));
    }

    #[test]
    fn a_run_under_way_keeps_its_status() {
        let whole = run("Running");
        let status = serde_json::from_value::<EvaluationRun>(whole.clone()).unwrap().status;
        assert_eq!(cached(&whole).status, status);
    }

    #[test]
    fn a_run_with_guidelines_is_not_taken_for_one_without() {
        let mut whole = run("Completed");
        let kept = cached(&whole);
        assert!(lacks_guidelines(&kept.spec));
        whole["spec"].as_object_mut().unwrap().remove("guidelines");
        let plain = cached(&whole);
        assert!(!lacks_guidelines(&plain.spec));
        let wanted = EvaluationRunSpec { ttl_seconds_after_finished: None, ..plain.spec.clone() };
        assert!(gate::is_run_spec(&plain.spec, &wanted) && !gate::is_run_spec(&kept.spec, &wanted));
    }
}
