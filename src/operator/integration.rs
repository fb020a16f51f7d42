//! The integration controller: says of each Integration whether its server answers, through the team's worker, and whether alerts
//! reach it.
//!
//! `plan` says what is to be done next, `probe` asks the worker, `job` is the Job that looks at a team's files, and `status` makes
//! the status of the result. Where a login may go is written before it is sent. What is remembered here only spares tests: whether one is due
//! lies in the status.

mod job;
mod memory;
mod plan;
mod probe;
mod status;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::{Resource, ResourceExt};
use serde_json::Value;
use slipway_api::condition::{self, READY, RECONCILING, STALLED};
use slipway_api::integration::{IntegrationPhase, IntegrationStatus, secret_name};
use slipway_api::worker::ProbeReply;
use slipway_api::{Integration, Team, labels};
use slipway_cluster::controller::{Next, Phase, RESYNC, Requests};
use slipway_cluster::{Guarded, Key, Object, write};
use slipway_egress::Egress;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::caches::ChildKind;
use crate::caches::child::JobOutcome;
use crate::caches::integration::Delivered;
use crate::children::{self, Outcome};
use crate::context::Context;
use crate::control_port::Sign;
use crate::fault::ConditionFault;
use crate::registry::{Change, Maker, Registered};
use crate::tool_rules;
use crate::worker::NAME as WORKER;
use memory::{IntegrationMemory, UnderWay};
use plan::{IntegrationStep, LoginStatus, Seen, WORKER_UNAVAILABLE};
use probe::{MAX_TESTS, Permits};
use status::Steps;

const MAKER: Maker =
    Maker { kind: "Integration", label: labels::INTEGRATION, manager: MANAGER, children: &[ChildKind::Job], is_namespaced: true };
/// The field manager of everything that this controller writes.
const MANAGER: &str = "slipway/integration";
/// How many are reconciled at once: those that are tested, which takes seconds, and some whose statuses do not wait for that.
const CONCURRENCY: usize = MAX_TESTS + 8;
/// How often one looks again that waits for its turn.
const TURN_INTERVAL: Duration = Duration::from_secs(1);
/// How often a Job is looked at, and how often its pods, while it does not end.
const JOB_INTERVAL: Duration = Duration::from_secs(1);
const PODS_INTERVAL: Duration = Duration::from_secs(10);

pub(crate) struct Controller {
    context: Arc<Context>,
    requests: Requests,
    /// How a worker is asked; none is, without it.
    sign: Option<Arc<Sign>>,
    /// The rules that say where a worker may connect to.
    egress: Egress,
    permits: Permits,
    memory: Mutex<HashMap<Key, IntegrationMemory>>,
}

impl Controller {
    pub(crate) fn new(context: Arc<Context>, sign: Option<Arc<Sign>>) -> Self {
        let egress = tool_rules::egress_of(&context.settings, "integrations");
        Self { context, requests: Requests::default(), sign, egress, permits: Permits::default(), memory: Mutex::default() }
    }

    /// Requests the Integrations whose login is in this Secret, or was.
    fn request_users(&self, secret: &Key) {
        let names_it = |key: &Key, of: &Guarded<Integration>| {
            let used = of.0.as_ref().ok().and_then(|of| of.spec.secret(&key.name));
            secret.name == secret_name(&key.name) || used.is_some_and(|used| used == secret.name)
        };
        let all = self.context.caches.integrations.in_namespace(&secret.namespace).into_iter();
        self.requests.add_all(all.filter(|(key, of)| names_it(key, of)).map(|(key, _)| key));
    }

    fn request_namespace(&self, namespace: &str) {
        self.requests.add_all(self.context.caches.integrations.in_namespace(namespace).into_iter().map(|(key, _)| key));
    }

    /// What is remembered of an Integration, changed by `change`.
    fn remember<T>(&self, key: &Key, change: impl FnOnce(&mut IntegrationMemory) -> T) -> T {
        let mut all = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        change(all.entry(key.clone()).or_default())
    }

    fn forget(&self, key: &Key) {
        let forgotten = self.memory.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
        self.context.metrics.integration_turned(forgotten.and_then(|memory| memory.stands), None);
    }

    fn forget_all(&self) {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.context.metrics.integrations.clear();
    }
}

