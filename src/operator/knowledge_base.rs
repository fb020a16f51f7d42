//! The knowledge base controller: has each KnowledgeBase's place in the database made, reports what is in it, and makes
//! Ingestions of sources that are due. It reads no documents.
//!
//! `schedule` finds the sources that are due, `status` makes the status, and `upkeep` keeps the database and drops bases that are
//! gone.

mod schedule;
mod status;
mod upkeep;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use kube::api::{Api, PostParams};
use kube::{Resource, ResourceExt};
use slipway_api::condition::{self, READY, RECONCILING, STALLED};
use slipway_api::knowledge_base::KnowledgePhase;
use slipway_api::{Ingestion, KnowledgeBase, KnowledgeBaseStatus, Team, ids};
use slipway_cluster::controller::{self, Next, Phase, RESYNC, Requests};
use slipway_cluster::event::EventSpec;
use slipway_cluster::quota::retry_on_quota_conflict;
use slipway_cluster::{Key, write};
use slipway_database::knowledge::{BaseInfo, Counts};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::admission::home_of;
use crate::context::Context;
use crate::fault::ConditionFault;
use crate::registry::{Change, Registered};
use crate::tenancy::UNAVAILABLE_TTL;
use schedule::Due;
use status::{Facts, Obstacle};

/// The field manager of everything that this controller writes.
const MANAGER: &str = "slipway/knowledge-base";
/// How many are reconciled at once.
const CONCURRENCY: usize = 4;
/// When a base is looked at after an ingestion has moved: agents hear of each change of its status.
const INGESTION_DELAY: Duration = Duration::from_secs(1);
/// How long what is in a base is believed while nothing is known to change it, and while an ingestion is under way.
const COUNTS_TTL: Duration = Duration::from_mins(5);
const COUNTS_TTL_UNDER_WAY: Duration = Duration::from_secs(15);

type Content = (BaseInfo, Counts);

#[derive(Clone)]
struct Counted {
    uid: String,
    at: Instant,
    content: Content,
}

pub(crate) struct Controller {
    context: Arc<Context>,
    requests: Requests,
    /// Wakes the task that drops bases that are gone.
    departure: Notify,
    /// What is in a base, of which UID, and when that was asked.
    counted: Mutex<HashMap<Key, Counted>>,
}

impl Controller {
    pub(crate) fn new(context: Arc<Context>) -> Self {
        Self { context, requests: Requests::default(), departure: Notify::new(), counted: Mutex::default() }
    }

    fn request_namespace(&self, namespace: &str) {
        self.requests.add_all(self.context.caches.knowledge_bases.in_namespace(namespace).into_iter().map(|(key, _)| key));
    }

