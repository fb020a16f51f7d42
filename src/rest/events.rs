//! The events of an agent as a stream: Kubernetes Events of the Agent, its Deployment and its evaluations, first the last
//! ones, then each as it comes. All replicas give the same stream, as nothing is stored here.
//!
//! `hub` owns the shared watches, `feed` is the log of one agent, `view` the form of an event.

mod feed;
mod hub;
mod view;

use std::time::{Duration, Instant};

use futures::stream;
use jiff::Timestamp;
use slipway_cluster::Key;
use slipway_http::{Error, Event, HeaderName, Reply};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::answer::Events;
use crate::call::Call;
use crate::rate_limiter::Permit;
use crate::relay::{Target, target};
use crate::{agents, cluster_error};
use feed::{FeedRead, FeedState};
pub(crate) use hub::Hub;
use hub::Subscription;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// How long the list cache may lag behind the API server for a new agent.
const CACHE_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) async fn events(call: Call) -> Result<Events, Error> {
    let after = call.header(LAST_EVENT_ID).filter(|id| !id.is_empty()).map(str::parse::<u64>).transpose();
    let after = after.map_err(|_| Error::bad_request("the header Last-Event-ID must be the id of an event of this stream"))?;
    let Target { key, item } = known(&call).await?;
    let created = item.created;
    let team = call.team.as_ref().map(ToString::to_string).unwrap_or_default();
    let permit = call.context.rate_limiter.admit_listener(&team, Instant::now())?;
    let subscription = call.context.hub.subscribe(&key, created).await?;
    let listener = Listener {
        told: subscription.feed.listen(),
        place: subscription.feed.begin(after),
        subscription,
        agent: key,
        created,
        _permit: permit,
    };
    Ok(Events(Reply::events(stream::unfold(Some(listener), next))))
}

/// The agent, even if the cache does not have it yet.
async fn known(call: &Call) -> Result<Target, Error> {
    match target(call).await {
        Err(error) if error.status() == slipway_http::StatusCode::NOT_FOUND => {}
        found => return found,
    }
    let (agent, _) = agents::find(call).await?;
    let version = agent.metadata.resource_version.and_then(|version| version.parse::<u64>().ok()).unwrap_or(0);
    let (namespace, mut observed) = (call.namespace(), call.context.caches.agents.observed());
    match timeout(CACHE_TIMEOUT, observed.wait_for(|observed| observed.of(&namespace) >= version)).await {
        Ok(Ok(_)) => {}
        _ => return Err(cluster_error::unavailable()),
    }
    target(call).await
}

struct Listener {
    subscription: Subscription,
    told: watch::Receiver<FeedState>,
    place: u64,
    agent: Key,
    created: i64,
    _permit: Permit,
}

/// The next event, and the listener unless it was the last.
async fn next(listener: Option<Listener>) -> Option<(Event, Option<Listener>)> {
    let mut listener = listener?;
    loop {
        let told = *listener.told.borrow_and_update();
        match listener.subscription.feed.at(listener.place) {
            FeedRead::Event(event, place) => {
                listener.place = place;
                return Some((event, Some(listener)));
            }
            FeedRead::Lost => {
                let message =
                    "this listener was too slow, and events were lost; come back with Last-Event-ID for those that are still there";
                return Some((listener.last("Warning", "TooSlow", message.to_owned())?, None));
            }
            FeedRead::NotYet if told.agent != Some(listener.created) => {
                let message = format!("agent {} was deleted", listener.agent.name);
                return Some((listener.last("Normal", "Deleted", message)?, None));
            }
            FeedRead::NotYet => listener.told.changed().await.ok()?,
        }
    }
}

impl Listener {
    fn last(&self, kind: &str, reason: &str, message: String) -> Option<Event> {
        view::last(&self.agent, kind, reason, message, Timestamp::now()).ok()
    }
}
