//! A second cluster: an API server beside the tests' own, empty and without a node, by `hack/apart`.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::kubectl::{Kubectl, kubectl};

/// The one that runs: there is room for one beside the tests' own.
static RUNNING: Mutex<Option<Running>> = Mutex::new(None);
static CHANGED: Condvar = Condvar::new();

struct Running {
    script: Script,
    users: usize,
    /// Whether its first user wants no other.
    taken: bool,
}

/// It lasts as long as one of these, and no longer than the test's process: `hack/apart` ends with its standard input.
pub struct Second {
    kubeconfig: PathBuf,
}

impl Second {
    /// With our kinds, and nothing that works on them. It is this test's alone; others wait.
    #[track_caller]
    pub fn start() -> Self {
        Self::once(Option::is_some, true)
    }

    /// The same for tests that leave each other's teams alone, and use it together.
    #[track_caller]
    pub fn shared() -> Self {
        Self::once(|running| running.as_ref().is_some_and(|running| running.taken), false)
    }

    #[track_caller]
    fn once(waits: fn(&Option<Running>) -> bool, taken: bool) -> Self {
        let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        let mut running: MutexGuard<Option<Running>> =
            CHANGED.wait_while(running, |running| waits(running)).unwrap_or_else(PoisonError::into_inner);
        let running = running.get_or_insert_with(|| Running { script: Script::start(), users: 0, taken });
        running.users += 1;
        Self { kubeconfig: running.script.kubeconfig.clone() }
    }

    /// `kubectl LINE` in this cluster.
    pub fn kubectl(&self, line: &str) -> Kubectl {
        within(&self.kubeconfig, line)
    }

    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }
}

impl Drop for Second {
    fn drop(&mut self) {
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(present) = running.as_mut() {
            present.users -= 1;
            if present.users == 0 {
                *running = None;
                CHANGED.notify_all();
            }
        }
    }
}

fn within(kubeconfig: &Path, line: &str) -> Kubectl {
    kubectl(format!("--kubeconfig={} {line}", kubeconfig.display()))
}

/// `hack/apart` at work.
struct Script {
    child: Child,
    kubeconfig: PathBuf,
}

impl Script {
    #[track_caller]
    fn start() -> Self {
        let path = slipway_peers::repository().join("hack/apart");
        let failed = |error| panic!("{} cannot be run: {error}", path.display());
        let mut command = Command::new(&path);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(failed);
        let (mut line, mut faults) = (String::new(), String::new());
        let read = child.stdout.take().map(|stdout| BufReader::new(stdout).read_line(&mut line));
        let mut this = Self { child, kubeconfig: line.trim().into() };
        if !matches!(read, Some(Ok(1..))) {
            let _ = this.child.stderr.take().map(|mut stderr| stderr.read_to_string(&mut faults));
            panic!("hack/apart should print where a kubeconfig is, and says: {faults}");
        }
        within(&this.kubeconfig, "apply --server-side -f").arg(slipway_peers::repository().join("crds").display()).ok();
        within(&this.kubeconfig, "wait crd --all --for=condition=Established --timeout=60s").ok();
        this
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
