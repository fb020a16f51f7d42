//! Sends alerts to the integrations that ask for them, through the teams' workers, while this process leads.
//!
//! The look at agents (`governance`) queues messages. What is due is read every 5 s, and at once when something was added: of each
//! integration a few messages, which are sent one after the other, for several integrations at once. Rows say what was sent, so that a
//! manager that is killed sends a message a second time at most, with the same id. While no Integration asks for alerts, nothing is
//! asked of the database.

mod course;
mod message;
mod receivers;
mod schedule;
mod send;
mod store;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use jiff::Timestamp;
use slipway_api::integration::IntegrationType;
use slipway_cluster::controller::{self, Phase};
use slipway_database::{GivenUp, Waiting};
use slipway_mlflow::LastFailure;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

pub(crate) use message::{AlertTurn, id, payload};
pub(crate) use receivers::{AlertReceiver, receivers};

use crate::caches::integration::Delivered;
use crate::context::Context;
use crate::control_port::Sign;
use crate::metrics::{ByDelivery, Metrics};
use crate::registry::{Change, Registered};
use course::Course;
use send::{Batch, DeliveryReport, tell_of_end};
use store::DeliveryStore;

/// How often it is looked for messages that are due.
const INTERVAL: Duration = Duration::from_secs(5);
/// To how many integrations messages are sent at once, and to how many of one team: slow receivers hold up no other team.
const AT_ONCE: usize = 16;
const AT_ONCE_OF_TEAM: usize = 8;

pub(crate) struct AlertDelivery {
    context: Arc<Context>,
    /// How a worker is asked; none is, without it.
    sign: Option<Arc<Sign>>,
    standing: LastFailure,
}

impl AlertDelivery {
    pub(crate) fn new(context: Arc<Context>, sign: Option<Arc<Sign>>) -> Self {
        Self { context, sign, standing: LastFailure::default() }
    }

    async fn run(&self) {
        let context = &*self.context;
        let _counts = Counts(&context.metrics);
        // Another leader may have found something else since this process last led.
        context.caches.delivered.forget();
        let (store, mut course) = (DeliveryStore::of(context), Course::new(Instant::now()));
        let mut running = FuturesUnordered::new();
        loop {
            match self.look(&store, &mut course).await {
                Ok(batches) => running.extend(batches.into_iter().map(|batch| self.deliver(&store, batch))),
                Err(why) => self.note_trouble(Some(&why)),
            }
            let mut rest = pin!(sleep(INTERVAL));
            loop {
                tokio::select! {
                    Some(report) = running.next(), if !running.is_empty() => {
                        if self.note_report(&store, &mut course, report).await {
                            break;
                        }
                    }
                    () = &mut rest => break,
                    () = context.alert_queue.added() => {
                        course.has_more();
                        break;
                    }
                }
            }
        }
    }

    /// Says what is to be sent now, and to the controller of Integrations how they stand.
    async fn look(&self, store: &DeliveryStore<'_>, course: &mut Course) -> Result<Vec<Batch>, String> {
        let caches = &self.context.caches;
        let receivers = receivers(caches);
        let changes = course.compare(caches, &receivers);
        if !changes.gone.is_empty() {
            self.context.alert_queue.is_not_full(&changes.gone);
            store.forget(&changes.gone).await?;
        }
        if !changes.other.is_empty() {
            store.hasten(&changes.other, schedule::REFUSED).await?;
        }
        course.take(changes);
        let (all, now) = (receivers.iter().map(|receiver| receiver.uid.clone()).collect::<Vec<_>>(), Instant::now());
        if all.is_empty() {
            self.tell(&receivers, &[]);
            return Ok(Vec::new());
        }
        // Where nothing can be noted, nothing is sent: it would be sent again by each look.
        while let Some((message, sent)) = course.unnoted() {
            sent.write(store, message).await?;
            course.noted();
        }
        if course.is_time_to_give_up(now) {
            let given_up = store.give_up_older(&all, schedule::EXPIRY).await?;
            self.give_up(course, &receivers, given_up).await;
        }
        let free: Vec<String> = all.iter().filter(|integration| course.may_send(integration, now)).cloned().collect();
        let due = if free.is_empty() || course.is_busy() { Vec::new() } else { store.due(&free).await? };
        if course.is_time_to_tell(now) {
            let waiting = store.waiting(&all).await?;
            course.told(&waiting, now);
            self.tell(&receivers, &waiting);
        }
        self.note_trouble(None);
        Ok(course.batches(&receivers, due))
    }

