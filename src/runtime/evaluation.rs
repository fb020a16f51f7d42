//! Evaluations: the platform sends the cases of a run, the agent answers each, and the answers are scored. One run at a time;
//! what it found is read case by case, and lies in the database where there is one, so that a run goes on in another pod. That it
//! has ended is reported by `callback`. The runtime decides nothing with it.
//!
//! The agent is this process itself; an evaluator asks another one, which has an image of its own (`remote`).

mod callback;
mod case;
mod excerpt;
mod judge;
mod remote;
mod results;
mod run;
mod sampling;
mod scoring;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::json;
use slipway_evaluation::wire::{Progress, RunRequest};
use slipway_http::{Error, Query, Reply, StatusCode};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};
use tracing::{error, info, warn};

use crate::agent::Agent;
use callback::{Patience, Reporter};
use case::{Bench, prompts};
use remote::RemoteAgent;
use results::Results;
pub(crate) use sampling::{Sample, Sampling};

/// A longer request is refused.
pub(crate) const MAX_BODY_BYTES: usize = 8 * 1024 * 1024;
const MAX_CASES: usize = 2000;
/// As many scorers as there are.
const MAX_SCORERS: usize = 14;
/// How many finished runs are kept, and for how long.
const MAX_FINISHED: usize = 2;
const FINISHED_TTL: Duration = Duration::from_hours(1);
const NO_EVALUATOR: &str = "target: this pod is an agent, and evaluates no other";

/// What a run may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EvaluationLimits {
    /// Cases under way at once.
    pub(crate) cases: usize,
    /// Calls of the judge under way at once.
    pub(crate) judge_calls: usize,
    /// Of one call of the judge.
    pub(crate) judge_timeout: Duration,
    /// Of all calls of the judge for one case.
    pub(crate) case_timeout: Duration,
}

impl Default for EvaluationLimits {
    fn default() -> Self {
        Self { cases: 4, judge_calls: 8, judge_timeout: Duration::from_secs(30), case_timeout: Duration::from_mins(5) }
    }
}

pub(crate) struct Evaluations {
    agent: Arc<Agent>,
    limits: EvaluationLimits,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// The oldest first.
    runs: VecDeque<Run>,
    /// The process is to end.
    closed: bool,
}

struct Run {
    id: String,
    results: Arc<Results>,
    task: Option<AbortHandle>,
    /// Where the agent is, if it is another process.
    target: Option<Arc<RemoteAgent>>,
}

impl Evaluations {
    pub(crate) fn new(agent: Arc<Agent>, limits: EvaluationLimits) -> Arc<Self> {
        Arc::new(Self { agent, limits, known: Mutex::default() })
    }

    /// Begins a run, unless it is known.
    pub(crate) fn begin(self: &Arc<Self>, mut request: RunRequest) -> Result<Reply, Error> {
        self.check(&request)?;
        let target = self.target(&mut request)?;
        let mut known = self.known();
        known.prune(Instant::now());
        if let Some(run) = known.find(&request.run_id) {
            if let (Some(known), Some(target)) = (&run.target, &target) {
                known.turn(target);
            }
            return accepted(&run.id, run.results.status());
        }
        self.agent.policies.check()?;
        if known.closed {
            return Err(Error::unavailable("this agent is shutting down; try again"));
        }
        if let Some(other) = known.runs.iter().find(|run| run.results.status() == Progress::Running) {
            let message = format!("the evaluation {} is under way; an agent's pod has one at a time", other.id);
            return Err(Error::new(StatusCode::CONFLICT, message));
        }
        let id = request.run_id.clone();
        let results = Arc::new(Results::new(request.dataset.cases.len(), prompts(&request)));
        let reporter = Reporter::of(self.agent.platform_url.as_ref(), &mut request);
        let task = match Bench::new(&self.agent, target.clone(), request, self.limits) {
            Ok(bench) => Some(self.start(id.clone(), bench, Arc::clone(&results), reporter)),
            Err(fault) => {
                warn!(run = id, fault, "an evaluation cannot begin");
                results.end(Progress::Failed, Some(fault));
                tell(reporter, &id, &results);
                None
            }
        };
        let status = results.status();
        known.runs.push_back(Run { id: id.clone(), results, task, target });
        known.prune(Instant::now());
        accepted(&id, status)
    }

    /// How far the run is, and what it has found so far if that is asked for.
    pub(crate) fn report(&self, id: &str, mut query: Query) -> Result<Reply, Error> {
        let is_full = query.number("results", 1, 0..=1)? == 1;
        query.end()?;
        let results = {
            let mut known = self.known();
            known.prune(Instant::now());
            Arc::clone(&known.find(id).ok_or_else(|| unknown(id))?.results)
        };
        Reply::json(&results.report(id, is_full))
    }

    /// Goes on with a run at another pod of the agent.
    pub(crate) fn turn(&self, id: &str, target: &str) -> Result<Reply, Error> {
        let elsewhere = RemoteAgent::read(target).map_err(Error::bad_request)?;
        let known = self.known();
        let run = known.find(id).ok_or_else(|| unknown(id))?;
        let target = run.target.as_ref().ok_or_else(|| Error::bad_request(NO_EVALUATOR))?;
        target.turn(&elsewhere);
        Reply::json(&json!({"run_id": id, "status": run.results.status()}))
    }

