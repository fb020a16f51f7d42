//! Keeping up with one kind of object: list, watch, and begin again when the connection is lost.

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

/// How many lists are read at once in this process: after a start all watches want theirs.
const MAX_LISTS: usize = 2;

static LISTS: Semaphore = Semaphore::const_new(MAX_LISTS);

/// What a watch tells.
pub enum Heard<K> {
    /// A full list begins. Until it has ended objects come by name and not by age.
    Listing,
    /// The object is there, new or changed.
    Seen(Key, Box<K>),
    /// The object is gone; this is what it was.
    Gone(Key, Box<K>),
    /// A full list has ended; whatever of the scope is not in it is gone.
    Listed(HashSet<Key>),
}

/// What is watched: these namespaces each, or without any all of the cluster.
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

/// Counts the watches that have not yet ended their first list.
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

/// Watches the objects with `labels`, or all, and tells `hear` what happens. It has no end of its own: `Tasks` sees to what ends.
pub async fn follow<K>(api: Api<K>, labels: Option<&str>, readiness: Option<&Readiness>, hear: impl FnMut(Heard<K>))
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let config = watcher::Config { label_selector: labels.map(str::to_owned), ..watcher::Config::default() };
    follow_with(api, config, readiness, hear).await;
}

/// Watches the objects with these fields, for ever, and tells `hear` what happens.
pub async fn follow_fields<K>(api: Api<K>, fields: &str, readiness: Option<&Readiness>, hear: impl FnMut(Heard<K>))
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    follow_with(api, watcher::Config::default().fields(fields), readiness, hear).await;
}

async fn follow_with<K>(api: Api<K>, config: watcher::Config, readiness: Option<&Readiness>, mut hear: impl FnMut(Heard<K>))
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    // Not the semantic Any: the API server answers that with everything at once, whatever the page size.
    let config = config.page_size(page::PAGE_SIZE).timeout(290);
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
                hear(Heard::Listing);
                // Nothing has been asked for yet. A list that fails gives its turn back, and waits without one.
                turn = LISTS.acquire().await.ok();
            }
            Ok(Event::InitApply(object)) => {
                let key = key(&object);
                listed.insert(key.clone());
                hear(Heard::Seen(key, Box::new(object)));
            }
            Ok(Event::InitDone) => {
                hear(Heard::Listed(std::mem::take(&mut listed)));
                if let Some(readiness) = first.take() {
                    readiness.met();
                }
            }
            Ok(Event::Apply(object)) => hear(Heard::Seen(key(&object), Box::new(object))),
            Ok(Event::Delete(object)) => hear(Heard::Gone(key(&object), Box::new(object))),
            Err(error) if page::is_too_long(&error) => stream = begin(config.clone().page_size(page::SMALL_PAGE_SIZE)),
            // Once is nothing: a connection was closed, or a right is only now being given.
            Err(error) if failures == 2 => {
                tracing::warn!(%error, kind = std::any::type_name::<K>(), "a watch was lost and is being taken up again");
            }
            Err(error) => tracing::debug!(%error, failures, "a watch was lost"),
        }
    }
}

fn key<K: Resource>(object: &K) -> Key {
    let meta = object.meta();
    Key::new(meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
}
