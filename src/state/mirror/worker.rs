//! Schedules the pushes of the mirror and records their results.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::SystemTime;

use slipway_api::mirror::Remote;
use tokio::sync::watch;
use tokio::task::{Id, JoinSet};
use tokio::time::{Instant, sleep_until};
use tracing::{debug, info, warn};

use super::push::Pusher;
use super::trouble::{Trouble, pause};
use super::{Failure, MirrorState, Options, Shared, lock};

pub struct Worker {
    shared: Arc<Shared>,
    pusher: Pusher,
    options: Options,
    entries: BTreeMap<String, Entry>,
    jobs: JoinSet<Outcome>,
    names: BTreeMap<Id, String>,
}

/// Schedule of one namespace.
#[derive(Debug, Default)]
struct Entry {
    /// When to push. None if there is nothing to push.
    due: Option<Instant>,
    running: bool,
    failures: u32,
    /// Commits were added during backoff: `behind` must be counted again.
    recount: bool,
}

#[derive(Debug)]
enum Outcome {
    Pushed { ours: Option<String> },
    Failed { ours: Option<String>, theirs: Option<String>, behind: Option<u64>, trouble: Trouble },
    Counted { ours: Option<String>, behind: Option<u64> },
}

impl Worker {
    pub(super) fn new(shared: Arc<Shared>, pusher: Pusher, options: Options) -> Self {
        Self { shared, pusher, options, entries: BTreeMap::new(), jobs: JoinSet::new(), names: BTreeMap::new() }
    }

    /// Runs until `shutdown`. When the remote changes, all repositories are pushed again, as at the start. `clock` is for
    /// the times in states.
    pub async fn run(
        mut self,
        mut remote: watch::Receiver<Option<Remote>>,
        clock: impl Fn() -> SystemTime,
        shutdown: impl Future<Output = ()>,
    ) {
        let mut shutdown = pin!(shutdown);
        let mut current = remote.borrow_and_update().clone();
        let mut settled = false;
        self.restart(current.is_some()).await;
        loop {
            let next = current.as_ref().and_then(|remote| self.start_what_is_due(remote));
            tokio::select! {
                () = &mut shutdown => break,
                changed = remote.changed(), if !settled => {
                    // The sender is gone: the remote does not change any more.
                    settled = changed.is_err();
                    let new = remote.borrow_and_update().clone();
                    if new != current {
                        current = new;
                        self.restart(current.is_some()).await;
                    }
                }
                () = self.shared.wake.notified() => self.take_changes(current.is_some()),
                Some(ended) = self.jobs.join_next_with_id(), if !self.jobs.is_empty() => {
                    let (id, outcome) = match ended {
                        Ok((id, outcome)) => (id, Ok(outcome)),
                        Err(error) => (error.id(), Err(error.to_string())),
                    };
                    if let Some(namespace) = self.names.remove(&id) {
                        let outcome = outcome.unwrap_or_else(|words| Outcome::Failed {
                            ours: None, theirs: None, behind: None, trouble: Trouble::Other(words),
                        });
                        self.conclude(&namespace, outcome, clock());
                    }
                }
                () = until(next) => {}
            }
        }
        self.jobs.shutdown().await;
    }

    /// Marks all repositories as changed.
    async fn restart(&mut self, configured: bool) {
        self.jobs.shutdown().await;
        self.names.clear();
        self.entries.clear();
        lock(&self.shared.states).clear();
        if !configured {
            lock(&self.shared.changed).clear();
            return;
        }
        match tokio::fs::read_dir(&self.pusher.folder).await {
            Ok(mut folder) => {
                while let Ok(Some(entry)) = folder.next_entry().await {
                    if let Some(namespace) = entry.file_name().to_str().and_then(|name| name.strip_suffix(".git")) {
                        lock(&self.shared.changed).insert(namespace.to_owned());
                    }
                }
            }
            Err(error) => warn!(%error, folder = %self.pusher.folder.display(), "the folder of repositories cannot be listed"),
        }
        self.take_changes(true);
    }

    fn take_changes(&mut self, configured: bool) {
        let changed = std::mem::take(&mut *lock(&self.shared.changed));
        if !configured {
            return;
        }
        let due = Instant::now() + self.options.settle;
        for namespace in changed {
            if crate::git::repository(&self.pusher.folder, &namespace).is_none() {
                continue;
            }
            let mut states = lock(&self.shared.states);
            states.entry(namespace.clone()).or_default().behind = None;
            drop(states);
            let entry = self.entries.entry(namespace).or_default();
            entry.recount = entry.failures > 0;
            // Neither a scheduled push nor a backoff is postponed.
            entry.due.get_or_insert(due);
        }
    }

