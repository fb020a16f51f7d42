//! The end of an agent: a tombstone, written by comparison and not by a finalizer. It holds up nobody's deletion, and
//! needs no memory of what was begun: what lives in Git and neither in the cache nor, asked just before, at the API
//! server, is closed, a moment after it went.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::api::{Api, ListParams};
use slipway_api::Agent;
use slipway_cluster::Key;
use tokio::time::Instant;

use super::act::{self, Error};
use super::context::{Context, GRACE};
use super::run::Runs;
use super::{author, git, projection};

/// How long to wait before the history is asked again for who is in it.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// Asks once for all agents that Git knows to be looked at, so that those are found that went while nobody looked.
pub(super) async fn look_for_all(context: &Arc<Context>) {
    loop {
        let listed = git::on(&context.history, |history| {
            let mut all = Vec::new();
            for namespace in history.namespaces()? {
                let agents = history.agents(&namespace)?;
                all.extend(agents.into_iter().map(|agent| Key::new(&namespace, agent)));
            }
            Ok(all)
        });
        match listed.await {
            Ok(all) => {
                for key in all {
                    context.requests.add(key);
                }
                return;
            }
            Err(error) => tracing::warn!(%error, "which agents have a history could not be asked"),
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}

/// Looks at an agent that is not there.
pub(super) async fn reconcile(context: &Arc<Context>, key: &Key) -> Result<Option<Duration>, Error> {
    say(context, key).await?;
    let of = key.clone();
    if !git::on(&context.history, move |history| git::lives(history, &of)).await? {
        context.forget(key);
        return Ok(None);
    }
    let now = Instant::now();
    context.still(key, now);
    let since = context.debounce().get_mut(key).map_or(now, |debounce| *debounce.gone.get_or_insert(now));
    if now < since + GRACE {
        return Ok(Some((since + GRACE).duration_since(now)));
    }
    if !is_gone(context, key).await? {
        // The watch will tell of it.
        return Ok(Some(RETRY_INTERVAL));
    }
    let of = key.clone();
    let when = Timestamp::now();
    let author = git::author(author::PLATFORM);
    let closed = git::on(&context.history, move |history| history.tombstone(&of.namespace, &of.name, author, when)).await?;
    context.moved(&key.namespace);
    tracing::info!(agent = %key, commit = closed.commit, "the agent is gone; its history is closed");
    say(context, key).await?;
    context.forget(key);
    Ok(None)
}

/// Whether the API server has no such Agent. A list tells a kind that is not served from an object that is not there.
async fn is_gone(context: &Context, key: &Key) -> Result<bool, Error> {
    let api: Api<Agent> = Api::namespaced(context.client.clone(), &key.namespace);
    let list = api.list_metadata(&ListParams::default().fields(&format!("metadata.name={}", key.name))).await?;
    Ok(list.items.is_empty())
}

/// Tells what has become of the AgentReleases that did not go with their agent: people's.
async fn say(context: &Arc<Context>, key: &Key) -> Result<(), Error> {
    let (of, told) = (key.clone(), context.shown(key));
    if told.is_empty() {
        return Ok(());
    }
    let (shown, past) = git::on(&context.history, move |history| git::seen(history, &of, told, None)).await?;
    let message = format!("there is no agent {} in this namespace", key.name);
    for shown in shown.iter().filter(|shown| !shown.deleting) {
        let request = shown.request.as_ref().filter(|_| shown.version.is_none() && !shown.skipped);
        let waits = |request| projection::waits(shown, request, "AgentNotFound", &message, Timestamp::now());
        if let Some(status) = projection::differs(&past, shown, None, &Runs::new()).or_else(|| request.and_then(waits)) {
            act::mark(context, key, &shown.name, &status).await?;
        }
    }
    Ok(())
}
