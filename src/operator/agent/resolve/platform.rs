//! What every agent is told of the platform around it, as far as there is anything to tell.

use std::collections::BTreeMap;

use slipway_api::{Agent, contract, ids};

use crate::database::qualified_url;
use crate::settings::Settings;

pub(super) fn platform(
    agent: &Agent,
    team: &str,
    mlflow_uri: Option<&String>,
    settings: &Settings,
    own_image: bool,
    variables: &mut BTreeMap<&'static str, String>,
) {
    let suffix = format!("{}.svc.{}", settings.platform_namespace, settings.cluster_domain);
    let platform = &settings.platform;
    let url = |url: Option<&String>| url.map(|url| qualified_url(url, &suffix));
    let optional = [
        (contract::OLLAMA_BASE_URL, url(settings.ollama_base_url.as_ref())),
        // Whether another image has a model built in, nobody knows.
        (contract::EMBEDDING_MODEL, platform.embedding_model.clone().filter(|_| own_image)),
        // These three are set even when there is nothing to tell: a Secret of the team may hold the names, and must not
        // decide. Through a proxy names are not checked, and where the search server is, tools may go.
        (contract::EGRESS_ALLOW, Some(platform.egress_allow.join(","))),
        (contract::EGRESS_PROXY, Some(url(platform.egress_proxy.as_ref()).unwrap_or_default())),
        (contract::SEARCH_URL, Some(url(platform.search_url.as_ref()).unwrap_or_default())),
        (contract::PLATFORM_URL, url(platform.url.as_ref())),
        (contract::CONTROL_PUBLIC_KEY, platform.control_public_key.clone()),
        (contract::OTLP_ENDPOINT, url(platform.otlp_endpoint.as_ref())),
        (contract::MLFLOW_URI, url(mlflow_uri)),
    ];
    for (name, value) in optional {
        if let Some(value) = value {
            variables.insert(name, value);
        }
    }
    if platform.otlp_endpoint.is_some() || mlflow_uri.is_some() {
        let (name, namespace) = (agent.metadata.name.clone().unwrap_or_default(), agent.metadata.namespace.clone().unwrap_or_default());
        // Names and ids have nothing in them that would need escaping.
        let attributes = format!(
            "service.name={name},service.namespace={namespace},slipway.agent.id={},slipway.team={}",
            ids::agent(&namespace, &name),
            ids::team(team)
        );
        variables.insert(contract::OTEL_ATTRIBUTES, attributes);
    }
}
