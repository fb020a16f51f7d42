//! The governance pass over all agents, each minute while this process leads: how ready they are, which alerts begin and end, how
//! often policies are broken, whether a release is to be rolled back, and how canaries do. The controllers of the kinds are
//! notified and write the statuses.
//!
//! A pass goes in one order: `fleet` lists the agents from the caches, `readings` asks the database about all of them, `alerts`
//! decides by the rules of `slipway-governance`, `delivery` writes rows and Events, and queues `messages` to integrations. What
//! has begun stands in rows, so that a manager that is killed anywhere doubles nothing: an alert is one by its key in the table,
//! an Event is one by the alert's id.

mod alerts;
mod alone;
pub(crate) mod canary;
mod delivery;
mod fleet;
mod messages;
mod readings;
mod rollback;
mod violations;

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use slipway_cluster::Key;
use slipway_cluster::controller::{self, Phase};
use slipway_database::Alert;
use slipway_governance::alert::Topic;
use slipway_mlflow::LastFailure;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::context::Context;
use crate::metrics::Metrics;
use crate::registry::{Change, Registered};
use crate::tenancy::Tenancy;
use delivery::Announcements;
use fleet::Watched;
use messages::Outbox;

/// A pass begins at the same second of each minute, so that an agent has one sample a minute.
const INTERVAL: Duration = Duration::from_mins(1);
/// How often policies' statuses are told of violations.
const VIOLATIONS_INTERVAL: Duration = Duration::from_mins(5);
/// How often it is looked whether a release is to be rolled back.
const ROLLBACK_INTERVAL: Duration = Duration::from_mins(5);

/// For how long an agent has been down at least when there is an alert about it.
const DOWN_BEFORE: SignedDuration = SignedDuration::from_mins(2);

pub(crate) struct Governance {
    context: Arc<Context>,
}

/// What is remembered between passes. It may be lost: alerts then begin a little later, and what is announced twice is one.
#[derive(Default)]
struct Memory {
    /// Since when an alert that has not begun is due.
    since: HashMap<Watch, Timestamp>,
    /// Since when an agent has no replica that takes requests.
    down: HashMap<Key, Timestamp>,
    announcements: Announcements,
    outbox: Outbox,
    /// Whether a pass has seen the open alerts, and written what has changed.
    has_begun: bool,
    /// Alerts of a platform without a database.
    alone: alone::Alerts,
    next_violations: Option<Instant>,
    next_rollback: Option<Instant>,
    canaries: canary::CanaryMemory,
}

/// An alert that may be: of an agent, about a topic, by a policy or none.
type Watch = (Key, Topic, String);

impl Memory {
    /// Notes who is down, and forgets who is gone.
    fn note(&mut self, fleet: &[Watched], now: Timestamp) {
        self.down.retain(|key, _| fleet.binary_search_by(|agent| agent.key.cmp(key)).is_ok());
        for agent in fleet {
            if agent.is_down() {
                self.down.entry(agent.key.clone()).or_insert(now);
            } else {
                self.down.remove(&agent.key);
            }
        }
    }

    /// Takes from an open alert since when an agent is down that is still so: this manager may have seen it for a moment only.
    fn recall(&mut self, agent: &Watched, open: &[Alert]) {
        let begun = open.iter().filter(|alert| alert.metric == Topic::Down.as_str()).map(|alert| alert.created_at - DOWN_BEFORE).min();
        if let (Some(since), Some(begun)) = (self.down.get_mut(&agent.key), begun) {
            *since = begun.min(*since);
        }
    }

    /// For how long an agent has been down, in minutes.
    fn minutes_down(&self, key: &Key, now: Timestamp) -> f64 {
        self.down.get(key).map_or(0.0, |since| now.duration_since(*since).as_secs_f64() / 60.0)
    }
}

impl Governance {
    pub(crate) fn new(context: Arc<Context>) -> Self {
        Self { context }
    }

