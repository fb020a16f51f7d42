//! all-MiniLM-L6-v2 in this process, without network and key, computed by `slipway-embedding`. Its files are read on first
//! use and dropped after some idle minutes, so that an agent that does not embed stays small. It computes on blocking threads,
//! and is in memory once even if opened several times.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use slipway_embedding::Network;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::Purpose;
use super::checked::{BatchLimit, EmbeddingApi, RawVectors};
use crate::provider_settings::{self, Variables};
use crate::{FaultKind, ModelFault};

const DEFAULT_FOLDER: &str = "/usr/share/slipway/minilm";

/// The time after which an unused network is dropped.
const IDLE_TIMEOUT: Duration = Duration::from_mins(5);

/// Enough texts to share a pass over the weights, few enough that a query behind them does not wait long.
const BATCH_LIMIT: BatchLimit = BatchLimit { texts: 16, bytes: 16 << 10 };

/// The open networks, to be shared.
static OPENED: Mutex<Vec<Weak<SharedNetwork>>> = Mutex::new(Vec::new());

pub(super) struct Builtin(Arc<SharedNetwork>);

struct SharedNetwork {
    folder: PathBuf,
    dimensions: usize,
    state: Mutex<State>,
    /// Limits concurrent computations to the number of processors.
    permits: Arc<Semaphore>,
}

struct State {
    network: Option<Arc<Network>>,
    used: Instant,
    retirement: Option<JoinHandle<()>>,
}

impl Builtin {
    pub(super) fn open(dimensions: usize, variables: Variables<'_>) -> Result<Self, ModelFault> {
        let folder = folder(variables);
        if !folder.join("model.safetensors").is_file() {
            let why = "there is no model.safetensors; RUNTIME_EMBEDDING_DIR names the folder with the files of all-MiniLM-L6-v2";
            return Err(ModelFault::new(
                FaultKind::Misconfigured,
                format!("the built-in embedding model is not in {}: {why}", folder.display()),
            ));
        }
        let mut open = lock(&OPENED);
        open.retain(|shared| shared.strong_count() > 0);
        let same = open.iter().filter_map(Weak::upgrade).find(|shared| shared.folder == folder);
        Ok(Self(same.unwrap_or_else(|| {
            let shared = Arc::new(SharedNetwork::new(folder, dimensions));
            open.push(Arc::downgrade(&shared));
            shared
        })))
    }
}

/// The folder with the model's files.
pub(super) fn folder(variables: Variables<'_>) -> PathBuf {
    PathBuf::from(provider_settings::first(variables, &["RUNTIME_EMBEDDING_DIR"]).map_or(DEFAULT_FOLDER.to_owned(), |(_, folder)| folder))
}

impl EmbeddingApi for Builtin {
    fn batch(&self) -> BatchLimit {
        BATCH_LIMIT
    }

    fn vectors(&self, texts: Vec<String>, _purpose: Purpose) -> RawVectors<'_> {
        let shared = Arc::clone(&self.0);
        Box::pin(async move {
            let permits = Arc::clone(&shared.permits);
            let ended = || ModelFault::new(FaultKind::Broken, "the built-in embedding model ended in the middle of its work; try again");
            let seat = permits.acquire_owned().await.map_err(|_| ended())?;
            let work = tokio::task::spawn_blocking(move || {
                let _seat = seat;
                let answer = shared.network()?.embed(&texts);
                SharedNetwork::used(&shared);
                answer.map_err(ModelFault::from)
            });
            work.await.map_err(|_| ended())?
        })
    }
}

impl SharedNetwork {
    fn new(folder: PathBuf, dimensions: usize) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let state = State { network: None, used: Instant::now(), retirement: None };
        Self { folder, dimensions, state: Mutex::new(state), permits: Arc::new(Semaphore::new(processors)) }
    }

    /// The network; reads the files on first use, while other callers wait on their blocking threads.
    fn network(&self) -> Result<Arc<Network>, ModelFault> {
        let mut state = lock(&self.state);
        if let Some(network) = &state.network {
            return Ok(Arc::clone(network));
        }
        let network = Arc::new(read(&self.folder, self.dimensions)?);
        state.network = Some(Arc::clone(&network));
        Ok(network)
    }

    /// Restarts the idle timeout, and spawns its task if there is none.
    fn used(self: &Arc<Self>) {
        let mut state = lock(&self.state);
        state.used = Instant::now();
        if state.retirement.as_ref().is_none_or(JoinHandle::is_finished) {
            state.retirement = Some(tokio::spawn(drop_when_idle(Arc::downgrade(self), state.used + IDLE_TIMEOUT)));
        }
    }
}

/// Drops the network once it has been idle, and ends.
async fn drop_when_idle(shared: Weak<SharedNetwork>, mut due: Instant) {
    loop {
        tokio::time::sleep_until(due).await;
        let Some(shared) = shared.upgrade() else { return };
        // The lock is held while the files are read, so the network is not idle.
        let Ok(mut state) = shared.state.try_lock() else {
            due = Instant::now() + IDLE_TIMEOUT;
            continue;
        };
        if state.used.elapsed() >= IDLE_TIMEOUT {
            state.retirement = None;
            state.network = None;
            tracing::debug!("the built-in embedding model has been idle and left memory");
            return;
        }
        due = state.used + IDLE_TIMEOUT;
    }
}

fn read(folder: &Path, dimensions: usize) -> Result<Network, ModelFault> {
    let network = Network::read(folder)?;
    if network.dimensions() != dimensions {
        let why = format!("gives {} dimensions where {dimensions} are needed", network.dimensions());
        return Err(ModelFault::new(FaultKind::Misconfigured, format!("the embedding model in {} {why}", folder.display())));
    }
    Ok(network)
}

/// A poisoned lock is used: a panic cannot leave the state inconsistent.
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
            tokio::time::sleep(IDLE_TIMEOUT * 2 / 3).await;
            assert!(in_memory(&builtin), "it was used less than {IDLE_TIMEOUT:?} ago");
            asked().await.unwrap();
        }
        tokio::time::sleep(IDLE_TIMEOUT + Duration::from_secs(1)).await;
        assert!(!in_memory(&builtin));
        assert_eq!(asked().await.unwrap(), first, "it comes back by itself");
        tokio::time::sleep(IDLE_TIMEOUT + Duration::from_secs(1)).await;
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
