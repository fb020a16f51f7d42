//! What the agent has spent today counts against its limit, whichever process spent it.

use std::time::Duration;

use jiff::Timestamp;
use slipway_database::Fault;
use tokio::time::timeout;
use tracing::warn;

use super::Recorder;
use crate::store::Store;

const DAY_SECONDS: i64 = 86_400;
/// A database that is down delays a turn no longer than this.
const TIMEOUT: Duration = Duration::from_secs(2);

impl Recorder {
    /// Asked before a turn, until it is known.
    pub(crate) async fn know_spending(&self, store: &Store) {
        match timeout(TIMEOUT, self.ask_spending(store)).await {
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
            let midnight = Timestamp::from_second(now.as_second() - now.as_second().rem_euclid(DAY_SECONDS)).unwrap_or(now);
            let micros = store.spent_since(midnight).await?;
            #[expect(clippy::cast_precision_loss, reason = "a day costs less than 2^52 millionths")]
            guards.spent_today(now.into(), micros as f64 / 1e6);
            Ok(())
        });
        asked.await.copied()
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use slipway_guards::{Budget, Guards, Spent};
    use slipway_peers::Postgres;

    use super::*;
    use crate::metrics::Metrics;
    use crate::settings;
    use crate::telemetry::Telemetry;
    use crate::telemetry::usage::Sample;

    /// A process that begins: what it has spent so far, and whether it would answer.
    struct Process(Recorder, Store);

    impl Process {
        fn start(url: &str) -> Self {
            let variables = [("RUNTIME_STORAGE", "postgresql"), ("RUNTIME_DATABASE_URL", url), ("RUNTIME_DATABASE_MIGRATE", "true")];
            let settings = settings::read(&variables).unwrap();
            let guards = Guards::read(r#"[{"name": "spend-limit", "usd": 1}]"#, "").unwrap();
            let telemetry = Telemetry::off();
            let meters = Metrics::new(&telemetry).meters.clone();
            let store = Store::open(settings.storage, &settings.identity).unwrap();
            Self(Recorder::new(telemetry, meters, settings.model, guards), store)
        }

        fn spend(&self, usd: f64) {
            self.0.0.guards.after(&Spent { now: SystemTime::now(), tokens: 1, usd, latency: Duration::ZERO });
            self.0.count(&Sample { cost_micros: super::super::micros(usd), ..Sample::default() });
        }

        async fn answers(&self) -> bool {
            self.0.know_spending(&self.1).await;
            self.0.0.guards.before_turn(&Budget { now: SystemTime::now(), tokens_in_prompt: 1, unpriced: None }).blocked.is_none()
        }
    }

    #[tokio::test]
    async fn what_a_process_has_spent_counts_once_whenever_it_is_written_down() {
        let postgres = Postgres::start();
        let first = Process::start(&postgres.url());
        first.spend(0.6);
        // The database was down until now, and was never asked.
        first.0.finish(&first.1, Duration::from_secs(5)).await;
        assert!(first.answers().await);
        let second = Process::start(&postgres.url());
        second.spend(0.6);
        assert!(!second.answers().await, "with what the first has spent it is too much");
    }
}
