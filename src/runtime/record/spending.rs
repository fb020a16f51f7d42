//! What the agent has spent today counts against its limit, whichever process spent it.

use std::time::Duration;

use jiff::Timestamp;
use slipway_database::Fault;
use tokio::time::timeout;
use tracing::warn;

use super::Recorder;
use crate::store::Store;

/// In seconds.
const DAY: i64 = 86_400;
/// A database that is away holds up no turn for long.
const PATIENCE: Duration = Duration::from_secs(2);

impl Recorder {
    /// Asked before a turn, until it is known.
    pub(crate) async fn know_spending(&self, store: &Store) {
        match timeout(PATIENCE, self.ask_spending(store)).await {
            Ok(Ok(())) => {}
            Ok(Err(fault)) => warn!(%fault, "what was spent today is not known yet"),
            Err(_) => warn!("what was spent today is not known yet: the database takes too long"),
        }
    }

    /// To be asked before anything of this process is written down: what it spends itself is counted here already.
    pub(super) async fn ask_spending(&self, store: &Store) -> Result<(), Fault> {
        let guards = &self.0.guards;
        if !store.persists() || !guards.counts_spending() {
            return Ok(());
        }
        let asked = self.0.spending.get_or_try_init(async || {
            let now = Timestamp::now();
            let midnight = Timestamp::from_second(now.as_second() - now.as_second().rem_euclid(DAY)).unwrap_or(now);
            let micros = store.spent_since(midnight).await?;
            #[expect(clippy::cast_precision_loss, reason = "a day costs less than 2^52 millionths")]
            guards.spent_today(now.into(), micros as f64 / 1e6);
            Ok(())
        });
        asked.await.copied()
    }
}