impl Registered for Controller {
    fn changed(&self, change: &Change) {
        if let Some(key) = change.of::<Integration>() {
            self.requests.add(key.clone());
        } else if let Some(secret) = change.of::<Secret>() {
            self.request_users(secret);
        } else if let Some(team) = change.of::<Team>() {
            self.request_namespace(&format!("team-{}", team.name));
        }
        match change {
            Change::Child("Integration", key) | Change::Delivering(key) => self.requests.add(key.clone()),
            // Its worker may be ready now.
            Change::Child("Team", team) => self.request_namespace(&format!("team-{}", team.name)),
            Change::SecretsRead(namespace) | Change::Namespace(namespace) => self.request_namespace(namespace),
            _ => {}
        }
    }

    fn maker(&self) -> Option<&'static Maker> {
        Some(&MAKER)
    }

    /// What a Job runs cannot be changed, so that there is nothing to compare.
    fn desired(&self, _: &Key, _: ChildKind, _: &Object) -> Option<Value> {
        None
    }

    fn start(self: Arc<Self>, phase: &watch::Sender<Phase>) -> Vec<JoinHandle<()>> {
        // Another process may have led meanwhile.
        self.forget_all();
        let (context, requests) = (self.context.clone(), self.requests.clone());
        let leading = Leading(self);
        vec![context.start::<Integration, _>(phase, ("integration", CONCURRENCY, &requests), move |key| {
            let controller = leading.controller();
            async move { reconcile(&controller, &key).await }
        })]
    }

    fn request_all(&self) {
        self.requests.add_all(self.context.caches.integrations.keys());
    }
}

/// The controller while this process leads. What it counts is the leader's alone.
struct Leading(Arc<Controller>);

impl Leading {
    fn controller(&self) -> Arc<Controller> {
        self.0.clone()
    }
}

impl Drop for Leading {
    fn drop(&mut self) {
        self.0.forget_all();
    }
}

async fn reconcile(controller: &Controller, key: &Key) -> Next<write::Error> {
    let context = &*controller.context;
    let Some(object) = context.caches.integrations.get(key) else {
        context.untroubled("Integration", key);
        controller.forget(key);
        return Ok(None);
    };
    match &object.0 {
        Ok(integration) if integration.meta().deletion_timestamp.is_some() => Ok(None),
        Ok(integration) => look(controller, key, integration).await,
        Err(invalid) => {
            // What is said of it now is another manager's.
            controller.forget(key);
            let conditions = [(READY, false), (RECONCILING, false), (STALLED, true)];
            context.malformed::<Integration>(key, invalid, IntegrationPhase::Error, &conditions).await?;
            Ok(Some(RESYNC))
        }
    }
}

/// Gathers what is known of an Integration, and takes one step.
async fn look(controller: &Controller, key: &Key, integration: &Integration) -> Next<write::Error> {
    let (context, caches) = (&*controller.context, &controller.context.caches);
    let mut status = integration.status.clone().unwrap_or_default();
    status.conditions = condition::ours(status.conditions);
    let before = controller.remember(key, |memory| memory.newest(integration.uid(), status));
    let slug = caches.team_of(&key.namespace);
    let team = slug.as_ref().and_then(|slug| caches.teams.get(&Key::new("", slug)));
    let volume = team.as_deref().and_then(|team| team.0.as_ref().ok()?.spec.knowledge_volume.clone());
    let secret_of = |name: String| caches.secrets.get(&Key::new(&key.namespace, name));
    let (secret, own_secret) = (integration.spec.secret(&key.name).and_then(secret_of), secret_of(secret_name(&key.name)));
    let worker = caches.children(ChildKind::Deployment).get(&Key::new(&key.namespace, WORKER));
    let digest = plan::digest(&context.settings.secrets_hash_key, integration, secret.as_deref(), volume.as_deref())?;
    let child = caches.children(ChildKind::Job).get(&job_key(key)).filter(|child| child.owner == integration.uid());
    let known = controller.remember(key, |memory| memory.look(&digest, child.is_some()));
    let seen = Seen {
        integration,
        is_of_team: slug.is_some(),
        secrets_known: caches.knows_secrets_of(&key.namespace),
        secret: secret.as_deref(),
        own_secret: own_secret.as_deref(),
        volume: volume.as_deref(),
        has_worker: worker.is_some_and(|worker| worker.deployment.as_deref().is_some_and(|state| state.ready > 0)),
        egress: &controller.egress,
        digest: &digest,
        quiet: known.quiet,
        since_test: known.since_test,
        unanswered: known.unanswered.as_ref(),
        job: known.job,
        interval: context.settings.integration_test_interval,
        now: Timestamp::now(),
    };
    let login = plan::login(&seen, &before);
    let step = plan::next(&seen, &login, &before);
    let delivered = caches.delivered.of(key);
    let turn = Turn { controller, key, integration, team: slug.unwrap_or_default(), volume, login, digest, delivered };
    turn.take(step, before).await
}

