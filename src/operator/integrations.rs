//! Integrations as Tools, sources, agents' models and deliveries of alerts use them: found in the caches, and their logins read when
//! one is sent. Nothing of a Secret is kept.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use slipway_api::agent::ModelType;
use slipway_api::integration::{
    ANOTHER_HOST, CREDENTIALS_BYTES_MAX, INVALID, MergeFault, ModelEndpoint, given_for, origin_of, secret_name,
};
use slipway_api::source::Source;
use slipway_api::tool::ToolSpec;
use slipway_api::{Integration, ids, labels};
use slipway_cluster::Key;

use crate::caches::Caches;
use crate::context::Context;
use crate::fault::ConditionFault;

/// The reason where there is none of such a name.
pub(crate) const NOT_FOUND: &str = "IntegrationNotFound";

/// A source with what its integration gives.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OpenedSource {
    pub source: Source,
    /// Whether its Secret is the integration's own, which needs no label.
    pub is_opened: bool,
}

/// The Integration of this name or id.
pub(crate) fn key(namespace: &str, reference: &str) -> Key {
    Key::new(namespace, ids::integration_name(reference))
}

/// What an Integration gives, or why it gives nothing.
fn ask<T>(
    caches: &Caches,
    namespace: &str,
    (field, reference): (&'static str, &str),
    give: impl FnOnce(&Integration) -> Result<T, MergeFault>,
) -> Result<T, ConditionFault> {
    let key = key(namespace, reference);
    let Some(found) = caches.integrations.get(&key) else {
        return Err(ConditionFault {
            reason: NOT_FOUND,
            message: format!("{field}: there is no Integration {} in this namespace", key.name),
        });
    };
    let integration = found.0.as_ref().map_err(|invalid| ConditionFault {
        reason: INVALID,
        message: format!("{field}: Integration {} cannot be read: {}", key.name, invalid.error),
    })?;
    let told = |fault: MergeFault| ConditionFault { reason: fault.reason, message: format!("{}: {}", fault.field, fault.message) };
    // What the Secret itself says may be newer than what the status has of it.
    if let Some(origin) = written_for(caches, &key) {
        integration.given_for(&origin).map_err(|fault| told(MergeFault { field, ..fault }))?;
    }
    give(integration).map_err(told)
}

/// The host that the login in an integration's own Secret was given for, if that says so.
fn written_for(caches: &Caches, integration: &Key) -> Option<String> {
    let secret = Key::new(&integration.namespace, secret_name(&integration.name));
    caches.secrets.get(&secret)?.origin.clone()
}

/// Whether the login in an integration's own Secret is for the host of this URL, by its status and by the Secret.
fn opens_for(caches: &Caches, integration: &Integration, key: &Key, url: &str) -> bool {
    let is_meant = written_for(caches, key).is_none_or(|origin| origin_of(url).as_ref() == Some(&origin));
    is_meant && integration.opens_for(url)
}

/// A Tool with what its integration gives. One that names none, or has it already, is as it is.
pub(crate) fn tool(caches: &Caches, namespace: &str, spec: &ToolSpec) -> Result<ToolSpec, ConditionFault> {
    match spec.integration.as_deref().filter(|_| spec.lacks_server()) {
        Some(reference) => {
            ask(caches, namespace, ("integration", reference), |integration| integration.tool(spec)).map(|merged| merged.spec)
        }
        None => Ok(spec.clone()),
    }
}

/// The Secret of its integration, which a Tool with what that gives uses without a label, as long as its server is the one that the
/// login was written for.
pub(crate) fn opened(caches: &Caches, namespace: &str, spec: &ToolSpec) -> Option<String> {
    let key = key(namespace, spec.integration.as_deref()?);
    let found = caches.integrations.get(&key)?;
    let integration = found.0.as_ref().ok()?;
    let url = spec.mcp_endpoint.as_ref().or(spec.endpoint.as_ref())?;
    opens_for(caches, integration, &key, url).then(|| secret_name(integration.metadata.name.as_deref().unwrap_or_default()))
}

/// A source with what its integration gives. None of one that names none.
pub(crate) fn source(caches: &Caches, namespace: &str, source: &Source) -> Option<Result<OpenedSource, ConditionFault>> {
    let reference = source.integration.as_deref()?;
    Some(ask(caches, namespace, ("integration", reference), |integration| {
        let merged = integration.source(source)?;
        let is_opened = merged.secret.is_some_and(|secret| integration.owns(&secret));
        Ok(OpenedSource { source: merged.spec, is_opened })
    }))
}

/// The server of an agent's models.
pub(crate) fn model(caches: &Caches, namespace: &str, reference: &str, provider: ModelType) -> Result<ModelEndpoint, ConditionFault> {
    ask(caches, namespace, ("modelIntegration", reference), |integration| integration.model(provider))
}

/// The same, whichever provider's server it is.
pub(crate) fn endpoint(caches: &Caches, namespace: &str, reference: &str) -> Result<ModelEndpoint, ConditionFault> {
    ask(caches, namespace, ("modelIntegration", reference), Integration::endpoint)
}

/// The server of an agent's models that a release has, whatever the Integration says now. The login of `in-<name>` goes there only as
/// long as it is for that host.
pub(crate) fn released(
    caches: &Caches,
    namespace: &str,
    reference: &str,
    endpoint: ModelEndpoint,
) -> Result<ModelEndpoint, ConditionFault> {
    let (key, base_url) = (key(namespace, reference), &endpoint.base_url);
    let found = caches.integrations.get(&key);
    let is_opened = found.is_some_and(|found| found.0.as_ref().is_ok_and(|of| opens_for(caches, of, &key, base_url)));
    if !is_opened && endpoint.key.as_ref().is_some_and(|(secret, _)| *secret == secret_name(&key.name)) {
        let message = format!(
            "modelIntegration: Integration {} has no login for {base_url} any more, which is the server that the release has; pods that run go on with what they have",
            key.name
        );
        return Err(ConditionFault { reason: ANOTHER_HOST, message });
    }
    Ok(endpoint)
}

/// The login of an Integration, read from its Secret now. It has the keys of the type alone. What is wrong with the Secret as the
/// caches have it was judged before.
pub(crate) async fn login(context: &Context, integration: &Integration) -> Result<BTreeMap<String, String>, ConditionFault> {
    let meta = &integration.metadata;
    let (name, namespace) = (meta.name.as_deref().unwrap_or_default(), meta.namespace.as_deref().unwrap_or_default());
    let (Some(kind), Some(secret)) = (integration.spec.kind(), integration.spec.secret(name)) else { return Ok(BTreeMap::new()) };
    let fault = |reason, message: String| ConditionFault { reason, message: format!("credentialsSecret: {message}") };
    let api: Api<Secret> = Api::namespaced(context.client.clone(), namespace);
    let found = match api.get_opt(&secret).await {
        Ok(Some(found)) => found,
        Ok(None) if kind.info().needs_login() => {
            return Err(fault("SecretMissing", format!("Secret {secret} does not exist in this namespace")));
        }
        Ok(None) => return Ok(BTreeMap::new()),
        Err(error) => return Err(fault("SecretUnread", format!("Secret {secret} could not be read: {error}"))),
    };
    let is_labelled = found.metadata.labels.iter().flatten().any(|(name, value)| name == labels::AGENT_READABLE && value == "true");
    if !integration.owns(&secret) && !is_labelled {
        let message = format!("Secret {secret} lacks the label {}=true, without which integrations cannot use it", labels::AGENT_READABLE);
        return Err(fault("SecretNotAllowed", message));
    }
    // The caches may be behind, of the Secret as of the Integration.
    if let Some(origin) = found.metadata.annotations.as_ref().and_then(given_for) {
        integration
            .given_for(&origin)
            .map_err(|why| ConditionFault { reason: why.reason, message: format!("credentialsSecret: {}", why.message) })?;
    }
    let mut login = BTreeMap::new();
    let mut bytes = 0;
    for (key, ByteString(value)) in found.data.into_iter().flatten() {
        if !kind.info().credentials.iter().any(|field| field.name == key) {
            continue;
        }
        bytes += value.len();
        let text = String::from_utf8(value).map_err(|_| fault("SecretInvalid", format!("key {key} of Secret {secret} is no text")))?;
        // Secrets often end with a line break.
        login.insert(key, text.trim_end().to_owned());
    }
    if bytes > CREDENTIALS_BYTES_MAX {
        let message = format!("Secret {secret} has {bytes} bytes for the login; at most {CREDENTIALS_BYTES_MAX} are sent");
        return Err(fault("SecretInvalid", message));
    }
    Ok(login)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use slipway_cluster::Guarded;

    use super::*;
    use crate::caches::secret::SecretState;

    fn caches(spec: &Value, origin: &str) -> Caches {
        let caches = Caches::default();
        let status = json!({"observedGeneration": 1, "credentialKeys": ["token"], "credentials": "hash", "origin": origin});
        let integration = json!({"metadata": {"name": "metrics", "namespace": "team-a"}, "spec": spec, "status": status});
        let integration = serde_json::from_value(integration).unwrap();
        caches.integrations.insert(Key::new("team-a", "metrics"), Guarded(Ok(integration)));
        caches
    }

    fn tool_of(reference: &str) -> ToolSpec {
        serde_yaml::from_str(&format!("{{name: t, type: http, endpoint: /api/v1/query, integration: {reference}}}")).unwrap()
    }

    #[test]
    fn a_tool_uses_the_secret_of_its_integration_for_its_host_alone() {
        let caches = caches(&json!({"name": "M", "prometheus": {"url": "https://p.example"}}), "https://p.example");
        for reference in ["metrics", "in_metrics"] {
            let merged = tool(&caches, "team-a", &tool_of(reference)).unwrap();
            assert_eq!(merged.endpoint.as_deref(), Some("https://p.example/api/v1/query"));
            assert_eq!(opened(&caches, "team-a", &merged).as_deref(), Some("in-metrics"));
            assert_eq!(tool(&caches, "team-a", &merged).unwrap(), merged, "it has it already");
            let elsewhere = ToolSpec { endpoint: Some("https://evil.example/".to_owned()), ..merged };
            assert_eq!(opened(&caches, "team-a", &elsewhere), None);
        }
        let plain: ToolSpec = serde_yaml::from_str("{name: t, type: http, endpoint: 'https://p.example/'}").unwrap();
        assert_eq!((tool(&caches, "team-a", &plain).unwrap(), opened(&caches, "team-a", &plain)), (plain.clone(), None));
    }

    #[test]
    fn a_secret_that_says_its_host_opens_nothing_for_another() {
        let caches = caches(&json!({"name": "M", "prometheus": {"url": "https://p.example"}}), "https://p.example");
        let merged = tool(&caches, "team-a", &tool_of("metrics")).unwrap();
        let says = |origin: &str| {
            let state = SecretState { readable: false, keys: vec!["token".to_owned()], origin: Some(origin.to_owned()), hash: [0; 32] };
            caches.secrets.insert(Key::new("team-a", "in-metrics"), state);
            let fault = tool(&caches, "team-a", &tool_of("metrics")).err().map(|fault| fault.reason);
            (fault, opened(&caches, "team-a", &merged).is_some())
        };
        assert_eq!(says("https://p.example"), (None, true));
        assert_eq!(says("https://other.example"), (Some(slipway_api::integration::ANOTHER_HOST), false), "the status is not as far yet");
    }

    #[test]
    fn what_cannot_be_used_is_told() {
        let caches = caches(&json!({"name": "M", "prometheus": {"url": "https://evil.example"}}), "https://p.example");
        let reason = |namespace: &str, reference: &str| tool(&caches, namespace, &tool_of(reference)).unwrap_err().reason;
        assert_eq!(reason("team-a", "other"), NOT_FOUND);
        assert_eq!(reason("team-b", "metrics"), NOT_FOUND, "it is another team's");
        assert_eq!(reason("team-a", "metrics"), slipway_api::integration::ANOTHER_HOST);
        assert_eq!(model(&caches, "team-a", "metrics", ModelType::Openai).unwrap_err().reason, INVALID);
        let of = |yaml: &str| source(&caches, "team-a", &serde_yaml::from_str(yaml).unwrap());
        assert!(of("{local: {path: a}}").is_none());
        assert_eq!(of("{local: {path: a}, integration: metrics}").unwrap().unwrap_err().reason, INVALID);
    }
}
