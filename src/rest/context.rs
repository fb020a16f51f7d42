//! The state that all handlers share: clients, caches, access, limits.

use std::ffi::OsString;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use slipway_api::agent::RiskProfile;
use slipway_database::{Fault, Reader};
use slipway_import::Importer;
use slipway_mlflow::{LastFailure, Servers};
use tokio::time::timeout;
use tower::service_fn;

use crate::access::{Access, Authentication};
use crate::caches::Caches;
use crate::events::Hub;
use crate::metrics::Metrics;
use crate::openapi::Description;
use crate::platform::PlatformSettings;
use crate::radar::Fleet;
use crate::rate_limiter::{RateLimiter, RateLimits};
use crate::relay::Relay;
use crate::routes;
use crate::scaffold::ScaffoldSettings;
use crate::state::{StateClient, StateSettings};

/// The settings of the API.
#[derive(Debug, Clone)]
pub struct RestSettings {
    /// The platform's own namespace.
    pub platform_namespace: String,
    /// The namespaces to watch; empty means all.
    pub watch_namespaces: Vec<String>,
    /// The cluster's DNS domain.
    pub cluster_domain: String,
    /// The team of callers without authentication.
    pub default_team: String,
    /// Whether agents are reached at their Service's address; otherwise through the API server's proxy.
    pub in_cluster: bool,
    /// Overrides the address of agents, for example `http://{name}.{namespace}.example.com`.
    pub agent_address: Option<String>,
    /// The timeout until an agent begins to answer a chat.
    pub chat_time: Duration,
    /// The program of import subprocesses, with its arguments before `skill SOURCE`, which prints what
    /// `slipway_import::find_skill` returns, or `archive START LENGTH PATH`, likewise for `unpack_skill`.
    pub importer: Vec<OsString>,
    pub platform: PlatformSettings,
    pub scaffold: ScaffoldSettings,
    /// The address of the state role.
    pub state: StateSettings,
    /// Whether objects are written as the caller instead of as REST itself.
    pub impersonate: bool,
    /// The rate limits of calls to agents.
    pub limits: RateLimits,
    /// The risk profiles whose quality gate stays shut while neither the cluster nor MLflow has a score.
    pub gate_fail_closed: Vec<RiskProfile>,
    /// Signs calls to agents; without it they carry no token.
    pub sign: Option<Sign>,
}

/// Makes the token that a call to an agent carries, from the agent's id. None while there is no key.
#[derive(Clone)]
pub struct Sign(Arc<Signing>);

type Signing = dyn Fn(&str) -> Option<String> + Send + Sync;

impl Sign {
    pub fn new(token: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(token))
    }

    pub(crate) fn token(&self, agent: &str) -> Option<String> {
        (self.0)(agent)
    }
}

impl fmt::Debug for Sign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sign")
    }
}

/// The timeout until the API server begins to answer.
const API_SERVER_TIMEOUT: Duration = Duration::from_secs(12);

pub struct Context {
    pub(crate) client: Client,
    pub(crate) settings: RestSettings,
    pub(crate) access: Access,
    pub(crate) caches: Arc<Caches>,
    pub(crate) rate_limiter: Arc<RateLimiter>,
    pub(crate) relay: Relay,
    pub(crate) state: StateClient,
    pub(crate) importer: Importer,
    /// Reads the conversations of agents without pods.
    pub(crate) database: Option<Reader>,
    /// What agents did within the last day.
    pub(crate) fleet: Fleet,
    pub(crate) mlflow: Servers,
    /// Whether marks reach MLflow.
    pub(crate) delivering: LastFailure,
    pub(crate) metrics: Metrics,
    pub(crate) hub: Arc<Hub>,
    pub(crate) description: Description,
}

impl Context {
    /// Fails if the database's URL is invalid. Connects to nothing.
    pub fn new(client: Client, settings: RestSettings, authentication: Authentication) -> Result<Self, Fault> {
        let untimed = client.clone();
        let client = with_timeout(API_SERVER_TIMEOUT, client);
        let relay = Relay::new(untimed, client.clone(), &settings);
        let access = Access::new(client.clone(), authentication, settings.default_team.clone());
        let caches = Arc::new(Caches::new(settings.watch_namespaces.clone()));
        let metrics = Metrics::default();
        let rate_limiter = Arc::new(RateLimiter::new(settings.limits, metrics.clone()));
        let hub = Arc::new(Hub::new(client.clone(), caches.clone(), settings.watch_namespaces.clone()));
        let state = StateClient::new(&settings.state);
        let importer = Importer::new(settings.importer.clone());
        let database = settings.platform.reader()?;
        let (mlflow, delivering) = (settings.platform.mlflow_servers(), LastFailure::default());
        let description = Description::of(&routes::all());
        Ok(Self {
            client,
            settings,
            access,
            caches,
            rate_limiter,
            relay,
            state,
            importer,
            database,
            fleet: Fleet::default(),
            mlflow,
            delivering,
            metrics,
            hub,
            description,
        })
    }
}

/// A client whose requests fail if no answer begins within `limit`. An API server that has gone may leave silent
/// connections.
fn with_timeout(limit: Duration, client: Client) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = service_fn(move |request| {
        let client = client.clone();
        async move {
            let timed_out = |_| kube::Error::Service(format!("the API server has not answered within {} s", limit.as_secs()).into());
            timeout(limit, client.send(request)).await.map_err(timed_out)?
        }
    });
    Client::new(service, namespace)
}
