//! Kills this process at the n-th change of a file.

use std::sync::atomic::{AtomicI64, Ordering};

/// Remaining changes. Negative: not counted.
static LEFT: AtomicI64 = AtomicI64::new(-1);

pub(crate) fn after(steps: i64) {
    LEFT.store(steps, Ordering::SeqCst);
}

/// Whether the process is killed at the next change.
pub(crate) fn is_next() -> bool {
    LEFT.load(Ordering::SeqCst) == 1
}

pub(crate) fn step() {
    if LEFT.load(Ordering::SeqCst) >= 0 && LEFT.fetch_sub(1, Ordering::SeqCst) == 1 {
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
}
