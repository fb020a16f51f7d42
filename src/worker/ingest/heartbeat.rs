//! Reports how far an ingestion is, which is also the sign that it is alive.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use slipway_database::knowledge::{Ingestion, LEASE_DURATION, Report};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tracing::warn;

const INTERVAL: Duration = Duration::from_secs(2);

/// What has been done so far.
#[derive(Debug, Default)]
pub(super) struct SharedReport(Mutex<Report>);

impl SharedReport {
    pub(super) fn change(&self, change: impl FnOnce(&mut Report)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(super) fn report(&self) -> Report {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

pub(super) struct Heartbeat {
    task: JoinHandle<()>,
    lost: watch::Receiver<bool>,
}

impl Heartbeat {
    pub(super) fn start(ingestion: Ingestion, progress: Arc<SharedReport>) -> Self {
        let (sender, lost) = watch::channel(false);
        let task = tokio::spawn(async move {
            beat(&ingestion, &progress).await;
            // Nobody listens once the ingestion has ended.
            let _ = sender.send(true);
        });
        Self { task, lost }
    }

    /// Returns once another process has the ingestion, or may have it.
    pub(super) async fn lost(&mut self) {
        // An error is the end of the task, which it reaches in no other way.
        let _ = self.lost.wait_for(|lost| *lost).await;
    }

    /// No report follows: the last one is the end's.
    pub(super) async fn stop(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

async fn beat(ingestion: &Ingestion, progress: &SharedReport) {
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut sent, mut heard) = (None, Instant::now());
    loop {
        ticks.tick().await;
        let report = progress.report();
        // What has not changed is sent less often.
        if sent.as_ref() == Some(&report) && heard.elapsed() < LEASE_DURATION / 6 {
            continue;
        }
        match ingestion.report(&report).await {
            Ok(true) => (sent, heard) = (Some(report), Instant::now()),
            Ok(false) => return,
            // While the database is away nobody else can take the ingestion.
            Err(fault) => warn!(%fault, "the progress was not written"),
        }
    }
}
