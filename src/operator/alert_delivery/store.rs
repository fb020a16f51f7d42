//! Where messages wait: in the database, or in memory on a platform without one.

use std::time::Duration;

use jiff::Timestamp;
use slipway_database::{Delivery, GivenUp, Postponed, Waiting};

use crate::alert_queue::AlertQueue;
use crate::context::Context;
use crate::tenancy::Tenancy;

pub(super) enum DeliveryStore<'a> {
    Database(&'a Tenancy),
    Memory(&'a AlertQueue),
}

impl<'a> DeliveryStore<'a> {
    pub(super) fn of(context: &'a Context) -> Self {
        context.tenancy.as_ref().map_or(Self::Memory(&context.alert_queue), Self::Database)
    }
}

impl DeliveryStore<'_> {
    pub(super) async fn due(&self, integrations: &[String]) -> Result<Vec<Delivery>, String> {
        match self {
            Self::Database(tenancy) => tenancy.due_deliveries(integrations).await,
            Self::Memory(queue) => Ok(queue.memory().due(integrations, Timestamp::now())),
        }
    }

    pub(super) async fn delivered(&self, message: &Delivery) -> Result<(), String> {
        match self {
            Self::Database(tenancy) => tenancy.delivered(message).await,
            Self::Memory(queue) => {
                queue.memory().delivered(message, Timestamp::now());
                Ok(())
            }
        }
    }

    pub(super) async fn failed(&self, message: &Delivery, postponed: &Postponed) -> Result<(), String> {
        match self {
            Self::Database(tenancy) => tenancy.postpone_delivery(message, postponed).await,
            Self::Memory(queue) => {
                queue.memory().failed(message, postponed, Timestamp::now());
                Ok(())
            }
        }
    }

    pub(super) async fn give_up(&self, message: &Delivery, error: &str) -> Result<(), String> {
        match self {
            Self::Database(tenancy) => tenancy.give_up_delivery(message, error).await,
            Self::Memory(queue) => {
                queue.memory().give_up(message, Timestamp::now());
                Ok(())
            }
        }
    }

    pub(super) async fn give_up_older(&self, integrations: &[String], than: Duration) -> Result<Vec<GivenUp>, String> {
        match self {
            Self::Database(tenancy) => tenancy.give_up_older_deliveries(integrations, than).await,
            Self::Memory(queue) => Ok(queue.memory().give_up_older(integrations, than, Timestamp::now())),
        }
    }

    pub(super) async fn hasten(&self, integrations: &[String], within: Duration) -> Result<(), String> {
        match self {
            Self::Database(tenancy) => tenancy.hasten_deliveries(integrations, within).await,
            Self::Memory(queue) => {
                queue.memory().hasten(integrations, within, Timestamp::now());
                Ok(())
            }
        }
    }

    pub(super) async fn waiting(&self, integrations: &[String]) -> Result<Vec<Waiting>, String> {
        match self {
            Self::Database(tenancy) => tenancy.waiting_deliveries(integrations).await,
            Self::Memory(queue) => Ok(queue.memory().waiting(integrations)),
        }
    }

    pub(super) async fn forget(&self, integrations: &[String]) -> Result<(), String> {
        match self {
            Self::Database(tenancy) => tenancy.forget_deliveries(integrations).await,
            Self::Memory(queue) => {
                queue.memory().forget(integrations);
                Ok(())
            }
        }
    }
}
