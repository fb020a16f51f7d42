//! The REST API of the working tree, run beside the test against the cluster, and calls to it.
//!
//! The binary is $SLIPWAY_MANAGER, else the one that was built into the folder that the test itself was built into.

use std::io::{BufRead, BufReader, ErrorKind};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use slipway_peers::{Server, free_port, skip};

use crate::door;
use crate::http::{PROXIED, Reply, UnreadReply};
use crate::kubectl::{kubectl, program};
use crate::platform;
use crate::team::Team;
use crate::watch::deadline;

/// A manager with the role rest. One that was started here ends with this value, and with the test's process.
pub struct Api {
    server: Option<Server>,
    address: SocketAddr,
    health: SocketAddr,
}

impl Api {
    /// Starts it with these variables on free ports and waits until it is ready.
    #[track_caller]
    pub fn start(environment: &[(&str, &str)]) -> Self {
        Self::start_as(Command::new(binary()), environment)
    }

    /// The same by a command of the caller's that runs the manager.
    #[track_caller]
    pub(crate) fn start_as(mut command: Command, environment: &[(&str, &str)]) -> Self {
        let (port, health) = (free_port(), free_port());
        command.env("SLIPWAY_ROLES", "rest").env("SLIPWAY_LOG_FORMAT", "human");
        command.env("SLIPWAY_API_LISTEN", format!("127.0.0.1:{port}")).env("SLIPWAY_LISTEN", format!("127.0.0.1:{health}"));
        command.envs(environment.iter().copied());
        Self::served(Server::start(command, &format!("http://127.0.0.1:{health}/readyz")), port, health)
    }

    /// What a process answers at these ports.
    pub(crate) fn served(server: Server, port: u16, health: u16) -> Self {
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        Self { server: Some(server), address: at(port), health: at(health) }
    }

    /// The one that Helm installed; none, which is told, where its Service cannot be reached from here.
    #[track_caller]
    pub fn installed() -> Option<Self> {
        let ip = kubectl(format!("get service {} -n {} -o jsonpath={{.spec.clusterIP}}", platform::REST, platform::NAMESPACE)).ok();
        let address = SocketAddr::new(ip.trim().parse().unwrap_or_else(|e| panic!("{ip:?} is no address: {e}")), 80);
        if TcpStream::connect_timeout(&address, Duration::from_secs(2)).is_err() {
            skip("Services are reached only where the node is this machine");
            return None;
        }
        Some(Self { server: None, address, health: address })
    }

    /// The manager of the working tree as nothing but an operator, of a cluster where no other works.
    #[track_caller]
    pub fn operator(kubeconfig: &Path, listen: &str) -> Command {
        let mut command = Command::new(binary());
        command.env("KUBECONFIG", kubeconfig).env("SLIPWAY_ROLES", "operator").env("SLIPWAY_LEADER_ELECTION", "false");
        command.env("SLIPWAY_LISTEN", listen).env("SLIPWAY_LOG_FORMAT", "human");
        command
    }

    /// The API server of this kubeconfig, else of the one in use, by way of `kubectl proxy`: for tests with thousands of
    /// calls, where a process for each call would be most of the work.
    #[track_caller]
    pub fn kubernetes(kubeconfig: Option<&Path>) -> Self {
        let port = free_port();
        let mut proxy = Command::new(program());
        proxy.args(kubeconfig.map(|path| format!("--kubeconfig={}", path.display())));
        proxy.args(["proxy", "--port", &port.to_string(), "--address", "127.0.0.1", PROXIED]);
        Self::served(Server::start(proxy, &format!("http://127.0.0.1:{port}/readyz")), port, port)
    }

    /// Whatever speaks HTTP at this address, an agent for instance.
    pub fn at(address: SocketAddr) -> Self {
        Self { server: None, address, health: address }
    }

    /// One that asks nobody who they are and takes all for members of `team`.
    #[track_caller]
    pub fn of(team: &Team) -> Self {
        Self::start(&[("AUTH_ENABLED", "false"), ("SLIPWAY_DEFAULT_NAMESPACE", &team.namespace)])
    }

    /// A call to `path`, which stands below `/api/v1`.
    pub fn call(&self, method: &str, path: &str) -> Call {
        self.whole(method, &format!("/api/v1{path}"))
    }

