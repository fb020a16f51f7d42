//! The ConfigMap with the runtime's variables.

use k8s_openapi::api::core::v1::ConfigMap;
use sha2::{Digest, Sha256};

use super::{config_map_name, meta};
use crate::agent::resolve::Plan;

pub(super) fn build(plan: &Plan) -> ConfigMap {
    ConfigMap {
        metadata: meta(plan, config_map_name(&plan.name)),
        data: Some(plan.variables.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()),
        ..ConfigMap::default()
    }
}

/// SHA-256 over the data as JSON with sorted keys.
pub(super) fn hash(config_map: &ConfigMap) -> String {
    let text = serde_json::to_vec(&config_map.data).unwrap_or_default();
    hex::encode(Sha256::digest(text))
}
