//! State that the governance pass (`governance`), which finds alerts, shares with their delivery (`alert_delivery`): a
//! notification that messages were added, the integrations for whose messages there was no room, and the queue itself on a
//! platform without a database.

mod queue;

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use slipway_database::{NewDelivery, Waiting};
use tokio::sync::Notify;

use queue::Queue;

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

    /// The queue of a platform without a database.
    pub(crate) fn memory(&self) -> MutexGuard<'_, Queue> {
        locked(&self.memory)
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

    pub(crate) async fn added(&self) {
        self.added.notified().await;
    }

    pub(crate) fn was_full(&self, integration: &str) {
        locked(&self.full).insert(integration.to_owned());
    }

    /// Whether messages were left out since some wait.
    pub(crate) fn is_full(&self, waiting: &Waiting) -> bool {
        let mut full = locked(&self.full);
        if waiting.count == 0 {
            full.remove(&waiting.integration);
        }
        full.contains(&waiting.integration)
    }

    pub(crate) fn is_not_full(&self, integrations: &[String]) {
        locked(&self.full).retain(|integration| !integrations.contains(integration));
    }
}

fn locked<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
