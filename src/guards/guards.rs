//! The guards of one agent: built once from its settings, shared by all of its turns.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use crate::finding::{Side, Verdict};
use crate::limits::{Breach, Budget, Limits, Spent, Turn};
use crate::settings::Settings;
use crate::stream::Stream;

/// Cheap to clone; the clones share one state of limits.
#[derive(Debug, Clone, Default)]
pub struct Guards {
    limits: Option<Arc<Mutex<Limits>>>,
}

impl Guards {
    /// `guards_json` is `RUNTIME_GUARDS`, an array of names or of `{"name": …}` with settings; `policies_json` is
    /// `RUNTIME_POLICIES`, an array of policies. Both may be empty. All faults are told at once.
    pub fn read(guards_json: &str, policies_json: &str) -> Result<Self, Vec<String>> {
        let settings = Settings::read(guards_json, policies_json)?;
        let limits = Limits::new(settings.limits);
        Ok(Self { limits: (!limits.is_empty()).then(|| Arc::new(Mutex::new(limits))) })
    }

    /// No guard at all.
    pub fn none() -> Self {
        Self::default()
    }

    /// Whether nothing is guarded, so that a turn need not ask.
    pub fn is_empty(&self) -> bool {
        self.limits.is_none()
    }

    pub fn check<'a>(&self, _side: Side, text: &'a str) -> Verdict<'a> {
        // Detection follows: its test data is committed first.
        Verdict { findings: Vec::new(), text: Cow::Borrowed(text), blocked: None }
    }

    /// A judge for one answer that comes in fragments.
    pub fn stream(&self) -> Stream {
        Stream::default()
    }

    /// Asks before a turn; what is not refused counts as a request.
    pub fn before_turn(&self, budget: &Budget) -> Turn {
        self.with_limits(|limits| limits.before_turn(budget)).unwrap_or_default()
    }

    /// Tells what a turn has taken.
    pub fn after(&self, spent: &Spent) -> Vec<Breach> {
        self.with_limits(|limits| limits.after(spent)).unwrap_or_default()
    }

    /// What was spent today before this process began.
    pub fn spent_today(&self, now: SystemTime, usd: f64) {
        self.with_limits(|limits| limits.spent_today(now, usd));
    }

    /// The most tokens that the answer to a prompt of this size may have; none when nothing limits it.
    pub fn tokens_left(&self, tokens_in_prompt: u64) -> Option<u64> {
        self.with_limits(|limits| limits.tokens_left(tokens_in_prompt)).flatten()
    }

    /// A turn that panicked has left numbers, not a broken structure: they stay in force.
    fn with_limits<T>(&self, act: impl FnOnce(&mut Limits) -> T) -> Option<T> {
        let limits = self.limits.as_ref()?;
        Some(act(&mut limits.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}
