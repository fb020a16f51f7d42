//! The ingestion controller: carries each Ingestion out by a Job, and says how far it is. It never reads a document itself.
//!
//! `plan` says what is to be done next, `job` is the Job, `status` writes down how far it is, and `retention` deletes old ones. How far
//! a Job is, its pod writes to the database. What is remembered here only spares questions: all that an ingestion needs lies in its
//! status, its Job and the database.

mod job;
mod plan;
mod retention;
mod status;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use kube::{Resource, ResourceExt};
use serde_json::Value;
use slipway_api::condition::{self, READY, RECONCILING, STALLED};
use slipway_api::ingestion::{IngestionPhase, IngestionStatus};
use slipway_api::{Ingestion, KnowledgeBase, Team, ids, labels};
use slipway_cluster::controller::{Next, Phase, RESYNC, Requests};
use slipway_cluster::{Guarded, Key, Object, write};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::caches::ChildKind;
use crate::children::{self, Outcome};
use crate::context::Context;
use crate::integrations;
use crate::metrics::ByOutcome;
use crate::registry::{Change, Maker, Registered};
use crate::tenancy::knowledge::IngestionProgress;
use plan::{Cause, IngestionStep, Seen, Work};
use status::Steps;

const MAKER: Maker =
    Maker { kind: "Ingestion", label: labels::INGESTION, manager: MANAGER, children: &[ChildKind::Job], is_namespaced: true };
/// The field manager of everything that this controller writes.
const MANAGER: &str = "slipway/ingestion";
/// How many ingestions are looked at once.
const CONCURRENCY: usize = 8;
/// How often the database is asked how far an ingestion is.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// How often one that waits looks again.
const WAITING_INTERVAL: Duration = Duration::from_secs(5);
/// How often the pods are asked for of a Job that writes nothing.
const PODS_INTERVAL: Duration = Duration::from_secs(10);

pub(crate) struct Controller {
    context: Arc<Context>,
    requests: Requests,
    under_way: Mutex<HashMap<Key, UnderWay>>,
}

/// What is remembered of an ingestion that has not ended. Nothing of it has to outlive the process.
#[derive(Default)]
struct UnderWay {
    uid: Option<String>,
    /// The status as it was written last.
    written: Option<IngestionStatus>,
    /// For what it waits, and since when.
    waits: Option<(&'static str, Instant)>,
    /// When the pods were asked for last, and what they said.
    asked: Option<Instant>,
    trouble: Option<Cause>,
}

impl Controller {
    pub(crate) fn new(context: Arc<Context>) -> Self {
        Self { context, requests: Requests::default(), under_way: Mutex::default() }
    }

    /// What is remembered of an ingestion, changed by `change`.
    fn remember<T>(&self, key: &Key, change: impl FnOnce(&mut UnderWay) -> T) -> T {
        let mut all = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        change(all.entry(key.clone()).or_default())
    }

    fn forget(&self, key: &Key) {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }

