//! A copy of each repository at a remote. Pushes are asynchronous, debounced, and retried with backoff. Nothing is ever
//! overwritten: commits that only the remote has are reported.

mod push;
mod trouble;
mod worker;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use slipway_egress::Allowed;
use tokio::sync::Notify;

use crate::git::Git;
use push::Pusher;
pub use push::{ProbeResult, probe};
pub use trouble::Trouble;
pub use worker::Worker;

/// The remotes that the platform's operator allows.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// Hosts and networks besides public and private ones.
    pub allow: Vec<Allowed>,
    /// The folder in which remotes of scheme file may lie. Without one, file URLs are refused.
    pub files: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Concurrent pushes.
    pub parallel: usize,
    /// Debounce time of changes.
    pub settle: Duration,
    /// Time limit of one push.
    pub time: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { parallel: 4, settle: Duration::from_millis(500), time: Duration::from_mins(10) }
    }
}

/// State of the copy of one repository.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MirrorState {
    /// The newest local commit that was seen.
    pub ours: Option<String>,
    /// The last known commit of the remote branch.
    pub theirs: Option<String>,
    /// Local commits that the remote lacks, if known.
    pub behind: Option<u64>,
    pub last_success: Option<SystemTime>,
    pub fault: Option<Failure>,
}

/// Why the copy is behind, since when, and the number of failed attempts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub trouble: Trouble,
    pub since: SystemTime,
    pub attempts: u32,
}

impl MirrorState {
    pub fn is_in_sync(&self) -> bool {
        self.fault.is_none() && self.behind == Some(0)
    }
}

/// Handle to report changes and read states. The `Worker` pushes.
#[derive(Debug, Clone)]
pub struct Mirror(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    changed: Mutex<BTreeSet<String>>,
    wake: Notify,
    states: Mutex<BTreeMap<String, MirrorState>>,
}

impl Mirror {
    /// `folder` has the repositories, each named `{namespace}.git`.
    pub fn new(git: Git, rules: Rules, folder: impl Into<PathBuf>, options: Options) -> (Self, Worker) {
        let shared = Arc::new(Shared::default());
        let pusher = Pusher { git, rules, folder: folder.into(), time: options.time };
        (Self(shared.clone()), Worker::new(shared, pusher, options))
    }

    /// Reports that a namespace has new commits. Does not block.
    pub fn changed(&self, namespace: &str) {
        lock(&self.0.changed).insert(namespace.to_owned());
        self.0.wake.notify_one();
    }

    /// None without a mirror.
    pub fn state(&self, namespace: &str) -> Option<MirrorState> {
        lock(&self.0.states).get(namespace).cloned()
    }

    pub fn states(&self) -> BTreeMap<String, MirrorState> {
        lock(&self.0.states).clone()
    }
}

/// Locks a mutex also after a panic: what these guard is consistent after every statement.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
