//! A door before the API server: plain HTTP on this side, `kubectl proxy` behind it. It sees single requests and single
//! events, counts them, and can end the process that goes through it at one of its writes.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::message::{RelayedReply, Request};
use super::weather::{End, EventFate, Fate, Sky, Weather};
use crate::gate::When;
use crate::http::UnreadReply;

/// How soon it is noticed that a watch's client has gone.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// The number of past events of a watch that are kept, to be sent again.
const PAST: usize = 8;

#[derive(Clone)]
pub struct Door {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    behind: SocketAddr,
    /// Of teams, and of namespaces, this one alone is seen through the door, if one is named.
    team: Option<String>,
    state: Mutex<State>,
    turned: Condvar,
    sky: Mutex<Sky>,
}

/// How the way is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Way {
    #[default]
    Open,
    /// The process has been ended; what it had sent before is not let through any more.
    Shut,
    /// All wait, and nobody is told why.
    Still,
}

/// A write that is held back while the rest waits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Held {
    #[default]
    Nothing,
    /// The next write of such a kind.
    Next(&'static str),
    Here,
    Released,
    /// With this status.
    Answered(u16),
}

#[derive(Default)]
struct State {
    way: Way,
    process: u32,
    /// The process ends at this write of all that there were, counted from 1, on that side of it.
    armed: Option<(usize, When)>,
    killed: bool,
    written: usize,
    /// The writes since it was armed, by method and path.
    trail: Vec<String>,
    /// How many of them have changed something.
    changes: usize,
    /// Of each object that was written, by UID, the version that the API server answered with.
    versions: HashMap<String, String>,
    held: Held,
    asked: Vec<CountedRequest>,
    last: Option<Instant>,
    streams: Vec<TcpStream>,
}

impl State {
    /// Notes whether a write has changed an object.
    fn note(&mut self, request: &Request, reply: &RelayedReply) {
        if !request.is_write() || reply.status >= 300 || ["events", "leases"].contains(&&*request.resource()) {
            return;
        }
        let object: Value = serde_json::from_str(reply.body()).unwrap_or_default();
        let word = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let version = word("resourceVersion");
        let known = self.versions.insert(word("uid"), version.clone());
        self.changes += usize::from(request.method == "DELETE" || known != Some(version));
    }
}

/// A request that came to the door; leases and watches are not counted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CountedRequest {
    pub method: String,
    pub resource: String,
    pub is_write: bool,
}

impl Door {
    /// One for a process of ours.
    #[track_caller]
    pub(super) fn open(behind: SocketAddr, team: &str) -> Self {
        Self::at(SocketAddr::from(([127, 0, 0, 1], 0)), behind, Some(team.to_owned()))
    }

    /// A door for any client, through which everything is seen.
    #[track_caller]
    pub fn wide(at: SocketAddr, behind: SocketAddr) -> Self {
        Self::at(at, behind, None)
    }

