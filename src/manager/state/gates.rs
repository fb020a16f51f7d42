//! Quality gates: Flagger, or another progressive-delivery controller, asks REST whether a rollout goes on; REST passes that on, and
//! here the credential is verified and the agent's own results are read. Where they say nothing, REST asks MLflow, begins an
//! evaluation, or approves by default, and reports that. The Events of all this are written here, as REST may write none.
//!
//! `subject` says what of an agent is asked about, and what its runs say of that.

mod subject;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{Api, ListParams};
use kube::{Client, Resource, ResourceExt};
use serde_json::{Value, json};
use slipway_api::{Agent, EvaluationRun};
use slipway_cluster::event::{EventSpec, Events};
use slipway_cluster::{Guarded, Key};
use slipway_evaluation::canary_gate::said;
use slipway_evaluation::wire::{GateAnswer, GateCall, GateCredential, GateDecision, GateNext, GateOutcome, GateScore};
use slipway_http::{Error, HeaderValue, header};
use tokio::time::{sleep, timeout};

use crate::keys::callback::CallbackKeySource;
use subject::{GateRun, SubjectScore};

/// The longest request of REST, whose own bound is 64 KiB.
pub(super) const MAX_BODY_BYTES: usize = 128 * 1024;
/// How many questions are answered at once, and of one namespace: each lists the runs of an agent.
const MAX_AT_ONCE: usize = 8;
const MAX_OF_NAMESPACE: usize = 2;
/// How many runs are in memory at once for a question.
const PAGE_SIZE: u32 = 50;
/// How long the cluster may take, as Flagger waits 10 s for everything.
const CLUSTER_TIMEOUT: Duration = Duration::from_secs(4);
const EVENT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a question waits for its place, as a controller may ask for all its rollouts in the same second.
const PLACE_TIMEOUT: Duration = Duration::from_secs(1);
const PLACE_PAUSE: Duration = Duration::from_millis(20);
/// How often and how many Events are tried again whose subject is that the cluster is away.
const INSIST_PAUSE: Duration = Duration::from_secs(15);
const INSIST_TIMES: u32 = 120;
const MAX_INSISTED: usize = 64;
const RETRY_SECONDS: u64 = 2;

/// All phases of Flagger's rollouts, and those in which nothing is to be decided any more.
const PHASES: [&str; 11] = [
    "Initializing",
    "Initialized",
    "Waiting",
    "Progressing",
    "WaitingPromotion",
    "Promoting",
    "Finalising",
    "Succeeded",
    "Failed",
    "Terminating",
    "Terminated",
];
const ENDED: [&str; 5] = ["Finalising", "Succeeded", "Failed", "Terminating", "Terminated"];

/// What is known of an Agent.
pub(super) enum KnownAgent {
    Agent(Box<Agent>),
    /// Nothing that could be asked about, for this reason.
    None(&'static str),
    /// The cluster has not been read yet.
    Unknown,
}

type Agents = Box<dyn Fn(&Key) -> KnownAgent + Send + Sync>;

pub(super) struct Gates {
    client: Client,
    key: CallbackKeySource,
    agents: Agents,
    events: Events,
    allow_heuristic: bool,
    busy: Busy,
    /// The Events that are tried until they are there.
    insisted: Arc<Mutex<HashSet<String>>>,
}

/// How many questions of each namespace are being answered.
#[derive(Clone, Default)]
struct Busy(Arc<Mutex<HashMap<String, usize>>>);

/// One of them.
struct Permit {
    busy: Busy,
    namespace: String,
}

impl Busy {
    fn enter(&self, namespace: &str) -> Option<Permit> {
        let mut busy = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if busy.values().sum::<usize>() >= MAX_AT_ONCE || busy.get(namespace).is_some_and(|count| *count >= MAX_OF_NAMESPACE) {
            return None;
        }
        *busy.entry(namespace.to_owned()).or_default() += 1;
        Some(Permit { busy: self.clone(), namespace: namespace.to_owned() })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut busy = self.busy.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = busy.get_mut(&self.namespace) {
            *count -= 1;
            if *count == 0 {
                busy.remove(&self.namespace);
            }
        }
    }
}

/// An Event about an Agent.
struct GateEvent {
    reason: &'static str,
    warning: bool,
    note: String,
    payload: Value,
    /// The run that it speaks of, if it does: of each there is one Event an hour and phase.
    run: String,
}

/// The Event, ready to be published.
struct Notice {
    about: ObjectReference,
    reason: &'static str,
    warning: bool,
    note: String,
    payload: Value,
    which: [String; 3],
}

impl Notice {
    fn of(agent: &Agent, phase: &str, now: Timestamp, event: GateEvent) -> Self {
        let phase = PHASES.into_iter().find(|known| *known == phase).unwrap_or("unknown");
        let GateEvent { reason, warning, note, mut payload, run } = event;
        payload["phase"] = json!(phase);
        let hour = (now.as_second() / 3600).to_string();
        Self { about: agent.object_ref(&()), reason, warning, note, payload, which: [run, phase.to_owned(), hour] }
    }