    /// A call to a path that is given in whole.
    pub fn whole(&self, method: &str, path: &str) -> Call {
        Call { address: self.address, method: method.to_owned(), path: path.to_owned(), headers: Vec::new(), body: Vec::new() }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Where callers reach it.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where its health and metrics are served.
    pub fn health(&self) -> SocketAddr {
        self.health
    }

    /// What it says of itself at /metrics.
    #[track_caller]
    pub fn metrics(&self) -> String {
        Call { address: self.health, method: "GET".to_owned(), path: "/metrics".to_owned(), headers: Vec::new(), body: Vec::new() }
            .send()
            .body
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        self.server.as_ref().map(Server::log).unwrap_or_default()
    }

    /// The id of its process.
    pub fn id(&self) -> u32 {
        self.server.as_ref().map(Server::id).unwrap_or_default()
    }
}

/// A state role: the installed one, else one of the working tree that is run beside the test and looks at these namespaces
/// alone. Its folder is given, so that a test may end one and begin another.
pub struct State {
    server: Option<Server>,
    url: String,
    /// Of an account that may ask it.
    token: tempfile::NamedTempFile,
}

impl State {
    /// The installed one, if it can be reached from here; else one for this team.
    #[track_caller]
    pub fn of(team: &Team, folder: &Path) -> Self {
        Self::installed().unwrap_or_else(|| Self::start(team, folder, &team.namespace))
    }

    /// One for `namespaces`, whose token is that of an account of the team.
    #[track_caller]
    pub fn start(team: &Team, folder: &Path, namespaces: &str) -> Self {
        Self::with(team, folder, namespaces, &[])
    }

    /// The same, with more variables.
    #[track_caller]
    pub fn with(team: &Team, folder: &Path, namespaces: &str, environment: &[(&str, &str)]) -> Self {
        let (port, health) = (free_port(), free_port());
        let mut command = Self::command(folder, namespaces);
        command.envs(environment.iter().copied());
        command.env("SLIPWAY_STATE_LISTEN", format!("127.0.0.1:{port}")).env("SLIPWAY_LISTEN", format!("127.0.0.1:{health}"));
        command.env("SLIPWAY_STATE_CALLERS", format!("system:serviceaccount:{}:default", team.namespace));
        let server = Some(Server::start(command, &format!("http://127.0.0.1:{health}/readyz")));
        Self { server, url: format!("http://127.0.0.1:{port}"), token: token(&team.namespace, "default") }
    }

    /// How one is started, on ports that nobody needs.
    pub fn command(folder: &Path, namespaces: &str) -> Command {
        let mut command = Command::new(binary());
        command.env("SLIPWAY_ROLES", "state").env("SLIPWAY_LOG_FORMAT", "human").env("SLIPWAY_STATE_FOLDER", folder);
        command.env("SLIPWAY_STATE_LISTEN", "127.0.0.1:0").env("SLIPWAY_LISTEN", "127.0.0.1:0");
        // Each has its own place for Git's private files, and clears it when it starts.
        let temporary = folder.join("tmp");
        std::fs::create_dir_all(&temporary).unwrap_or_else(|e| panic!("{}: {e}", temporary.display()));
        command.env("SLIPWAY_WATCH_NAMESPACES", namespaces).env("TMPDIR", temporary);
        command
    }

