//! The watches that all listeners share: one for each kind that Events are about. They begin with the first listener
//! and end a little after the last, and what they tell goes to the feeds of the agents.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::events::v1::Event as KubeEvent;
use kube::core::DeserializeGuard;
use kube::{Api, Client, ResourceExt};
use slipway_cluster::Key;
use slipway_cluster::watch::{Heard, Readiness, follow_fields};
use slipway_http::Error;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

use super::feed::{Feed, Noted};
use super::view;
use crate::fault;
use crate::seen::Seen;

/// The kinds whose Events are told.
const KINDS: [&str; 2] = ["Agent", "Deployment"];
/// How long an Event is held back, so that those of both watches go out in the order of the cluster. Ids have to
/// grow: who comes back with one is not told what is older.
const SETTLES: Duration = Duration::from_millis(100);
/// How long a first listener waits for what has happened so far.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the watches go on without a listener: who lost a connection is back in no time.
const LINGER: Duration = Duration::from_secs(5);
/// How often is looked whether agents are still there, at most and at least.
const LOOK: Duration = Duration::from_millis(250);
const LOOK_ANYWAY: Duration = Duration::from_secs(5);

pub(crate) struct Hub {
    client: Client,
    seen: Arc<Seen>,
    /// Only these namespaces are watched; empty means all.
    namespaces: Vec<String>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    listeners: usize,
    /// Counts the listeners that came, to tell whether any did meanwhile.
    came: u64,
    run: Option<Arc<Run>>,
}

/// One time of watching.
#[derive(Default)]
struct Run {
    feeds: Mutex<HashMap<Key, Arc<Feed>>>,
    /// What was heard and is held back, by version.
    pending: Mutex<BTreeMap<u64, (Instant, Key, Noted)>>,
    heard: Notify,
    ready: Readiness,
    /// Whether the feeds hold what has happened so far.
    open: watch::Sender<bool>,
    tasks: Mutex<Vec<AbortHandle>>,
}

/// A listener's place. The watches end when there is none.
pub(super) struct Seat {
    hub: Arc<Hub>,
    pub feed: Arc<Feed>,
}

