//! The queue of messages about alerts, or why it cannot be asked.

use std::time::Duration;

use slipway_database::{Delivery, GivenUp, NewDelivery, Postponed, Waiting};

use super::Tenancy;

impl Tenancy {
    /// Says how many messages there was no room for, by integration.
    pub(crate) async fn enqueue_deliveries(&self, messages: &[NewDelivery]) -> Result<Vec<(String, i64)>, String> {
        self.answers()?;
        self.tenants.deliveries().enqueue(messages).await.map_err(|fault| self.noted(&fault))
    }

    pub(crate) async fn due_deliveries(&self, integrations: &[String]) -> Result<Vec<Delivery>, String> {
        self.answers()?;
        self.tenants.deliveries().due(integrations).await.map_err(|fault| self.noted(&fault))
    }

    pub(crate) async fn delivered(&self, message: &Delivery) -> Result<(), String> {
        self.tenants.deliveries().delivered(message).await.map_err(|fault| self.noted(&fault))
    }

    pub(crate) async fn postpone_delivery(&self, message: &Delivery, postponed: &Postponed) -> Result<(), String> {
        self.tenants.deliveries().failed(message, postponed).await.map_err(|fault| self.noted(&fault))
    }

    pub(crate) async fn give_up_delivery(&self, message: &Delivery, error: &str) -> Result<(), String> {
        self.tenants.deliveries().give_up(message, error).await.map_err(|fault| self.noted(&fault))
    }

    pub(crate) async fn give_up_older_deliveries(&self, integrations: &[String], than: Duration) -> Result<Vec<GivenUp>, String> {
        self.answers()?;
        self.tenants.deliveries().give_up_older(integrations, than).await.map_err(|fault| self.noted(&fault))
    }

    pub(crate) async fn hasten_deliveries(&self, integrations: &[String], within: Duration) -> Result<(), String> {
        self.answers()?;
        self.tenants.deliveries().hasten(integrations, within).await.map_err(|fault| self.noted(&fault))
    }

    pub(crate) async fn waiting_deliveries(&self, integrations: &[String]) -> Result<Vec<Waiting>, String> {
        self.answers()?;
        self.tenants.deliveries().waiting(integrations).await.map_err(|fault| self.noted(&fault))
    }

    /// Deletes what waits for integrations that are gone.
    pub(crate) async fn forget_deliveries(&self, integrations: &[String]) -> Result<(), String> {
        self.answers()?;
        self.tenants.deliveries().forget(integrations).await.map(drop).map_err(|fault| self.noted(&fault))
    }
}
