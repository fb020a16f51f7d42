//! What every handler may use: the connection to the cluster, what was seen of it, and who may do what.

use std::sync::Arc;

use kube::Client;

use crate::access::{Access, Authentication};
use crate::seen::Seen;

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
}

pub struct Context {
    pub(crate) client: Client,
    #[expect(dead_code, reason = "the next routes read it")]
    pub(crate) settings: Settings,
    pub(crate) access: Access,
    pub(crate) seen: Arc<Seen>,
}

impl Context {
    pub fn new(client: Client, settings: Settings, authentication: Authentication) -> Self {
        let access = Access::new(client.clone(), authentication, settings.default_team.clone());
        let seen = Arc::new(Seen::new(settings.watch_namespaces.clone()));
        Self { client, settings, access, seen }
    }
}
