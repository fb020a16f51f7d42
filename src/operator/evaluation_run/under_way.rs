//! What is remembered of a run that has not ended. Nothing of it has to outlive the process.

use std::net::SocketAddr;
use std::time::Duration;

use kube::ResourceExt;
use slipway_api::EvaluationRun;
use slipway_api::evaluation_run::EvaluationRunStatus;
use slipway_cluster::Key;
use tokio::time::Instant;

/// The pod that has a run, and what it calls the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub agent: Key,
    pub pod: String,
    pub address: SocketAddr,
    pub run_id: String,
    /// Whether it is no pod of the agent, and asks those.
    pub is_evaluator: bool,
}

#[derive(Debug, Default)]
pub(super) struct UnderWay {
    pub uid: Option<String>,
    pub place: Option<Place>,
    /// The agent's pod that an evaluator was told.
    pub target: Option<SocketAddr>,
    /// The status as it was written last.
    pub written: Option<EvaluationRunStatus>,
    /// How many cases had finished, and when that became known.
    finished: usize,
    progressed: Option<Instant>,
    told: Option<Instant>,
    /// For what the run waits, and since when.
    waits: Option<(&'static str, Instant)>,
}

impl UnderWay {
    /// Whether this was remembered of an earlier run of the same name.
    pub(super) fn is_of_another(&self, run: &EvaluationRun) -> bool {
        self.uid.is_some() && self.uid != run.uid()
    }

    /// How long no further case has finished.
    pub(super) fn idle(&mut self) -> Duration {
        self.progressed.get_or_insert_with(Instant::now).elapsed()
    }

    pub(super) fn begin(&mut self, place: Place, target: Option<SocketAddr>) {
        (self.place, self.target, self.waits) = (Some(place), target, None);
        self.progressed = Some(Instant::now());
    }

    /// The run begins anew, under another id.
    pub(super) fn repeat(&mut self) {
        (self.place, self.finished) = (None, 0);
        self.progressed = Some(Instant::now());
    }

    /// Notes how many cases have finished; says whether it is time to tell.
    pub(super) fn progress(&mut self, finished: usize, interval: Duration) -> bool {
        self.waits = None;
        if finished > self.finished {
            self.finished = finished;
            self.progressed = Some(Instant::now());
        }
        let is_due = self.told.is_none_or(|told| told.elapsed() >= interval);
        if is_due {
            self.told = Some(Instant::now());
        }
        is_due
    }

    /// How long the run has waited for this.
    pub(super) fn wait(&mut self, reason: &'static str) -> Duration {
        if self.waits.is_none_or(|(before, _)| before != reason) {
            self.waits = Some((reason, Instant::now()));
        }
        self.waits.map_or(Duration::ZERO, |(_, since)| since.elapsed())
    }
}

#[cfg(test)]
impl UnderWay {
    /// As if the run had waited for so long.
    pub(super) fn waits_since(&mut self, long: Duration) {
        if let Some((_, since)) = &mut self.waits {
            *since = since.checked_sub(long).unwrap();
        }
    }
}
