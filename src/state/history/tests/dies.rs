//! Ends this process at the n-th change of a file, as a kill would.

use std::sync::atomic::{AtomicI64, Ordering};

/// How many changes are left. Below zero nothing is counted.
static LEFT: AtomicI64 = AtomicI64::new(-1);

pub(crate) fn after(steps: i64) {
    LEFT.store(steps, Ordering::SeqCst);
}

/// Whether the next change is the last.
pub(crate) fn is_next() -> bool {
    LEFT.load(Ordering::SeqCst) == 1
}

pub(crate) fn step() {
    if LEFT.load(Ordering::SeqCst) >= 0 && LEFT.fetch_sub(1, Ordering::SeqCst) == 1 {
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
}
