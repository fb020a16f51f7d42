//! Most tests run together, some at a time; those that disturb others, or are disturbed by them, run alone when the others have ended.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

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
pub enum Turn {
    Together,
    Alone,
}

pub fn together() -> Turn {
    let mut crowd = crowd();
    crowd.waiting += 1;
    let mut crowd = until(crowd, |crowd| !crowd.alone && crowd.running < PLACES);
    crowd.waiting -= 1;
    crowd.running += 1;
    Turn::Together
}

/// Lets all go first that could run together.
pub fn alone() -> Turn {
    until(crowd(), |crowd| !crowd.alone && crowd.running + crowd.waiting == 0).alone = true;
    Turn::Alone
}

impl Drop for Turn {
    fn drop(&mut self) {
        match self {
            Self::Together => crowd().running -= 1,
            Self::Alone => crowd().alone = false,
        }
        CHANGED.notify_all();
    }
}

fn crowd() -> MutexGuard<'static, Crowd> {
    CROWD.lock().unwrap_or_else(PoisonError::into_inner)
}

fn until(crowd: MutexGuard<'static, Crowd>, free: impl Fn(&Crowd) -> bool) -> MutexGuard<'static, Crowd> {
    CHANGED.wait_while(crowd, |crowd| !free(crowd)).unwrap_or_else(PoisonError::into_inner)
}
