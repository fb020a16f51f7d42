//! Argo CD's engine at work on a clone, and what kstatus says of the objects that come of it. `hack/test cluster` builds both.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use serde_json::Value;
use slipway_peers::{Server, free_port};

use crate::git::Checkout;
use crate::kubectl::Kubectl;
use crate::watch::poll;

/// The name by which the engine writes: its program's.
pub const AGENT: &str = "gitops-agent";

/// The seconds between two rounds of the controller. Argo CD takes three minutes.
const RESYNC: u32 = 2;

/// Keeps a namespace as a clone says, again and again.
pub struct Controller {
    server: Server,
}

impl Controller {
    /// In the cluster of this kubeconfig, else in the tests' own. What the clone says is applied when this returns.
    #[track_caller]
    pub fn start(checkout: &Checkout, namespace: &str, kubeconfig: Option<&Path>) -> Self {
        let port = free_port();
        let mut command = Command::new(program(AGENT));
        command.arg(&checkout.path).args(["--path", Checkout::BUILT, "--namespaced", "--default-namespace", namespace]);
        command.args(["--namespace", namespace, "--resync-seconds", &RESYNC.to_string(), "--port", &port.to_string()]);
        if let Some(path) = kubeconfig {
            command.arg("--kubeconfig").arg(path);
        }
        let this = Self { server: Server::start(command, &format!("http://127.0.0.1:{port}/")) };
        // It looks at everything in the namespace before it begins.
        poll(120, || if this.rounds().is_empty() { Err(format!("a first round should be over: {}", this.faults())) } else { Ok(()) });
        this
    }

    /// What it did in each round so far, by object: the words of `kubectl apply`.
    pub fn rounds(&self) -> Vec<Vec<String>> {
        let mut rounds = Vec::<Vec<String>>::new();
        for line in self.server.log().lines() {
            if line.starts_with("RESOURCE") {
                rounds.push(Vec::new());
            } else if let (Some(round), true) = (rounds.last_mut(), line.starts_with("agents.slipway.dev/")) {
                round.push(line.to_owned());
            }
        }
        // It may be at the last one still.
        rounds.pop();
        rounds
    }

    /// Waits until a round that begins from now on is over.
    #[track_caller]
    pub fn round(&self) {
        // One may be at work at this moment, on what the clone said before.
        let before = self.rounds().len();
        poll(120, || match self.rounds().len() {
            now if now >= before + 2 => Ok(()),
            now => Err(format!("{before} rounds should become two more, and there are {now}: {}", self.faults())),
        });
    }

    /// Rounds that came to nothing, as its log says.
    pub fn faults(&self) -> String {
        let log = self.server.log();
        let faults =
            log.lines().filter(|line| ["Failed to parse", "Failed to synchronize", "Fatal"].iter().any(|word| line.contains(word)));
        faults.collect::<Vec<_>>().join("\n")
    }
}

/// What kstatus says of the objects of a kind, each time that it says something else than before.
pub struct Health {
    watch: Child,
    judge: Child,
    said: Arc<Mutex<Vec<(String, String)>>>,
}

impl Health {
    /// Of what `query` shows, a call of `kubectl get`.
    #[track_caller]
    pub fn of(query: &Kubectl) -> Self {
        let failed = |error| panic!("{query} cannot be watched: {error}");
        let mut watch = query.clone().arg("-o=json").arg("--watch").arg("--output-watch-events").command();
        let mut watch = watch.stderr(Stdio::null()).spawn().unwrap_or_else(failed);
        let events = watch.stdout.take().map_or_else(Stdio::null, Stdio::from);
        let mut judge = Command::new(program("gitops-health")).stdin(events).stdout(Stdio::piped()).spawn().unwrap_or_else(failed);
        let said = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&said);
        let lines = judge.stdout.take();
        thread::spawn(move || {
            for line in lines.map(BufReader::new).into_iter().flat_map(BufRead::lines).map_while(Result::ok) {
                let verdict: Value = serde_json::from_str(&line).unwrap_or_default();
                let word = |field: &str| verdict[field].as_str().unwrap_or_default().to_owned();
                heard.lock().unwrap_or_else(PoisonError::into_inner).push((word("name"), word("health")));
            }
        });
        Self { watch, judge, said }
    }

    /// All that was said of an object.
    pub fn said(&self, name: &str) -> Vec<String> {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.iter().filter(|(of, _)| of == name).map(|(_, health)| health.clone()).collect()
    }

    /// Waits until an object is ready that was in progress after what had been said before, and answers how much was said.
    #[track_caller]
    pub fn turns_ready(&self, name: &str, before: usize) -> usize {
        poll(90, || match self.said(name).split_off(before).as_slice() {
            [first, .., last] if first == "InProgress" && last == "Current" => Ok(()),
            said => Err(format!("{name} should be in progress and then ready, and this is said: {said:?}")),
        });
        self.said(name).len()
    }
}

impl Drop for Health {
    fn drop(&mut self) {
        for child in [&mut self.watch, &mut self.judge] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn program(name: &str) -> PathBuf {
    let path = slipway_peers::repository().join(".local/bin").join(name);
    assert!(path.exists(), "{} does not exist: hack/test cluster builds it", path.display());
    path
}
