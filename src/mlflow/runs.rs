//! Runs. One is known by a key of the caller's, which is a tag of it, so that a caller that was killed finds the run that it made.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use crate::client::{plain, quoted};
use crate::{Fault, Mlflow};

/// The tag that holds a run's key.
const KEY_TAG: &str = "slipway.key";
/// The longest values that MLflow takes of params and tags, in characters; some of its stores refuse longer ones.
const VALUE_MAX: usize = 5000;
/// How many of the last runs are looked at for one that counts.
const SCORED_MAX: usize = 10;

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunStatus {
    Finished,
    Failed,
    Killed,
}

/// What is said of a run. MLflow refuses another value for a param that it has.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Facts {
    pub params: Vec<(String, String)>,
    pub metrics: Vec<(String, f64)>,
    pub tags: Vec<(String, String)>,
    /// When the metrics were measured, in milliseconds since 1970. The same metric of the same time is one.
    pub at: i64,
}

/// The dataset that a run used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Input {
    pub name: String,
    /// Up to 36 characters.
    pub digest: String,
    /// Where it lies, as JSON.
    pub source: Value,
}

/// Which runs of an experiment are asked for their scores: those of what an agent ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scored<'a> {
    pub agent_id: &'a str,
    pub run_hash: &'a str,
    /// What stands in the param `provider` of runs that do not count.
    pub not_by: &'a [&'a str],
}

#[derive(Deserialize)]
struct FoundScores {
    #[serde(default)]
    runs: Vec<ScoredRun>,
}

#[derive(Deserialize)]
struct ScoredRun {
    #[serde(default)]
    data: RunData,
}

#[derive(Default, Deserialize)]
struct RunData {
    #[serde(default)]
    metrics: Vec<Pair>,
    #[serde(default)]
    params: Vec<Pair>,
}

/// A metric or a param. Metrics that are no numbers come as texts.
#[derive(Deserialize)]
struct Pair {
    key: String,
    #[serde(default)]
    value: Value,
}

#[derive(Deserialize)]
struct FoundRuns {
    #[serde(default)]
    runs: Vec<Run>,
}

#[derive(Deserialize)]
struct CreatedRun {
    run: Run,
}

#[derive(Deserialize)]
struct Run {
    info: RunInfo,
}

#[derive(Deserialize)]
struct RunInfo {
    run_id: String,
}

impl Mlflow {
    /// The id of the run with this key, which is made if there is none.
    pub async fn run(&self, experiment: &str, key: &str, name: &str, started: i64) -> Result<String, Fault> {
        let mut found = self.find_runs(experiment, key).await?;
        if found.is_empty() {
            let tags = [json!({"key": KEY_TAG, "value": key}), json!({"key": "mlflow.user", "value": "slipway"})];
            let body = json!({"experiment_id": experiment, "run_name": name, "start_time": started, "tags": tags});
            let created: CreatedRun = self.post("2.0/mlflow/runs/create", &body).await?;
            found = self.find_runs(experiment, key).await?;
            found.push(plain(created.run.info.run_id)?);
        }
        found.sort();
        found.dedup();
        // Two callers at once may have made one each. All agree on which one stays.
        for surplus in found.split_off(1) {
            self.post::<IgnoredAny>("2.0/mlflow/runs/delete", &json!({"run_id": surplus})).await?;
        }
        Ok(found.swap_remove(0))
    }

    async fn find_runs(&self, experiment: &str, key: &str) -> Result<Vec<String>, Fault> {
        let filter = format!("tags.`{KEY_TAG}` = {}", quoted(key)?);
        let body = json!({"experiment_ids": [experiment], "filter": filter, "run_view_type": "ACTIVE_ONLY", "max_results": 10});
        let found: FoundRuns = self.post("2.0/mlflow/runs/search", &body).await?;
        found.runs.into_iter().map(|run| plain(run.info.run_id)).collect()
    }

    /// The means (`<scorer>/mean`) of the last finished run that counts, in the experiment of this name. None if there is no such run.
    pub async fn scores(&self, experiment: &str, of: Option<Scored<'_>>) -> Result<Option<BTreeMap<String, f64>>, Fault> {
        let experiment = self.find_experiment(experiment).await?;
        let Some((id, Scored { agent_id, run_hash, not_by })) = experiment.zip(of) else { return Ok(None) };
        // Experiments are named after agents, of which two teams may have one of the same name.
        let filter = format!(
            "params.run_hash = {} and tags.`slipway.agent_id` = {} and attributes.status = 'FINISHED'",
            quoted(run_hash)?,
            quoted(agent_id)?
        );
        let body = json!({
            "experiment_ids": [id],
            "filter": filter,
            "run_view_type": "ACTIVE_ONLY",
            "max_results": SCORED_MAX,
            "order_by": ["attributes.end_time DESC"],
        });
        let found: FoundScores = self.post("2.0/mlflow/runs/search", &body).await?;
        let counts =
            |run: &ScoredRun| !run.data.params.iter().any(|param| param.key == "provider" && not_by.iter().any(|by| param.value == *by));
        let run = found.runs.into_iter().find(counts);
        let means = |run: ScoredRun| {
            let pairs = run.data.metrics.into_iter().filter(|metric| metric.key.ends_with("/mean"));
            pairs.filter_map(|metric| Some((metric.key, metric.value.as_f64()?))).collect()
        };
        Ok(run.map(means))
    }

    pub async fn log(&self, run: &str, facts: &Facts) -> Result<(), Fault> {
        let pair = |(key, value): &(String, String)| json!({"key": key, "value": value.chars().take(VALUE_MAX).collect::<String>()});
        let metric = |(key, value): &(String, f64)| json!({"key": key, "value": value, "timestamp": facts.at, "step": 0});
        let body = json!({
            "run_id": run,
            "params": facts.params.iter().map(pair).collect::<Vec<_>>(),
            "metrics": facts.metrics.iter().map(metric).collect::<Vec<_>>(),
            "tags": facts.tags.iter().map(pair).collect::<Vec<_>>(),
        });
        self.post::<IgnoredAny>("2.0/mlflow/runs/log-batch", &body).await.map(drop)
    }

    pub async fn log_input(&self, run: &str, input: &Input) -> Result<(), Fault> {
        let dataset = json!({"name": input.name, "digest": input.digest, "source_type": "slipway", "source": input.source.to_string()});
        let input = json!({"dataset": dataset, "tags": [{"key": "mlflow.data.context", "value": "eval"}]});
        self.post::<IgnoredAny>("2.0/mlflow/runs/log-inputs", &json!({"run_id": run, "datasets": [input]})).await.map(drop)
    }

    pub async fn end(&self, run: &str, status: RunStatus, at: i64) -> Result<(), Fault> {
        let status = match status {
            RunStatus::Finished => "FINISHED",
            RunStatus::Failed => "FAILED",
            RunStatus::Killed => "KILLED",
        };
        let body = json!({"run_id": run, "status": status, "end_time": at});
        self.post::<IgnoredAny>("2.0/mlflow/runs/update", &body).await.map(drop)
    }
}
