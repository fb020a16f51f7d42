//! The wiring of every controller: kube's `Controller` reconciles the objects that a request queue names. Watches fill the
//! caches in every replica; a controller, with kube's store and scheduler, exists only while this process holds the lease.
//!
//! kube's controller calls the reconciler for objects in its store. Our caches hold the objects in other forms, so the store
//! holds names only: a name is added with its first request and removed when a reconcile ends without a requeue. See
//! docs/decisions/008-controllers.md.

use std::collections::{HashMap, HashSet};
use std::fmt::Debug;
use std::marker::PhantomData;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::channel::{mpsc, oneshot};
use futures::{FutureExt, Stream, StreamExt, future, stream};
use kube::Resource;
use kube::api::{ObjectMeta, PartialObjectMeta};
use kube::runtime::controller::{Action, Config};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::reflector::store::Writer;
use kube::runtime::scheduler::{ScheduleRequest, scheduler};
use kube::runtime::{Controller, watcher};
use serde::de::DeserializeOwned;
use thiserror::Error;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::key::Key;
use crate::metrics::{ByCategory, ByController, Metrics};
use crate::tasks::{Tasks, panic_message};

/// The interval at which an object is reconciled without a known change.
pub const RESYNC: Duration = Duration::from_secs(30);
/// The first pause after a failure; it doubles with each further failure.
const FIRST_BACKOFF: Duration = Duration::from_millis(500);
const MAX_BACKOFF: Duration = Duration::from_mins(1);

/// The delay until an object is reconciled again. `None`: only when it is requested.
pub type Next<E> = Result<Option<Duration>, E>;

/// Why a reconcile failed.
pub trait Failure: std::error::Error + Send + Sync + 'static {
    /// The label value of the metrics.
    fn category(&self) -> &'static str;
}

/// The phase of a controller's life, in order: no phase leads back to an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    Running,
    /// Running reconciles end, and none begins.
    Finishing,
    /// Running reconciles are dropped.
    Abandoned,
}

/// The request queue of a controller. Requests are dropped while no controller runs; a controller that starts is asked to
/// reconcile every object.
#[derive(Clone, Default)]
pub struct Requests(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// The requested objects whose reconcile has not begun. Each key is in the channel or kube's scheduler at most once.
    waiting: HashSet<Key>,
    senders: Option<Senders>,
}

struct Senders {
    now: mpsc::UnboundedSender<Key>,
    later: mpsc::UnboundedSender<ScheduleRequest<Key>>,
}

impl Requests {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests a reconcile now.
    pub fn add(&self, key: Key) {
        let mut state = self.lock();
        let State { waiting, senders: Some(senders) } = &mut *state else { return };
        if waiting.insert(key.clone()) {
            // Without a receiver the controller is ending.
            drop(senders.now.unbounded_send(key));
        }
    }

    pub fn add_all(&self, keys: impl IntoIterator<Item = Key>) {
        keys.into_iter().for_each(|key| self.add(key));
    }

    /// Requests a reconcile after `delay`; of several such requests the earliest counts.
    pub fn add_after(&self, key: Key, delay: Duration) {
        if let Some(senders) = &self.lock().senders {
            drop(senders.later.unbounded_send(ScheduleRequest { message: key, run_at: Instant::now() + delay }));
        }
    }

    /// Opens the queue and returns the stream of due requests.
    pub fn open(&self) -> impl Stream<Item = Key> + Send + use<> {
        let (now, immediate) = mpsc::unbounded();
        let (later, delayed) = mpsc::unbounded();
        *self.lock() = State { waiting: HashSet::new(), senders: Some(Senders { now, later }) };
        let requests = self.clone();
        let due = scheduler(delayed).filter_map(move |key| {
            let is_new = requests.lock().waiting.insert(key.clone());
            future::ready(is_new.then_some(key))
        });
        stream::select(immediate, due)
    }

    fn close(&self) {
        *self.lock() = State::default();
    }

