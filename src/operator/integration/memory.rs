//! State of an Integration while this process leads, in memory. It may be lost with the process.

use std::time::Duration;

use slipway_api::integration::{IntegrationPhase, IntegrationStatus, IntegrationType};
use tokio::time::Instant;

use super::plan::{Job, Unanswered};
use super::probe::Permit;
use crate::fault::ConditionFault;

/// For how long the status that was written last is believed more than the one in the cache.
const BEHIND: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(super) struct IntegrationMemory {
    uid: Option<String>,
    /// The status as it was written last, until the cache has it.
    pub written: Option<(IntegrationStatus, Instant)>,
    /// The digest of what is to be tested, and since when it is this one.
    digest: Option<(String, Instant)>,
    /// When the last test ended.
    tested: Option<Instant>,
    unanswered: Option<Unanswered>,
    pub job: Option<UnderWay>,
    /// What it is counted as.
    pub stands: Option<(IntegrationType, IntegrationPhase)>,
}

/// A Job that is under way.
pub(super) struct UnderWay {
    /// Who asked for the test.
    pub id: String,
    pub begun: Instant,
    /// When its pods were asked for last, and what kept them from running.
    asked: Instant,
    pub trouble: Option<String>,
    _permit: Permit,
}

/// What is known of tests of an Integration as it is now.
pub(super) struct TestMemory {
    pub quiet: Duration,
    pub since_test: Option<Duration>,
    pub unanswered: Option<Unanswered>,
    pub job: Job,
}

impl IntegrationMemory {
    /// The status of an Integration: the one in the cache, which may not have heard of the last write yet.
    pub(super) fn newest(&mut self, uid: Option<String>, cached: IntegrationStatus) -> IntegrationStatus {
        if self.uid != uid {
            *self = Self { uid, stands: self.stands, ..Self::default() };
        }
        match &self.written {
            Some((written, at)) if *written != cached && at.elapsed() < BEHIND => written.clone(),
            _ => {
                self.written = None;
                cached
            }
        }
    }

    /// Takes note of what there is now to be tested.
    pub(super) fn look(&mut self, digest: &str, has_job: bool) -> TestMemory {
        if self.digest.as_ref().is_none_or(|(known, _)| known != digest) {
            self.digest = Some((digest.to_owned(), Instant::now()));
            (self.unanswered, self.job) = (None, None);
        }
        TestMemory {
            quiet: self.digest.as_ref().map_or(Duration::ZERO, |(_, since)| since.elapsed()),
            since_test: self.tested.map(|at| at.elapsed()),
            unanswered: self.unanswered.clone(),
            job: match (&self.job, has_job) {
                (Some(_), _) => Job::Present,
                (None, true) => Job::Earlier,
                (None, false) => Job::Absent,
            },
        }
    }

    /// The worker has said what it found.
    pub(super) fn answered(&mut self) {
        (self.tested, self.unanswered, self.job) = (Some(Instant::now()), None, None);
    }

    /// Nobody carried a test out; how often in a row.
    pub(super) fn unanswered(&mut self, fault: &ConditionFault) -> u32 {
        (self.tested, self.job) = (Some(Instant::now()), None);
        let times = self.unanswered.as_ref().map_or(0, |before| before.times).saturating_add(1);
        self.unanswered = Some(Unanswered { fault: fault.clone(), times });
        times
    }
}

impl UnderWay {
    pub(super) fn new(id: String, permit: Permit) -> Self {
        let now = Instant::now();
        Self { id, begun: now, asked: now, trouble: None, _permit: permit }
    }

    /// Whether its pods were not asked for this long; from now on they were.
    pub(super) fn is_to_be_asked(&mut self, interval: Duration) -> bool {
        let is_due = self.asked.elapsed() >= interval;
        if is_due {
            self.asked = Instant::now();
        }
        is_due
    }
}
