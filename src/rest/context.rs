//! What every handler may use: the connection to the cluster, what was seen of it, who may do what, and the ways to
//! agents.

use std::ffi::OsString;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use slipway_database::{Fault, Reader};
use slipway_import::Importer;
use tokio::time::timeout;
use tower::service_fn;

use crate::access::{Access, Authentication};
use crate::events::Hub;
use crate::limits::{Gate, Limits};
use crate::metrics::Metrics;
use crate::openapi::Description;
use crate::platform::PlatformSettings;
use crate::relay::Relay;
use crate::routes;
use crate::seen::Seen;
use crate::state::{State, StateSettings};

/// How this API was set up.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The platform's own namespace.
    pub platform_namespace: String,
    /// Only these namespaces are looked at; empty means all.
    pub watch_namespaces: Vec<String>,
    /// The cluster's DNS domain.
    pub cluster_domain: String,
    /// The team of those who need not say who they are.
    pub default_team: String,
    /// Whether agents are reached at their Service's name; else by way of the API server.
    pub in_cluster: bool,
    /// Where agents are reached instead, such as `http://{name}.{namespace}.example.com`.
    pub agent_address: Option<String>,
    /// How long an agent's answer to a chat may take to begin.
    pub chat_time: Duration,
    /// The program of import subprocesses, with its arguments before `skill SOURCE`, which prints what
    /// `slipway_import::find_skill` returns, or `archive START LENGTH PATH`, likewise for `unpack_skill`.
    pub importer: Vec<OsString>,
    pub platform: PlatformSettings,
    /// The way to the releases.
    pub state: StateSettings,
    /// Whether objects are written as the caller instead of as REST itself.
    pub impersonate: bool,
    /// How much may be asked of agents.
    pub limits: Limits,
    /// Signs calls of agents; without it they bear no token.
    pub sign: Option<Sign>,
}

/// Makes the token by which an agent knows that a call is meant for it, from the agent's id. There may be no key yet.
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

/// How long the API server may take to begin its answer.
const PATIENCE: Duration = Duration::from_secs(12);

pub struct Context {
    pub(crate) client: Client,
    pub(crate) settings: Settings,
    pub(crate) access: Access,
    pub(crate) seen: Arc<Seen>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) relay: Relay,
    pub(crate) state: State,
    pub(crate) importer: Importer,
    /// What agents that rest have said and know.
    pub(crate) kept: Option<Reader>,
    pub(crate) metrics: Metrics,
    pub(crate) hub: Arc<Hub>,
    pub(crate) description: Description,
}

impl Context {
    /// Fails where the database's URL cannot be used. Nothing is connected to.
    pub fn new(client: Client, settings: Settings, authentication: Authentication) -> Result<Self, Fault> {
        let patient = client.clone();
        let client = within(PATIENCE, client);
        let relay = Relay::new(patient, client.clone(), &settings);
        let access = Access::new(client.clone(), authentication, settings.default_team.clone());
        let seen = Arc::new(Seen::new(settings.watch_namespaces.clone()));
        let metrics = Metrics::default();
        let gate = Arc::new(Gate::new(settings.limits, metrics.clone()));
        let hub = Arc::new(Hub::new(client.clone(), seen.clone(), settings.watch_namespaces.clone()));
        let state = State::new(&settings.state);
        let importer = Importer::new(settings.importer.clone());
        let kept = settings.platform.reader()?;
        let description = Description::of(&routes::all());
        Ok(Self { client, settings, access, seen, gate, relay, state, importer, kept, metrics, hub, description })
    }
}

/// A client whose requests begin to be answered within this time, or fail: an API server that has gone may leave
/// connections behind that are silent for ever.
fn within(patience: Duration, client: Client) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = service_fn(move |request| {
        let client = client.clone();
        async move {
            let late = |_| kube::Error::Service(format!("the API server has not answered within {} s", patience.as_secs()).into());
            timeout(patience, client.send(request)).await.map_err(late)?
        }
    });
    Client::new(service, namespace)
}
