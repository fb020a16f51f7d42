//! The watches that all listeners share, one for each kind with Events. They start with the first listener and stop soon
//! after the last.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::events::v1::Event as KubeEvent;
use kube::{Api, Client, ResourceExt};
use slipway_cluster::watch::{Readiness, WatchEvent, follow_fields};
use slipway_cluster::{Guarded, Key};
use slipway_http::Error;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

use super::feed::{Feed, FeedEvent};
use super::view;
use crate::caches::Caches;
use crate::cluster_error;

/// The kinds whose Events are streamed.
const KINDS: [&str; 3] = ["Agent", "Deployment", "EvaluationRun"];
/// How long an Event is held back, so that the Events of both watches are delivered in the order of resource versions. A
/// listener that reconnects with an id does not receive older ones.
const REORDER_WINDOW: Duration = Duration::from_millis(100);
/// The timeout of the first list of Events.
const INITIAL_LIST_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the watches continue without listeners, for those that reconnect.
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);
/// How often deleted agents are looked for, at most and at least.
const AGENT_CHECK_INTERVAL_MIN: Duration = Duration::from_millis(250);
const AGENT_CHECK_INTERVAL_MAX: Duration = Duration::from_secs(5);

pub(crate) struct Hub {
    client: Client,
    caches: Arc<Caches>,
    /// The namespaces to watch; empty means all.
    namespaces: Vec<String>,
    state: Mutex<HubState>,
}

#[derive(Default)]
struct HubState {
    listeners: usize,
    /// The number of listeners so far, to detect new ones.
    arrivals: u64,
    session: Option<Arc<WatchSession>>,
}

/// One run of the watches.
struct WatchSession {
    caches: Arc<Caches>,
    feeds: Mutex<HashMap<Key, Arc<Feed>>>,
    /// Events that are held back, by version.
    pending: Mutex<BTreeMap<u64, (Instant, Key, FeedEvent)>>,
    heard: Notify,
    ready: Readiness,
    /// Whether the first lists were delivered.
    open: watch::Sender<bool>,
    tasks: Mutex<Vec<AbortHandle>>,
}

/// A listener's subscription. Without subscriptions the watches stop.
pub(super) struct Subscription {
    hub: Arc<Hub>,
    pub feed: Arc<Feed>,
}

