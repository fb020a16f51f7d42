//! The API server that trials take place on, and asking it for something, as users do and without a fault in between.

use std::cell::Cell;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use serde_json::{Value, json};
use slipway_peers::{Server, free_port};

use super::home::Home;
use super::pods::Pods;
use crate::http::{Reply, UnreadReply};
use crate::kubectl::program;
use crate::second::Second;
use crate::turn::apart;

/// The one that runs: the first who needs it begins it, and it ends with the last. Where others run as well, it waits for its turn.
static SHARED: Mutex<Weak<Second>> = Mutex::new(Weak::new());

#[track_caller]
fn shared() -> Arc<Second> {
    // A test that could not begin it leaves that to the next.
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        let second = Arc::new(Second::within(apart(), ""));
        *shared = Arc::downgrade(&second);
        second
    })
}

/// One test's part of the second cluster: teams whose names begin like the test.
pub struct Ground {
    // What asks the server goes before it does.
    _pods: Option<Pods>,
    _proxy: Server,
    second: Arc<Second>,
    address: SocketAddr,
    name: String,
    teams: Cell<usize>,
}

impl Ground {
    /// `name` is a word that no other test's begins with.
    #[track_caller]
    pub fn new(name: &str) -> Self {
        Self::begin(name, true)
    }

    /// One where nobody says that pods are there: a [`Node`](super::Node) runs those of a team.
    #[track_caller]
    pub fn without_pods(name: &str) -> Self {
        Self::begin(name, false)
    }

    #[track_caller]
    fn begin(name: &str, plays_pods: bool) -> Self {
        let second = shared();
        let port = free_port();
        let mut command = Command::new(program());
        command.arg("--kubeconfig").arg(second.kubeconfig()).args(["proxy", "--port", &port.to_string(), "--address", "127.0.0.1"]);
        // Our requests name no host of their own.
        command.arg("--accept-hosts=.*");
        let proxy = Server::start(command, &format!("http://127.0.0.1:{port}/readyz"));
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let pods = plays_pods.then(|| Pods::of(address, format!("team-{name}")));
        Self { _pods: pods, _proxy: proxy, second, address, name: name.to_owned(), teams: Cell::new(0) }
    }

    /// A team that is not there yet, whose name nobody has had, and a namespace for its platform.
    #[track_caller]
    pub fn home(&self) -> Home<'_> {
        self.teams.set(self.teams.get() + 1);
        let home = Home::new(self, format!("{}{}", self.name, self.teams.get()));
        let platform = home.platform();
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": platform}});
        self.apply(&format!("/api/v1/namespaces/{platform}"), &namespace);
        home
    }

    /// How others than our managers reach the server.
    pub fn kubeconfig(&self) -> &Path {
        self.second.kubeconfig()
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// What is at `path`, null if there is nothing.
    #[track_caller]
    pub fn get(&self, path: &str) -> Value {
        let reply = self.ask("GET", path, &[], &Value::Null);
        if reply.status == 404 { Value::Null } else { good("GET", path, &reply) }
    }

    /// Applies an object.
    #[track_caller]
    pub(super) fn apply(&self, path: &str, object: &Value) {
        let target = format!("{path}?fieldManager=somebody&force=true");
        good("PATCH", path, &self.ask("PATCH", &target, &[("Content-Type", "application/apply-patch+yaml")], object));
    }

    /// A merge patch.
    #[track_caller]
    pub(super) fn patch(&self, path: &str, changes: &Value) {
        let target = format!("{path}?fieldManager=somebody");
        good("PATCH", path, &self.ask("PATCH", &target, &[("Content-Type", "application/merge-patch+json")], changes));
    }

    #[track_caller]
    pub(super) fn delete(&self, path: &str) {
        good("DELETE", path, &self.ask("DELETE", &format!("{path}?propagationPolicy=Background"), &[], &Value::Null));
    }

    #[track_caller]
    fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &Value) -> Reply {
        ask(self.address, method, path, headers, body).unwrap_or_else(|e| panic!("{method} {path} got no answer: {e}"))
    }
}

#[track_caller]
fn good(method: &str, path: &str, reply: &Reply) -> Value {
    assert!((200..300).contains(&reply.status), "{method} {path}: {reply:?}");
    reply.json()
}

/// One request, with a body unless that is null.
pub(super) fn ask(server: SocketAddr, method: &str, path: &str, headers: &[(&str, &str)], body: &Value) -> io::Result<Reply> {
    let text = if body.is_null() { String::new() } else { body.to_string() };
    UnreadReply::ask(TcpStream::connect(server)?, method, path, headers, text.as_bytes())?.whole()
}