    /// Whether it is there now.
    async fn publish(&self, events: &Events) -> bool {
        let Self { about, reason, warning, note, payload, which } = self;
        let spec = EventSpec { warning: *warning, reason: (*reason).to_owned(), action: "Gate", note: note.clone() };
        let which = which.each_ref().map(String::as_str);
        timeout(EVENT_TIMEOUT, events.publish_once(about, spec, payload, &which)).await.unwrap_or(false)
    }

    fn id(&self) -> String {
        json!([self.about.uid, self.reason, self.which]).to_string()
    }
}

impl Gates {
    pub(super) fn new(client: Client, key: CallbackKeySource, agents: Agents, events: Events, allow_heuristic: bool) -> Self {
        Self { client, key, agents, events, allow_heuristic, busy: Busy::default(), insisted: Arc::default() }
    }

    /// Verifies a question, and answers it as far as the agent's own results do.
    pub(super) async fn answer(&self, call: GateCall, now: Timestamp) -> Result<GateAnswer, Error> {
        if !self.verifies(&call.namespace, &call.credential)? {
            return Ok(GateAnswer::NotValid);
        }
        if call.is_event || ENDED.contains(&call.phase.as_str()) {
            return Ok(GateAnswer::Noted);
        }
        let key = Key::new(&call.namespace, &call.agent);
        let agent = match (self.agents)(&key) {
            KnownAgent::Agent(agent) => agent,
            KnownAgent::None(why) => return Ok(GateAnswer::Refused { why: why.to_owned() }),
            KnownAgent::Unknown => return Ok(GateAnswer::Unknown { subject: None }),
        };
        let permit = self.permit(&call.namespace).await?;
        let subject = match subject::of(&agent, self.allow_heuristic) {
            Ok(subject) => subject,
            Err(why) => {
                self.tell(permit, &agent, &call.phase, now, refused(why));
                return Ok(GateAnswer::Refused { why: why.to_owned() });
            }
        };
        let runs = match timeout(CLUSTER_TIMEOUT, self.runs(&key)).await {
            Ok(Ok(runs)) => runs,
            Ok(Err(error)) if !is_away(&error) => return Err(Error::internal(error)),
            away => {
                let cause = away.ok().and_then(Result::err).map_or_else(|| "it is too slow".to_owned(), |error| error.to_string());
                tracing::warn!(namespace = call.namespace, agent = call.agent, cause, "a quality gate: the cluster does not tell the runs");
                return Ok(GateAnswer::Unknown { subject: Some(subject) });
            }
        };
        Ok(match subject::find(&runs, &subject, agent.uid().as_deref().unwrap_or_default(), call.may_evaluate) {
            SubjectScore::Scored { run, score } => {
                self.tell(permit, &agent, &call.phase, now, scored(score, &run, "the EvaluationRun"));
                GateAnswer::Scored(score)
            }
            SubjectScore::NoScore(next) => {
                if let GateNext::Runs(run) = &next {
                    self.tell(permit, &agent, &call.phase, now, waits(run));
                }
                GateAnswer::NoScore { subject, next }
            }
        })
    }

    /// Tells of an answer that REST has found.
    pub(super) fn outcome(&self, outcome: &GateOutcome, now: Timestamp) -> Result<GateAnswer, Error> {
        if !self.verifies(&outcome.namespace, &outcome.credential)? {
            return Ok(GateAnswer::NotValid);
        }
        let event = match &outcome.decision {
            GateDecision::Scored(score) => scored(*score, "", "a run in MLflow"),
            GateDecision::Started(run) => waits(run),
            GateDecision::DefaultApproved => by_default("CanaryGateDefaultApproved", "passed"),
            GateDecision::DefaultRefused => by_default("CanaryGateFailed", "failed"),
        };
        if let KnownAgent::Agent(agent) = (self.agents)(&Key::new(&outcome.namespace, &outcome.agent)) {
            if matches!(outcome.decision, GateDecision::DefaultApproved | GateDecision::DefaultRefused) {
                self.insist(Notice::of(&agent, &outcome.phase, now, event));
            } else {
                let permit = self.busy.enter(&outcome.namespace).ok_or_else(too_many)?;
                self.tell(permit, &agent, &outcome.phase, now, event);
            }
        }
        Ok(GateAnswer::Noted)
    }