    /// When the next push is due.
    fn start_what_is_due(&mut self, remote: &Remote) -> Option<Instant> {
        let now = Instant::now();
        let mut next: Option<Instant> = None;
        for (namespace, entry) in &mut self.entries {
            let Some(due) = entry.due.filter(|_| !entry.running) else { continue };
            let ready = due <= now;
            if self.jobs.len() >= self.options.parallel {
                // The end of a job calls this again.
                return None;
            }
            if !ready && !entry.recount {
                next = Some(next.map_or(due, |next| next.min(due)));
                continue;
            }
            (entry.running, entry.recount) = (true, false);
            let (pusher, namespace) = (self.pusher.clone(), namespace.clone());
            let theirs = lock(&self.shared.states).get(&namespace).and_then(|state| state.theirs.clone());
            let name = namespace.clone();
            let handle = if ready {
                entry.due = None;
                let remote = remote.clone();
                self.jobs.spawn(async move { pushed(&pusher, &remote, &namespace, theirs).await })
            } else {
                self.jobs.spawn(async move { counted(&pusher, &namespace, theirs).await })
            };
            self.names.insert(handle.id(), name);
        }
        next
    }

    fn conclude(&mut self, namespace: &str, outcome: Outcome, now: SystemTime) {
        let Some(entry) = self.entries.get_mut(namespace) else { return };
        entry.running = false;
        let mut states = lock(&self.shared.states);
        let state = states.entry(namespace.to_owned()).or_default();
        match outcome {
            Outcome::Pushed { ours: None } => {
                // No commit, or no repository any more.
                if entry.due.is_none() {
                    states.remove(namespace);
                    drop(states);
                    self.entries.remove(namespace);
                }
            }
            Outcome::Pushed { ours } => {
                if entry.failures > 0 {
                    info!(namespace, failures = entry.failures, "the mirror has caught up");
                }
                entry.failures = 0;
                // Commits may have been added since the push began.
                let behind = entry.due.is_none().then_some(0);
                *state = MirrorState { theirs: ours.clone(), ours, behind, last_success: Some(now), fault: None };
            }
            Outcome::Failed { ours, theirs, behind, trouble } => {
                entry.failures = entry.failures.saturating_add(1);
                entry.due = Some(Instant::now() + pause(namespace, entry.failures));
                log_failure(namespace, state.fault.as_ref(), &trouble);
                let since = state.fault.as_ref().map_or(now, |fault| fault.since);
                state.fault = Some(Failure { trouble, since, attempts: entry.failures });
                (state.theirs, state.behind) = (theirs, behind);
                state.ours = ours.or(state.ours.take());
            }
            Outcome::Counted { ours, behind } => (state.ours, state.behind) = (ours, behind),
        }
    }
}

/// Warns of a new failure. Repetitions are logged at debug level.
fn log_failure(namespace: &str, before: Option<&Failure>, trouble: &Trouble) {
    if before.is_some_and(|before| before.trouble == *trouble) {
        debug!(namespace, %trouble, "the mirror is still behind");
    } else {
        warn!(namespace, %trouble, "the mirror is behind");
    }
}

async fn until(next: Option<Instant>) {
    match next {
        Some(next) => sleep_until(next).await,
        None => std::future::pending().await,
    }
}

async fn pushed(pusher: &Pusher, remote: &Remote, namespace: &str, theirs: Option<String>) -> Outcome {
    let ours = match pusher.ours(namespace).await {
        Ok(Some(ours)) => ours,
        Ok(None) => return Outcome::Pushed { ours: None },
        Err(trouble) => return Outcome::Failed { ours: None, theirs, behind: None, trouble },
    };
    match pusher.push(remote, namespace, &ours).await {
        Ok(()) => Outcome::Pushed { ours: Some(ours) },
        Err(trouble) => {
            let theirs = match &trouble {
                Trouble::Diverged { theirs, .. } => theirs.clone(),
                _ => theirs,
            };
            let behind = pusher.behind(namespace, &ours, theirs.as_deref()).await;
            Outcome::Failed { ours: Some(ours), theirs, behind, trouble }
        }
    }
}

async fn counted(pusher: &Pusher, namespace: &str, theirs: Option<String>) -> Outcome {
    let ours = pusher.ours(namespace).await.ok().flatten();
    let behind = match &ours {
        Some(ours) => pusher.behind(namespace, ours, theirs.as_deref()).await,
        None => None,
    };
    Outcome::Counted { ours, behind }
}
