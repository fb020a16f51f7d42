//! Messages about alerts for the integrations of the team: their receivers, and the messages that are yet to be queued.
//!
//! They are queued beside the announcements, in the same order: a rise and an end before the alert's row says so, as the next
//! pass would find it again; a beginning after its row, which gives it its id. The queue takes each message once, so that it may
//! be queued anew.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use slipway_api::guardrail_policy::Severity;
use slipway_database::{AlertStage, NewDelivery};

use super::fleet::Watched;
use crate::alert_delivery::{self, AlertReceiver, AlertTurn, receivers};
use crate::caches::Caches;
use crate::context::Context;
use crate::metrics::ByDelivery;
use crate::tenancy::Tenancy;

/// How many messages of a team wait at most, shared by its integrations; of the ends of alerts as many more.
const MAX_WAITING: usize = 1_000;
/// From how many messages on they are queued before others are added.
const MANY: usize = 2_000;
/// How many messages wait here where they cannot be queued. What is sent to several integrations is here once.
const MAX_UNQUEUED: usize = 20_000;

#[derive(Default)]
pub(super) struct Outbox {
    /// By namespace.
    subscriptions: HashMap<String, Vec<AlertReceiver>>,
    messages: Vec<NewDelivery>,
    /// How many more there would be, by integration.
    left_out: HashMap<String, i64>,
}

impl Outbox {
    /// Sees who asks for alerts now. A pass begins with it.
    pub(super) fn begin(&mut self, caches: &Caches) {
        self.subscriptions.clear();
        for receiver in receivers(caches) {
            self.subscriptions.entry(receiver.key.namespace.clone()).or_default().push(receiver);
        }
    }

    /// Adds messages for those who take them. The end of an alert goes to each that heard of its beginning, whatever it asks for by
    /// now; the queue knows who did.
    pub(super) fn add(&mut self, agent: &Watched, turn: &AlertTurn<'_>) {
        let Some(receivers) = self.subscriptions.get(&agent.key.namespace) else { return };
        let takes = |receiver: &&AlertReceiver| {
            receiver.alerts().is_some_and(|alerts| match turn.stage {
                AlertStage::Resolved => alerts.resolved,
                _ => severity(&turn.alert.severity).is_some_and(|severity| alerts.takes(severity, &agent.key.name, &turn.alert.metric)),
            })
        };
        let share = MAX_WAITING / receivers.len().max(1);
        let most = if turn.stage == AlertStage::Resolved { 2 * share } else { share };
        let most = i64::try_from(most.max(1)).unwrap_or(i64::MAX);
        let mut payload: Option<Arc<str>> = None;
        for receiver in receivers.iter().filter(takes) {
            if self.messages.len() >= MAX_UNQUEUED {
                *self.left_out.entry(receiver.uid.clone()).or_default() += 1;
                continue;
            }
            self.messages.push(NewDelivery {
                team: agent.row.team.clone(),
                agent_id: agent.row.agent_id.clone(),
                integration: receiver.uid.clone(),
                alert_id: turn.id.to_owned(),
                stage: turn.stage,
                message_id: alert_delivery::id(&receiver.uid, turn.id, turn.stage),
                payload: payload.get_or_insert_with(|| alert_delivery::payload(&agent.key, turn).into()).clone(),
                most,
            });
        }
    }

    /// Queues what was added, if that is much.
    pub(super) async fn queue_many(&mut self, context: &Context, tenancy: &Tenancy) -> Result<(), String> {
        if self.messages.len() < MANY { Ok(()) } else { self.queue(context, tenancy).await }
    }

    /// Queues what was added, in one statement as a rule. What cannot be queued stays for the next pass.
    pub(super) async fn queue(&mut self, context: &Context, tenancy: &Tenancy) -> Result<(), String> {
        if self.messages.is_empty() {
            return Ok(());
        }
        let dropped = tenancy.enqueue_deliveries(&self.messages).await?;
        self.queued(context, dropped);
        Ok(())
    }

    /// The same on a platform without a database.
    pub(super) fn hold(&mut self, context: &Context, now: Timestamp) {
        if !self.messages.is_empty() {
            let dropped = context.alert_queue.hold(&self.messages, now);
            self.queued(context, dropped);
        }
    }

    fn queued(&mut self, context: &Context, dropped: Vec<(String, i64)>) {
        self.messages.clear();
        for (integration, count) in dropped.into_iter().chain(self.left_out.drain()) {
            context.alert_queue.was_full(&integration);
            let receiver = self.subscriptions.values().flatten().find(|receiver| receiver.uid == integration);
            let Some(receiver) = receiver else { continue };
            let by = ByDelivery { r#type: receiver.kind.as_str(), outcome: "dropped" };
            context.metrics.alert_deliveries.get_or_create(&by).inc_by(count.unsigned_abs());
        }
        context.alert_queue.has_more();
    }
}

fn severity(word: &str) -> Option<Severity> {
    Severity::ALL.iter().copied().find(|severity| severity.as_str() == word)
}
