//! What the process keeps to itself. Programs that it starts, such as those of tools, git or readers of documents, run as the
//! same user, who could otherwise read its environment and memory, and with them every key, through `/proc`.

use std::io;

use rustix::process::{DumpableBehavior, set_dumpable_behavior};

/// Makes `/proc/<pid>` of this process root's, and the process one that nobody of its own user may trace. A program that it
/// starts is not concerned: `exec` sets this anew.
pub fn seal() -> io::Result<()> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(Into::into)
}
