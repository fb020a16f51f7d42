//! The way to the API server through a hand that can let go: a proxy for TCP in this process, and a kubeconfig that
//! goes through it.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use serde_json::{Value, json};

use crate::kubectl::kubectl;

/// How the way is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Open,
    /// Connections are cut, and new ones too.
    Cut,
    /// New connections are taken and nothing goes through.
    Silent,
}

pub struct Proxy {
    address: SocketAddr,
    behind: String,
    state: Arc<Mutex<State>>,
}

struct State {
    way: Way,
    streams: Vec<TcpStream>,
}

impl Proxy {
    /// Stands before the API server of the kubeconfig in use.
    #[track_caller]
    pub fn before_the_cluster() -> Self {
        let config = kubectl("config view --raw --minify").json();
        let behind = config["clusters"][0]["cluster"]["server"].as_str().and_then(|url| url.strip_prefix("https://")).unwrap_or_default();
        let behind = behind.trim_end_matches('/').to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap_or_else(|e| panic!("no port: {e}"));
        let address = listener.local_addr().unwrap_or_else(|e| panic!("no address: {e}"));
        let state = Arc::new(Mutex::new(State { way: Way::Open, streams: Vec::new() }));
        let (to, shared) = (behind.clone(), Arc::clone(&state));
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if join(&client, &to, &shared).is_err() {
                    // One that has ended by itself cannot be ended.
                    let _ = client.shutdown(Shutdown::Both);
                }
            }
        });
        Self { address, behind, state }
    }

    /// Writes a kubeconfig that goes this way.
    #[track_caller]
    pub fn kubeconfig(&self, path: &Path) {
        let mut config: Value = kubectl("config view --raw --minify --flatten").json();
        let host = self.behind.rsplit_once(':').map_or(self.behind.as_str(), |(host, _)| host);
        config["clusters"][0]["cluster"]["server"] = json!(format!("https://{}", self.address));
        config["clusters"][0]["cluster"]["tls-server-name"] = json!(host);
        std::fs::write(path, config.to_string()).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }

    pub fn open(&self) {
        self.turn(Way::Open);
    }

    pub fn cut(&self) {
        self.turn(Way::Cut);
    }

    pub fn silence(&self) {
        self.turn(Way::Silent);
    }

    fn turn(&self, way: Way) {
        let mut state = locked(&self.state);
        state.way = way;
        for stream in state.streams.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn join(client: &TcpStream, to: &str, state: &Mutex<State>) -> io::Result<()> {
    let mut state = locked(state);
    state.streams.push(client.try_clone()?);
    match state.way {
        Way::Cut => return Err(io::ErrorKind::ConnectionAborted.into()),
        Way::Silent => return Ok(()),
        Way::Open => {}
    }
    let server = TcpStream::connect(to)?;
    state.streams.push(server.try_clone()?);
    splice(client, server)
}

/// Passes on what both sides send, each until it has ended.
pub(crate) fn splice(client: &TcpStream, server: TcpStream) -> io::Result<()> {
    for (mut from, mut to) in [(client.try_clone()?, server.try_clone()?), (server, client.try_clone()?)] {
        thread::spawn(move || {
            let _ = io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Write);
        });
    }
    Ok(())
}