    /// Those of a namespace that have not ended.
    fn request_open(&self, namespace: &str) {
        let all = self.context.caches.ingestions.in_namespace(namespace);
        let is_open = |ingestion: &Guarded<Ingestion>| ingestion.0.as_ref().is_ok_and(|ingestion| !is_final(ingestion));
        self.requests.add_all(all.into_iter().filter(|(_, ingestion)| is_open(ingestion)).map(|(key, _)| key));
    }
}

fn is_final(ingestion: &Ingestion) -> bool {
    ingestion.status.as_ref().and_then(|status| status.phase).is_some_and(IngestionPhase::is_final)
}

impl Registered for Controller {
    fn changed(&self, change: &Change) {
        if let Some(key) = change.of::<Ingestion>() {
            self.requests.add(key.clone());
        } else if let Some(base) = change.of::<KnowledgeBase>() {
            // One that is gone ends what is under way for it. Those that wait look again by themselves.
            if self.context.caches.knowledge_bases.get(base).is_none() {
                self.request_open(&base.namespace);
            }
        } else if let Some(team) = change.of::<Team>() {
            self.request_open(&format!("team-{}", team.name));
        } else if let Change::Child("Ingestion", key) = change {
            self.requests.add(key.clone());
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
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let (context, requests) = (self.context.clone(), self.requests.clone());
        vec![context.start::<Ingestion, _>(phase, ("ingestion", CONCURRENCY, &requests), move |key| {
            let controller = self.clone();
            async move { reconcile(&controller, &key).await }
        })]
    }

    fn request_all(&self) {
        self.requests.add_all(self.context.caches.ingestions.keys());
    }
}

async fn reconcile(controller: &Controller, key: &Key) -> Next<write::Error> {
    let context = &*controller.context;
    let Some(object) = context.caches.ingestions.get(key) else {
        // Its Job goes with it, as its child.
        controller.forget(key);
        return Ok(None);
    };
    let ingestion = match &object.0 {
        Ok(ingestion) => ingestion,
        Err(invalid) => {
            let conditions = [(READY, false), (RECONCILING, false), (STALLED, true)];
            context.malformed::<Ingestion>(key, invalid, IngestionPhase::Failed, &conditions).await?;
            return Ok(Some(RESYNC));
        }
    };
    if ingestion.meta().deletion_timestamp.is_some() {
        return Ok(None);
    }
    let mut before = ingestion.status.clone().unwrap_or_default();
    before.conditions = condition::ours(before.conditions);
    // The cache may not have heard of the last write yet, and nobody else writes.
    let before = controller.remember(key, |under_way| {
        if under_way.uid != ingestion.uid() {
            *under_way = UnderWay { uid: ingestion.uid(), ..UnderWay::default() };
        }
        under_way.written.clone().unwrap_or(before)
    });
    if before.phase.is_some_and(IngestionPhase::is_final) {
        if is_final(ingestion) {
            controller.forget(key);
            return retention::keep(context, key, ingestion).await;
        }
        return Ok(Some(WAITING_INTERVAL));
    }
    Turn { controller, key, ingestion, before }.step().await
}

/// An ingestion that has not ended, and its status.
struct Turn<'a> {
    controller: &'a Controller,
    key: &'a Key,
    ingestion: &'a Ingestion,
    before: IngestionStatus,
}

impl Turn<'_> {
    async fn step(&self) -> Next<write::Error> {
        let context = &*self.controller.context;
        let caches = &context.caches;
        let namespace = &self.key.namespace;
        let base_key = Key::new(namespace, ids::knowledge_base_name(&self.ingestion.spec.knowledge_base));
        let base = caches.knowledge_bases.get(&base_key);
        let slug = caches.team_of(namespace);
        let team = slug.as_ref().and_then(|slug| caches.teams.get(&Key::new("", slug)));
        let volume = team.as_deref().and_then(|team| team.0.as_ref().ok()?.spec.knowledge_volume.clone());
        let readable = base.as_deref().and_then(|base| base.0.as_ref().ok());
        let source = readable.and_then(|base| plan::source(self.ingestion, base).ok());
        let named = source.as_ref().and_then(|(_, source)| *source);
        let opened = named.and_then(|source| integrations::source(caches, namespace, source));
        let given = opened.as_ref().and_then(|opened| Some(&opened.as_ref().ok()?.source));
        let secret = given.or(named).and_then(|source| source.credentials_secret.as_ref());
        let secret = secret.and_then(|name| caches.secrets.get(&Key::new(namespace, name)));
        let child = caches.children(ChildKind::Job).get(&self.job_key()).filter(|child| child.owner == self.ingestion.uid());
        let progress = self.progress(child.is_some(), slug.as_deref(), base.as_deref()).await;
        let (same_source, running) = self.others(source.as_ref().map(|(name, _)| name.as_str()));
        let seen = Seen {
            base: base.as_deref(),
            is_of_team: slug.is_some(),
            has_database: context.tenancy.is_some(),
            volume: volume.as_deref(),
            opened: opened.as_ref().map(Result::as_ref),
            secret: secret.as_deref(),
            secrets_known: caches.knows_secrets_of(namespace),
            job: child.as_deref().and_then(|child| child.job.as_deref()),
            progress: progress.as_ref().map(Option::as_ref).map_err(String::as_str),
            same_source: same_source.as_deref(),
            running,
            concurrency: usize::try_from(context.settings.worker.ingestion.concurrency).unwrap_or(usize::MAX),
        };
        match plan::next(self.ingestion, &self.before, &seen, context.settings.embedding_model()) {
            IngestionStep::Wait(cause, timeout) => self.wait(&cause, timeout).await,
            IngestionStep::Start(work) => self.begin(&slug.unwrap_or_default(), &work).await,
            IngestionStep::Watch(progress) => {
                let trouble = if progress.is_some() { None } else { self.trouble().await };
                self.write(self.steps().running(progress.as_ref(), trouble.as_ref())).await?;
                Ok(Some(POLL_INTERVAL))
            }
            IngestionStep::Complete(progress) => self.write(self.steps().completed(&progress)).await,
            IngestionStep::Fail(cause, progress) => self.fail(cause, progress.as_ref(), child.is_some()).await,
            IngestionStep::Cancel(progress) => {
                self.delete_job(child.is_some()).await?;
                self.write(self.steps().cancelled(progress.as_ref())).await
            }
        }
    }