impl Hub {
    pub(crate) fn new(client: Client, seen: Arc<Seen>, namespaces: Vec<String>) -> Self {
        Self { client, seen, namespaces, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place at the feed of an agent, once what has happened so far is known.
    pub(super) async fn sit(self: &Arc<Self>, agent: &Key, created: i64) -> Result<Seat, Error> {
        let (run, seat) = {
            let mut state = self.state();
            state.listeners += 1;
            state.came += 1;
            let run = state.run.get_or_insert_with(|| self.start()).clone();
            let feed = run.feed(agent);
            (run, Seat { hub: self.clone(), feed })
        };
        seat.feed.agent(Some(created));
        match timeout(PATIENCE, run.open.subscribe().wait_for(|open| *open)).await {
            Ok(Ok(_)) => Ok(seat),
            _ => Err(fault::away()),
        }
    }

    fn start(&self) -> Arc<Run> {
        let run = Arc::new(Run::default());
        let mut tasks = Vec::new();
        let scopes = if self.namespaces.is_empty() { vec![None] } else { self.namespaces.iter().cloned().map(Some).collect() };
        for scope in scopes {
            for (source, kind) in KINDS.into_iter().enumerate() {
                let api: Api<DeserializeGuard<KubeEvent>> = match &scope {
                    Some(namespace) => Api::namespaced(self.client.clone(), namespace),
                    None => Api::all(self.client.clone()),
                };
                run.ready.expect();
                let (run, scope) = (run.clone(), scope.clone());
                let watching = async move {
                    let fields = format!("regarding.kind={kind}");
                    let hear = |heard| run.hear(heard, source, scope.as_deref());
                    follow_fields(api, &fields, Some(&run.ready), hear).await;
                };
                tasks.push(tokio::spawn(watching).abort_handle());
            }
        }
        tasks.push(tokio::spawn(run.clone().settle()).abort_handle());
        tasks.push(tokio::spawn(run.clone().look(self.seen.clone())).abort_handle());
        run.tasks.lock().unwrap_or_else(PoisonError::into_inner).append(&mut tasks);
        run
    }

    /// Ends the watches, unless somebody came meanwhile.
    async fn linger(self: Arc<Self>, came: u64) {
        sleep(LINGER).await;
        let mut state = self.state();
        if state.listeners == 0
            && state.came == came
            && let Some(run) = state.run.take()
        {
            run.tasks.lock().unwrap_or_else(PoisonError::into_inner).drain(..).for_each(|task| task.abort());
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut state = self.hub.state();
        state.listeners -= 1;
        if state.listeners == 0
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(self.hub.clone().linger(state.came));
        }
    }
}

impl Run {
    fn feeds(&self) -> MutexGuard<'_, HashMap<Key, Arc<Feed>>> {
        self.feeds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn feed(&self, agent: &Key) -> Arc<Feed> {
        self.feeds().entry(agent.clone()).or_default().clone()
    }

    fn pending(&self) -> MutexGuard<'_, BTreeMap<u64, (Instant, Key, Noted)>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hear(&self, heard: Heard<DeserializeGuard<KubeEvent>>, source: usize, scope: Option<&str>) {
        match heard {
            Heard::Seen(key, event) => {
                let version = event.resource_version().and_then(|version| version.parse().ok()).unwrap_or(0);
                let Ok(event) = event.0 else { return };
                let Some(agent) = view::agent(&event) else { return };
                let Ok(event) = view::framed(event, &agent, version) else { return };
                let noted = Noted { name: key.name, source, version, event };
                self.pending().insert(version, (Instant::now(), agent, noted));
                self.heard.notify_one();
            }
            Heard::Gone(key, event) => {
                self.pending().retain(|_, (_, agent, noted)| agent.namespace != key.namespace || noted.name != key.name);
                if let Some(agent) = event.0.ok().as_ref().and_then(view::agent) {
                    let mut feeds = self.feeds();
                    if let Some(feed) = feeds.get(&agent) {
                        feed.keep(|noted| noted.name != key.name);
                        if feed.is_empty() {
                            feeds.remove(&agent);
                        }
                    }
                }
            }
            Heard::Listing => {}
            Heard::Listed(listed) => self.keep(&listed, source, scope),
        }
    }

    /// Of a source and scope, keeps what a new list of it held.
    fn keep(&self, listed: &HashSet<Key>, source: usize, scope: Option<&str>) {
        let there = |agent: &Key, noted: &Noted| {
            let other = noted.source != source || scope.is_some_and(|scope| scope != agent.namespace);
            other || listed.contains(&Key::new(agent.namespace.clone(), noted.name.clone()))
        };
        self.pending().retain(|_, (_, agent, noted)| there(agent, noted));
        self.feeds().iter().for_each(|(agent, feed)| feed.keep(|noted| there(agent, noted)));
    }

    /// Hands on what has been held back for long enough, and all that is older in the cluster's order.
    async fn settle(self: Arc<Self>) {
        // What had happened before is handed on in one piece, or it would not be in order.
        self.ready.wait().await;
        self.hand_on(u64::MAX);
        self.open.send_replace(true);
        loop {
            if self.pending().is_empty() {
                self.heard.notified().await;
            }
            sleep(SETTLES / 2).await;
            let held = |heard: &Instant| heard.elapsed() < SETTLES;
            let settled = self.pending().iter().rev().find(|(_, (heard, ..))| !held(heard)).map(|(version, _)| *version);
            if let Some(version) = settled {
                self.hand_on(version);
            }
        }
    }

    /// What was heard, up to a version.
    fn hand_on(&self, version: u64) {
        let settled = {
            let mut pending = self.pending();
            let later = pending.split_off(&version.saturating_add(1));
            std::mem::replace(&mut *pending, later)
        };
        for (_, (_, agent, noted)) in settled {
            self.feed(&agent).add(noted);
        }
    }

    /// Tells listeners when their agent has gone.
    async fn look(self: Arc<Self>, seen: Arc<Seen>) {
        let mut reached = seen.agents.reached();
        loop {
            let _ = timeout(LOOK_ANYWAY, reached.changed()).await;
            let heard: Vec<_> =
                self.feeds().iter().filter(|(_, feed)| feed.is_heard()).map(|(key, feed)| (key.clone(), feed.clone())).collect();
            for (agent, feed) in heard {
                feed.agent(seen.agents.get(&agent).map(|item| item.created));
            }
            sleep(LOOK).await;
        }
    }
}
