//! Sends what runs found to MLflow, once they have ended: a run in the experiment of the agent, the dataset that was used, and an
//! assessment for each case and scorer on the traces that the agent's pods have sent. While MLflow is away nothing is lost: the
//! condition `Delivered` says why, and it is tried again. Each step can be taken twice, so a kill in the middle leaves nothing double.
//!
//! A controller of its own, lest runs that are under way wait for MLflow. `content` says what is sent, `results` finds what is known
//! case by case.

mod content;
mod results;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::try_join_all;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{Resource, ResourceExt};
use serde_json::json;
use slipway_api::condition::{self, DELIVERED, Finding};
use slipway_api::evaluation_run::{EvaluationPhase, EvaluationRunStatus};
use slipway_api::{EvaluationRun, ids};
use slipway_cluster::controller::{Next, Phase, Requests};
use slipway_cluster::{Key, write};
use slipway_evaluation::wire::CaseResult;
use slipway_mlflow::{Assessment, Fault, Mlflow};
use thiserror::Error;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::cases::{self, Cases};
use super::{outcome, plan};
use crate::context::Context;
use crate::control_port::Sign;
use crate::metrics::ByOutcome;
use crate::registry::{Change, Registered};

/// The field manager of the condition.
const MANAGER: &str = slipway_release::gate::DELIVERY;
/// The reason of a run of which MLflow has all but results that are nowhere any more.
const RESULTS_MISSING: &str = "ResultsMissing";
/// How many runs are sent at once, whose results are in memory meanwhile, and how many assessments of one run.
const CONCURRENCY: usize = 1;
const ASSESSMENTS_AT_ONCE: usize = 4;
/// How long a worker stays with one run. What is missing then comes next.
const ATTEMPT_TIMEOUT: Duration = Duration::from_mins(2);
/// What an attempt is counted as that is made again.
const FAILED: &str = "failed";
/// After a failure; each further one doubles the time.
const RETRY_MIN: Duration = Duration::from_secs(5);
const RETRY_MAX: Duration = Duration::from_mins(1);
/// Agents send spans in batches: how long traces that are missing in MLflow are waited for after a run, and how often is looked.
const TRACES_TIMEOUT: SignedDuration = SignedDuration::from_mins(1);
const TRACES_INTERVAL: Duration = Duration::from_secs(10);

pub(crate) struct Delivery {
    context: Arc<Context>,
    requests: Requests,
    sign: Option<Arc<Sign>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// How often sending a run has failed, and when it is tried again.
    failed: HashMap<Key, (u32, Instant)>,
}

