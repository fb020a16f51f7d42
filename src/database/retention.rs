//! The end of what is too old: usage, violations, readiness and alerts.

use crate::{Fault, Tenants};

/// For how many days each is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    pub usage_minutes: u32,
    /// Of the roll-up, and of readiness.
    pub usage_hours: u32,
    pub violations: u32,
    /// From when they were last seen.
    pub alerts: u32,
}

impl Default for Retention {
    fn default() -> Self {
        Self { usage_minutes: 32, usage_hours: 400, violations: 32, alerts: 90 }
    }
}

impl Tenants {
    /// Deletes in batches what is older, and returns how many rows there were.
    pub async fn delete_old_governance(&self, retention: &Retention) -> Result<u64, Fault> {
        let _ = retention;
        Err(Fault::Unavailable("not yet".to_owned()))
    }
}
