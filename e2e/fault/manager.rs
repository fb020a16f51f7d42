//! A manager of the working tree behind a door of its own. As under a kubelet, it is started again whenever it ends.

use std::fs::File;
use std::io;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use slipway_peers::free_port;
use tempfile::TempDir;

use super::door::Door;
use super::home::Home;
use crate::api::binary;
use crate::http::UnreadReply;
use crate::watch::poll;

/// A process that ends at once is not started again and again without a pause.
const PAUSE: Duration = Duration::from_millis(500);

pub struct Manager {
    door: Door,
    name: String,
    variables: Vec<(&'static str, String)>,
    process: Child,
    started: Instant,
    ends: usize,
    folder: TempDir,
}

impl Manager {
    /// One that works whether or not others do.
    #[track_caller]
    pub fn alone(home: &Home) -> Self {
        Self::start(home, "alone", false)
    }

    /// One of several that agree by a lease on who works, unless they are told not to.
    #[track_caller]
    pub fn start(home: &Home, name: &str, agrees: bool) -> Self {
        Self::with(home, name, vec![("SLIPWAY_ROLES", "operator".to_owned()), ("SLIPWAY_LEADER_ELECTION", agrees.to_string())])
    }

    /// One that keeps releases, in this folder. A comparison of words passes its gates.
    #[track_caller]
    pub fn keeper(home: &Home, folder: &Path) -> Self {
        let folder = folder.display().to_string();
        let listen = ("SLIPWAY_STATE_LISTEN", "127.0.0.1:0".to_owned());
        let gate = ("SLIPWAY_ALLOW_HEURISTIC_GATE", "true".to_owned());
        Self::with(home, "keeper", vec![("SLIPWAY_ROLES", "state".to_owned()), ("SLIPWAY_STATE_FOLDER", folder), listen, gate])
    }

    #[track_caller]
    fn with(home: &Home, name: &str, mut variables: Vec<(&'static str, String)>) -> Self {
        let folder = TempDir::new().unwrap_or_else(|e| panic!("no folder: {e}"));
        let door = Door::open(home.ground.address(), &home.slug);
        let kubeconfig = folder.path().join("kubeconfig");
        door.kubeconfig(&kubeconfig);
        variables.extend([
            ("KUBECONFIG", kubeconfig.display().to_string()),
            ("POD_NAME", name.to_owned()),
            ("SLIPWAY_LISTEN", format!("127.0.0.1:{}", free_port())),
            ("SLIPWAY_LOG", "info".to_owned()),
            ("SLIPWAY_PLATFORM_NAMESPACE", home.platform()),
            ("SLIPWAY_WATCH_NAMESPACES", home.namespace.clone()),
            // Git's private files have a place of their own.
            ("TMPDIR", folder.path().display().to_string()),
        ]);
        let process = spawn(&door, &variables, &folder);
        Self { door, name: name.to_owned(), variables, process, started: Instant::now(), ends: 0, folder }
    }

    pub fn door(&self) -> &Door {
        &self.door
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Starts it again if it has ended.
    #[track_caller]
    pub fn tend(&mut self) {
        let ended = self.process.try_wait().unwrap_or_else(|e| panic!("{} cannot be looked at: {e}", self.name));
        if ended.is_some() && self.started.elapsed() > PAUSE {
            self.ends += 1;
            self.door.clear();
            self.process = spawn(&self.door, &self.variables, &self.folder);
            self.started = Instant::now();
        }
    }

    /// Ends it as nobody can be prepared for.
    pub fn kill(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }

    /// Asks it to end, and waits until it has.
    #[track_caller]
    pub fn end(&mut self) {
        drop(Command::new("kill").args(["-TERM", &self.process.id().to_string()]).status());
        poll(60, || match self.process.try_wait() {
            Ok(Some(status)) if status.success() => Ok(()),
            other => Err(format!("{} should end well and comes to {other:?}", self.name)),
        });
    }

    /// How often it has ended and was started again.
    pub fn ends(&self) -> usize {
        self.ends
    }

    /// Whether it works, by its own account.
    pub fn leads(&self) -> bool {
        let metrics = self.ask("/metrics").and_then(UnreadReply::whole).map(|reply| reply.body).unwrap_or_default();
        metrics.lines().any(|line| line.starts_with("slipway_leader") && line.ends_with(" 1"))
    }

    /// Waits until it has heard of all that there is.
    #[track_caller]
    pub fn ready(&mut self) {
        poll(30, || {
            self.tend();
            if self.is_ready() { Ok(()) } else { Err(format!("{} does not become ready", self.name)) }
        });
    }

    /// Whether it says that it has heard of all that there is.
    pub fn is_ready(&self) -> bool {
        self.ask("/readyz").is_ok_and(|answer| answer.status == 200)
    }

    fn ask(&self, path: &str) -> io::Result<UnreadReply> {
        let listen = self.variables.iter().find(|(name, _)| *name == "SLIPWAY_LISTEN").map_or("", |(_, value)| value);
        UnreadReply::ask(TcpStream::connect(listen)?, "GET", path, &[], b"")
    }
}

#[track_caller]
fn spawn(door: &Door, variables: &[(&'static str, String)], folder: &TempDir) -> Child {
    let path = folder.path().join("log");
    let log = File::options().create(true).append(true).open(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let errors = log.try_clone().unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut command = Command::new(binary());
    command.envs(variables.iter().map(|(name, value)| (name, value))).env("SLIPWAY_LOG_FORMAT", "human");
    command.stdin(Stdio::null()).stdout(log).stderr(errors);
    let process = command.spawn().unwrap_or_else(|e| panic!("{} cannot be run: {e}", binary().display()));
    door.admit(process.id());
    process
}

impl Drop for Manager {
    #[expect(clippy::print_stderr, reason = "the test harness shows this for failed tests alone")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            eprintln!("--- the end of the log of {}:\n{}", self.name, lines[lines.len().saturating_sub(40)..].join("\n"));
            eprintln!("--- the last it asked for: {:?}", self.door.writes());
        }
        self.kill();
        self.door.clear();
    }
}
