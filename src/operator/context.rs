//! What all controllers share: the client, the caches, and the ways to say what is wrong.

use std::fmt::Debug;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::core::error_boundary::InvalidObject;
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use slipway_api::condition::{self, Finding, READY};
use slipway_cluster::controller::{self, Next, Options, Phase, Requests};
use slipway_cluster::event::{EventSpec, Events};
use slipway_cluster::json::hash;
use slipway_cluster::{Key, Tasks, write};
use slipway_mlflow::Servers;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::alert_queue::AlertQueue;
use crate::caches::Caches;
use crate::metrics::Metrics;
use crate::pending_warnings::{Due, PendingWarnings};
use crate::registry::Registry;
use crate::reported::ReportedErrors;
use crate::settings::Settings;
use crate::tenancy::Tenancy;
use crate::unchanged::UnchangedStatuses;

/// The field manager of what is said of objects that cannot be read: what others have said stays theirs.
const MALFORMED: &str = "slipway/malformed";

pub struct Context {
    pub(crate) client: Client,
    pub(crate) settings: Settings,
    pub(crate) metrics: Metrics,
    pub(crate) events: Events,
    /// The watches and controllers, without which this process is of no use.
    pub(crate) tasks: Tasks,
    pub(crate) tenancy: Option<Tenancy>,
    pub(crate) mlflow: Servers,
    pub(crate) caches: Caches,
    pub(crate) registry: Registry,
    pub(crate) alert_queue: AlertQueue,
    pub(crate) reported: ReportedErrors,
    unchanged: UnchangedStatuses,
    pending: PendingWarnings,
}

impl Context {
    pub fn new(client: Client, settings: Settings, tenancy: Option<Tenancy>, metrics: Metrics, events: Events, tasks: Tasks) -> Self {
        let mlflow = Servers::new(settings.platform.mlflow_uri.clone(), settings.mlflow_login.clone());
        Self {
            client,
            settings,
            metrics,
            events,
            tasks,
            tenancy,
            mlflow,
            caches: Caches::default(),
            registry: Registry::default(),
            alert_queue: AlertQueue::default(),
            reported: ReportedErrors::default(),
            unchanged: UnchangedStatuses::default(),
            pending: PendingWarnings::default(),
        }
    }

    /// Whether every watch has told its first list.
    pub fn is_ready(&self) -> bool {
        self.caches.is_ready()
    }

    /// Waits until all Events have been sent.
    pub async fn events_sent(&self) {
        self.events.sent().await;
    }

    /// The MLflow server of agents: the one that was configured, else the one that the platform was installed with.
    pub(crate) fn mlflow_uri(&self) -> Option<String> {
        self.caches.platform.mlflow_uri().or_else(|| self.settings.platform.mlflow_uri.clone())
    }

    /// Begins a controller, which takes requests from now on.
    pub(crate) fn start<K, F>(
        &self,
        phase: &watch::Sender<Phase>,
        (name, concurrency, requests): (&'static str, usize, &Requests),
        reconcile: impl Fn(Key) -> F + Send + Sync + 'static,
    ) -> JoinHandle<()>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + Sync + 'static,
        F: Future<Output = Next<write::Error>> + Send + 'static,
    {
        let (requests, metrics) = (requests.clone(), (*self.metrics).clone());
        let options = Options { name, concurrency, requests, metrics, phase: phase.subscribe() };
        controller::start::<K, _, _>(&self.tasks, options, reconcile)
    }

    /// Says of an object that it cannot be read, if that has not been said yet. An Event says it at once: the API server may
    /// refuse even a status for an object that breaks its own schema. What else its status holds is there when it can be
    /// read again.
    pub(crate) async fn malformed<K>(
        &self,
        key: &Key,
        invalid: &InvalidObject,
        phase: impl Serialize,
        conditions: &[(&'static str, bool)],
    ) -> Result<(), write::Error>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug,
    {
        let message = format!("this object does not fit the present schema: {}; apply it again", invalid.error);
        let generation = invalid.metadata.generation;
        if !self.reported.is_new(&K::kind(&()), key, &(&invalid.metadata.uid, generation, &message)) {
            return Ok(());
        }
        let about = ObjectReference {
            api_version: Some(K::api_version(&()).into_owned()),
            kind: Some(K::kind(&()).into_owned()),
            name: Some(key.name.clone()),
            namespace: Some(key.namespace.clone()),
            uid: invalid.metadata.uid.clone(),
            ..ObjectReference::default()
        };
        let event = EventSpec { warning: true, reason: "Malformed".to_owned(), action: "Read", note: message.clone() };
        self.events.publish(&about, event).await;
        let words = |kind: &str| if kind == READY { &*message } else { "see the condition Ready" };
        let findings = conditions.iter().map(|(kind, holds)| Finding::new(kind, *holds, "Malformed", words(kind))).collect();
        let conditions = condition::conditions(findings, &[], generation, Timestamp::now());
        let mut status = json!({"observedGeneration": generation, "conditions": conditions});
        // Not every kind has phases.
        let phase = serde_json::to_value(phase)?;
        if !phase.is_null() {
            status["phase"] = phase;
        }
        let written = write::status::<K>(&self.client, key, &status, MALFORMED).await;
        written.map(drop).inspect_err(|error| self.reported.failed(&K::kind(&()), key, error))
    }

    /// Writes the status of an object, unless the same write has changed nothing before.
    pub(crate) async fn write_status<K>(&self, object: &K, status: &impl Serialize, manager: &str) -> Result<(), write::Error>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug,
    {
        let (kind, key) = (K::kind(&()), Key::of(object));
        let version = object.meta().resource_version.clone().unwrap_or_default();
        let write = (version, hash(&serde_json::to_value(status)?));
        if self.unchanged.has(&kind, &key, &write) {
            return Ok(());
        }
        let written = write::status::<K>(&self.client, &key, status, manager).await?;
        if written.is_some_and(|written| written.metadata.resource_version.as_ref() == Some(&write.0)) {
            tracing::warn!(%kind, object = %key, "another field manager owns what is to go from the status; it stays");
            self.unchanged.insert(&kind, &key, write);
        }
        Ok(())
    }

    /// Tells of trouble once it has stood for a while; says when it is due, if it waits. `is_news` says whether it differs
    /// from what the object's status said before.
    pub(crate) async fn warn(
        &self,
        kind: &'static str,
        key: &Key,
        about: &ObjectReference,
        trouble: Option<EventSpec>,
        is_news: bool,
    ) -> Option<Duration> {
        match (self.pending.weigh(kind, key, trouble.is_some(), is_news, Instant::now()), trouble) {
            (Due::Now, Some(event)) => {
                self.events.publish(about, event).await;
                None
            }
            (Due::In(wait), _) => Some(wait),
            _ => None,
        }
    }

    /// An object that is gone is in no trouble any more.
    pub(crate) fn untroubled(&self, kind: &'static str, key: &Key) {
        self.pending.weigh(kind, key, false, false, Instant::now());
    }
}