    /// Ends a run that is under way.
    pub(crate) fn cancel(&self, id: &str) -> Result<Reply, Error> {
        let mut known = self.known();
        known.prune(Instant::now());
        let run = known.find(id).ok_or_else(|| unknown(id))?;
        if run.results.end(Progress::Cancelled, None) {
            info!(run = id, "an evaluation is cancelled");
            run.abort();
        }
        Reply::json(&json!({"run_id": id, "status": run.results.status()}))
    }

    /// The process is to end: what is under way stops, so that it can go on elsewhere.
    pub(crate) fn close(&self) {
        let mut known = self.known();
        known.closed = true;
        for run in known.runs.iter().filter(|run| run.results.status() == Progress::Running) {
            info!(run = run.id, "an evaluation stops, as this process is to end");
            run.abort();
        }
    }

    fn check(&self, request: &RunRequest) -> Result<(), Error> {
        let id = &self.agent.identity.agent_id;
        let cases = request.dataset.cases.len();
        let fault = if !is_run_id(&request.run_id) {
            "run_id must be ev_ and a ULID in lower case".to_owned()
        } else if request.agent != *id {
            format!("agent must be {id}, the agent of this pod")
        } else if request.scorers.is_empty() || request.scorers.len() > MAX_SCORERS {
            format!("scorers must have 1 to {MAX_SCORERS} names")
        } else if cases == 0 || cases > MAX_CASES {
            format!("dataset.cases must have 1 to {MAX_CASES} cases, not {cases}")
        } else {
            return Ok(());
        };
        Err(Error::bad_request(fault))
    }

    /// Where the agent is that an evaluator asks. An agent is asked itself and nobody else.
    fn target(&self, request: &mut RunRequest) -> Result<Option<Arc<RemoteAgent>>, Error> {
        match (&self.agent.evaluator, request.target.take()) {
            (Some(_), Some(target)) => RemoteAgent::read(&target).map(|target| Some(Arc::new(target))).map_err(Error::bad_request),
            (Some(_), None) => Err(Error::bad_request("target: is required, as this pod evaluates an agent and is none")),
            (None, Some(_)) => Err(Error::bad_request(NO_EVALUATOR)),
            (None, None) => Ok(None),
        }
    }

    fn start(self: &Arc<Self>, id: String, bench: Bench, results: Arc<Results>, reporter: Option<Reporter>) -> AbortHandle {
        info!(run = id, cases = results.total, "an evaluation begins");
        let work = tokio::spawn(run::work(bench, Arc::clone(&self.agent.store), Arc::clone(&results)));
        let (task, evaluations) = (work.abort_handle(), Arc::clone(self));
        tokio::spawn(async move {
            match work.await {
                Ok(()) => {
                    if results.end(Progress::Completed, None) {
                        info!(run = id, "an evaluation is complete");
                        tell(reporter, &id, &results);
                    }
                }
                // Who stopped it has said why.
                Err(stopped) if stopped.is_cancelled() => {}
                Err(_) => {
                    error!(run = id, "an evaluation broke off");
                    results.end(Progress::Failed, Some("the evaluation broke off within the runtime".to_owned()));
                    tell(reporter, &id, &results);
                }
            }
            drop(results);
            sleep(FINISHED_TTL).await;
            evaluations.known().prune(Instant::now());
        });
        task
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn find(&self, id: &str) -> Option<&Run> {
        self.runs.iter().find(|run| run.id == id)
    }

    /// Forgets what ended long ago, and all but the newest of what has ended.
    fn prune(&mut self, now: Instant) {
        self.runs.retain(|run| run.results.ended().is_none_or(|at| now < at + FINISHED_TTL));
        let mut surplus = self.runs.iter().filter(|run| run.results.ended().is_some()).count().saturating_sub(MAX_FINISHED);
        self.runs.retain(|run| {
            let goes = surplus > 0 && run.results.ended().is_some();
            surplus -= usize::from(goes);
            !goes
        });
    }
}

impl Run {
    fn abort(&self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// Reports the end of a run, if the platform wants to hear of it. One that was cancelled has been ended by the platform itself.
fn tell(reporter: Option<Reporter>, id: &str, results: &Results) {
    if let Some(reporter) = reporter {
        tokio::spawn(reporter.tell(results.report(id, true), Patience::default()));
    }
}

fn accepted(id: &str, status: Progress) -> Result<Reply, Error> {
    Ok(Reply::json(&json!({"run_id": id, "status": status}))?.with_status(StatusCode::ACCEPTED))
}

fn unknown(id: &str) -> Error {
    let id = &id[..id.floor_char_boundary(64)];
    Error::not_found(format!("there is no evaluation {id} in this pod"))
}

fn is_run_id(id: &str) -> bool {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'z') && !b"ilou".contains(&byte);
    id.strip_prefix("ev_").is_some_and(|ulid| ulid.len() == 26 && ulid.bytes().all(is_digit))
}
