//! Flagger, the real one, as a process beside the cluster. `hack/test cluster` builds it.

use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use slipway_peers::{Server, free_port, repository};

use crate::kubectl::kubectl;

/// How often it looks whether there is another Canary.
const LOOKS: &str = "1s";

/// Its kinds are the whole cluster's: the first test that needs them installs them, and the last one takes them away.
static USERS: Mutex<usize> = Mutex::new(0);

fn users() -> MutexGuard<'static, usize> {
    USERS.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Kinds;

impl Kinds {
    #[track_caller]
    fn install() -> Self {
        let mut users = users();
        if *users == 0 {
            let kinds = built("flagger-crd.yaml");
            kubectl("apply --server-side --force-conflicts -f").arg(kinds.display()).ok();
            kubectl("wait --for=condition=Established --timeout=30s -f").arg(kinds.display()).ok();
        }
        *users += 1;
        Self
    }
}

impl Drop for Kinds {
    fn drop(&mut self) {
        let mut users = users();
        *users -= 1;
        if *users == 0 {
            kubectl("delete --ignore-not-found --timeout=60s -f").arg(built("flagger-crd.yaml").display()).run();
        }
    }
}

/// It ends with this value, and its kinds go with the last one.
pub struct Flagger {
    server: Server,
    _kinds: Kinds,
}

impl Flagger {
    /// For the Canaries of one namespace, whose Services and pods weigh nothing: its provider kubernetes.
    #[track_caller]
    pub fn start(namespace: &str) -> Self {
        let kinds = Kinds::install();
        let (port, kubeconfig) = (free_port(), std::env::var("KUBECONFIG").unwrap_or_default());
        let mut command = Command::new(built("flagger"));
        command.args(["-kubeconfig", &kubeconfig, "-namespace", namespace, "-control-loop-interval", LOOKS, "-port", &port.to_string()]);
        Self { server: Server::start(command, &format!("http://127.0.0.1:{port}/healthz")), _kinds: kinds }
    }
}

impl Drop for Flagger {
    #[expect(clippy::print_stderr, reason = "the test harness shows this for failed tests alone")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.server.log();
            let said: Vec<&str> = log.lines().filter(|line| line.contains("controller/")).collect();
            eprintln!("--- Flagger\n{}", said[said.len().saturating_sub(40)..].join("\n"));
        }
    }
}

fn built(name: &str) -> PathBuf {
    let path = repository().join(".local/bin").join(name);
    assert!(path.exists(), "{} does not exist: hack/test cluster builds it", path.display());
    path
}
