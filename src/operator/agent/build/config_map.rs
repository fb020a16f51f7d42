//! The ConfigMap with the runtime's variables, and the ConfigMap with the lists of tools that servers were first seen to offer.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ObjectMeta;
use sha2::{Digest, Sha256};
use slipway_api::{contract, labels};

use super::{config_map_name, meta, tool_digests_name};
use crate::agent::resolve::Plan;

pub(super) fn build(plan: &Plan) -> ConfigMap {
    ConfigMap {
        metadata: meta(plan, config_map_name(&plan.workload())),
        data: Some(plan.variables.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()),
        ..ConfigMap::default()
    }
}

/// The lists of tools that servers were seen to offer first, where the agent uses such servers. They stand apart from the
/// settings, as they must not restart a pod that runs: whichever pod starts next is told.
pub(super) fn tool_digests(plan: &Plan) -> Option<ConfigMap> {
    let digests = plan.tool_digests.clone()?;
    // Whichever pod: Flagger is to make no copy for its own.
    let annotations = Some([(labels::CONFIG_TRACKING.to_owned(), "disabled".to_owned())].into());
    Some(ConfigMap {
        metadata: ObjectMeta { annotations, ..meta(plan, tool_digests_name(&plan.workload())) },
        data: Some([(contract::TOOL_DIGESTS.to_owned(), digests)].into()),
        ..ConfigMap::default()
    })
}

/// SHA-256 over the data, as JSON with sorted keys.
pub(super) fn hash(config_map: &ConfigMap) -> String {
    let data = config_map.data.clone().unwrap_or_default();
    let text = serde_json::to_vec(&data).unwrap_or_default();
    hex::encode(Sha256::digest(text))
}
