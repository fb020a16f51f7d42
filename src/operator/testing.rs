//! What tests of several modules share: settings, and a context without a cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::Client;
use kube::client::Body;
use slipway_api::team::AllowedPodSettings;
use slipway_cluster::Tasks;
use slipway_cluster::event::Events;

use crate::context::Context;
use crate::database::DatabaseUrl;
use crate::metrics::Metrics;
use crate::settings::{AgentDefaults, Platform, Settings, TeamNetwork};
use crate::tenancy::Tenancy;

pub(crate) fn settings(database: Option<&str>) -> Settings {
    Settings {
        platform_namespace: "slipway-system".to_owned(),
        service_account: "slipway-manager".to_owned(),
        cluster_domain: "cluster.local".to_owned(),
        watch_namespaces: Vec::new(),
        runtime_image: "slipway.dev/slipway-runtime:1".to_owned(),
        agent_defaults: AgentDefaults::default(),
        team_network: TeamNetwork::default(),
        allowed_pod_settings: AllowedPodSettings::default(),
        team_quota: BTreeMap::new(),
        database: database.map(|url| DatabaseUrl::parse(url).unwrap()),
        ollama_base_url: None,
        platform: Platform::default(),
        mlflow_login: None,
        max_concurrent_reconciles: 1,
        max_concurrent_rollouts: 1,
        secrets_hash_key: b"a key for tests".to_vec(),
        callback_key: None,
    }
}

/// Whoever asks this cluster for anything fails.
pub(crate) fn context() -> Arc<Context> {
    let nobody =
        tower::service_fn(async |_: http::Request<Body>| Err::<http::Response<Body>, _>(std::io::Error::other("there is no cluster")));
    let client = Client::new(nobody, "default");
    context_of(client)
}

/// With another cluster to ask.
pub(crate) fn context_of(client: Client) -> Arc<Context> {
    context_with(client, None)
}

/// With a database besides.
pub(crate) fn context_with(client: Client, tenancy: Option<Tenancy>) -> Arc<Context> {
    let events = Events::new(client.clone(), None);
    Arc::new(Context::new(client, settings(None), tenancy, Metrics::default(), events, Tasks::default()))
}
