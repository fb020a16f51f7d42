//! Where messages wait: in the database, or in memory on a platform without one.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use slipway_database::{Delivery, GivenUp, NewDelivery, Postponed, Waiting};
use tokio::sync::Notify;

use super::queue::Queue;
use crate::context::Context;
use crate::tenancy::Tenancy;

/// What the look at agents, which finds alerts, and their delivery share.
#[derive(Default)]
pub(crate) struct AlertQueue {
    memory: Mutex<Queue>,
    /// Integrations for whose messages there was no room, while others wait.
    full: Mutex<HashSet<String>>,
    added: Notify,
}

impl AlertQueue {
    /// Queues messages of a platform without a database; says how many there was no room for, by integration.
    pub(crate) fn hold(&self, messages: &[NewDelivery], now: Timestamp) -> Vec<(String, i64)> {
        locked(&self.memory).enqueue(messages, now)
    }

    /// Messages have been added, here or to the database.
    pub(crate) fn has_more(&self) {
        self.added.notify_one();
    }

    /// Integration and stage of what waits.
    #[cfg(test)]
    pub(crate) fn stages(&self) -> Vec<(String, slipway_database::AlertStage)> {
        locked(&self.memory).stages()
    }

    pub(super) async fn added(&self) {
        self.added.notified().await;
    }

    pub(crate) fn was_full(&self, integration: &str) {
        locked(&self.full).insert(integration.to_owned());
    }

    /// Whether messages were left out since some wait.
    pub(super) fn is_full(&self, waiting: &Waiting) -> bool {
        let mut full = locked(&self.full);
        if waiting.count == 0 {
            full.remove(&waiting.integration);
        }
        full.contains(&waiting.integration)
    }

    pub(super) fn is_not_full(&self, integrations: &[String]) {
        locked(&self.full).retain(|integration| !integrations.contains(integration));
    }
}

fn locked<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) enum Store<'a> {
    Database(&'a Tenancy),
    Memory(&'a AlertQueue),
}

impl<'a> Store<'a> {
    pub(super) fn of(context: &'a Context) -> Self {
        context.tenancy.as_ref().map_or(Self::Memory(&context.alert_queue), Self::Database)
    }
}

impl Store<'_> {
    pub(super) async fn due(&self, integrations: &[String]) -> Result<Vec<Delivery>, String> {
        match self {
            Self::Database(tenancy) => tenancy.due_deliveries(integrations).await,
            Self::Memory(queue) => Ok(locked(&queue.memory).due(integrations, Timestamp::now())),
        }
    }

    pub(super) async fn delivered(&self, message: &Delivery) -> Result<(), String> {
        match self {
            Self::Database(tenancy) => tenancy.delivered(message).await,
            Self::Memory(queue) => {
                locked(&queue.memory).delivered(message, Timestamp::now());
                Ok(())
            }
        }
    }

    pub(super) async fn failed(&self, message: &Delivery, postponed: &Postponed) -> Result<(), String> {
        match self {
            Self::Database(tenancy) => tenancy.postpone_delivery(message, postponed).await,
            Self::Memory(queue) => {
                locked(&queue.memory).failed(message, postponed, Timestamp::now());
                Ok(())
            }
        }
    }

    pub(super) async fn give_up(&self, message: &Delivery, error: &str) -> Result<(), String> {
        match self {
            Self::Database(tenancy) => tenancy.give_up_delivery(message, error).await,
            Self::Memory(queue) => {
                locked(&queue.memory).give_up(message, Timestamp::now());
                Ok(())
            }
        }
    }

    pub(super) async fn give_up_older(&self, integrations: &[String], than: Duration) -> Result<Vec<GivenUp>, String> {
        match self {
            Self::Database(tenancy) => tenancy.give_up_older_deliveries(integrations, than).await,
            Self::Memory(queue) => Ok(locked(&queue.memory).give_up_older(integrations, than, Timestamp::now())),
        }
    }

    pub(super) async fn hasten(&self, integrations: &[String], within: Duration) -> Result<(), String> {
        match self {
            Self::Database(tenancy) => tenancy.hasten_deliveries(integrations, within).await,
            Self::Memory(queue) => {
                locked(&queue.memory).hasten(integrations, within, Timestamp::now());
                Ok(())
            }
        }
    }

    pub(super) async fn waiting(&self, integrations: &[String]) -> Result<Vec<Waiting>, String> {
        match self {
            Self::Database(tenancy) => tenancy.waiting_deliveries(integrations).await,
            Self::Memory(queue) => Ok(locked(&queue.memory).waiting(integrations)),
        }
    }

    pub(super) async fn forget(&self, integrations: &[String]) -> Result<(), String> {
        match self {
            Self::Database(tenancy) => tenancy.forget_deliveries(integrations).await,
            Self::Memory(queue) => {
                locked(&queue.memory).forget(integrations);
                Ok(())
            }
        }
    }
}