fn job_key(key: &Key) -> Key {
    Key::new(&key.namespace, job::name(&key.name))
}

/// One step of an Integration.
struct Turn<'a> {
    controller: &'a Controller,
    key: &'a Key,
    integration: &'a Integration,
    /// The team, by slug.
    team: String,
    volume: Option<String>,
    login: LoginStatus,
    digest: String,
    #[expect(clippy::option_option, reason = "nobody has looked, nothing was found, and what was found")]
    delivered: Option<Option<Delivered>>,
}

/// A status, and when to look again.
type Said = (IntegrationStatus, Option<Duration>);

impl Turn<'_> {
    async fn take(&self, step: IntegrationStep, mut before: IntegrationStatus) -> Next<write::Error> {
        let (status, next) = match step {
            IntegrationStep::Wait => return Ok(Some(RESYNC)),
            IntegrationStep::Settle(fault, again) => (self.steps(&before).settled(&fault), again),
            IntegrationStep::Later(wait) => (self.steps(&before).standing(false), Some(wait)),
            IntegrationStep::Rest { next } => (self.steps(&before).standing(false), next),
            IntegrationStep::Test { id } => self.test(&id, &mut before).await?,
            IntegrationStep::StartJob { id } => self.start_job(id, &mut before).await?,
            IntegrationStep::Clear => self.clear(&before).await?,
            IntegrationStep::Watch => self.watch(&before).await?,
        };
        let due = self.write(&before, &status).await?;
        Ok([due, next, Some(RESYNC)].into_iter().flatten().min())
    }

    fn steps<'b>(&'b self, before: &'b IntegrationStatus) -> Steps<'b> {
        let delivered = self.delivered.as_ref().map(Option::as_ref);
        Steps { integration: self.integration, before, login: &self.login, digest: &self.digest, delivered, now: Timestamp::now() }
    }

    async fn test(&self, id: &str, before: &mut IntegrationStatus) -> Result<Said, write::Error> {
        let controller = self.controller;
        let Some(_permit) = controller.permits.take(&self.team) else {
            return Ok((self.steps(before).standing(false), Some(TURN_INTERVAL)));
        };
        self.note(before).await?;
        let began = Instant::now();
        let outcome = probe::probe(&controller.context, controller.sign.as_deref(), &self.team, self.integration).await;
        Ok(self.came(id, outcome, Some(began), before))
    }

    /// Writes what is known of the login before that is sent: the status says where it may go, for the next leader too.
    async fn note(&self, before: &mut IntegrationStatus) -> Result<(), write::Error> {
        if !self.login.is_noted(before) || before.observed_generation != self.integration.metadata.generation {
            let status = self.steps(before).standing(true);
            self.write(before, &status).await?;
            *before = status;
        }
        Ok(())
    }

    /// What came of a test: the worker's word, or why there is none. `began` is when it was asked.
    fn came(&self, id: &str, outcome: Result<ProbeReply, ConditionFault>, began: Option<Instant>, before: &IntegrationStatus) -> Said {
        let kind = self.integration.spec.kind().unwrap_or_default();
        let word = match &outcome {
            Ok(reply) if reply.succeeded => "connected",
            Ok(_) => "error",
            Err(_) => "unavailable",
        };
        let time = began.filter(|_| outcome.is_ok()).map(|began| began.elapsed());
        self.controller.context.metrics.integration_tested(kind, word, time);
        match outcome {
            Ok(reply) => {
                self.controller.remember(self.key, IntegrationMemory::answered);
                (self.steps(before).tested(id, &reply), None)
            }
            Err(fault) => {
                let times = self.controller.remember(self.key, |memory| memory.unanswered(&fault));
                (self.steps(before).settled(&fault), Some(plan::pause(times)))
            }
        }
    }

    async fn start_job(&self, id: String, before: &mut IntegrationStatus) -> Result<Said, write::Error> {
        let context = &*self.controller.context;
        let Some(permit) = self.controller.permits.take(&self.team) else {
            return Ok((self.steps(before).standing(false), Some(TURN_INTERVAL)));
        };
        let job = job::build(&context.settings, &self.team, self.integration, self.volume.as_deref().unwrap_or_default())?;
        let owner = self.integration.uid().unwrap_or_default();
        let fault = |reason, message: String| ConditionFault { reason, message };
        let fault = match children::apply(context, ChildKind::Job, &owner, &write::value(&job)?, MANAGER).await? {
            Outcome::Taken => {
                let name = job.name_any();
                fault("NameTaken", format!("a Job {name} exists in the namespace and does not belong to this Integration; delete it"))
            }
            Outcome::Left => fault(WORKER_UNAVAILABLE, "the Job of an earlier Integration of this name has yet to go".to_owned()),
            Outcome::Refused(why) => fault(children::reason_of_refusal(&why), format!("the API server refused its Job: {why}")),
            Outcome::Unchanged | Outcome::Created | Outcome::Updated | Outcome::Repaired => {
                self.controller.remember(self.key, |memory| memory.job = Some(UnderWay::new(id, permit)));
                return Ok((self.steps(before).standing(true), Some(JOB_INTERVAL)));
            }
        };
        Ok(self.came(&id, Err(fault), None, before))
    }

    /// The Job of an earlier test goes, with its pod.
    async fn clear(&self, before: &IntegrationStatus) -> Result<Said, write::Error> {
        let context = &*self.controller.context;
        let child = context.caches.children(ChildKind::Job).get(&job_key(self.key));
        if child.is_some_and(|child| !child.deleting) {
            children::delete(context, ChildKind::Job, &job_key(self.key)).await?;
        }
        Ok((self.steps(before).standing(true), Some(JOB_INTERVAL)))
    }

    async fn watch(&self, before: &IntegrationStatus) -> Result<Said, write::Error> {
        let context = &*self.controller.context;
        let known = self.controller.remember(self.key, |memory| memory.job.as_ref().map(|job| (job.id.clone(), job.begun)));
        let (id, begun) = known.unwrap_or_else(|| (String::new(), Instant::now()));
        let unavailable = |message: String| Err(ConditionFault { reason: WORKER_UNAVAILABLE, message });
        let child = context.caches.children(ChildKind::Job).get(&job_key(self.key)).filter(|child| child.owner == self.integration.uid());
        let Some(child) = child else {
            return Ok(self.came(&id, unavailable("its Job was deleted before it came to the end".to_owned()), None, before));
        };
        let Some(outcome) = child.job.as_deref().and_then(|job| job.outcome.as_ref()) else {
            self.ask_pods().await;
            return Ok((self.steps(before).standing(true), Some(JOB_INTERVAL)));
        };
        let pods = crate::job::pods(context, &self.key.namespace, &job::selector(&self.key.name)).await?;
        if let Some(reply) = job::reply(&pods, &child.uid, &context.settings.worker.image) {
            return Ok(self.came(&id, Ok(reply), Some(begun), before));
        }
        let trouble = self.controller.remember(self.key, |memory| memory.job.as_mut().and_then(|job| job.trouble.take()));
        let trouble = trouble.or_else(|| crate::job::of_pods(&pods).map(|trouble| trouble.message));
        let message = trouble.unwrap_or_else(|| match outcome {
            JobOutcome::Complete => "its pod ended without a word".to_owned(),
            JobOutcome::Failed { reason, message } => format!("its Job failed, {reason}: {message}"),
        });
        Ok(self.came(&id, unavailable(message), None, before))
    }

    /// Remembers what keeps the pod from running: it is gone when its time is over.
    async fn ask_pods(&self) {
        if self.controller.remember(self.key, |memory| memory.job.as_mut().is_some_and(|job| job.is_to_be_asked(PODS_INTERVAL))) {
            let (label, name) = (job::selector(&self.key.name), job::name(&self.key.name));
            let trouble = crate::job::trouble(&self.controller.context, &self.key.namespace, &label, &name).await;
            self.controller.remember(self.key, |memory| {
                if let (Some(job), Some(trouble)) = (&mut memory.job, trouble) {
                    job.trouble = Some(trouble.message);
                }
            });
        }
    }

    /// Writes a status that differs, with its Events. When to look again for what has been said, where it waits.
    async fn write(&self, before: &IntegrationStatus, status: &IntegrationStatus) -> Next<write::Error> {
        let context = &*self.controller.context;
        let is_new = status != before;
        if is_new {
            context.write_status(self.integration, status, MANAGER).await?;
        }
        let stands = self.integration.spec.kind().zip(status.phase);
        let stood = self.controller.remember(self.key, |memory| {
            if is_new {
                memory.written = Some((status.clone(), Instant::now()));
            }
            std::mem::replace(&mut memory.stands, stands)
        });
        context.metrics.integration_turned(stood, stands);
        let about = self.integration.object_ref(&());
        if let Some(event) = status::connected(before, status) {
            context.events.publish(&about, event).await;
        }
        let (trouble, is_news) = status::trouble(before, status);
        Ok(context.warn("Integration", self.key, &about, trouble, is_news).await)
    }
}
