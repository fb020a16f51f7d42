//! What the process keeps to itself, and its last words.

use std::fs::OpenOptions;
use std::io::{self, Write};

use rustix::process::{DumpableBehavior, set_dumpable_behavior};

/// `kubectl describe pod` shows what stands there.
const TERMINATION_LOG: &str = "/dev/termination-log";
/// The kubelet reads no more of the file.
const TERMINATION_BYTES_MAX: usize = 4096;

/// Makes `/proc/<pid>` of this process root's. The programs that read documents run as the same user, and could otherwise read
/// the environment with its keys.
pub(crate) fn seal() -> io::Result<()> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(Into::into)
}

/// Writes to the termination log where it already exists; elsewhere there is no kubelet to read it.
pub(crate) fn write_termination_log(words: &str) {
    let words = &words[..words.floor_char_boundary(TERMINATION_BYTES_MAX)];
    if let Ok(mut file) = OpenOptions::new().write(true).truncate(true).open(TERMINATION_LOG) {
        // The same words go to the log.
        let _ = file.write_all(words.as_bytes());
    }
}
