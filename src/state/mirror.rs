//! A copy of each repository at a remote. Pushes come behind releases and never delay them; many changes become one push;
//! a remote that is down is tried again, ever more patiently. Nothing is ever overwritten there: whatever the remote has
//! that we do not is reported, and left to people.

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
pub use push::{Seen, probe};
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
    /// Pushes at a time.
    pub parallel: usize,
    /// How long a change waits for further ones.
    pub settle: Duration,
    /// For one push.
    pub time: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { parallel: 4, settle: Duration::from_millis(500), time: Duration::from_mins(10) }
    }
}

/// How the copy of one namespace's repository is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    /// Our newest commit, as far as it was looked at.
    pub ours: Option<String>,
    /// The commit that the remote's branch is at, as far as is known.
    pub theirs: Option<String>,
    /// How many of our commits the remote lacks. `None` while nobody knows.
    pub behind: Option<u64>,
    pub last_success: Option<SystemTime>,
    pub fault: Option<Failure>,
}

/// Why the copy is behind, since when, and how often it was tried in vain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub trouble: Trouble,
    pub since: SystemTime,
    pub attempts: u32,
}

impl State {
    pub fn is_in_sync(&self) -> bool {
        self.fault.is_none() && self.behind == Some(0)
    }
}

/// The way to tell the mirror of changes, and to ask how it is. Its work is done by the `Worker`.
#[derive(Debug, Clone)]
pub struct Mirror(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    changed: Mutex<BTreeSet<String>>,
    told: Notify,
    states: Mutex<BTreeMap<String, State>>,
}

impl Mirror {
    /// `folder` holds the repositories, each called `{namespace}.git`.
    pub fn new(git: Git, rules: Rules, folder: impl Into<PathBuf>, options: Options) -> (Self, Worker) {
        let shared = Arc::new(Shared::default());
        let pusher = Pusher { git, rules, folder: folder.into(), time: options.time };
        (Self(shared.clone()), Worker::new(shared, pusher, options))
    }

    /// Tells that a namespace has new commits. It costs next to nothing, and never waits.
    pub fn changed(&self, namespace: &str) {
        lock(&self.0.changed).insert(namespace.to_owned());
        self.0.told.notify_one();
    }

    /// None, while nothing is mirrored.
    pub fn state(&self, namespace: &str) -> Option<State> {
        lock(&self.0.states).get(namespace).cloned()
    }

    pub fn states(&self) -> BTreeMap<String, State> {
        lock(&self.0.states).clone()
    }
}

/// Nothing is left half done under these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
