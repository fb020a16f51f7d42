//! The ConfigMap with the runtime's variables.

use k8s_openapi::api::core::v1::ConfigMap;
use sha2::{Digest, Sha256};
use slipway_api::contract;

use super::{config_map_name, meta};
use crate::agent::resolve::Plan;

/// Set, and empty, so that nothing else sets them. A pod without them goes where it would go with them.
const WAYS_OUT: [&str; 3] = [contract::EGRESS_ALLOW, contract::EGRESS_PROXY, contract::SEARCH_URL];

pub(super) fn build(plan: &Plan) -> ConfigMap {
    ConfigMap {
        metadata: meta(plan, config_map_name(&plan.name)),
        data: Some(plan.variables.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()),
        ..ConfigMap::default()
    }
}

/// SHA-256 over the data as JSON with sorted keys, without what must not restart a pod that runs.
pub(super) fn hash(config_map: &ConfigMap) -> String {
    let mut data = config_map.data.clone().unwrap_or_default();
    data.retain(|name, value| name != contract::TOOL_DIGESTS && !(value.is_empty() && WAYS_OUT.contains(&name.as_str())));
    let text = serde_json::to_vec(&data).unwrap_or_default();
    hex::encode(Sha256::digest(text))
}