    /// A call to it, by somebody who may.
    pub fn call(&self, method: &str, path: &str) -> Call {
        let address = self.url.trim_start_matches("http://").parse().unwrap_or_else(|e| panic!("{}: {e}", self.url));
        let token = std::fs::read_to_string(self.token.path()).unwrap_or_default();
        Call { address, method: method.to_owned(), path: path.to_owned(), headers: Vec::new(), body: Vec::new() }.token(&token)
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Whether it was started here, so that its folder can be looked into.
    pub fn is_own(&self) -> bool {
        self.server.is_some()
    }

    #[track_caller]
    fn installed() -> Option<Self> {
        let line = format!("get service {} -n {} --ignore-not-found -o jsonpath={{.spec.clusterIP}}", platform::STATE, platform::NAMESPACE);
        let address = SocketAddr::new(kubectl(line).ok().trim().parse().ok()?, 8091);
        TcpStream::connect_timeout(&address, Duration::from_secs(2)).ok()?;
        Some(Self { server: None, url: format!("http://{address}"), token: token(platform::NAMESPACE, platform::REST) })
    }

    /// What REST has to be told of it.
    pub fn environment(&self) -> [(&str, &str); 2] {
        [("SLIPWAY_STATE_URL", &self.url), ("SLIPWAY_STATE_TOKEN_FILE", self.token.path().to_str().unwrap_or_default())]
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        self.server.as_ref().map(Server::log).unwrap_or_default()
    }
}

/// A file with a token of this account for a state role.
#[track_caller]
fn token(namespace: &str, account: &str) -> tempfile::NamedTempFile {
    let by_kubectl = || kubectl(format!("create token {account} -n {namespace} --audience=slipway-state")).ok();
    let token = door::token(namespace, account, &["slipway-state"]).unwrap_or_else(by_kubectl);
    let file = tempfile::NamedTempFile::new().unwrap_or_else(|e| panic!("no file for a token: {e}"));
    std::fs::write(file.path(), token.trim()).unwrap_or_else(|e| panic!("a token could not be written: {e}"));
    file
}

/// The manager of the working tree.
pub(crate) fn binary() -> PathBuf {
    std::env::var_os("SLIPWAY_MANAGER").map_or_else(|| built("slipway-manager"), PathBuf::from)
}

/// A program of the working tree that was built into the folder that the test was built into.
pub(crate) fn built(program: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap_or_default();
    let found = test.ancestors().nth(2).map(|folder| folder.join(program)).filter(|path| path.exists());
    found.unwrap_or_else(|| panic!("there is no {program} near {}: build it with the same profile", test.display()))
}

/// A call that was not made yet.
#[derive(Clone, Debug)]
pub struct Call {
    address: SocketAddr,
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Call {
    #[must_use]
    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    #[must_use]
    pub fn token(self, token: &str) -> Self {
        self.header("Authorization", format!("Bearer {token}"))
    }

    #[must_use]
    pub fn json(self, body: &Value) -> Self {
        self.body("application/json", body.to_string())
    }

    #[must_use]
    pub fn body(mut self, media: &str, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self.header("Content-Type", media)
    }

    /// Makes the call.
    #[track_caller]
    pub fn send(&self) -> Reply {
        self.try_send().unwrap_or_else(|e| panic!("{} {} got no answer: {e}", self.method, self.path))
    }

    /// Makes the call, for who wants to know how it went wrong.
    pub fn try_send(&self) -> std::io::Result<Reply> {
        self.ask().and_then(UnreadReply::whole)
    }

    /// Makes the call, whose status must be this one; the answer as JSON.
    #[track_caller]
    pub fn expect(&self, status: u16) -> Value {
        let reply = self.send();
        assert_eq!(reply.status, status, "{} {}: {reply:?}", self.method, self.path);
        reply.json()
    }

    /// Makes the call and reads its answer line by line.
    #[track_caller]
    pub fn stream(&self) -> Stream {
        let answer = self.ask().unwrap_or_else(|e| panic!("{} {} got no answer: {e}", self.method, self.path));
        Stream { status: answer.status, lines: answer.body, partial: Vec::new() }
    }

    fn ask(&self) -> std::io::Result<UnreadReply> {
        let headers: Vec<(&str, &str)> = self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        // Who knocks where somebody just left would wait for minutes.
        let stream = TcpStream::connect_timeout(&self.address, Duration::from_secs(3))?;
        UnreadReply::ask(stream, &self.method, &self.path, &headers, &self.body)
    }
}

/// An answer that goes on. Dropping it hangs up.
pub struct Stream {
    pub status: u16,
    lines: BufReader<TcpStream>,
    partial: Vec<u8>,
}

/// One event of an SSE stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sent {
    pub id: String,
    pub event: String,
    pub data: String,
}

impl Stream {
    /// The next line, none at the end of the stream.
    #[track_caller]
    pub fn line(&mut self, seconds: u64) -> Option<String> {
        let deadline = deadline(seconds);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "twice {seconds} s went by without another line; begun: {:?}", String::from_utf8_lossy(&self.partial));
            self.lines.get_ref().set_read_timeout(Some(left)).unwrap_or_else(|e| panic!("a socket without a clock: {e}"));
            match self.lines.read_until(b'\n', &mut self.partial) {
                Ok(_) if self.partial.is_empty() => return None,
                Ok(_) => return Some(String::from_utf8_lossy(&std::mem::take(&mut self.partial)).trim_end().to_owned()),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) => {}
                Err(error) => panic!("the stream broke: {error}"),
            }
        }
    }

    /// The next event, comments passed over; none at the end of the stream.
    #[track_caller]
    pub fn event(&mut self, seconds: u64) -> Option<Sent> {
        let mut sent = Sent::default();
        while let Some(line) = self.line(seconds) {
            let (field, value) = line.split_once(':').unwrap_or((&line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "id" => value.clone_into(&mut sent.id),
                "event" => value.clone_into(&mut sent.event),
                "data" if sent.data.is_empty() => value.clone_into(&mut sent.data),
                "data" => sent.data = format!("{}\n{value}", sent.data),
                "" if line.is_empty() && sent != Sent::default() => return Some(sent),
                _ => {}
            }
        }
        None
    }
}