    async fn run(&self) {
        let context = &*self.context;
        let _counts = Counts(&context.metrics);
        // Another leader may have found something else since this process last led.
        context.caches.alerting.forget();
        context.caches.violations.forget();
        context.caches.canary_measured.forget();
        if context.tenancy.is_none() {
            tracing::info!("there is no database: alerts are about readiness alone, and nothing else is measured");
        }
        let (mut memory, standing, offset) = (Memory::default(), LastFailure::default(), offset());
        loop {
            let begun = Instant::now();
            let outcome = self.pass(&mut memory, Timestamp::now()).await;
            if outcome.is_ok() {
                context.metrics.governance_passes.observe(begun.elapsed().as_secs_f64());
            }
            if standing.has_changed(outcome.is_err().then_some("database")) {
                if let Err(why) = outcome {
                    tracing::warn!(why, "agents' usage cannot be read; alerts stay as they are");
                } else {
                    tracing::info!("agents' usage is read again");
                }
            }
            tokio::time::sleep(until_next(Timestamp::now(), offset)).await;
        }
    }

    /// Fails if the database does; alerts and statuses then stay as they are.
    async fn pass(&self, memory: &mut Memory, now: Timestamp) -> Result<(), String> {
        let context = &*self.context;
        let fleet = fleet::watched(&context.caches);
        memory.note(&fleet, now);
        memory.outbox.begin(&context.caches);
        canary::count(context, &fleet, &mut memory.canaries);
        let Some(tenancy) = &context.tenancy else {
            let standing = memory.alone.pass(context, &fleet, &memory.down, (&mut memory.announcements, &mut memory.outbox), now);
            memory.outbox.hold(context, now);
            delivery::tell(context, standing);
            memory.announcements.publish(&context.events).await;
            return Ok(());
        };
        // Whatever fails, what was to be announced is.
        let outcome = with_database(context, tenancy, memory, &fleet, now).await;
        memory.announcements.publish(&context.events).await;
        outcome
    }
}

async fn with_database(context: &Context, tenancy: &Tenancy, memory: &mut Memory, fleet: &[Watched], now: Timestamp) -> Result<(), String> {
    readings::sample(tenancy, fleet).await?;
    let found = readings::read(tenancy, fleet, now).await?;
    let open = alerts::by_agent(tenancy.open_alerts().await?);
    let mut changes = alerts::AlertChanges::default();
    let mut waits = HashMap::new();
    for (agent, found) in fleet.iter().zip(&found) {
        if !memory.has_begun {
            memory.recall(agent, open.of(agent));
        }
        let seen = alerts::AlertInput { agent, found, minutes_down: memory.minutes_down(&agent.key, now), open: open.of(agent) };
        changes.decide(&seen, &memory.since, &mut waits, now);
    }
    memory.since = waits;
    delivery::apply(context, tenancy, memory, changes, now).await?;
    memory.has_begun = true;
    if is_due(&mut memory.next_violations, VIOLATIONS_INTERVAL) {
        violations::tell(context, tenancy, fleet, now).await?;
    }
    if is_due(&mut memory.next_rollback, ROLLBACK_INTERVAL) {
        rollback::look(context, tenancy, fleet, now).await?;
    }
    canary::look(context, tenancy, fleet, &mut memory.canaries, now).await
}

fn is_due(next: &mut Option<Instant>, interval: Duration) -> bool {
    let now = Instant::now();
    let is_due = next.is_none_or(|next| now >= next);
    if is_due {
        *next = Some(now + interval);
    }
    is_due
}

/// The second of the minute at which this process looks: another one for each, so that platforms that share a database do not all ask
/// at once.
fn offset() -> u64 {
    RandomState::new().build_hasher().finish() % INTERVAL.as_secs()
}

fn until_next(now: Timestamp, offset: u64) -> Duration {
    let interval = INTERVAL.as_millis();
    let passed = u128::from(now.as_millisecond().rem_euclid(60_000).unsigned_abs());
    let wait = (u128::from(offset) * 1000 + interval - passed) % interval;
    Duration::from_millis(u64::try_from(if wait == 0 { interval } else { wait }).unwrap_or_default())
}

/// The gauges of alerts and canaries, which are the leader's alone.
struct Counts<'a>(&'a Metrics);

impl Drop for Counts<'_> {
    fn drop(&mut self) {
        self.0.alerts.clear();
        self.0.canaries.clear();
        self.0.canary_weight.clear();
    }
}

impl Registered for Governance {
    fn changed(&self, _: &Change) {}

    fn start(self: Arc<Self>, phase: &watch::Sender<Phase>) -> Vec<JoinHandle<()>> {
        let context = self.context.clone();
        let work = async move { self.run().await };
        vec![controller::start_beside(&context.tasks, "governance", phase.subscribe(), work)]
    }
}

#[cfg(test)]
mod tests;
