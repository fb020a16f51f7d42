//! Slipway on a cluster of its own: an API server without a node, the operator of the working tree beside it, and a door
//! through which a call costs no process. What is in the cluster is followed by watches, so that looking costs no call.

use std::collections::BTreeMap;
use std::io::{self, BufRead};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use slipway_peers::{Server, free_port};

use crate::http::{PROXIED, Reply, UnreadReply};
use crate::kubectl::program;
use crate::second::Second;
use crate::turn::apart;
use crate::{Api, platform};

/// It ends with this value, in this order.
pub struct Apart {
    manager: Server,
    store: Arc<Store>,
    door: SocketAddr,
    _proxy: Server,
    _cluster: Second,
}

/// An object by resource, namespace and name.
pub type Place = (String, String, String);
/// All objects that are followed.
pub type Objects = BTreeMap<Place, Value>;

#[derive(Default)]
struct Store {
    objects: Mutex<Objects>,
    changed: Condvar,
}

impl Apart {
    /// Begins, and follows the resources at these paths, such as `/api/v1/configmaps`.
    #[track_caller]
    pub fn start(paths: &[String]) -> Self {
        let cluster = Second::within(apart(), "");
        cluster.kubectl(&format!("create namespace {}", platform::NAMESPACE)).ok();
        let kubeconfig = cluster.kubeconfig().to_owned();
        let port = free_port();
        let mut proxy = Command::new(program());
        proxy.arg("--kubeconfig").arg(&kubeconfig).args(["proxy", "--port", &port.to_string(), "--address", "127.0.0.1", PROXIED]);
        let proxy = Server::start(proxy, &format!("http://127.0.0.1:{port}/readyz"));
        let listen = format!("127.0.0.1:{}", free_port());
        let manager = Server::start(Api::operator(&kubeconfig, &listen), &format!("http://{listen}/readyz"));
        let door = SocketAddr::from(([127, 0, 0, 1], port));
        let store = Arc::new(Store::default());
        for path in paths {
            let (store, path) = (Arc::downgrade(&store), path.clone());
            thread::spawn(move || follow(&store, door, &path));
        }
        Self { manager, store, door, _proxy: proxy, _cluster: cluster }
    }

    /// One call to the API server; `media` is the type of `body`.
    #[track_caller]
    pub fn call(&self, method: &str, path: &str, media: &str, body: &Value) -> Reply {
        let text = if body.is_null() { String::new() } else { body.to_string() };
        let ask = || UnreadReply::ask(TcpStream::connect(self.door)?, method, path, &[("Content-Type", media)], text.as_bytes())?.whole();
        ask().unwrap_or_else(|e| panic!("{method} {path} got no answer: {e}"))
    }

    /// Waits until what is followed is as `want` wants it, and answers what is missing if it does not become so.
    pub fn until<T>(&self, seconds: u64, mut want: impl FnMut(&Objects) -> Result<T, String>) -> Result<T, String> {
        let deadline = Instant::now() + Duration::from_secs(seconds);
        let mut objects = locked(&self.store);
        loop {
            let missing = match want(&objects) {
                Ok(found) => return Ok(found),
                Err(missing) => missing,
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(format!("{seconds} s went by: {missing}"));
            }
            objects = self.store.changed.wait_timeout(objects, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// What the operator has logged.
    pub fn log(&self) -> String {
        self.manager.log()
    }

    /// Whether the operator's process is still the one that was started.
    pub fn manager_runs(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.manager.id())).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
    }
}

fn locked(store: &Store) -> MutexGuard<'_, Objects> {
    store.objects.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps what is at `path` in the store for as long as there is one. A watch that ends begins anew, with all there is.
fn follow(store: &Weak<Store>, door: SocketAddr, path: &str) {
    while store.strong_count() > 0 {
        if watch(store, door, path).is_err() {
            thread::sleep(Duration::from_millis(100));
        }
    }
}

fn watch(store: &Weak<Store>, door: SocketAddr, path: &str) -> io::Result<()> {
    let resource = path.rsplit('/').next().unwrap_or_default();
    let answer = UnreadReply::ask(TcpStream::connect(door)?, "GET", &format!("{path}?watch=1"), &[], &[])?;
    // Where nothing changes, nothing is heard.
    answer.body.get_ref().set_read_timeout(None)?;
    if let Some(store) = store.upgrade() {
        locked(&store).retain(|(of, ..), _| of != resource);
    }
    for line in answer.body.lines() {
        let mut event: Value = serde_json::from_str(&line?)?;
        let object = event["object"].take();
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let place = (resource.to_owned(), text("namespace"), text("name"));
        let Some(store) = store.upgrade() else { return Ok(()) };
        let mut objects = locked(&store);
        match event["type"].as_str() {
            Some("ADDED" | "MODIFIED") => drop(objects.insert(place, object)),
            Some("DELETED") => drop(objects.remove(&place)),
            _ => return Err(io::Error::other(format!("a watch of {path} ended with {object}"))),
        }
        store.changed.notify_all();
    }
    Ok(())
}
