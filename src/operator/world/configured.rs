//! What of the platform's configuration was changed since it was installed: ConfigMap `slipway-platform` in the
//! platform's own namespace, which REST writes and anybody with the right may.

use std::sync::{Arc, PoisonError, RwLock};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::Api;
use slipway_api::platform;
use slipway_cluster::watch::{Heard, follow};

use super::World;

/// The MLflow server that was named, if one was.
#[derive(Default)]
pub(super) struct Configured(RwLock<Option<String>>);

impl Configured {
    fn set(&self, mlflow_uri: Option<String>) -> bool {
        let mut present = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let changed = *present != mlflow_uri;
        *present = mlflow_uri;
        changed
    }
}

impl World {
    /// The MLflow server of agents: the one that was configured, else the one that the platform was installed with.
    pub(crate) fn mlflow_uri(&self) -> Option<String> {
        let configured = self.configured.0.read().unwrap_or_else(PoisonError::into_inner).clone();
        configured.or_else(|| self.settings.platform.mlflow_uri.clone())
    }
}

/// Heeds the ConfigMap from now on. Agents wait for the first word on it, so that none is rolled out twice.
pub(super) fn watch(world: &Arc<World>) {
    world.sources.expect();
    let (world, tasks) = (world.clone(), world.tasks.clone());
    tasks.spawn("watch of the platform's configuration", async move {
        let api: Api<ConfigMap> = Api::namespaced(world.client.clone(), &world.settings.platform_namespace);
        let hear = |heard: Heard<ConfigMap>| {
            let changed = match heard {
                Heard::Seen(key, config) if key.name == platform::NAME => world.configured.set(mlflow_uri(&config)),
                Heard::Gone(key, _) if key.name == platform::NAME => world.configured.set(None),
                Heard::Listed(keys) if !keys.iter().any(|key| key.name == platform::NAME) => world.configured.set(None),
                _ => false,
            };
            if changed {
                tracing::info!(mlflow_uri = ?world.mlflow_uri(), "the platform's configuration has changed");
                world.begin_rollout();
                world.agents.keys().into_iter().for_each(|key| world.agent_requests.add(key));
            }
        };
        follow(api, None, Some(&world.sources), hear).await;
    });
}

/// What agents can be told; what cannot be used is as good as not there, and is said in the log without being quoted.
fn mlflow_uri(config: &ConfigMap) -> Option<String> {
    let given = config.data.as_ref()?.get(platform::MLFLOW_URI)?;
    match platform::public_url_fault(given) {
        None => Some(given.clone()),
        Some(fault) => {
            tracing::warn!(fault, "ConfigMap {}: {} is not heeded", platform::NAME, platform::MLFLOW_URI);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_agents_can_be_told_counts() {
        let config = |uri: &str| ConfigMap { data: Some([("mlflow_uri".to_owned(), uri.to_owned())].into()), ..ConfigMap::default() };
        assert_eq!(mlflow_uri(&config("http://mlflow:5000")).as_deref(), Some("http://mlflow:5000"));
        for wrong in ["", "mlflow", "http://me:hunter2@mlflow", "file:///x"] {
            assert_eq!(mlflow_uri(&config(wrong)), None, "{wrong}");
        }
        assert_eq!(mlflow_uri(&ConfigMap::default()), None);
    }

    #[test]
    fn the_same_again_is_no_change() {
        let configured = Configured::default();
        let uri = || Some("http://x".to_owned());
        assert!(configured.set(uri()) && !configured.set(uri()) && configured.set(None) && !configured.set(None));
    }
}