    /// Whether there may be more to send at once.
    async fn note_report(&self, store: &DeliveryStore<'_>, course: &mut Course, report: DeliveryReport) -> bool {
        if let Some(why) = &report.trouble {
            self.note_trouble(Some(why));
        }
        let (integration, has_delivered) = (report.integration.clone(), report.delivered > 0);
        let is_back = course.note(report, Instant::now());
        // What has waited while nothing arrived may be sent now. What was refused waits on.
        if is_back && let Err(why) = store.hasten(&[integration], schedule::LONGEST).await {
            self.note_trouble(Some(&why));
        }
        has_delivered
    }

    async fn give_up(&self, course: &mut Course, receivers: &[AlertReceiver], given_up: Vec<GivenUp>) {
        let mut by_integration: HashMap<String, Vec<GivenUp>> = HashMap::new();
        for one in given_up {
            by_integration.entry(one.integration.clone()).or_default().push(one);
        }
        for receiver in receivers {
            let Some(all) = by_integration.remove(&receiver.uid) else { continue };
            course.has_more();
            self.count(receiver.kind, "given_up", all.len() as u64);
            if let (Some(integration), Some(first)) = (receiver.integration(), all.first()) {
                let why = first.last_error.as_deref().unwrap_or("it has waited for 24 hours");
                tell_of_end(&self.context, integration, &first.alert_id, all.len(), why).await;
            }
        }
    }

    /// Tells the integration controller how deliveries stand, and counts what waits.
    fn tell(&self, receivers: &[AlertReceiver], waiting: &[Waiting]) {
        let context = &*self.context;
        let found = receivers.iter().zip(waiting);
        let found = found.map(|(receiver, waiting)| (receiver.key.clone(), delivered(waiting, context.alert_queue.is_full(waiting))));
        for key in context.caches.delivered.set(found.collect()) {
            context.registry.publish(&Change::Delivering(key));
        }
        context.metrics.alert_deliveries_waiting.set(waiting.iter().map(|waiting| waiting.count).sum());
        let oldest = waiting.iter().filter_map(|waiting| waiting.oldest).min();
        let age = oldest.map_or(0, |oldest| Timestamp::now().duration_since(oldest).as_secs().max(0));
        context.metrics.alert_delivery_age.set(age);
    }

    fn count(&self, kind: IntegrationType, outcome: &'static str, count: u64) {
        let by = ByDelivery { r#type: kind.as_str(), outcome };
        self.context.metrics.alert_deliveries.get_or_create(&by).inc_by(count);
    }

    /// Logs a failure that was not there before, and its end.
    fn note_trouble(&self, trouble: Option<&str>) {
        if self.standing.has_changed(trouble.map(|_| "database")) {
            if let Some(why) = trouble {
                tracing::warn!(why, "messages about alerts cannot be read or noted; they stay where they are");
            } else {
                tracing::info!("messages about alerts are read again");
            }
        }
    }
}

/// As a status has it: without figures that change with each message.
fn delivered(waiting: &Waiting, is_full: bool) -> Delivered {
    let step = [1_000, 100, 10, 1].into_iter().find(|step| waiting.count >= *step).unwrap_or_default();
    let no_room = "there is no room for further messages";
    let last_error = match (&waiting.last_error, is_full) {
        (Some(error), true) => Some(format!("{no_room}; {error}")),
        (None, true) => Some(no_room.to_owned()),
        (error, false) => error.clone(),
    };
    Delivered {
        waiting: step,
        failing_since: waiting.failing_since,
        last_error: last_error.filter(|_| waiting.failing_since.is_some() || is_full),
        has_arrived: waiting.arrived.is_some(),
        gave_up: waiting.given_up > waiting.arrived,
    }
}

/// The gauges of what waits, which are the leader's alone.
struct Counts<'a>(&'a Metrics);

impl Drop for Counts<'_> {
    fn drop(&mut self) {
        self.0.alert_deliveries_waiting.set(0);
        self.0.alert_delivery_age.set(0);
    }
}

impl Registered for AlertDelivery {
    fn changed(&self, _: &Change) {}

    fn start(self: Arc<Self>, phase: &watch::Sender<Phase>) -> Vec<JoinHandle<()>> {
        let context = self.context.clone();
        let work = async move { self.run().await };
        vec![controller::start_beside(&context.tasks, "delivery of alerts", phase.subscribe(), work)]
    }
}
