//! A door to the API server that counts writes, and at one of them ends the process that writes. `kubectl proxy` stands
//! behind it, so that requests can be read.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use serde_json::json;
use slipway_peers::{Server, free_port};

use crate::kubectl::{kubectl, program};

/// On which side of a write the process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// The API server never hears of it.
    Before,
    /// It is done, and the process does not hear of that.
    After,
}

pub struct Gate {
    _proxy: Server,
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// The process, the write at which it ends, and on which side of it.
    armed: Option<(u32, usize, When)>,
    writes: Vec<String>,
}

impl Gate {
    #[track_caller]
    pub fn before_the_cluster() -> Self {
        let port = free_port();
        // Reachable at all, before anything is built upon it.
        kubectl("version").ok();
        let mut command = Command::new(program());
        command.args(["proxy", "--port", &port.to_string(), "--address", "127.0.0.1"]);
        let proxy = Server::start(command, &format!("http://127.0.0.1:{port}/readyz"));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap_or_else(|e| panic!("no port: {e}"));
        let address = listener.local_addr().unwrap_or_else(|e| panic!("no address: {e}"));
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    // One that has ended by itself cannot be ended.
                    drop(join(&client, port, &shared));
                    drop(client.shutdown(Shutdown::Both));
                });
            }
        });
        Self { _proxy: proxy, address, state }
    }

    /// Writes a kubeconfig that goes this way.
    #[track_caller]
    pub fn kubeconfig(&self, path: &Path) {
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "gate",
            "clusters": [{"name": "gate", "cluster": {"server": format!("http://{}", self.address)}}],
            "users": [{"name": "gate", "user": {}}],
            "contexts": [{"name": "gate", "context": {"cluster": "gate", "user": "gate"}}],
        });
        std::fs::write(path, config.to_string()).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }

    /// Ends this process at its n-th write from now on, counted from 1.
    pub fn arm(&self, process: u32, write: usize, when: When) {
        *locked(&self.state) = State { armed: Some((process, write, when)), writes: Vec::new() };
    }

    /// The writes since then, by method and path.
    pub fn writes(&self) -> Vec<String> {
        locked(&self.state).writes.clone()
    }
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Passes on what comes, a piece at a time: a client that waits for each answer sends a request in pieces of its own.
fn join(client: &TcpStream, port: u16, state: &Arc<Mutex<State>>) -> io::Result<()> {
    let mut server = TcpStream::connect(("127.0.0.1", port))?;
    let (mut answers, mut back) = (server.try_clone()?, client.try_clone()?);
    let dying = Arc::new(Mutex::new(None::<u32>));
    let told = Arc::clone(&dying);
    thread::spawn(move || {
        let mut piece = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = answers.read(&mut piece) {
            // The answer to the last write is not passed on.
            if let Some(process) = *told.lock().unwrap_or_else(PoisonError::into_inner) {
                kill(process);
                break;
            }
            if back.write_all(&piece[..length]).is_err() {
                break;
            }
        }
        drop(back.shutdown(Shutdown::Both));
    });
    let mut client = client.try_clone()?;
    let mut piece = vec![0; 64 * 1024];
    loop {
        let length = client.read(&mut piece)?;
        if length == 0 {
            return Ok(());
        }
        if let Some(write) = write(&piece[..length]) {
            let mut state = locked(state);
            state.writes.push(write);
            match state.armed {
                Some((process, at, When::Before)) if state.writes.len() == at => {
                    kill(process);
                    return Ok(());
                }
                Some((process, at, When::After)) if state.writes.len() == at => {
                    *dying.lock().unwrap_or_else(PoisonError::into_inner) = Some(process);
                }
                _ => {}
            }
        }
        server.write_all(&piece[..length])?;
    }
}

/// The method and path of a request that changes something. Who asks whose token it is changes nothing.
fn write(piece: &[u8]) -> Option<String> {
    let line = piece.split(|byte| *byte == b'\r').next()?;
    let line = std::str::from_utf8(line).ok()?.strip_suffix(" HTTP/1.1")?;
    let (method, path) = line.split_once(' ')?;
    (matches!(method, "POST" | "PUT" | "PATCH" | "DELETE") && !path.contains("reviews")).then(|| line.to_owned())
}

fn kill(process: u32) {
    drop(Command::new("kill").args(["-KILL", &process.to_string()]).status());
}