    fn steps(&self) -> Steps<'_> {
        Steps { ingestion: self.ingestion, before: &self.before, now: Timestamp::now() }
    }

    fn job_key(&self) -> Key {
        Key::new(&self.key.namespace, job::name(&self.key.name))
    }

    /// What its pod has written to the database. Before there was a Job there is nothing to ask for, and with the base its rows
    /// have gone.
    async fn progress(
        &self,
        has_job: bool,
        team: Option<&str>,
        base: Option<&Guarded<KnowledgeBase>>,
    ) -> Result<Option<IngestionProgress>, String> {
        let Some(tenancy) = self.controller.context.tenancy.as_ref().filter(|_| has_job || self.before.started_at.is_some()) else {
            return Ok(None);
        };
        let name = ids::knowledge_base_name(&self.ingestion.spec.knowledge_base);
        match (team, base.and_then(|base| base.meta().uid.clone()), self.ingestion.uid()) {
            (Some(team), Some(base), Some(uid)) => tenancy.ingestion_progress(team, (&name, &base), &uid).await,
            _ => Ok(None),
        }
    }

    /// Another one that reads the same source and has a Job, or is older; and how many of the namespace have a Job.
    fn others(&self, source: Option<&str>) -> (Option<String>, usize) {
        let caches = &self.controller.context.caches;
        let (mut same, mut running) = (None, 0);
        for (key, other) in caches.ingestions.in_namespace(&self.key.namespace) {
            let Ok(other) = &other.0 else { continue };
            if key == *self.key || is_final(other) {
                continue;
            }
            let has_job = caches.children(ChildKind::Job).get(&Key::new(&key.namespace, job::name(&key.name))).is_some();
            running += usize::from(has_job);
            let is_same = ids::knowledge_base_name(&other.spec.knowledge_base)
                == ids::knowledge_base_name(&self.ingestion.spec.knowledge_base)
                && source.is_some_and(|source| plan::source_name(other) == source);
            let created = |of: &Ingestion| of.creation_timestamp().map(|time| time.0);
            let is_before = || (created(other), &key.name) < (created(self.ingestion), &self.key.name);
            if is_same && (has_job || is_before()) {
                same = Some(key.name.clone());
            }
        }
        (same, running)
    }

    async fn begin(&self, team: &str, work: &Work) -> Next<write::Error> {
        let context = &*self.controller.context;
        let Some(job) = job::build(&context.settings, team, self.ingestion, work) else { return Ok(Some(RESYNC)) };
        let owner = self.ingestion.uid().unwrap_or_default();
        match children::apply(context, ChildKind::Job, &owner, &write::value(&job)?, MANAGER).await? {
            Outcome::Taken => {
                let message = format!("a Job {} exists in the namespace and does not belong to this Ingestion; delete it", job.name_any());
                self.wait(&Cause::new("NameTaken", message), Some(plan::ABSENT_TIMEOUT)).await
            }
            Outcome::Left => {
                let message = "the Job of an earlier Ingestion of this name has yet to go";
                self.wait(&Cause::new("Progressing", message), None).await
            }
            Outcome::Refused(why) => {
                let message = format!("the API server refused its Job: {why}");
                self.wait(&Cause::new(children::reason_of_refusal(&why), message), Some(plan::ABSENT_TIMEOUT)).await
            }
            Outcome::Unchanged | Outcome::Created | Outcome::Updated | Outcome::Repaired => {
                self.controller.remember(self.key, |under_way| under_way.asked = Some(Instant::now()));
                self.write(self.steps().running(None, None)).await?;
                Ok(Some(POLL_INTERVAL))
            }
        }
    }

    /// What keeps the pod from running, asked for now and then.
    async fn trouble(&self) -> Option<Cause> {
        let (is_due, known) = self.controller.remember(self.key, |under_way| {
            let is_due = under_way.asked.get_or_insert_with(Instant::now).elapsed() >= PODS_INTERVAL;
            if is_due {
                under_way.asked = Some(Instant::now());
            }
            (is_due, under_way.trouble.clone())
        });
        if !is_due {
            return known;
        }
        let trouble = self.pods().await;
        self.controller.remember(self.key, |under_way| under_way.trouble.clone_from(&trouble));
        trouble
    }

    async fn pods(&self) -> Option<Cause> {
        let label = format!("{}={}", labels::INGESTION, self.key.name);
        let found = crate::job::trouble(&self.controller.context, &self.key.namespace, &label, &job::name(&self.key.name)).await?;
        Some(Cause::new(found.reason, found.message))
    }

    /// Waits, and fails after `timeout`.
    async fn wait(&self, cause: &Cause, timeout: Option<Duration>) -> Next<write::Error> {
        let waited = self.controller.remember(self.key, |under_way| {
            if under_way.waits.is_none_or(|(before, _)| before != cause.reason) {
                under_way.waits = Some((cause.reason, Instant::now()));
            }
            under_way.waits.map_or(Duration::ZERO, |(_, since)| since.elapsed())
        });
        if timeout.is_some_and(|timeout| waited >= timeout) {
            return self.write(self.steps().failed(cause, None)).await;
        }
        self.write(self.steps().waiting(cause)).await?;
        Ok(Some(WAITING_INTERVAL))
    }

    async fn fail(&self, mut cause: Cause, progress: Option<&IngestionProgress>, has_job: bool) -> Next<write::Error> {
        if cause.reason == "JobFailed"
            && let Some(trouble) = self.pods().await
        {
            cause = trouble;
        }
        // One that has failed by itself stays for a while, for its log.
        if cause.reason == "KnowledgeBaseNotFound" {
            self.delete_job(has_job).await?;
        }
        self.write(self.steps().failed(&cause, progress)).await
    }

    /// Its pods go with it.
    async fn delete_job(&self, has_job: bool) -> Result<(), write::Error> {
        if !has_job {
            return Ok(());
        }
        children::delete(&self.controller.context, ChildKind::Job, &self.job_key()).await
    }

    /// Writes a status that differs, with its Event.
    async fn write(&self, status: IngestionStatus) -> Next<write::Error> {
        if status == self.before {
            return Ok(Some(WAITING_INTERVAL));
        }
        let context = &*self.controller.context;
        context.write_status(self.ingestion, &status, MANAGER).await?;
        if let Some(outcome) = status::outcome(&self.before, &status) {
            context.metrics.ingestions.get_or_create(&ByOutcome { outcome }).inc();
        }
        if let Some(event) = status::event(&self.before, &status) {
            context.events.publish(&self.ingestion.object_ref(&()), event).await;
        }
        self.controller.remember(self.key, |under_way| under_way.written = Some(status));
        Ok(Some(WAITING_INTERVAL))
    }
}
