//! How long a database or a source that is away is waited for.

use std::time::Duration;

use anyhow::anyhow;
use slipway_database::Fault;
use tokio::time::{Instant, sleep};
use tracing::warn;

/// Over and over, this long. The Job tries again after that.
pub(super) const MAX_OUTAGE: Duration = Duration::from_mins(5);
pub(super) const RETRY_INTERVAL: Duration = Duration::from_secs(3);

/// How long something has been away.
#[derive(Default)]
pub(super) struct Outage(Option<Instant>);

impl Outage {
    /// Whether it may last a little longer. Counts from the first call.
    pub(super) fn goes_on(&mut self) -> bool {
        self.0.get_or_insert_with(Instant::now).elapsed() < MAX_OUTAGE
    }
}

/// Again while the database is away.
pub(super) async fn patiently<T, F>(what: &str, mut operation: impl FnMut() -> F) -> anyhow::Result<T>
where
    F: Future<Output = Result<T, Fault>>,
{
    let mut outage = Outage::default();
    loop {
        match operation().await {
            Err(fault) if fault.is_passing() && outage.goes_on() => {
                warn!(%fault, what, "the database cannot be reached");
                sleep(RETRY_INTERVAL).await;
            }
            outcome => return outcome.map_err(|fault| anyhow!(fault).context(what.to_owned())),
        }
    }
}