    /// The number of requested objects whose reconcile has not begun.
    pub fn depth(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Marks the start of a reconcile: a later request leads to another one.
    pub fn begin(&self, key: &Key) {
        self.lock().waiting.remove(key);
    }

    /// Calls `forget` under the lock, if the object was not requested since its reconcile began.
    fn if_not_requested(&self, key: &Key, forget: impl FnOnce()) {
        let state = self.lock();
        if !state.waiting.contains(key) {
            forget();
        }
    }
}

/// The options of a controller.
pub struct Options {
    /// The name in metrics and logs.
    pub name: &'static str,
    /// The number of objects reconciled at once.
    pub concurrency: usize,
    pub requests: Requests,
    pub metrics: Metrics,
    pub phase: watch::Receiver<Phase>,
}

/// Why a reconcile has no result.
#[derive(Debug, Error)]
enum ReconcileFailure<E> {
    #[error("{0}")]
    Reconcile(E),
    #[error("the reconcile panicked: {0}")]
    Panic(String),
}

/// The state that all reconciles of one controller share.
struct ControllerState<K: Resource<DynamicType = ()> + Clone + Debug + 'static> {
    name: &'static str,
    requests: Requests,
    metrics: Metrics,
    /// kube's store: the names of the objects to reconcile, now or later.
    names: Mutex<Writer<PartialObjectMeta<K>>>,
    /// The consecutive failures of each object.
    failures: Mutex<HashMap<Key, u32>>,
}

impl<K: Resource<DynamicType = ()> + Clone + Debug + 'static> ControllerState<K> {
    /// Adds the object's name to kube's store.
    fn add_name(&self, key: &Key) -> ObjectRef<PartialObjectMeta<K>> {
        let object = named(key);
        let reference = ObjectRef::from_obj(&object);
        self.names().apply_watcher_event(&watcher::Event::Apply(object));
        reference
    }

    fn names(&self) -> MutexGuard<'_, Writer<PartialObjectMeta<K>>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failures(&self) -> MutexGuard<'_, HashMap<Key, u32>> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a finished reconcile, and returns the next action.
    fn record<E: Failure>(&self, key: &Key, took: Duration, outcome: std::thread::Result<Next<E>>) -> Result<Action, ReconcileFailure<E>> {
        let by = ByController { controller: self.name };
        self.metrics.reconciles.get_or_create(&by).inc();
        self.metrics.durations.get_or_create(&by).observe(took.as_secs_f64());
        self.metrics.queue_depth.get_or_create(&by).set(i64::try_from(self.requests.depth()).unwrap_or(i64::MAX));
        let (category, failed) = match outcome {
            Ok(Ok(next)) => {
                self.failures().remove(key);
                if let Some(after) = next {
                    return Ok(Action::requeue(after));
                }
                self.requests.if_not_requested(key, || self.names().apply_watcher_event(&watcher::Event::Delete(named(key))));
                return Ok(Action::await_change());
            }
            Ok(Err(error)) => (error.category(), ReconcileFailure::Reconcile(error)),
            Err(panic) => ("panic", ReconcileFailure::Panic(panic_message(&*panic))),
        };
        self.metrics.errors.get_or_create(&ByCategory { controller: self.name, category }).inc();
        tracing::warn!(controller = self.name, object = %key, error = %failed, "a reconcile failed and will be retried");
        Err(failed)
    }

    /// The action after a failure: a requeue with exponential backoff.
    fn backoff(&self, key: &Key) -> Action {
        let mut failures = self.failures();
        let attempts = failures.entry(key.clone()).or_insert(0);
        let pause = FIRST_BACKOFF.saturating_mul(1 << (*attempts).min(16)).min(MAX_BACKOFF);
        *attempts = attempts.saturating_add(1);
        Action::requeue(pause)
    }
}

fn named<K>(key: &Key) -> PartialObjectMeta<K> {
    let namespace = Some(key.namespace.clone()).filter(|namespace| !namespace.is_empty());
    let metadata = ObjectMeta { name: Some(key.name.clone()), namespace, ..ObjectMeta::default() };
    PartialObjectMeta { types: None, metadata, _phantom: PhantomData }
}