    fn verifies(&self, namespace: &str, credential: &GateCredential) -> Result<bool, Error> {
        let key = self.key.key().ok_or_else(|| later("the key of gates is not there yet"))?;
        Ok(key.gate().verify(namespace, &credential.0))
    }

    /// A place, which may be free in a moment.
    async fn permit(&self, namespace: &str) -> Result<Permit, Error> {
        let entered = async {
            loop {
                if let Some(place) = self.busy.enter(namespace) {
                    break place;
                }
                sleep(PLACE_PAUSE).await;
            }
        };
        timeout(PLACE_TIMEOUT, entered).await.map_err(|_| too_many())
    }

    /// What is known of all runs of an agent.
    async fn runs(&self, agent: &Key) -> Result<Vec<GateRun>, kube::Error> {
        let api: Api<Guarded<EvaluationRun>> = Api::namespaced(self.client.clone(), &agent.namespace);
        let mut page = ListParams::default().fields(&format!("spec.agent={}", agent.name)).limit(PAGE_SIZE);
        let mut seen = Vec::new();
        loop {
            let runs = api.list(&page).await?;
            seen.extend(runs.items.iter().filter_map(|run| run.0.as_ref().ok()).map(GateRun::of));
            match runs.metadata.continue_.filter(|next| !next.is_empty()) {
                Some(next) => page = page.continue_token(&next),
                None => return Ok(seen),
            }
        }
    }

    /// Publishes an Event while the answer is on its way. The permit is held until that is done.
    fn tell(&self, permit: Permit, agent: &Agent, phase: &str, now: Timestamp, event: GateEvent) {
        let (events, notice) = (self.events.clone(), Notice::of(agent, phase, now, event));
        tokio::spawn(async move {
            if !notice.publish(&events).await {
                tracing::warn!(reason = notice.reason, "an Event of a quality gate was given up");
            }
            drop(permit);
        });
    }

    /// Publishes an Event once the cluster answers again.
    fn insist(&self, notice: Notice) {
        let (events, insisted, id) = (self.events.clone(), self.insisted.clone(), notice.id());
        {
            let mut all = locked(&insisted);
            if all.len() >= MAX_INSISTED || !all.insert(id.clone()) {
                return;
            }
        }
        tokio::spawn(async move {
            for _ in 0..INSIST_TIMES {
                if notice.publish(&events).await {
                    break;
                }
                sleep(INSIST_PAUSE).await;
            }
            locked(&insisted).remove(&id);
        });
    }
}

fn locked(insisted: &Mutex<HashSet<String>>) -> MutexGuard<'_, HashSet<String>> {
    insisted.lock().unwrap_or_else(PoisonError::into_inner)
}

fn scored(score: GateScore, run: &str, by: &str) -> GateEvent {
    let by = if run.is_empty() { by.to_owned() } else { format!("{by} {run}") };
    let note = format!("{}, by {by}", said(score));
    let GateScore { score, passed } = score;
    let reason = if passed { "CanaryGatePassed" } else { "CanaryGateFailed" };
    GateEvent { reason, warning: !passed, note, payload: json!({"score": score, "passed": passed, "evaluation": run}), run: run.to_owned() }
}

fn waits(run: &str) -> GateEvent {
    let note = format!("Quality gate waits for the EvaluationRun {run}");
    GateEvent { reason: "CanaryGateWaiting", warning: false, note, payload: json!({"evaluation": run}), run: run.to_owned() }
}

fn refused(why: &str) -> GateEvent {
    let note = format!("Quality gate failed: {why}");
    GateEvent { reason: "CanaryGateFailed", warning: true, note, payload: json!({"passed": false}), run: String::new() }
}

fn by_default(reason: &'static str, word: &str) -> GateEvent {
    let note = format!("Quality gate {word} without a score: neither the cluster's evaluations nor MLflow could be read");
    GateEvent { reason, warning: true, note, payload: json!({"passed": word == "passed"}), run: String::new() }
}

/// Whether the API server is away, rather than of another mind.
fn is_away(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code == 429 || status.code >= 500,
        kube::Error::SerdeError(_) => false,
        _ => true,
    }
}

fn too_many() -> Error {
    later("too many questions of quality gates at once")
}

fn later(message: &str) -> Error {
    Error::unavailable(message).with_header(header::RETRY_AFTER, HeaderValue::from(RETRY_SECONDS))
}
