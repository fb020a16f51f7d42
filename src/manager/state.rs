//! The role `state`: the release history in a locked folder, the controller that writes to it, the mirror that follows it,
//! and the HTTP port for other parts of Slipway.

mod callbacks;
mod callers;
mod gates;
mod mirror_config;
mod routes;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use kube::Client;
use slipway_cluster::event::Events;
use slipway_cluster::{Key, Metrics, Tasks};
use slipway_http::callback::CallbackKey;
use slipway_http::{ServerLimits, listen, serve};
use slipway_releases::{self as releases, Context as Releases, watch_all};
use slipway_state::git::Git;
use slipway_state::history::{History, HistoryFault};
use slipway_state::mirror::{Mirror, Options, Rules};
use slipway_state::serve::{Serve, ServeLimits};
use tokio::sync::{Semaphore, watch};

use crate::arguments::Arguments;
use crate::keys::callback::CallbackKeySource;
use crate::run::{namespaces, stopped};
use callbacks::Callbacks;
use callers::Callers;
use gates::{Gates, KnownAgent};
use routes::{MAX_TESTS, StateRoutes};

/// The pause between attempts to open the folder.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The readiness of the role. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct StateReadiness(Arc<OnceLock<Arc<Releases>>>);

impl StateReadiness {
    pub(crate) fn is_ready(&self) -> bool {
        self.0.get().is_some_and(|releases| releases.is_ready())
    }
}

/// The settings of the role.
pub(crate) struct StateRoleSettings {
    folder: PathBuf,
    listen: SocketAddr,
    callers: Vec<String>,
    callback_key: CallbackKeySource,
    platform_namespace: String,
    rules: Rules,
    releases: releases::ReleaseSettings,
    instance: String,
}

impl StateRoleSettings {
    /// `callback_key` is the key of callbacks, if this process has the role operator; otherwise it is read from its file.
    pub(crate) fn read(arguments: &Arguments, callback_key: Option<CallbackKey>) -> anyhow::Result<Self> {
        let folder = arguments.state_folder.clone().context("the role state takes --state-folder (SLIPWAY_STATE_FOLDER)")?;
        let given = |list: &[String]| list.iter().map(|item| item.trim().to_owned()).filter(|item| !item.is_empty()).collect::<Vec<_>>();
        Ok(Self {
            folder,
            listen: arguments.state_listen,
            callers: given(&arguments.state_callers),
            callback_key: callback_key
                .map_or_else(|| CallbackKeySource::File(arguments.callback_key_file.clone()), CallbackKeySource::Held),
            platform_namespace: arguments.platform_namespace.clone(),
            rules: Rules { allow: arguments.mirror_allow()?, files: arguments.mirror_files.clone() },
            releases: releases::ReleaseSettings {
                watch_namespaces: namespaces(arguments),
                max_concurrent_reconciles: arguments.max_concurrent_reconciles,
                allow_heuristic_gate: arguments.allow_heuristic_gate,
            },
            instance: arguments.name.clone(),
        })
    }
}

/// Runs until `stop` turns true, and finishes the write in progress.
pub(crate) async fn run(
    settings: StateRoleSettings,
    client: Client,
    metrics: Metrics,
    tasks: Tasks,
    state: StateReadiness,
    stop: watch::Receiver<bool>,
) -> anyhow::Result<()> {
    let listener = listen(settings.listen).with_context(|| format!("cannot listen on {}", settings.listen))?;
    let git = Git::new("git", std::env::temp_dir(), std::env::vars_os()).context("no folder for git's temporary files")?;
    let Some(history) = opened(&settings.folder, &git, stop.clone()).await else { return Ok(()) };
    let history = Arc::new(history);
    tracing::info!(folder = %settings.folder.display(), "the release history is open");

    let (mirror, worker) = Mirror::new(git.clone(), settings.rules.clone(), &settings.folder, Options::default());
    let (configuration, remote) = mirror_config::watch(&client, &settings.platform_namespace, &tasks);
    let mirrors = stop.clone();
    let mirroring = tasks.spawn_while(move || !*mirrors.borrow(), "mirror", worker.run(remote, SystemTime::now, stopped(stop.clone())));

    let events = Events::new(client.clone(), Some(settings.instance.clone()));
    let mut releases = Releases::new(client.clone(), settings.releases.clone(), history.clone(), metrics, events.clone(), tasks);
    let notified = mirror.clone();
    releases.moved = Some(Box::new(move |namespace| notified.changed(namespace)));
    let releases = Arc::new(releases);
    watch_all(&releases);
    // Set once, as the role runs once.
    drop(state.0.set(releases.clone()));

    let (key, allow_heuristic) = (settings.callback_key.clone(), settings.releases.allow_heuristic_gate);
    let known = releases.clone();
    let agents = Box::new(move |agent: &Key| known_agent(&known, agent));
    let routes = Arc::new(StateRoutes {
        history,
        mirror,
        configuration,
        serve: Serve::new(git.clone(), &settings.folder, ServeLimits::default()),
        git,
        rules: settings.rules.clone(),
        callbacks: Callbacks::new(client.clone(), settings.callback_key),
        gates: Gates::new(client.clone(), key, agents, events, allow_heuristic),
        callers: Callers::new(client, settings.callers),
        tests: Semaphore::new(MAX_TESTS),
    });
    let handler = move |request| {
        let routes = routes.clone();
        async move { routes.answer(request).await }
    };
    let answering = tokio::spawn(serve(listener, ServerLimits::default(), handler, stopped(stop.clone())));
    releases::run(releases, stop).await;
    drop(answering.await);
    drop(mirroring.await);
    Ok(())
}

/// An Agent as the release controller's watches have told of it, which are told the status, too.
fn known_agent(releases: &Releases, agent: &Key) -> KnownAgent {
    match releases.agent(agent) {
        Some(cached) => cached.agent().map_or(KnownAgent::None("the Agent cannot be read"), |agent| KnownAgent::Agent(Box::new(agent))),
        None if releases.is_ready() => KnownAgent::None("there is no such Agent in the namespace"),
        None => KnownAgent::Unknown,
    }
}

/// Opens the folder, and retries while it is locked or cannot be opened. `None` if the process stops first.
async fn opened(folder: &std::path::Path, git: &Git, stop: watch::Receiver<bool>) -> Option<History> {
    let stopping = stopped(stop);
    tokio::pin!(stopping);
    let mut logged = None;
    loop {
        let (path, git) = (folder.to_owned(), git.clone());
        let why = match tokio::task::spawn_blocking(move || History::open(&path, git)).await {
            Ok(Ok(history)) => return Some(history),
            Ok(Err(HistoryFault::Busy(why))) => format!("{why}; waiting until it ends"),
            Ok(Err(fault)) => fault.to_string(),
            Err(error) => error.to_string(),
        };
        if logged.as_ref() != Some(&why) {
            tracing::warn!("the release history is not open: {why}");
            logged = Some(why);
        }
        tokio::select! {
            () = tokio::time::sleep(RETRY_INTERVAL) => {}
            () = &mut stopping => return None,
        }
    }
}