/// Starts a controller as a task of the process. Its queue is open when this returns, and empty: the caller requests every
/// object. The task ends after `Phase::Finishing` or `Phase::Abandoned`, once no reconcile is left.
pub fn start<K, E, F>(tasks: &Tasks, options: Options, reconcile: impl Fn(Key) -> F + Send + Sync + 'static) -> JoinHandle<()>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + Sync + 'static,
    E: Failure,
    F: Future<Output = Next<E>> + Send + 'static,
{
    let (name, phase) = (format!("controller {}", options.name), options.phase.clone());
    let due = options.requests.open();
    tasks.spawn_while(move || *phase.borrow() == Phase::Running, name, run::<K, E, F>(options, due, reconcile))
}

/// Starts background work beside the controllers; it is dropped at `Phase::Finishing`.
pub fn start_beside(
    tasks: &Tasks,
    name: &str,
    phase: watch::Receiver<Phase>,
    work: impl Future<Output = ()> + Send + 'static,
) -> JoinHandle<()> {
    let running = phase.clone();
    tasks.spawn_while(move || *running.borrow() == Phase::Running, name, async move {
        tokio::select! {
            () = work => {}
            () = reached(phase, Phase::Finishing) => {}
        }
    })
}

async fn run<K, E, F>(options: Options, due: impl Stream<Item = Key> + Send + 'static, reconcile: impl Fn(Key) -> F + Send + Sync + 'static)
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + Sync + 'static,
    E: Failure,
    F: Future<Output = Next<E>> + Send + 'static,
{
    let Options { name, concurrency, requests, metrics, phase } = options;
    let mut names: Writer<PartialObjectMeta<K>> = Writer::default();
    names.apply_watcher_event(&watcher::Event::InitDone);
    let reader = names.as_reader();
    let shared = Arc::new(ControllerState { name, requests, metrics, names: Mutex::new(names), failures: Mutex::default() });
    let naming = shared.clone();
    let (finish, finished) = oneshot::channel::<()>();
    let reconcile = Arc::new(reconcile);
    // Each reconcile holds a sender until it ends or is dropped.
    let (running, mut all_ended) = tokio::sync::mpsc::channel::<()>(1);
    let begin = move |object: Arc<PartialObjectMeta<K>>, shared: Arc<ControllerState<K>>| {
        let (reconcile, running, key) = (reconcile.clone(), running.clone(), Key::of(&*object));
        async move {
            let _running = running;
            shared.requests.begin(&key);
            let began = Instant::now();
            let work = async { reconcile(key.clone()).await };
            let outcome = AssertUnwindSafe(work).catch_unwind().await;
            shared.record(&key, began.elapsed(), outcome)
        }
    };
    let mut work = Controller::for_stream(stream::pending(), reader)
        .with_config(Config::default().concurrency(u16::try_from(concurrency.max(1)).unwrap_or(u16::MAX)))
        .reconcile_on(due.map(move |key| naming.add_name(&key)))
        .graceful_shutdown_on(finished.map(drop))
        .run(begin, |object, _: &ReconcileFailure<E>, shared| shared.backoff(&Key::of(&*object)), shared.clone())
        .for_each(|_| future::ready(()))
        .boxed();
    tokio::select! {
        // `Tasks` reports a controller that ends while it should run.
        () = &mut work => {}
        () = reached(phase.clone(), Phase::Finishing) => {
            drop(finish);
            tokio::select! {
                () = &mut work => {}
                () = reached(phase, Phase::Abandoned) => {}
            }
        }
    }
    drop(work);
    shared.requests.close();
    while all_ended.recv().await.is_some() {}
}

/// Resolves once the phase is `wanted` or later, or its sender is gone.
async fn reached(mut phase: watch::Receiver<Phase>, wanted: Phase) {
    let _ = phase.wait_for(|phase| *phase >= wanted).await;
}

#[cfg(test)]
mod tests;
