//! State of a run that has not ended, in memory. It may be lost with the process.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use kube::ResourceExt;
use slipway_api::EvaluationRun;
use slipway_api::evaluation_run::EvaluationRunStatus;
use slipway_cluster::Key;
use tokio::time::Instant;

/// The reason of a run that waits for another one.
const BUSY: &str = "Busy";

/// The pod that has a run, and what it calls the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RunPlace {
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
    pub place: Option<RunPlace>,
    /// The agent's pod that an evaluator was told.
    pub target: Option<SocketAddr>,
    /// The status as it was written last.
    pub written: Option<EvaluationRunStatus>,
    /// How many cases had finished, and when that became known.
    finished: usize,
    progressed: Option<Instant>,
    told: Option<Instant>,
    waits: Waits,
}

/// For what a run waits, since when, and how long it has waited for each reason.
#[derive(Debug, Default)]
struct Waits {
    now: Option<(&'static str, Instant)>,
    before: BTreeMap<&'static str, Duration>,
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

    pub(super) fn begin(&mut self, place: RunPlace, target: Option<SocketAddr>) {
        (self.place, self.target, self.waits) = (Some(place), target, Waits::default());
        self.progressed = Some(Instant::now());
    }

    /// The run begins anew, under another id.
    pub(super) fn repeat(&mut self) {
        (self.place, self.finished) = (None, 0);
        self.progressed = Some(Instant::now());
    }

    /// Notes how many cases have finished; says whether it is time to tell.
    pub(super) fn progress(&mut self, finished: usize, interval: Duration) -> bool {
        self.waits = Waits::default();
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

    /// How long the run has waited for this in all, since it was under way. A reason that comes and goes is not waited for anew each
    /// time, or a run whose reasons alternate would have no end.
    pub(super) fn wait(&mut self, reason: &'static str) -> Duration {
        let Waits { now, before } = &mut self.waits;
        if let Some((last, since)) = now.replace((reason, Instant::now())) {
            *before.entry(last).or_default() += since.elapsed();
        }
        // Where another run is under way, all is there that this one waited for; rollouts in the hours of that wait do not add up.
        if reason == BUSY {
            before.retain(|waited_for, _| *waited_for == BUSY);
        }
        before.get(reason).copied().unwrap_or_default()
    }
}

#[cfg(test)]
impl UnderWay {
    /// As if the run had waited for so long.
    pub(super) fn waits_since(&mut self, long: Duration) {
        if let Some((_, since)) = &mut self.waits.now {
            *since = since.checked_sub(long).unwrap();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_for_a_reason_adds_up_and_that_for_another_does_not() {
        let mut under_way = UnderWay::default();
        let minutes = |waited: Duration| waited.as_secs() / 60;
        for round in 0..3 {
            assert_eq!(minutes(under_way.wait("FeedbackUnavailable")), round * 60);
            under_way.waits_since(Duration::from_hours(1));
            assert_eq!(minutes(under_way.wait("NoPod")), round, "an hour of another reason is not this one's");
            under_way.waits_since(Duration::from_mins(1));
        }
        assert_eq!(minutes(under_way.wait("NoPod")), 3);
        for round in 0..3 {
            assert_eq!(minutes(under_way.wait(BUSY)), round * 60);
            under_way.waits_since(Duration::from_hours(1));
            assert_eq!(minutes(under_way.wait("NoPod")), 0, "there was a pod, as it had another run");
            under_way.waits_since(Duration::from_mins(1));
        }
        under_way.progress(0, Duration::ZERO);
        assert_eq!(under_way.wait("NoPod"), Duration::ZERO, "a pod has answered since");
    }
}