/// Why an attempt ended before its end.
#[derive(Debug, Error)]
enum Trouble {
    #[error(transparent)]
    Mlflow(#[from] Fault),
    #[error("what the run found case by case cannot be read: {0}")]
    Database(#[from] slipway_database::Fault),
    #[error(transparent)]
    Cluster(#[from] write::Error),
}

/// What an attempt came to.
enum Sent {
    /// In words.
    All(String),
    /// Results case by case are nowhere any more. In words, what was sent and what is missing.
    Part(String),
    /// Traces may still be on their way.
    Waits,
}

impl Delivery {
    pub(crate) fn new(context: Arc<Context>, sign: Option<Arc<Sign>>) -> Self {
        Self { context, requests: Requests::default(), sign, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How much longer a run waits after a failure.
    fn pause(&self, key: &Key) -> Option<Duration> {
        let until = self.state().failed.get(key)?.1;
        Some(until.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero())
    }

    /// Notes a failure; says how long to wait.
    fn failed(&self, key: &Key) -> Duration {
        let mut state = self.state();
        let (count, until) = state.failed.entry(key.clone()).or_insert((0, Instant::now()));
        let pause = RETRY_MIN.saturating_mul(1 << (*count).min(8)).min(RETRY_MAX);
        (*count, *until) = (count.saturating_add(1), Instant::now() + pause);
        pause
    }
}

impl Registered for Delivery {
    fn changed(&self, change: &Change) {
        if let Some(key) = change.of::<EvaluationRun>() {
            self.requests.add(key.clone());
        } else if *change == Change::Platform {
            self.state().failed.clear();
            self.request_all();
        }
    }

    fn start(self: Arc<Self>, phase: &watch::Sender<Phase>) -> Vec<JoinHandle<()>> {
        let (context, requests) = (self.context.clone(), self.requests.clone());
        vec![context.start::<EvaluationRun, _>(phase, ("evaluation-delivery", CONCURRENCY, &requests), move |key| {
            let delivery = self.clone();
            async move { reconcile(&delivery, &key).await }
        })]
    }

    fn request_all(&self) {
        self.requests.add_all(self.context.caches.evaluation_runs.keys());
    }
}

async fn reconcile(delivery: &Delivery, key: &Key) -> Next<write::Error> {
    let context = &*delivery.context;
    let object = context.caches.evaluation_runs.get(key);
    let run = object.as_ref().and_then(|object| object.0.as_ref().ok());
    let Some((run, status)) = run.and_then(|run| Some((run, due(run)?))) else {
        delivery.state().failed.remove(key);
        return Ok(None);
    };
    let Some(uri) = context.mlflow_uri() else {
        // Nobody waits for a server that is not wanted any more.
        if status.conditions.iter().any(|condition| condition.type_ == DELIVERED) {
            context.write_status(run, &json!({"conditions": []}), MANAGER).await?;
        }
        return Ok(None);
    };
    if let Some(left) = delivery.pause(key) {
        return Ok(Some(left));
    }
    let attempt = async {
        let mlflow = context.mlflow.at(&uri)?;
        Attempt { delivery, mlflow: &mlflow, key, run, status }.send().await
    };
    let (outcome, reason, message) = match timeout(ATTEMPT_TIMEOUT, attempt).await {
        Ok(Ok(Sent::Waits)) => return Ok(Some(TRACES_INTERVAL)),
        Ok(Ok(Sent::All(words))) => ("delivered", "Delivered", words),
        Ok(Ok(Sent::Part(words))) => ("incomplete", RESULTS_MISSING, words),
        Ok(Err(Trouble::Cluster(error))) => return Err(error),
        Ok(Err(Trouble::Mlflow(fault))) => (FAILED, fault.reason(), fault.to_string()),
        Ok(Err(trouble @ Trouble::Database(_))) => (FAILED, "DatabaseUnavailable", trouble.to_string()),
        Err(_) => (FAILED, "Slow", format!("MLflow has not taken all within {} s", ATTEMPT_TIMEOUT.as_secs())),
    };
    context.metrics.evaluation_deliveries.get_or_create(&ByOutcome { outcome }).inc();
    let has_failed = outcome == FAILED;
    let message = if has_failed { format!("{message}; the results stay here, and are sent again") } else { message };
    let retry = has_failed.then(|| delivery.failed(key));
    let finding = Finding::new(DELIVERED, outcome == "delivered", reason, message);
    let conditions = condition::conditions(vec![finding], &status.conditions, run.meta().generation, Timestamp::now());
    if !conditions.iter().all(|condition| status.conditions.contains(condition)) {
        context.write_status(run, &json!({"conditions": conditions}), MANAGER).await?;
    }
    if retry.is_none() {
        delivery.state().failed.remove(key);
    }
    Ok(retry)
}

/// The status of a run that has ended and has not been sent, as far as that is possible.
fn due(run: &EvaluationRun) -> Option<&EvaluationRunStatus> {
    let status = run.status.as_ref()?;
    let is_final = |condition: &Condition| condition.status == "True" || condition.reason == RESULTS_MISSING;
    let is_delivered = status.conditions.iter().any(|condition| condition.type_ == DELIVERED && is_final(condition));
    let has_ended = status.phase.is_some_and(EvaluationPhase::is_final);
    (has_ended && !is_delivered && run.meta().deletion_timestamp.is_none()).then_some(status)
}

/// A run that is sent.
struct Attempt<'a> {
    delivery: &'a Delivery,
    mlflow: &'a Mlflow,
    key: &'a Key,
    run: &'a EvaluationRun,
    status: &'a EvaluationRunStatus,
}

impl Attempt<'_> {
    async fn send(&self) -> Result<Sent, Trouble> {
        let Self { mlflow, run, status, .. } = self;
        let results = self.results().await?;
        let traces = content::traces(&results);
        // A pod may name the traces of other agents, which are none of its business.
        let agent_id = ids::agent(&self.key.namespace, &run.spec.agent);
        let found = mlflow.traces(&traces.values().cloned().collect::<Vec<_>>(), &agent_id).await?;
        if found.len() < traces.len() && self.is_young() {
            return Ok(Sent::Waits);
        }
        let name = &run.spec.agent;
        let experiment = mlflow.experiment(name).await?;
        let uid = run.uid().unwrap_or_default();
        let (started, ended) = content::times(run, status);
        let id = mlflow.run(&experiment, &uid, &self.key.name, started).await?;
        let team = self.delivery.context.caches.team_of(&self.key.namespace);
        mlflow.log(&id, &content::facts(run, status, team.as_deref())).await?;
        let mut words = format!("run {id} of MLflow's experiment {name}");
        if let Some(input) = content::input(&self.key.namespace, status) {
            mlflow.log_input(&id, &input).await?;
            match self.cases().await? {
                Some(cases) => {
                    let dataset = content::dataset(&self.key.namespace, &cases);
                    mlflow.dataset(&experiment, &dataset.name, &dataset.tags, &dataset.records).await?;
                }
                None => words.push_str("; without the dataset, which is not what it was when the run began"),
            }
        }
        mlflow.link(&id, &found.keys().cloned().collect::<Vec<_>>()).await?;
        let assessments = content::assessments(&uid, &id, status, &results, &found);
        let is_new = |assessment: &&Assessment| found.get(&assessment.trace).is_none_or(|known| !known.contains(&assessment.id));
        let new: Vec<&Assessment> = assessments.iter().filter(is_new).collect();
        for some in new.chunks(ASSESSMENTS_AT_ONCE) {
            try_join_all(some.iter().map(|assessment| mlflow.assess(assessment))).await?;
        }
        mlflow.end(&id, content::run_status(status), ended).await?;
        words.push_str(&content::coverage(status, results.len(), found.len(), assessments.len()));
        Ok(match content::missing(status, results.len(), self.delivery.context.tenancy.is_some()) {
            Some(missing) => Sent::Part(format!("{words}; {missing}")),
            None => Sent::All(words),
        })
    }

    fn is_young(&self) -> bool {
        self.status.completed_at.as_ref().is_some_and(|ended| Timestamp::now().duration_since(ended.0) < TRACES_TIMEOUT)
    }

    fn total(&self) -> Option<usize> {
        self.status.total_cases.and_then(|total| usize::try_from(total).ok())
    }

    async fn results(&self) -> Result<Vec<CaseResult>, Trouble> {
        let scorers = content::scorers(self.status);
        let total = self.total().unwrap_or_default();
        if scorers.is_empty() || total == 0 {
            return Ok(Vec::new());
        }
        let of = results::Of {
            context: &self.delivery.context,
            sign: self.delivery.sign.as_ref(),
            agent: Key::new(&self.key.namespace, &self.run.spec.agent),
            agent_id: ids::agent(&self.key.namespace, &self.run.spec.agent),
            track: plan::track(self.run),
        };
        // Under the id of its repetition, if it was repeated; the status does not say it any more.
        for is_repetition in [true, false] {
            let id = plan::results_id(self.run, is_repetition);
            let found = outcome::usable(&scorers, total, of.read(&id, total).await?);
            if !found.is_empty() && content::can_be_of(self.status, &scorers, total, &found) {
                return Ok(found);
            }
        }
        Ok(Vec::new())
    }

    /// The cases, if they are those of the run.
    async fn cases(&self) -> Result<Option<Cases>, Trouble> {
        let context = &self.delivery.context;
        let agent = context.caches.agents.get(&Key::new(&self.key.namespace, &self.run.spec.agent));
        let Some(agent) = agent.and_then(|cached| cached.agent().ok()) else { return Ok(None) };
        let found = cases::read(context, self.run, self.status, &agent, self.total()).await?;
        Ok(found.ok().filter(|cases| Some(&cases.digest) == self.status.dataset_digest.as_ref()))
    }
}
