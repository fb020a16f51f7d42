//! Most tests run together, some at a time; those that disturb others, or are disturbed by them, run alone when the others have ended.

use std::fs::OpenOptions;
use std::io::Write;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

/// As many as two cores can carry: they wait for pods most of the time.
const PLACES: usize = 6;

static CROWD: Mutex<Crowd> = Mutex::new(Crowd { waiting: 0, running: 0, alone: false });
static CHANGED: Condvar = Condvar::new();

struct Crowd {
    /// For a place among those that run together.
    waiting: usize,
    running: usize,
    /// Somebody is.
    alone: bool,
}

/// A test's place in the crowd, kept while it runs.
pub struct Turn {
    alone: bool,
    begun: Instant,
}

impl Turn {
    fn begin(alone: bool) -> Self {
        Self { alone, begun: Instant::now() }
    }
}

pub fn together() -> Turn {
    let mut crowd = crowd();
    crowd.waiting += 1;
    let mut crowd = until(crowd, |crowd| !crowd.alone && crowd.running < PLACES);
    crowd.waiting -= 1;
    crowd.running += 1;
    Turn::begin(false)
}

/// Lets all go first that could run together.
pub fn alone() -> Turn {
    until(crowd(), |crowd| !crowd.alone && crowd.running + crowd.waiting == 0).alone = true;
    Turn::begin(true)
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut crowd = crowd();
        if self.alone {
            crowd.alone = false;
        } else {
            crowd.running -= 1;
        }
        drop(crowd);
        CHANGED.notify_all();
        tell(self);
    }
}

/// How long a test had its place, for the list that `hack/test` prints in the end.
fn tell(turn: &Turn) {
    let Some(list) = std::env::var_os("SLIPWAY_TIMES") else { return };
    let line = format!(
        "{} {}{}\n",
        turn.begun.elapsed().as_secs(),
        thread::current().name().unwrap_or_default(),
        if turn.alone { " (alone)" } else { "" }
    );
    if let Ok(mut list) = OpenOptions::new().create(true).append(true).open(list) {
        let _ = list.write_all(line.as_bytes());
    }
}

fn crowd() -> MutexGuard<'static, Crowd> {
    CROWD.lock().unwrap_or_else(PoisonError::into_inner)
}

fn until(crowd: MutexGuard<'static, Crowd>, free: impl Fn(&Crowd) -> bool) -> MutexGuard<'static, Crowd> {
    CHANGED.wait_while(crowd, |crowd| !free(crowd)).unwrap_or_else(PoisonError::into_inner)
}
