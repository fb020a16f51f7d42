//! Changes of the platform's configuration since it was installed: ConfigMap `slipway-platform` in the platform's own namespace,
//! written by REST and by users with the right to it.

use std::sync::{PoisonError, RwLock};

use k8s_openapi::api::core::v1::ConfigMap;
use slipway_api::platform;

/// The MLflow server that was named, if one was.
#[derive(Default)]
pub(crate) struct PlatformConfig(RwLock<Option<String>>);

impl PlatformConfig {
    pub(crate) fn mlflow_uri(&self) -> Option<String> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes note of the ConfigMap, or that there is none; whether that is a change.
    pub(crate) fn note(&self, config: Option<&ConfigMap>) -> bool {
        self.set(config.and_then(mlflow_uri))
    }

    fn set(&self, mlflow_uri: Option<String>) -> bool {
        let mut present = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let changed = *present != mlflow_uri;
        *present = mlflow_uri;
        changed
    }
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
        let configured = PlatformConfig::default();
        let uri = || Some("http://x".to_owned());
        assert!(configured.set(uri()) && !configured.set(uri()) && configured.set(None) && !configured.set(None));
    }
}
