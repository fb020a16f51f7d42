//! A control group that limits the memory of one process, as a container's does. It takes root and a cgroup file system
//! that can be written to.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

/// Where cgroups of version 1 keep memory.
const V1: &str = "/sys/fs/cgroup/memory";
/// Where those of version 2 are.
const V2: &str = "/sys/fs/cgroup";

const PREFIX: &str = "slipway-test-";

/// A group of its own, removed at the end. The kernel kills a process in it that takes more than the limit.
pub struct Cgroup {
    folder: PathBuf,
}

impl Cgroup {
    #[track_caller]
    pub fn with_memory(bytes: u64) -> Self {
        let is_v1 = Path::new(V1).is_dir();
        let (root, limit) = if is_v1 { (V1, "memory.limit_in_bytes") } else { (V2, "memory.max") };
        // Left by runs that were interrupted: the process is gone that a group is named after.
        for entry in fs::read_dir(root).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let owner = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
            if owner.is_some_and(|owner| !Path::new("/proc").join(owner).is_dir()) {
                let _ = fs::remove_dir(entry.path());
            }
        }
        let prefix = format!("{PREFIX}{}-", std::process::id());
        let name = tempfile::Builder::new().prefix(&prefix).make(|path| Ok(path.to_owned()));
        let name = name.unwrap_or_else(|e| panic!("no name for a cgroup: {e}"));
        let folder = Path::new(root).join(name.path().file_name().unwrap_or_default());
        let made = fs::create_dir(&folder).and_then(|()| fs::write(folder.join(limit), bytes.to_string()));
        made.unwrap_or_else(|e| panic!("{} cannot be made and limited, which takes root: {e}", folder.display()));
        if is_v1 {
            // Without swap to fall back on, where the kernel counts it.
            let _ = fs::write(folder.join("memory.memsw.limit_in_bytes"), bytes.to_string());
        }
        Self { folder }
    }

    /// A command that runs `program` in this group.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", r#"echo $$ >"$0" && exec "$@""#]).arg(self.folder.join("cgroup.procs")).arg(program);
        command
    }

    /// How many processes of this group the kernel has killed for want of memory.
    #[track_caller]
    pub fn kills(&self) -> u64 {
        let events = self.folder.join(if self.folder.starts_with(V1) { "memory.oom_control" } else { "memory.events" });
        let events = fs::read_to_string(&events).unwrap_or_else(|e| panic!("{} cannot be read: {e}", events.display()));
        let kills = events.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok());
        kills.unwrap_or_else(|| panic!("the kernel does not count what it kills: {events}"))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // It is empty once the kernel has taken leave of the process.
        for _ in 0..50 {
            if fs::remove_dir(&self.folder).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The most memory that a process has had in RAM so far, in bytes.
#[track_caller]
pub fn peak_memory(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_else(|e| panic!("process {process} has ended: {e}"));
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or_else(|| panic!("the kernel tells no VmHWM of process {process}: {status}")) * 1024
}
