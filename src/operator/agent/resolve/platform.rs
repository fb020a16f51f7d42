//! The variables about the platform that every agent gets, as far as they are set.

use std::collections::BTreeMap;

use slipway_api::agent::AgentSpec;
use slipway_api::{Agent, contract, ids, labels};

use super::Variable;
use crate::database::qualified_url;
use crate::settings::Settings;

/// Set even when there is nothing to tell: a Secret of the team may hold the names, and must not decide. Through a proxy
/// names are not checked, and where the search server is, tools may go. An agent is held to the guards and policies that the Agent names.
const ALWAYS_SET: [&str; 5] = [contract::EGRESS_ALLOW, contract::EGRESS_PROXY, contract::SEARCH_URL, contract::GUARDS, contract::POLICIES];

/// What stands in the container itself and not in the ConfigMap, because it is no setting of the agent: an agent whose settings
/// are the same has the same `config-hash`, whatever of this there is.
pub(super) fn explicit(spec: &AgentSpec, settings: &Settings, variables: &BTreeMap<&'static str, String>) -> Vec<Variable> {
    let plain = |name: &str, value: &str| Variable::Plain { name: name.to_owned(), value: value.to_owned() };
    let unset = ALWAYS_SET.iter().filter(|name| !variables.contains_key(*name)).map(|name| plain(name, ""));
    let key = settings.platform.access_public_key.iter().map(|key| plain(contract::ACCESS_PUBLIC_KEY, key));
    let policies = plain(contract::POLICIES_FILE, contract::policies::PATH);
    let hash = Variable::Annotation { name: contract::RUN_HASH.to_owned(), annotation: labels::RUN_HASH };
    // What is said of the platform's database holds for no other.
    let prepared = settings.platform.prepared_statements && spec.database_url.is_none() && variables.contains_key(contract::DATABASE_URL);
    let prepared = prepared.then(|| plain(contract::DATABASE_PREPARED_STATEMENTS, "true"));
    unset.chain(key).chain(prepared).chain([policies, hash]).collect()
}

pub(super) fn platform(
    agent: &Agent,
    team: &str,
    mlflow_uri: Option<&String>,
    settings: &Settings,
    own_image: bool,
    variables: &mut BTreeMap<&'static str, String>,
) {
    let suffix = settings.platform_suffix();
    let platform = &settings.platform;
    let url = |url: Option<&String>| url.map(|url| qualified_url(url, &suffix));
    let optional = [
        (contract::OLLAMA_BASE_URL, url(settings.ollama_base_url.as_ref())),
        // Whether another image has a model built in, nobody knows.
        (contract::EMBEDDING_MODEL, platform.embedding_model.clone().filter(|_| own_image)),
        (contract::EGRESS_ALLOW, Some(platform.egress_allow.join(",")).filter(|allow| !allow.is_empty())),
        (contract::EGRESS_PROXY, url(platform.egress_proxy.as_ref())),
        (contract::SEARCH_URL, url(platform.search_url.as_ref())),
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
