//! What every handler may use: the connection to the cluster, what was seen of it, who may do what, and the ways to
//! agents.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use slipway_egress::{Allowed, Egress};

use crate::access::{Access, Authentication};
use crate::events::Hub;
use crate::limits::{Gate, Limits};
use crate::openapi::Description;
use crate::relay::Relay;
use crate::platform::PlatformSettings;
use crate::routes;
use crate::seen::Seen;
use crate::skills;

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
    /// What skills may be imported from although it is not public.
    pub import_allow: Vec<Allowed>,
    pub platform: PlatformSettings,
    /// How much may be asked of agents.
    pub limits: Limits,
}

pub struct Context {
    pub(crate) client: Client,
    pub(crate) settings: Settings,
    pub(crate) access: Access,
    pub(crate) seen: Arc<Seen>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) relay: Relay,
    pub(crate) hub: Arc<Hub>,
    pub(crate) description: Description,
    /// The way out for imports.
    pub(crate) egress: Egress,
}

impl Context {
    pub fn new(client: Client, settings: Settings, authentication: Authentication) -> Self {
        let access = Access::new(client.clone(), authentication, settings.default_team.clone());
        let seen = Arc::new(Seen::new(settings.watch_namespaces.clone()));
        let gate = Arc::new(Gate::new(settings.limits));
        let relay = Relay::new(client.clone(), &settings);
        let hub = Arc::new(Hub::new(client.clone(), seen.clone(), settings.watch_namespaces.clone()));
        let egress = skills::egress(&settings.import_allow);
        Self { egress, client, settings, access, seen, gate, relay, hub, description: Description::of(&routes::all()) }
    }
}