    #[track_caller]
    fn at(address: SocketAddr, behind: SocketAddr, team: Option<String>) -> Self {
        let listener = TcpListener::bind(address).unwrap_or_else(|e| panic!("no door at {address}: {e}"));
        let address = listener.local_addr().unwrap_or_else(|e| panic!("no address: {e}"));
        let (state, sky) = (Mutex::default(), Mutex::default());
        let shared = Arc::new(Shared { behind, team, state, turned: Condvar::new(), sky });
        let inside = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let shared = Arc::clone(&inside);
                thread::spawn(move || {
                    // One that has ended by itself cannot be ended.
                    drop(shared.serve(&client));
                    drop(client.shutdown(Shutdown::Both));
                });
            }
        });
        Self { address, shared }
    }

    /// Writes a kubeconfig that goes through here.
    #[track_caller]
    pub(super) fn kubeconfig(&self, path: &Path) {
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "door",
            "clusters": [{"name": "door", "cluster": {"server": format!("http://{}", self.address)}}],
            "users": [{"name": "door", "user": {}}],
            "contexts": [{"name": "door", "context": {"cluster": "door", "user": "door"}}],
        });
        std::fs::write(path, config.to_string()).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }

    /// Cuts what a process that has ended left under way.
    pub(super) fn clear(&self) {
        for stream in self.shared.lock().streams.drain(..) {
            drop(stream.shutdown(Shutdown::Both));
        }
    }

    /// From now on this process comes through here. Where all wait, it waits too.
    pub(super) fn admit(&self, process: u32) {
        let mut state = self.shared.lock();
        if state.way == Way::Shut {
            state.way = Way::Open;
        }
        (state.process, state.last) = (process, None);
    }

    /// Ends the process at its n-th write from now on, counted from 1.
    pub fn arm(&self, write: usize, when: When) {
        let mut state = self.shared.lock();
        (state.armed, state.killed) = (Some((state.written.saturating_add(write), when)), false);
        state.trail.clear();
        state.changes = 0;
    }

    /// Whether the process was ended since [`Self::arm`].
    pub fn has_killed(&self) -> bool {
        self.shared.lock().killed
    }

    /// The writes since [`Self::arm`], by method and path.
    pub fn trail(&self) -> Vec<String> {
        self.shared.lock().trail.clone()
    }

    /// How many of these have changed an object. Events do not count, as the next process sends them again.
    pub fn changes(&self) -> usize {
        self.shared.lock().changes
    }

    /// Lets the process live from now on, and says whether it was ended.
    pub fn disarm(&self) -> bool {
        let mut state = self.shared.lock();
        state.armed = None;
        std::mem::take(&mut state.killed)
    }

    /// How many writes there have been from the first on.
    pub fn written(&self) -> usize {
        self.shared.lock().written
    }

    /// The requests since [`Self::count`].
    pub fn asked(&self) -> Vec<CountedRequest> {
        self.shared.lock().asked.clone()
    }

    /// The writes among them, by method and kind.
    pub fn writes(&self) -> BTreeMap<CountedRequest, usize> {
        let mut writes = BTreeMap::new();
        for asked in self.asked().into_iter().filter(|asked| asked.is_write) {
            *writes.entry(asked).or_default() += 1;
        }
        writes
    }

    /// Counts from now on.
    pub fn count(&self) {
        self.shared.lock().asked.clear();
    }

    /// How long the process has asked for nothing; nobody is called silent who has not begun.
    pub fn silent_for(&self) -> Duration {
        self.shared.lock().last.map_or(Duration::ZERO, |last| last.elapsed())
    }

    /// Bad weather, for so long from the first request on.
    pub fn storm(&self, weather: Weather, seed: u64, lasts: Duration) {
        self.shared.sky().storm(weather, seed, lasts);
    }

    pub fn is_calm(&self) -> bool {
        self.shared.sky().is_calm()
    }

    /// How often each kind of fault has happened.
    pub fn met(&self) -> BTreeMap<&'static str, usize> {
        self.shared.sky().met()
    }

    /// Holds back the next write of `kind`, and with it all that goes through here.
    pub fn hold(&self, kind: &'static str) {
        self.shared.lock().held = Held::Next(kind);
    }

    pub fn is_holding(&self) -> bool {
        self.shared.lock().held == Held::Here
    }

    /// Lets through what is held back, and nothing else; its status, once it has been answered.
    #[track_caller]
    pub fn let_go(&self) -> u16 {
        let mut state = self.shared.lock();
        assert_eq!(state.held, Held::Here, "nothing is held back");
        state.held = Held::Released;
        self.shared.turned.notify_all();
        let wait = Duration::from_secs(20);
        let is_answered = |state: &mut State| !matches!(state.held, Held::Answered(_));
        let (state, _) = self.shared.turned.wait_timeout_while(state, wait, is_answered).unwrap_or_else(PoisonError::into_inner);
        match state.held {
            Held::Answered(status) => status,
            _ => panic!("the API server did not answer a write that was held back"),
        }
    }

    /// All that waits goes on.
    pub fn reopen(&self) {
        self.shared.lock().way = Way::Open;
        self.shared.turned.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sky(&self) -> MutexGuard<'_, Sky> {
        self.sky.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, client: &TcpStream) -> io::Result<()> {
        client.set_nodelay(true)?;
        self.keep(client)?;
        let mut from = BufReader::new(client.try_clone()?);
        while let Some(request) = Request::read(&mut from)? {
            self.exchange(request, client)?;
        }
        Ok(())
    }

    /// Notes a connection that may have to be cut, in the place of those that have ended.
    fn keep(&self, stream: &TcpStream) -> io::Result<()> {
        let mut state = self.lock();
        state.streams.retain(|stream| stream.peer_addr().is_ok());
        state.streams.push(stream.try_clone()?);
        Ok(())
    }

    fn exchange(&self, mut request: Request, client: &TcpStream) -> io::Result<()> {
        let (is_last, is_held) = self.enter(&request)?;
        self.narrow(&mut request);
        let pause = self.sky().pause(request.path());
        thread::sleep(pause);
        let fate = self.sky().fate(&request);
        if let Fate::Answered(reply) = fate {
            return reply.write(client);
        }
        let answer = request.send(self.behind)?;
        if request.is_watch() && answer.status == 200 {
            let server = answer.body.get_ref().try_clone()?;
            let told = self.relay(answer, client);
            drop(server.shutdown(Shutdown::Both));
            return told;
        }
        let reply = RelayedReply::of(answer)?;
        self.lock().note(&request, &reply);
        if is_held {
            self.lock().held = Held::Answered(reply.status);
            self.turned.notify_all();
        }
        if is_last {
            return end(self.lock());
        }
        self.sky().remember(&request, &reply);
        drop(self.passable()?);
        match fate {
            Fate::Unheard(other) => other.write(client),
            _ => reply.write(client),
        }
    }

    /// Whether the process ends after this request, and whether it was held back. An error if it is not let in.
    fn enter(&self, request: &Request) -> io::Result<(bool, bool)> {
        let mut state = self.passable()?;
        let resource = request.resource();
        if request.is_watch() || resource == "leases" {
            return Ok((false, false));
        }
        state.last = Some(Instant::now());
        let is_write = request.is_write();
        if is_write && matches!(state.held, Held::Next(kind) if kind == resource) {
            (state.held, state.way) = (Held::Here, Way::Still);
            let is_here = |state: &mut State| state.held == Held::Here;
            drop(self.turned.wait_while(state, is_here).unwrap_or_else(PoisonError::into_inner));
            return Ok((false, true));
        }
        state.asked.push(CountedRequest { method: request.method.clone(), resource, is_write });
        if is_write {
            state.trail.push(format!("{} {}", request.method, request.path()));
        }
        state.written += usize::from(is_write);
        let written = state.written;
        match state.armed.filter(|(at, _)| is_write && *at == written) {
            Some((_, When::Before)) => end(state).map(|()| (false, false)),
            Some((_, When::After)) => Ok((true, false)),
            None => Ok((false, false)),
        }
    }

    /// Waits while the way is still. An error when it is shut.
    fn passable(&self) -> io::Result<MutexGuard<'_, State>> {
        let is_still = |state: &mut State| state.way == Way::Still;
        let state = self.turned.wait_while(self.lock(), is_still).unwrap_or_else(PoisonError::into_inner);
        if state.way == Way::Shut { Err(ErrorKind::ConnectionAborted.into()) } else { Ok(state) }
    }

    /// Teams and namespaces of other tests are none of ours.
    fn narrow(&self, request: &mut Request) {
        let Some(team) = &self.team else { return };
        let name = match request.path() {
            "/apis/agents.slipway.dev/v1/teams" => team.clone(),
            "/api/v1/namespaces" => format!("team-{team}"),
            _ => return,
        };
        let join = if request.target.contains('?') { '&' } else { '?' };
        request.target = format!("{}{join}fieldSelector=metadata.name%3D{name}", request.target);
    }

    /// Tells a watch's events, one a line.
    fn relay(&self, mut answer: UnreadReply, mut client: &TcpStream) -> io::Result<()> {
        answer.body.get_ref().set_read_timeout(Some(POLL_INTERVAL))?;
        self.keep(answer.body.get_ref())?;
        client.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")?;
        let (mut past, mut line) = (VecDeque::new(), Vec::new());
        loop {
            match answer.body.read_until(b'\n', &mut line) {
                Ok(_) if line.is_empty() => break,
                Ok(_) => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) => {
                    if has_gone(client) {
                        return Ok(());
                    }
                    continue;
                }
                Err(error) => return Err(error),
            }
            let event = std::mem::take(&mut line);
            let pause = self.sky().pause("event");
            thread::sleep(pause);
            drop(self.passable()?);
            let told = if event.starts_with(br#"{"type":"BOOKMARK""#) { EventFate::Once } else { self.sky().event(&past) };
            match told {
                EventFate::Once => chunk(client, &event)?,
                EventFate::Again(past) => {
                    chunk(client, &event)?;
                    // The last word is the newest, as it is when a watch is taken up again from before.
                    for event in past.iter().chain([&event]) {
                        chunk(client, event)?;
                    }
                }
                EventFate::Lost(End::Quietly) => break,
                EventFate::Lost(End::Broken) => return Err(ErrorKind::ConnectionAborted.into()),
                EventFate::Lost(End::Expired) => {
                    let error = format!("{{\"type\":\"ERROR\",\"object\":{}}}\n", RelayedReply::refusal(410).body());
                    chunk(client, error.as_bytes())?;
                    break;
                }
            }
            past.push_back(event);
            if past.len() > PAST {
                past.pop_front();
            }
        }
        client.write_all(b"0\r\n\r\n")
    }
}

/// Ends the process, which hears no more of anything.
fn end(mut state: MutexGuard<'_, State>) -> io::Result<()> {
    drop(Command::new("kill").args(["-KILL", &state.process.to_string()]).status());
    (state.way, state.armed, state.killed, state.last) = (Way::Shut, None, true, None);
    Err(ErrorKind::ConnectionAborted.into())
}

fn chunk(mut client: &TcpStream, bytes: &[u8]) -> io::Result<()> {
    client.write_all(&[format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat())
}

/// A client that has hung up can be read to its end.
fn has_gone(client: &TcpStream) -> bool {
    let look = || {
        client.set_read_timeout(Some(Duration::from_millis(1)))?;
        let seen = client.peek(&mut [0]);
        client.set_read_timeout(None)?;
        seen
    };
    match look() {
        Ok(length) => length == 0,
        Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted),
    }
}