impl Hub {
    pub(crate) fn new(client: Client, caches: Arc<Caches>, namespaces: Vec<String>) -> Self {
        Self { client, caches, namespaces, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, HubState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Subscribes to the feed of an agent, once the first lists were delivered.
    pub(super) async fn subscribe(self: &Arc<Self>, agent: &Key, created: i64) -> Result<Subscription, Error> {
        let (session, subscription) = {
            let mut state = self.state();
            state.listeners += 1;
            state.arrivals += 1;
            let session = state.session.get_or_insert_with(|| self.start()).clone();
            let feed = session.feed(agent);
            (session, Subscription { hub: self.clone(), feed })
        };
        subscription.feed.agent(Some(created));
        match timeout(INITIAL_LIST_TIMEOUT, session.open.subscribe().wait_for(|open| *open)).await {
            Ok(Ok(_)) => Ok(subscription),
            _ => Err(cluster_error::unavailable()),
        }
    }

    fn start(&self) -> Arc<WatchSession> {
        let session = Arc::new(WatchSession::new(self.caches.clone()));
        let mut tasks = Vec::new();
        let scopes = if self.namespaces.is_empty() { vec![None] } else { self.namespaces.iter().cloned().map(Some).collect() };
        for scope in scopes {
            for (source, kind) in KINDS.into_iter().enumerate() {
                let api: Api<Guarded<KubeEvent>> = match &scope {
                    Some(namespace) => Api::namespaced(self.client.clone(), namespace),
                    None => Api::all(self.client.clone()),
                };
                session.ready.expect();
                let (session, scope) = (session.clone(), scope.clone());
                let watching = async move {
                    let fields = format!("regarding.kind={kind}");
                    let hear = |heard| session.hear(heard, source, scope.as_deref());
                    follow_fields(api, &fields, Some(&session.ready), hear).await;
                };
                tasks.push(tokio::spawn(watching).abort_handle());
            }
        }
        tasks.push(tokio::spawn(session.clone().deliver_in_order()).abort_handle());
        tasks.push(tokio::spawn(session.clone().check_agents()).abort_handle());
        session.tasks.lock().unwrap_or_else(PoisonError::into_inner).append(&mut tasks);
        session
    }

    /// Stops the watches, unless a listener came.
    async fn stop_when_idle(self: Arc<Self>, arrivals: u64) {
        sleep(IDLE_TIMEOUT).await;
        let mut state = self.state();
        if state.listeners == 0
            && state.arrivals == arrivals
            && let Some(session) = state.session.take()
        {
            session.tasks.lock().unwrap_or_else(PoisonError::into_inner).drain(..).for_each(|task| task.abort());
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut state = self.hub.state();
        state.listeners -= 1;
        if state.listeners == 0
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(self.hub.clone().stop_when_idle(state.arrivals));
        }
    }
}

impl WatchSession {
    fn new(caches: Arc<Caches>) -> Self {
        Self {
            caches,
            feeds: Mutex::default(),
            pending: Mutex::default(),
            heard: Notify::default(),
            ready: Readiness::default(),
            open: watch::Sender::default(),
            tasks: Mutex::default(),
        }
    }

    /// The agent that an Event is about. An Event of an evaluation that does not name it is looked up by the run.
    fn agent_of(&self, event: &KubeEvent) -> Option<Key> {
        view::agent(event).or_else(|| {
            let run = view::evaluation(event)?;
            let agent = self.caches.evaluations.get(&run)?.data.agent.to_string();
            Some(Key::new(run.namespace, agent))
        })
    }

    fn feeds(&self) -> MutexGuard<'_, HashMap<Key, Arc<Feed>>> {
        self.feeds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn feed(&self, agent: &Key) -> Arc<Feed> {
        self.feeds().entry(agent.clone()).or_default().clone()
    }

    fn pending(&self) -> MutexGuard<'_, BTreeMap<u64, (Instant, Key, FeedEvent)>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hear(&self, heard: WatchEvent<Guarded<KubeEvent>>, source: usize, scope: Option<&str>) {
        match heard {
            WatchEvent::Seen(key, event) => {
                let version = event.resource_version().and_then(|version| version.parse().ok()).unwrap_or(0);
                let Ok(event) = event.0 else { return };
                let Some(agent) = self.agent_of(&event) else { return };
                let Ok(event) = view::framed(event, &agent, version) else { return };
                let logged = FeedEvent { name: key.name, source, version, event };
                self.pending().insert(version, (Instant::now(), agent, logged));
                self.heard.notify_one();
            }
            WatchEvent::Gone(key, event) => {
                self.pending().retain(|_, (_, agent, logged)| agent.namespace != key.namespace || logged.name != key.name);
                let Ok(event) = event.0 else { return };
                let mut feeds = self.feeds();
                // The run of an evaluation may be gone before its Events.
                let agents: Vec<Key> = match self.agent_of(&event) {
                    Some(agent) => vec![agent],
                    None => feeds.keys().filter(|agent| agent.namespace == key.namespace).cloned().collect(),
                };
                for agent in agents {
                    if let Some(feed) = feeds.get(&agent) {
                        feed.keep(|logged| logged.name != key.name);
                        if feed.is_empty() {
                            feeds.remove(&agent);
                        }
                    }
                }
            }
            WatchEvent::Listing => {}
            WatchEvent::Listed(listed) => self.keep(&listed, source, scope),
        }
    }

    /// Retains the Events of a source and scope that a new list contains.
    fn keep(&self, listed: &HashSet<Key>, source: usize, scope: Option<&str>) {
        let there = |agent: &Key, logged: &FeedEvent| {
            let other = logged.source != source || scope.is_some_and(|scope| scope != agent.namespace);
            other || listed.contains(&Key::new(agent.namespace.clone(), logged.name.clone()))
        };
        self.pending().retain(|_, (_, agent, logged)| there(agent, logged));
        self.feeds().iter().for_each(|(agent, feed)| feed.keep(|logged| there(agent, logged)));
    }

    /// Delivers Events that were held back long enough, and all of lower versions.
    async fn deliver_in_order(self: Arc<Self>) {
        // The first lists are delivered at once, as their order is not by version.
        self.ready.wait().await;
        self.deliver(u64::MAX);
        self.open.send_replace(true);
        loop {
            if self.pending().is_empty() {
                self.heard.notified().await;
            }
            sleep(REORDER_WINDOW / 2).await;
            let held = |heard: &Instant| heard.elapsed() < REORDER_WINDOW;
            let settled = self.pending().iter().rev().find(|(_, (heard, ..))| !held(heard)).map(|(version, _)| *version);
            if let Some(version) = settled {
                self.deliver(version);
            }
        }
    }

    /// Delivers the pending Events up to a version.
    fn deliver(&self, version: u64) {
        let settled = {
            let mut pending = self.pending();
            let later = pending.split_off(&version.saturating_add(1));
            std::mem::replace(&mut *pending, later)
        };
        for (_, (_, agent, logged)) in settled {
            self.feed(&agent).add(logged);
        }
    }

    /// Tells listeners that their agent is gone.
    async fn check_agents(self: Arc<Self>) {
        let mut observed = self.caches.agents.observed();
        loop {
            let _ = timeout(AGENT_CHECK_INTERVAL_MAX, observed.changed()).await;
            let heard: Vec<_> =
                self.feeds().iter().filter(|(_, feed)| feed.is_heard()).map(|(key, feed)| (key.clone(), feed.clone())).collect();
            for (agent, feed) in heard {
                feed.agent(self.caches.agents.get(&agent).map(|item| item.created));
            }
            sleep(AGENT_CHECK_INTERVAL_MIN).await;
        }
    }
}
