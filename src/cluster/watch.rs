//! Watches of one kind of object: list, watch, and start again when the connection is lost.

use std::collections::HashSet;
use std::fmt::Debug;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::StreamExt;
use kube::core::NamespaceResourceScope;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch_objects};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::{Notify, Semaphore};

use crate::key::Key;
use crate::page;

/// The lists read at once in this process: at startup every watch begins with one.
const MAX_LISTS: usize = 2;

static LISTS: Semaphore = Semaphore::const_new(MAX_LISTS);

/// An event of a watch.
pub enum WatchEvent<K> {
    /// A full list begins. Until `Listed`, objects come in the order of their names, not of their versions.
    Listing,
    /// The object exists, new or changed.
    Seen(Key, Box<K>),
    /// The object was deleted; this is its last state.
    Gone(Key, Box<K>),
    /// A full list has ended; objects of the scope that are not in it were deleted.
    Listed(HashSet<Key>),
}

/// The scopes of watches: each of these namespaces, or the whole cluster if there are none.
pub fn scopes(namespaces: &[String]) -> Vec<Option<String>> {
    match namespaces {
        [] => vec![None],
        some => some.iter().cloned().map(Some).collect(),
    }
}

/// The API of a namespaced kind, in one namespace or in all.
pub fn namespaced<K>(client: &Client, scope: Option<&str>) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    match scope {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

/// Counts the watches whose first list has not ended.
#[derive(Default)]
pub struct Readiness {
    missing: AtomicUsize,
    ready: Notify,
}

impl Readiness {
    pub fn expect(&self) {
        self.missing.fetch_add(1, Ordering::SeqCst);
    }

    fn met(&self) {
        self.missing.fetch_sub(1, Ordering::SeqCst);
        self.ready.notify_waiters();
    }

    pub fn is_ready(&self) -> bool {
        self.missing.load(Ordering::SeqCst) == 0
    }

    pub async fn wait(&self) {
        loop {
            let ready = self.ready.notified();
            tokio::pin!(ready);
            ready.as_mut().enable();
            if self.is_ready() {
                return;
            }
            ready.await;
        }
    }
}

/// Watches the objects with `labels`, or all, and calls `on_event`. It never ends by itself: run it in `Tasks`.
pub async fn follow<K>(api: Api<K>, labels: Option<&str>, readiness: Option<&Readiness>, on_event: impl FnMut(WatchEvent<K>))
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let config = watcher::Config { label_selector: labels.map(str::to_owned), ..watcher::Config::default() };
    follow_with(api, config, readiness, on_event).await;
}

/// Watches the objects with these fields and calls `on_event`. It never ends by itself.
pub async fn follow_fields<K>(api: Api<K>, fields: &str, readiness: Option<&Readiness>, on_event: impl FnMut(WatchEvent<K>))
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    follow_with(api, watcher::Config::default().fields(fields), readiness, on_event).await;
}

async fn follow_with<K>(api: Api<K>, config: watcher::Config, readiness: Option<&Readiness>, mut on_event: impl FnMut(WatchEvent<K>))
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    // Not `Any` semantics: the API server ignores the page size for these and returns everything at once.
    let mut config = config.page_size(page::PAGE_SIZE).timeout(290);
    let begin = |config| Box::pin(watch_objects(api.clone(), config).backoff(watcher::DefaultBackoff::default()));
    let mut stream = begin(config.clone());
    let mut listed = HashSet::new();
    let mut first = readiness;
    let mut failures = 0_u32;
    let mut turn = None;
    while let Some(event) = stream.next().await {
        failures = if event.is_ok() { 0 } else { failures + 1 };
        if matches!(event, Ok(Event::InitDone) | Err(_)) {
            drop(turn.take());
        }
        match event {
            Ok(Event::Init) => {
                listed.clear();
                on_event(WatchEvent::Listing);
                // The list request is not sent yet. A failed list releases its permit, and its retry waits for a new one.
                turn = LISTS.acquire().await.ok();
            }
            Ok(Event::InitApply(object)) => {
                let key = key(&object);
                listed.insert(key.clone());
                on_event(WatchEvent::Seen(key, Box::new(object)));
            }
            Ok(Event::InitDone) => {
                on_event(WatchEvent::Listed(std::mem::take(&mut listed)));
                if let Some(readiness) = first.take() {
                    readiness.met();
                }
            }
            Ok(Event::Apply(object)) => on_event(WatchEvent::Seen(key(&object), Box::new(object))),
            Ok(Event::Delete(object)) => on_event(WatchEvent::Gone(key(&object), Box::new(object))),
            Err(error) if page::is_too_long(&error) => {
                config.page_size = Some(page::smaller(config.page_size));
                stream = begin(config.clone());
            }
            // A single failure is normal: a closed connection, or a role binding that is just being created.
            Err(error) if failures == 2 => {
                tracing::warn!(%error, kind = std::any::type_name::<K>(), "a watch was lost and is being restarted");
            }
            Err(error) => tracing::debug!(%error, failures, "a watch was lost"),
        }
    }
}

fn key<K: Resource>(object: &K) -> Key {
    let meta = object.meta();
    Key::new(meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
}
