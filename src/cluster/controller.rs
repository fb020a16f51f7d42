//! The wiring of every controller: kube's `Controller` reconciles the objects that a request queue names. Watches fill the
//! caches in every replica; a controller, with kube's store and scheduler, exists only while this process holds the lease.
//!
//! kube takes due objects in the order of a hash set, so that under load an object could wait without bound. Hence due keys
//! wait in our queue, first in, first out, and kube gets no more of them than it may start at once.
//!
//! kube's controller calls the reconciler for objects in its store. Our caches hold the objects in other forms, so the store
//! holds names only: a name is there from the time at which kube gets the key to the end of the reconcile. See
//! docs/decisions/008-controllers.md.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
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
use tokio::sync::{Semaphore, watch};
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
    /// The requested objects whose reconcile has not begun. Each key is in the queue at most once.
    waiting: HashSet<Key>,
    /// The objects that kube has, and whether each was due again meanwhile.
    running: HashMap<Key, bool>,
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
        let State { waiting, senders: Some(senders), .. } = &mut *state else { return };
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

    /// Opens the queue and returns the stream of due requests: immediate ones in their order and delayed ones by their time,
    /// alternating. An object that is being reconciled is queued again when that ends.
    pub fn open(&self) -> impl Stream<Item = Key> + Send + use<> {
        let (now, immediate) = mpsc::unbounded();
        let (later, delayed) = mpsc::unbounded();
        *self.lock() = State { senders: Some(Senders { now, later }), ..State::default() };
        let requests = self.clone();
        let due = scheduler(delayed).filter_map(move |key| {
            let is_new = requests.lock().waiting.insert(key.clone());
            future::ready(is_new.then_some(key))
        });
        let requests = self.clone();
        stream::select(immediate, due).filter_map(move |key| {
            let mut state = requests.lock();
            let running = state.running.get_mut(&key);
            future::ready(running.map(|was_due| *was_due = true).is_none().then_some(key))
        })
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

    /// Marks an object as handed to kube. It is not handed again before [`Self::end`].
    fn hand(&self, key: &Key) {
        self.lock().running.insert(key.clone(), false);
    }

    /// Marks the end of a reconcile. The object is queued again if it was due meanwhile, and after `requeue`.
    fn end(&self, key: &Key, requeue: Option<Duration>) {
        let mut state = self.lock();
        let was_due = state.running.remove(key) == Some(true);
        let Some(senders) = &state.senders else { return };
        if was_due {
            drop(senders.now.unbounded_send(key.clone()));
        }
        if let Some(delay) = requeue {
            drop(senders.later.unbounded_send(ScheduleRequest { message: key.clone(), run_at: Instant::now() + delay }));
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

/// The state that all reconciles of one controller share.
struct ControllerState<K: Resource<DynamicType = ()> + Clone + Debug + 'static> {
    name: &'static str,
    requests: Requests,
    metrics: Metrics,
    /// One for each further reconcile that may start.
    permits: Semaphore,
    /// kube's store: the names of the objects that kube reconciles now.
    names: Mutex<Writer<PartialObjectMeta<K>>>,
    /// The consecutive failures of each object.
    failures: Mutex<HashMap<Key, u32>>,
}

impl<K: Resource<DynamicType = ()> + Clone + Debug + 'static> ControllerState<K> {
    /// Waits for a permit, then adds the object's name to kube's store.
    async fn hand(self: Arc<Self>, key: Key) -> ObjectRef<PartialObjectMeta<K>> {
        if let Ok(permit) = self.permits.acquire().await {
            permit.forget();
        }
        let object = named(&key);
        let reference = ObjectRef::from_obj(&object);
        self.requests.hand(&key);
        self.names().apply_watcher_event(&watcher::Event::Apply(object));
        reference
    }

    fn names(&self) -> MutexGuard<'_, Writer<PartialObjectMeta<K>>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failures(&self) -> MutexGuard<'_, HashMap<Key, u32>> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a finished reconcile, requeues the object if that is due, and returns the permit.
    fn end<E: Failure>(&self, key: &Key, took: Duration, outcome: std::thread::Result<Next<E>>) {
        let by = ByController { controller: self.name };
        self.metrics.reconciles.get_or_create(&by).inc();
        self.metrics.durations.get_or_create(&by).observe(took.as_secs_f64());
        self.metrics.queue_depth.get_or_create(&by).set(i64::try_from(self.requests.depth()).unwrap_or(i64::MAX));
        let next = match outcome {
            Ok(Ok(next)) => {
                self.failures().remove(key);
                next
            }
            Ok(Err(error)) => Some(self.backoff(key, error.category(), &error.to_string())),
            Err(panic) => Some(self.backoff(key, "panic", &format!("the reconcile panicked: {}", panic_message(&*panic)))),
        };
        self.names().apply_watcher_event(&watcher::Event::Delete(named(key)));
        self.requests.end(key, next);
        self.permits.add_permits(1);
    }

    /// Counts a failure, and returns the delay of the retry: exponential backoff.
    fn backoff(&self, key: &Key, category: &'static str, error: &str) -> Duration {
        self.metrics.errors.get_or_create(&ByCategory { controller: self.name, category }).inc();
        tracing::warn!(controller = self.name, object = %key, error, "a reconcile failed and will be retried");
        let mut failures = self.failures();
        let attempts = failures.entry(key.clone()).or_insert(0);
        let pause = FIRST_BACKOFF.saturating_mul(1 << (*attempts).min(16)).min(MAX_BACKOFF);
        *attempts = attempts.saturating_add(1);
        pause
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
    let concurrency = u16::try_from(concurrency.max(1)).unwrap_or(u16::MAX);
    let permits = Semaphore::new(usize::from(concurrency));
    let shared = Arc::new(ControllerState { name, requests, metrics, permits, names: Mutex::new(names), failures: Mutex::default() });
    let handing = shared.clone();
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
            shared.end(&key, began.elapsed(), outcome);
            // Our own queue has the requeue.
            Ok::<_, Infallible>(Action::await_change())
        }
    };
    let mut work = Controller::for_stream(stream::pending(), reader)
        .with_config(Config::default().concurrency(concurrency))
        .reconcile_on(due.then(move |key| handing.clone().hand(key)))
        .graceful_shutdown_on(finished.map(drop))
        .run(begin, |_, never: &Infallible, _| match *never {}, shared.clone())
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
