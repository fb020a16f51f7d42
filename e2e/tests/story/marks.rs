//! Steps 16 and 17: an answer that is marked badly becomes a case of the next evaluation, whose means the story computes itself.

use serde_json::{Value, json};

use crate::model::{WORD, spoken};
use crate::stage::{GUIDE, Stage};
use crate::sums::{assert_close, mean};

/// What an evaluation by the profile standard comes to.
pub(crate) struct Means {
    pub(crate) safety: f64,
    pub(crate) relevance: f64,
    pub(crate) correctness: f64,
}

impl Means {
    /// Of these cases, answered by a model with these instructions: the judge says yes of what is safe, and of answers with one word.
    pub(crate) fn of(instructions: &str, cases: &[Value]) -> Self {
        let mark = |case: &Value| {
            let question = case["input"].as_str().unwrap_or_default();
            if spoken(instructions, question).contains(WORD) { 1.0 } else { 0.0 }
        };
        let all: Vec<f64> = cases.iter().map(mark).collect();
        // What nothing is expected of cannot be correct or wrong.
        let with: Vec<f64> = cases.iter().filter(|case| case["expectedOutput"].is_string()).map(mark).collect();
        Self { safety: 1.0, relevance: mean(&all).unwrap_or_default(), correctness: mean(&with).unwrap_or_default() }
    }

    /// 0 to 100.
    pub(crate) fn score(&self) -> f64 {
        100.0 * (self.safety + self.relevance + self.correctness) / 3.0
    }

    #[track_caller]
    pub(crate) fn assert_are(&self, scores: &Value) {
        let Self { safety, relevance, correctness } = self;
        for (scorer, expected) in [("safety", safety), ("relevance_to_query", relevance), ("correctness", correctness)] {
            assert_close(scorer, &scores[format!("{scorer}/mean")], *expected, 1e-9);
        }
        assert_eq!(scores.as_object().map(serde_json::Map::len), Some(3), "{scores:#}");
    }
}

/// The cases of the project's dataset.
#[track_caller]
pub(crate) fn cases(stage: &Stage) -> Vec<Value> {
    let dataset = stage.harbor.get(&format!("dataset/{GUIDE}"));
    let cases = dataset["spec"]["cases"].as_array().cloned().unwrap_or_default();
    assert_eq!(cases.len(), 5, "{dataset:#}");
    cases
}

pub(crate) fn a_bad_mark(stage: &mut Stage) {
    stage.play("A bad mark");
    let mark = |person: &str, team: &str, trace: &Value, value: f64| {
        let body = json!({"agent_id": GUIDE, "trace_id": trace, "name": "story", "value": value, "source": "human"});
        stage.call(person, team, "POST", "/feedback").json(&body)
    };
    let good = stage.fact("good trace");
    let recorded = mark("dev", "harbor", good, 0.9).expect(200);
    assert_eq!(
        recorded,
        json!({"status": "recorded", "trace_id": good, "name": "story", "value": 0.9, "proxied": false, "dataset_appended": false})
    );
    mark("bob", "depot", good, 0.1).expect(404);
    mark("vic", "harbor", good, 0.1).expect(403);
}

pub(crate) fn evaluations(stage: &mut Stage) {
    stage.play("Evaluations");
    let ids = stage.file("runs.txt");
    let ids: Vec<&str> = ids.split_whitespace().collect();
    let instructions = stage.guide().get()["spec"]["systemPrompt"].as_str().unwrap_or_default().to_owned();
    let mut asked = cases(stage);
    asked.push(json!({"input": "Is the gate open?"}));
    let expected = Means::of(&instructions, &asked);
    for id in &ids {
        let run = stage.get("vic", "harbor", &format!("/agents/{GUIDE}/evaluations/{id}"));
        assert!(id.starts_with("ev_"), "{id}");
        assert_eq!(
            (&run["status"], &run["provider"], &run["dataset_name"]),
            (&json!("completed"), &json!("slipway"), &json!(GUIDE)),
            "{run:#}"
        );
        assert_eq!((&run["total_cases"], &run["feedback_cases"]), (&json!(asked.len()), &json!(1)), "{run:#}");
        expected.assert_are(&run["aggregate_scores"]);
        assert_close("score", &run["score"], expected.score(), 0.05);
        assert_eq!(run["passed"], json!(expected.score() >= 75.0), "{run:#}");
    }
    let compared = stage.get("vic", "harbor", &format!("/agents/{GUIDE}/evaluations/compare?a={}&b={}", ids[0], ids[1]));
    assert_eq!((&compared["run_a"]["id"], &compared["run_b"]["id"], &compared["winner"]), (&json!(ids[0]), &json!(ids[1]), &json!("tie")));
    let metrics = compared["metrics"].as_object().cloned().unwrap_or_default();
    assert!(metrics.len() >= 3, "{compared:#}");
    for (name, metric) in metrics {
        let (a, b) = (metric["a"].as_f64().unwrap_or(f64::NAN), metric["b"].as_f64().unwrap_or(f64::NAN));
        assert_close(&name, &metric["diff"], b - a, 1e-9);
        assert!((b - a).abs() < 1e-9 && metric["winner"] == "tie", "{name}: {metric}");
    }
}
