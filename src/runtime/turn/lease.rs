//! The lease of a turn: the store holds that it began, its partial answer, and how it ended. A conversation belongs to the turn
//! as long as the lease is there, however the turn ends.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use slipway_database::{Fault, LEASE, LONGEST_MESSAGE, NewMessage, Role, StoredMessage, Turn};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};
use tracing::warn;

use super::{bounds, prompt};
use crate::agent::Agent;
use crate::store::Store;
use crate::turns::Running;

/// How often the partial answer is checked, and how often it is written while it grows.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
const WRITE_INTERVAL: Duration = Duration::from_secs(5);
/// How often the lease is renewed while the answer does not grow.
const RENEW_INTERVAL: Duration = Duration::from_secs(LEASE.as_secs() / 3);
/// The pause before the begin of a turn is repeated whose outcome is unknown.
const RETRY_DELAY: Duration = Duration::from_millis(250);
/// The pauses before an answer that could not be stored is tried again; the last one is repeated.
const BACKOFF: [Duration; 4] = [Duration::from_millis(250), Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(5)];
/// For how long that is tried.
const MAX_RETRY_TIME: Duration = Duration::from_mins(5);

pub(super) struct Lease {
    store: Arc<Store>,
    turn: Turn,
    /// The messages of the conversation when it was taken, with the one to answer.
    pub(super) history: Vec<StoredMessage>,
    trace_id: String,
    /// The text of the answer so far.
    pub(super) partial: Mutex<String>,
    /// The process does not end before the turn has let go.
    running: Running,
    held: bool,
}

impl Lease {
    /// Keeps what was said and takes the conversation.
    pub(super) async fn take(agent: &Agent, running: Running, id: &str, message: &str, trace_id: &str) -> Result<Self, Fault> {
        let (turn, title) = (Turn::new(id), prompt::title(message));
        let said = NewMessage::new(Role::User, message).with_trace(trace_id);
        // A model that repeats what it hears needs no past.
        let latest = if agent.forgetful { 0 } else { prompt::MAX_HISTORY };
        let mut taken = agent.store.begin_turn(&turn, &title, said.clone(), latest).await;
        if let Err(Fault::Unavailable(_)) = taken {
            // It may have gone through, and only the answer was lost: the same message of the same turn counts once.
            sleep(RETRY_DELAY).await;
            taken = agent.store.begin_turn(&turn, &title, said, latest).await;
        }
        let history = taken?;
        let (store, trace_id) = (Arc::clone(&agent.store), trace_id.to_owned());
        Ok(Self { store, turn, history, trace_id, partial: Mutex::default(), running, held: true })
    }

    /// Keeps what there is of a long answer, so that others see it grow and a killed pod loses little.
    /// Returns when the conversation is no longer there, or another's.
    pub(super) async fn write_down(&self) {
        let mut pace = Pace::new(Instant::now());
        let mut told = false;
        loop {
            sleep(POLL_INTERVAL).await;
            let Some(text) = self.due(&pace) else { continue };
            match self.store.progress(&self.turn, &text).await {
                Ok(()) => {
                    pace.written(text.len(), Instant::now());
                    told = false;
                }
                Err(fault @ (Fault::Busy | Fault::Refused(_))) => {
                    return warn!(%fault, "a turn ends: its conversation is no longer its own");
                }
                Err(fault) => {
                    pace.failed(Instant::now());
                    if !std::mem::replace(&mut told, true) {
                        warn!(%fault, "an answer under way could not be written down");
                    }
                }
            }
        }
    }

    fn due(&self, pace: &Pace) -> Option<String> {
        let partial = self.partial.lock().unwrap_or_else(PoisonError::into_inner);
        let text = &partial[..partial.floor_char_boundary(LONGEST_MESSAGE)];
        pace.is_due(text.len(), Instant::now()).then(|| text.to_owned())
    }

    /// Keeps the answer and lets the conversation go; whether it was kept.
    pub(super) async fn end(mut self, answer: Vec<NewMessage>) -> bool {
        let kept = finish(&self.store, &self.turn, answer.into_iter().map(bounds::fitted).collect()).await;
        self.held = false;
        kept
    }
}

/// A turn that panicked, or was dropped, leaves what it had said, and the conversation to others.
impl Drop for Lease {
    fn drop(&mut self) {
        let (true, Ok(runtime)) = (self.held, Handle::try_current()) else { return };
        warn!(trace_id = self.trace_id, "a turn broke off; what there is of its answer is kept");
        let text = std::mem::take(self.partial.get_mut().unwrap_or_else(PoisonError::into_inner));
        let answer = NewMessage::new(Role::Assistant, text).with_trace(&self.trace_id).interrupted();
        let answer = Some(answer).filter(|answer| !answer.content.is_empty()).map(bounds::fitted);
        let (store, turn, running) = (Arc::clone(&self.store), self.turn.clone(), self.running.clone());
        runtime.spawn(async move {
            finish(&store, &turn, answer.into_iter().collect()).await;
            drop(running);
        });
    }
}

/// Goes on trying while the database is away, for longer than a lease lasts. That is safe, as the store takes a late
/// answer unless another turn has the conversation by then, and it loses little, as the pauses are short: the answer
/// is there soon after the database is, most likely before anybody asks the next question.
async fn finish(store: &Store, turn: &Turn, answer: Vec<NewMessage>) -> bool {
    let began = Instant::now();
    let [.., last] = BACKOFF;
    let mut pauses = BACKOFF.into_iter();
    loop {
        match store.finish_turn(turn, answer.clone()).await {
            Ok(()) => return true,
            Err(fault @ Fault::Unavailable(_)) if began.elapsed() < MAX_RETRY_TIME => {
                warn!(%fault, "an answer could not be kept; trying again");
                sleep(pauses.next().unwrap_or(last)).await;
            }
            Err(fault) => {
                warn!(%fault, "an answer could not be kept");
                return false;
            }
        }
    }
}

/// When an answer under way is written down: soon when its first words are there, then now and then,
/// and without need only to renew the lease.
struct Pace {
    bytes: usize,
    first: bool,
    failed: bool,
    at: Instant,
}

impl Pace {
    /// The lease is new.
    fn new(now: Instant) -> Self {
        Self { bytes: 0, first: true, failed: false, at: now }
    }

    fn is_due(&self, bytes: usize, now: Instant) -> bool {
        let since = now - self.at;
        // An answer only grows.
        let news = self.failed || bytes > self.bytes;
        since >= RENEW_INTERVAL || news && (since >= WRITE_INTERVAL || self.first && !self.failed)
    }

    fn written(&mut self, bytes: usize, now: Instant) {
        *self = Self { bytes, first: self.first && bytes == 0, failed: false, at: now };
    }

    fn failed(&mut self, now: Instant) {
        (self.failed, self.at) = (true, now);
    }
}

#[cfg(test)]
mod tests;
