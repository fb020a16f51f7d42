//! Why a subprocess ended without an answer, in words for the owner of the document.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use rustix::process::Signal;

use super::ExtractionLimits;
use crate::Unreadable;

/// The exit code of a Rust program that panicked.
const PANICKED: i32 = 101;

pub(super) fn fault(status: ExitStatus, said: &str, limits: &ExtractionLimits) -> Unreadable {
    let is = |signal: Signal| status.signal() == Some(signal.as_raw());
    let memory = || Unreadable::TooLarge(format!("it takes more than {} MiB of memory to read", limits.memory_mebibytes));
    if is(Signal::XCPU) {
        return Unreadable::TooLarge(format!("it takes more than {} s of the processor to read", limits.cpu.as_secs()));
    }
    if said.contains("has overflowed its stack") {
        return Unreadable::TooLarge("it is nested too deeply to be read".into());
    }
    if is(Signal::ABORT) && said.contains("memory allocation of") {
        return memory();
    }
    if is(Signal::KILL) {
        // By the kernel: it is the only one that kills, but for the parent, which says so itself.
        return Unreadable::TooLarge("its reader was ended for want of memory".into());
    }
    let what = match status.code() {
        Some(PANICKED) => {
            said.lines().find_map(|line| line.split_once("panicked at ")).map_or("a panic", |(_, place)| place.trim_end_matches(':'))
        }
        _ => "it ended without an answer",
    };
    Unreadable::Broken(format!("its reader failed ({what}; {status})"))
}
