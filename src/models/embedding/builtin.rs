//! all-MiniLM-L6-v2 in our own process: no network, no key, no other server. Its files are read at the first use and
//! dropped after some idle minutes, so that an agent that does not embed stays small. The arithmetic happens on threads
//! where it holds nobody up. Opened several times, it is in memory once.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::Purpose;
use super::checked::{Batch, Raw, Source};
use super::network::Network;
use crate::settings::{self, Variables};
use crate::{Fault, FaultKind};

const FOLDER: &str = "/usr/share/slipway/minilm";

/// How long the network stays in memory without being used.
const IDLE: Duration = Duration::from_mins(5);

/// Enough texts to share a pass through the weights, few enough that a query does not wait long behind them.
const BATCH: Batch = Batch { texts: 16, bytes: 16 << 10 };

/// Those that are open, to be opened again.
static OPEN: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

pub(super) struct Builtin(Arc<Shared>);

struct Shared {
    folder: PathBuf,
    dimensions: usize,
    state: Mutex<State>,
    /// As many computations at a time as there are processors.
    seats: Arc<Semaphore>,
}

struct State {
    network: Option<Arc<Network>>,
    used: Instant,
    retirement: Option<JoinHandle<()>>,
}

impl Builtin {
    pub(super) fn open(dimensions: usize, variables: Variables<'_>) -> Result<Self, Fault> {
        let folder = settings::first(variables, &["RUNTIME_EMBEDDING_DIR"]).map_or(FOLDER.to_owned(), |(_, folder)| folder);
        let folder = PathBuf::from(folder);
        if !folder.join("model.safetensors").is_file() {
            let why = "there is no model.safetensors; RUNTIME_EMBEDDING_DIR names the folder with the files of all-MiniLM-L6-v2";
            return Err(Fault::new(
                FaultKind::Misconfigured,
                format!("the built-in embedding model is not in {}: {why}", folder.display()),
            ));
        }
        let mut open = lock(&OPEN);
        open.retain(|shared| shared.strong_count() > 0);
        let same = open.iter().filter_map(Weak::upgrade).find(|shared| shared.folder == folder);
        Ok(Self(same.unwrap_or_else(|| {
            let shared = Arc::new(Shared::new(folder, dimensions));
            open.push(Arc::downgrade(&shared));
            shared
        })))
    }
}

impl Source for Builtin {
    fn batch(&self) -> Batch {
        BATCH
    }

    fn vectors(&self, texts: Vec<String>, _purpose: Purpose) -> Raw<'_> {
        let shared = Arc::clone(&self.0);
        Box::pin(async move {
            let seats = Arc::clone(&shared.seats);
            let ended = || Fault::new(FaultKind::Broken, "the built-in embedding model ended in the middle of its work; try again");
            let seat = seats.acquire_owned().await.map_err(|_| ended())?;
            let work = tokio::task::spawn_blocking(move || {
                let _seat = seat;
                let answer = shared.network()?.embed(&texts);
                Shared::used(&shared);
                answer
            });
            work.await.map_err(|_| ended())?
        })
    }
}

impl Shared {
    fn new(folder: PathBuf, dimensions: usize) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let state = State { network: None, used: Instant::now(), retirement: None };
        Self { folder, dimensions, state: Mutex::new(state), seats: Arc::new(Semaphore::new(processors)) }
    }

    /// Reads the files unless they have been. Others wait for it, on threads of their own.
    fn network(&self) -> Result<Arc<Network>, Fault> {
        let mut state = lock(&self.state);
        if let Some(network) = &state.network {
            return Ok(Arc::clone(network));
        }
        let network = Arc::new(read(&self.folder, self.dimensions)?);
        state.network = Some(Arc::clone(&network));
        Ok(network)
    }

    /// Starts the idle minutes anew, and sees to it that somebody watches them pass.
    fn used(self: &Arc<Self>) {
        let mut state = lock(&self.state);
        state.used = Instant::now();
        if state.retirement.as_ref().is_none_or(JoinHandle::is_finished) {
            state.retirement = Some(tokio::spawn(retire(Arc::downgrade(self), state.used + IDLE)));
        }
    }
}

/// Drops the network once it has been idle, and goes. Whoever needs it later reads it again.
async fn retire(shared: Weak<Shared>, mut due: Instant) {
    loop {
        tokio::time::sleep_until(due).await;
        let Some(shared) = shared.upgrade() else { return };
        // Held for as long as reading the files takes: nobody is idle then.
        let Ok(mut state) = shared.state.try_lock() else {
            due = Instant::now() + IDLE;
            continue;
        };
        if state.used.elapsed() >= IDLE {
            state.retirement = None;
            state.network = None;
            tracing::debug!("the built-in embedding model has been idle and left memory");
            return;
        }
        due = state.used + IDLE;
    }
}

fn read(folder: &Path, dimensions: usize) -> Result<Network, Fault> {
    let network = Network::read(folder)?;
    if network.dimensions() != dimensions {
        let why = format!("gives {} dimensions where {dimensions} are needed", network.dimensions());
        return Err(Fault::new(FaultKind::Misconfigured, format!("the embedding model in {} {why}", folder.display())));
    }
    Ok(network)
}

/// A panic elsewhere leaves nothing half done here.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(folder: &Path) -> Builtin {
        Builtin::open(384, &|_| Some(folder.display().to_string())).unwrap()
    }

    /// A folder of one's own: what is opened elsewhere is not the same.
    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in ["model.safetensors", "vocab.txt", "config.json", "sentence_bert_config.json"] {
            std::os::unix::fs::symlink(slipway_peers::minilm().join(name), folder.path().join(name)).unwrap();
        }
        folder
    }

    fn in_memory(builtin: &Builtin) -> bool {
        lock(&builtin.0.state).network.is_some()
    }

    #[tokio::test(start_paused = true)]
    async fn the_network_is_in_memory_only_while_it_is_used_now_and_then() {
        let folder = folder();
        let builtin = opened(folder.path());
        let asked = || builtin.vectors(vec!["text".to_owned()], Purpose::Query);
        let first = asked().await.unwrap();
        for _ in 0..3 {
            tokio::time::sleep(IDLE * 2 / 3).await;
            assert!(in_memory(&builtin), "it was used less than {IDLE:?} ago");
            asked().await.unwrap();
        }
        tokio::time::sleep(IDLE + Duration::from_secs(1)).await;
        assert!(!in_memory(&builtin));
        assert_eq!(asked().await.unwrap(), first, "it comes back by itself");
        tokio::time::sleep(IDLE + Duration::from_secs(1)).await;
        assert!(!in_memory(&builtin), "and goes again");
    }

    #[tokio::test]
    async fn opened_twice_it_is_in_memory_once() {
        let folder = folder();
        let (one, other) = (opened(folder.path()), opened(folder.path()));
        one.vectors(vec!["text".to_owned()], Purpose::Query).await.unwrap();
        assert!(in_memory(&other));
    }
}