    fn counted<T>(&self, change: impl FnOnce(&mut HashMap<Key, Counted>) -> T) -> T {
        change(&mut self.counted.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// An ingestion is new, different or gone.
    fn ingestion_moved(&self, key: &Key) {
        let caches = &self.context.caches;
        let Some(ingestion) = caches.ingestions.get(key) else { return };
        let Ok(ingestion) = &ingestion.0 else { return };
        let base = Key::new(&key.namespace, ids::knowledge_base_name(&ingestion.spec.knowledge_base));
        if status::phase(ingestion).is_final() {
            self.counted(|counted| counted.remove(&base));
        }
        self.requests.add_after(base, INGESTION_DELAY);
    }
}

impl Registered for Controller {
    fn changed(&self, change: &Change) {
        if let Some(key) = change.of::<KnowledgeBase>() {
            if self.context.caches.knowledge_bases.get(key).is_none() {
                self.departure.notify_one();
            }
            self.requests.add(key.clone());
        } else if let Some(key) = change.of::<Ingestion>() {
            self.ingestion_moved(key);
        } else if let Some(team) = change.of::<Team>() {
            self.request_namespace(&format!("team-{}", team.name));
        }
        match change {
            Change::Namespace(namespace) => self.request_namespace(namespace),
            Change::Knowledge => self.request_all(),
            _ => {}
        }
    }

    fn start(self: Arc<Self>, phase: &watch::Sender<Phase>) -> Vec<JoinHandle<()>> {
        // Another process may have led meanwhile.
        self.counted(HashMap::clear);
        let (context, requests) = (self.context.clone(), self.requests.clone());
        let mut tasks = Vec::new();
        if context.tenancy.is_some() {
            let keeper = self.clone();
            let work = async move {
                if let Some(tenancy) = &keeper.context.tenancy {
                    upkeep::run(&keeper.context, tenancy, &keeper.departure).await;
                }
            };
            tasks.push(controller::start_beside(&context.tasks, "upkeep of knowledge bases", phase.subscribe(), work));
        }
        tasks.push(context.start::<KnowledgeBase, _>(phase, ("knowledge-base", CONCURRENCY, &requests), move |key| {
            let controller = self.clone();
            async move { reconcile(&controller, &key).await }
        }));
        tasks
    }

    fn request_all(&self) {
        self.requests.add_all(self.context.caches.knowledge_bases.keys());
    }
}

async fn reconcile(controller: &Controller, key: &Key) -> Next<write::Error> {
    let context = &*controller.context;
    let Some(object) = context.caches.knowledge_bases.get(key) else {
        context.untroubled("KnowledgeBase", key);
        controller.counted(|counted| counted.remove(key));
        return Ok(None);
    };
    let base = match &object.0 {
        Ok(base) => base,
        Err(invalid) => {
            let conditions = [(READY, false), (RECONCILING, false), (STALLED, true)];
            context.malformed::<KnowledgeBase>(key, invalid, KnowledgePhase::Error, &conditions).await?;
            return Ok(Some(RESYNC));
        }
    };
    if base.meta().deletion_timestamp.is_some() {
        return Ok(None);
    }
    let mut before = base.status.clone().unwrap_or_default();
    before.conditions = condition::ours(before.conditions);
    let all = context.caches.ingestions.in_namespace(&key.namespace);
    let of_base = |ingestion: &&Ingestion| ids::knowledge_base_name(&ingestion.spec.knowledge_base) == key.name;
    let ingestions: Vec<&Ingestion> = all.iter().filter_map(|(_, ingestion)| ingestion.0.as_ref().ok()).filter(of_base).collect();
    let is_under_way = ingestions.iter().any(|ingestion| !status::phase(ingestion).is_final());
    let (obstacle, found) = content(controller, key, base, is_under_way).await;
    let now = Timestamp::now();
    let (schedules, due) = schedule::turns(base, &before.schedules, now);
    if !matches!(&obstacle, Some(Obstacle::Fault(fault)) if fault.reason != "FieldInvalid") {
        for due in due.iter().filter(|due| !is_read(&ingestions, due)) {
            begin(context, base, due).await?;
        }
    }
    let next = schedules.iter().map(|source| source.next_at.0).min();
    let is_waiting = matches!(obstacle, Some(Obstacle::Waits(_)));
    let model = context.settings.embedding_model();
    let facts = Facts { base, obstacle, content: found.as_ref(), model, ingestions: &ingestions, schedules, now };
    let status = status::status(facts, &before);
    if status != before {
        context.write_status(base, &status, MANAGER).await?;
    }
    let wait = tell(context, key, base, &before, &status).await;
    let until = next.and_then(|next| Duration::try_from(next.duration_since(now)).ok()).unwrap_or(RESYNC);
    let pause = if is_waiting { UNAVAILABLE_TTL } else { RESYNC };
    Ok(Some(pause.min(until).min(wait.unwrap_or(RESYNC))))
}

/// Whether one that has not ended reads the source anyhow.
fn is_read(ingestions: &[&Ingestion], due: &Due) -> bool {
    ingestions.iter().any(|ingestion| !status::phase(ingestion).is_final() && ingestion.spec.source_name.as_ref() == Some(&due.source))
}

/// Has the base made, and asks what is in it.
async fn content(controller: &Controller, key: &Key, base: &KnowledgeBase, is_under_way: bool) -> (Option<Obstacle>, Option<Content>) {
    let context = &*controller.context;
    let fault = |reason, message: String| (Some(Obstacle::Fault(ConditionFault { reason, message })), None);
    let Some(slug) = context.caches.team_of(&key.namespace) else {
        let message = format!(
            "namespace {} belongs to no Team; agents, and what they use, are in namespaces named team-<slug> (kubectl get teams)",
            key.namespace
        );
        return fault("NotATeamNamespace", message);
    };
    let Some(tenancy) = &context.tenancy else {
        let message = "the chunks of knowledge bases lie in the platform's database, and it has none (chart value database)";
        return fault("DatabaseRequired", message.to_owned());
    };
    let (Some(home), Some(uid)) = (home_of(context, &slug), base.uid()) else { return (None, None) };
    let away =
        |why: String| Some(Obstacle::Waits(ConditionFault { reason: "DatabaseUnavailable", message: format!("{why}; it is tried again") }));
    if let Err(why) = tenancy.ensure_base(&home, &uid, &key.name, context.settings.worker.quota).await {
        return (away(why), None);
    }
    let ttl = if is_under_way { COUNTS_TTL_UNDER_WAY } else { COUNTS_TTL };
    let is_fresh = |known: &&Counted| known.uid == uid && known.at.elapsed() < ttl;
    let known = controller.counted(|counted| counted.get(key).filter(is_fresh).cloned());
    let found = match known {
        Some(known) => known.content,
        None => match tenancy.base(&uid).await {
            Ok(Some(found)) => {
                let counted = Counted { uid, at: Instant::now(), content: found.clone() };
                controller.counted(|all| all.insert(key.clone(), counted));
                found
            }
            Ok(None) => return (away("its place in the database is gone and is made again".to_owned()), None),
            Err(why) => return (away(why), None),
        },
    };
    (invalid(base).map(Obstacle::Fault), Some(found))
}

/// What the schema cannot say.
fn invalid(base: &KnowledgeBase) -> Option<ConditionFault> {
    base.spec.sources.iter().enumerate().find_map(|(at, source)| {
        let error = source.schedule().err()?;
        Some(ConditionFault { reason: "FieldInvalid", message: format!("spec.sources[{at}].schedule: {error}") })
    })
}

/// Makes the Ingestion of a source whose time has come. One that is there was made by an earlier leader.
async fn begin(context: &Context, base: &KnowledgeBase, due: &Due) -> Result<(), write::Error> {
    let ingestion = schedule::ingestion(base, due);
    let api: Api<Ingestion> = Api::namespaced(context.client.clone(), &base.namespace().unwrap_or_default());
    let how = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
    match retry_on_quota_conflict(|| api.create(&how, &ingestion)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 409 && status.reason == "AlreadyExists" => Ok(()),
        // A quota, or a policy of the cluster: the next time comes all the same.
        Err(kube::Error::Api(status)) if matches!(status.code, 400 | 403 | 422) => {
            let note = format!("source {} was not read at {}: {}", due.source, due.at, status.message);
            let event = EventSpec { warning: true, reason: "ScheduleMissed".to_owned(), action: "Ingest", note };
            context.events.publish(&base.object_ref(&()), event).await;
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// Tells of what has turned.
async fn tell(
    context: &Context,
    key: &Key,
    base: &KnowledgeBase,
    before: &KnowledgeBaseStatus,
    now: &KnowledgeBaseStatus,
) -> Option<Duration> {
    let said =
        |status: &KnowledgeBaseStatus| status.conditions.first().map(|condition| (condition.reason.clone(), condition.message.clone()));
    let ready = now.conditions.first().filter(|condition| condition.status != "True");
    let trouble = ready.map(|condition| EventSpec {
        warning: true,
        reason: condition.reason.clone(),
        action: "Check",
        note: condition.message.clone(),
    });
    context.warn("KnowledgeBase", key, &base.object_ref(&()), trouble, said(now) != said(before)).await
}
