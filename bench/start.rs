//! Processes that are measured: found beside this one, stopped when let go of.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail};

/// A program of the same build.
pub(crate) fn program(name: &str) -> anyhow::Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name(name);
    if !path.exists() {
        bail!("{name} does not lie beside slipway-bench; build with: cargo build --release --workspace --bins");
    }
    Ok(path)
}

/// A command without this process's variables, but with those that lead to the cluster.
pub(crate) fn command(name: &str) -> anyhow::Result<Command> {
    let mut command = Command::new(program(name)?);
    quiet(&mut command);
    Ok(command)
}

/// The same, on one core and no other.
pub(crate) fn pinned(name: &str, core: &str) -> anyhow::Result<Command> {
    let mut command = Command::new("taskset");
    command.args(["-c", core]).arg(program(name)?);
    quiet(&mut command);
    Ok(command)
}

fn quiet(command: &mut Command) {
    let kept = std::env::vars_os().filter(|(name, _)| ["HOME", "KUBECONFIG", "PATH", "SLIPWAY_DAEMON"].iter().any(|kept| name == kept));
    let kept: Vec<_> = kept.collect();
    command.env_clear().envs(kept).stdin(Stdio::null()).stdout(Stdio::null());
}

/// A process of ours; it ends with this value.
pub(crate) struct Process(Child);

impl Process {
    pub(crate) fn spawn(command: &mut Command) -> anyhow::Result<Self> {
        Ok(Self(command.spawn().with_context(|| format!("cannot start {}", command.get_program().display()))?))
    }

    /// Resident memory in KiB.
    pub(crate) fn resident(&self) -> anyhow::Result<f64> {
        self.memory("VmRSS:")
    }

    /// The most resident memory that it has had, in KiB.
    pub(crate) fn most_resident(&self) -> anyhow::Result<f64> {
        self.memory("VmHWM:")
    }

    /// Resident memory of the process, of those that it has started, and so on, in KiB. What they share counts for each.
    pub(crate) fn resident_of_all(&self) -> f64 {
        let (mut all, mut at) = (vec![self.0.id()], 0);
        while let Some(id) = all.get(at).copied() {
            all.extend(children(id));
            at += 1;
        }
        // Some end between two looks.
        all.into_iter().filter_map(|id| memory(id, "VmRSS:").ok()).sum()
    }

    fn memory(&self, row: &str) -> anyhow::Result<f64> {
        memory(self.0.id(), row)
    }

    /// The seconds that it has computed, in steps of 10 ms.
    pub(crate) fn processor_time(&self) -> anyhow::Result<f64> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0.id()))?;
        let times = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
        Ok(times.map(|ticks| ticks.parse::<f64>().unwrap_or_default() / 100.0).sum())
    }

    /// False once it has ended well.
    pub(crate) fn running(&mut self) -> anyhow::Result<bool> {
        match self.0.try_wait()? {
            Some(status) if status.success() => Ok(false),
            Some(status) => bail!("a process that is measured has failed: {status}"),
            None => Ok(true),
        }
    }

    pub(crate) fn check(&mut self) -> anyhow::Result<()> {
        match self.0.try_wait()? {
            Some(status) => bail!("a process that is measured has ended: {status}"),
            None => Ok(()),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A row of a process's memory, in KiB.
fn memory(id: u32, row: &str) -> anyhow::Result<f64> {
    let status = fs::read_to_string(format!("/proc/{id}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(row)).context("the process has ended")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

/// What a process has started and that has not ended. A child is its thread's.
fn children(id: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten();
    let lists: String = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok()).collect();
    lists.split_whitespace().filter_map(|child| child.parse().ok()).collect()
}

/// The first and the last core that this process may use.
pub(crate) fn cores() -> anyhow::Result<(String, String)> {
    let status = fs::read_to_string("/proc/self/status")?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).context("no list of cores")?.trim().to_owned();
    let mut all = list.split([',', '-']);
    let first = all.next().unwrap_or("0").to_owned();
    Ok((first.clone(), all.next_back().map_or(first, str::to_owned)))
}
