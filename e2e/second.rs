//! A second cluster: an API server beside the tests' own, empty and without a node, by `hack/apart`.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use slipway_peers::{Server, free_port};

use crate::kubectl::Kubectl;
use crate::turn::with_second;
use crate::{Api, Turn, platform, poll};

/// It lasts as long as this, and no longer than the test's process: `hack/apart` ends with its standard input.
pub struct Second {
    script: Child,
    kubeconfig: PathBuf,
    // After the script has ended.
    _turn: Turn,
}

impl Second {
    /// With our kinds, and nothing that works on them.
    #[track_caller]
    pub fn start() -> Self {
        Self::with_controllers("")
    }

    /// With these of Kubernetes' controllers besides the garbage collector, separated by commas.
    #[track_caller]
    pub fn with_controllers(controllers: &str) -> Self {
        Self::within(with_second(), controllers)
    }

    #[track_caller]
    pub(crate) fn within(turn: Turn, controllers: &str) -> Self {
        let path = slipway_peers::repository().join("hack/apart");
        let failed = |error| panic!("{} cannot be run: {error}", path.display());
        let mut command = Command::new(&path);
        if !controllers.is_empty() {
            command.args(["--controllers", controllers]);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut script = command.spawn().unwrap_or_else(failed);
        let (mut line, mut faults) = (String::new(), String::new());
        let read = script.stdout.take().map(|stdout| BufReader::new(stdout).read_line(&mut line));
        let mut this = Self { script, kubeconfig: line.trim().into(), _turn: turn };
        if !matches!(read, Some(Ok(1..))) {
            let _ = this.script.stderr.take().map(|mut stderr| stderr.read_to_string(&mut faults));
            panic!("hack/apart should print where a kubeconfig is, and says: {faults}");
        }
        this.kubectl("apply --server-side -f").arg(slipway_peers::repository().join("crds").display()).ok();
        this.kubectl("wait crd --all --for=condition=Established --timeout=60s").ok();
        this
    }

    /// With an operator of the working tree, and a Team; the operator ends with what is returned.
    #[track_caller]
    pub fn operated(team: &str, environment: &[(&str, &str)]) -> (Self, Server) {
        let this = Self::start();
        let (server, _) = this.operator(environment);
        this.team(team);
        (this, server)
    }

    /// An operator of the working tree, and where its metrics are.
    #[track_caller]
    pub fn operator(&self, environment: &[(&str, &str)]) -> (Server, Api) {
        self.apply_as("v1", &json!({"kind": "Namespace", "metadata": {"name": platform::NAMESPACE}}));
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let mut command = Api::operator(self.kubeconfig(), &address.to_string());
        command.envs(environment.iter().copied());
        (Server::start(command, &format!("http://{address}/readyz")), Api::at(address))
    }

    /// A Team that has its namespace.
    #[track_caller]
    pub fn team(&self, slug: &str) {
        self.apply(&json!({"kind": "Team", "metadata": {"name": slug}, "spec": {"name": slug}}));
        poll(30, || {
            let found = self.kubectl(&format!("get namespace team-{slug} --ignore-not-found -o name")).ok();
            if found.is_empty() { Err(format!("Team {slug} should get its namespace")) } else { Ok(()) }
        });
    }

    /// An object of one of our kinds, applied.
    #[track_caller]
    pub fn apply(&self, object: &Value) {
        self.apply_as("agents.slipway.dev/v1", object);
    }

    /// An object of another kind, applied.
    #[track_caller]
    pub fn apply_as(&self, version: &str, object: &Value) {
        let mut whole = object.clone();
        whole["apiVersion"] = json!(version);
        self.kubectl("apply -f -").input(whole).ok();
    }

    /// `kubectl LINE` in this cluster.
    pub fn kubectl(&self, line: &str) -> Kubectl {
        Kubectl::new(&format!("--kubeconfig={} {line}", self.kubeconfig.display()))
    }

    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }
}

impl Drop for Second {
    fn drop(&mut self) {
        drop(self.script.stdin.take());
        let _ = self.script.wait();
    }
}
