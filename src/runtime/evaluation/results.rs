//! The results of a run so far, and its progress.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use slipway_evaluation::Silence;
use slipway_evaluation::wire::{CaseResult, Progress, Report};
use tokio::time::Instant;

pub(super) struct Results {
    /// How many cases there are.
    pub(super) total: usize,
    /// The prompts that the judge is asked with.
    prompts: Vec<&'static str>,
    state: Mutex<State>,
}

struct State {
    status: Progress,
    reason: Option<String>,
    by_case: BTreeMap<usize, CaseResult>,
    ended: Option<Instant>,
}

impl Results {
    pub(super) fn new(total: usize, prompts: Vec<&'static str>) -> Self {
        let state = State { status: Progress::Running, reason: None, by_case: BTreeMap::new(), ended: None };
        Self { total, prompts, state: Mutex::new(state) }
    }

    pub(super) fn status(&self) -> Progress {
        self.state().status
    }

    pub(super) fn ended(&self) -> Option<Instant> {
        self.state().ended
    }

    /// Adds a result, unless the run has ended or the case has one.
    pub(super) fn add(&self, result: CaseResult) {
        let mut state = self.state();
        if state.status == Progress::Running && result.case < self.total {
            state.by_case.entry(result.case).or_insert(result);
        }
    }

    /// A case's result, as it is written down.
    pub(super) fn json(&self, case: usize) -> Option<serde_json::Value> {
        serde_json::to_value(self.state().by_case.get(&case)?).ok()
    }

    pub(super) fn has(&self, case: usize) -> bool {
        self.state().by_case.contains_key(&case)
    }

    /// Whether the run is to end though not all cases have a result, as the agent gives no answers.
    pub(super) fn is_silent(&self) -> bool {
        Silence::of(self.state().by_case.values()).ends(self.total)
    }

    /// Ends the run. Whether it was under way until now.
    pub(super) fn end(&self, status: Progress, reason: Option<String>) -> bool {
        let mut state = self.state();
        if state.status != Progress::Running {
            return false;
        }
        (state.status, state.reason, state.ended) = (status, reason, Some(Instant::now()));
        true
    }

    pub(super) fn report(&self, run_id: &str, is_full: bool) -> Report {
        let state = self.state();
        Report {
            run_id: run_id.to_owned(),
            status: state.status,
            reason: state.reason.clone(),
            total: self.total,
            finished: state.by_case.len(),
            prompts: self.prompts.iter().map(|prompt| (*prompt).to_owned()).collect(),
            results: if is_full { state.by_case.values().cloned().collect() } else { Vec::new() },
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
