//! What happens to an agent, as a stream: the Events that Kubernetes has of the Agent and of its Deployment. The
//! last of them first, then whatever comes, on any replica alike, for nothing is kept here.
//!
//! `hub` has the watches that all listeners share, `feed` what is told of one agent, `view` how.

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
use crate::limits::Pass;
use crate::relay::{Target, target};
use crate::{agents, fault};
use feed::{Found, Told};
pub(crate) use hub::Hub;
use hub::Seat;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// How long to wait until an agent that the API server has is heard of.
const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) async fn events(call: Call) -> Result<Events, Error> {
    let after = call.header(LAST_EVENT_ID).filter(|id| !id.is_empty()).map(str::parse::<u64>).transpose();
    let after = after.map_err(|_| Error::bad_request("the header Last-Event-ID must be the id of an event of this stream"))?;
    let Target { key, item } = known(&call).await?;
    let created = item.created;
    let team = call.team.as_ref().map(ToString::to_string).unwrap_or_default();
    let pass = call.context.gate.listener(&team, Instant::now())?;
    let seat = call.context.hub.sit(&key, created).await?;
    let listener = Listener { told: seat.feed.listen(), place: seat.feed.begin(after), seat, agent: key, created, _pass: pass };
    Ok(Events(Reply::events(stream::unfold(Some(listener), next))))
}

/// The agent, even if it was made only just now.
async fn known(call: &Call) -> Result<Target, Error> {
    match target(call).await {
        Err(error) if error.status() == slipway_http::StatusCode::NOT_FOUND => {}
        found => return found,
    }
    let (agent, _) = agents::find(call).await?;
    let version = agent.metadata.resource_version.and_then(|version| version.parse::<u64>().ok()).unwrap_or(0);
    let (namespace, mut reached) = (call.namespace(), call.context.seen.agents.reached());
    match timeout(PATIENCE, reached.wait_for(|reached| reached.of(&namespace) >= version)).await {
        Ok(Ok(_)) => {}
        _ => return Err(fault::away()),
    }
    target(call).await
}

struct Listener {
    seat: Seat,
    told: watch::Receiver<Told>,
    place: u64,
    agent: Key,
    created: i64,
    _pass: Pass,
}

/// The next event, and the listener unless that was the last.
async fn next(listener: Option<Listener>) -> Option<(Event, Option<Listener>)> {
    let mut listener = listener?;
    loop {
        let told = *listener.told.borrow_and_update();
        match listener.seat.feed.at(listener.place) {
            Found::Event(event, place) => {
                listener.place = place;
                return Some((event, Some(listener)));
            }
            Found::Lost => {
                let message =
                    "this listener was too slow, and events were lost; come back with Last-Event-ID for those that are still there";
                return Some((listener.last("Warning", "TooSlow", message.to_owned())?, None));
            }
            Found::NotYet if told.agent != Some(listener.created) => {
                let message = format!("agent {} was deleted", listener.agent.name);
                return Some((listener.last("Normal", "Deleted", message)?, None));
            }
            Found::NotYet => listener.told.changed().await.ok()?,
        }
    }
}

impl Listener {
    fn last(&self, kind: &str, reason: &str, message: String) -> Option<Event> {
        view::last(&self.agent, kind, reason, message, Timestamp::now()).ok()
    }
}
