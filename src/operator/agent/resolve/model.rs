//! The server and the key of an agent's models, where it names an integration for them. They stand in the container itself, so that
//! they count before those of the agent's Secrets, and no key of these goes to that server.

use slipway_api::agent::{AgentSpec, ModelType};
use slipway_api::ids;
use slipway_api::integration::secret_name;

use super::secrets::{key_of, readable};
use super::{Stop, Variable, fault};
use crate::agent::gather::Seen;
use crate::worker::escaped;

pub(super) fn model(spec: &AgentSpec, seen: &Seen, env: &mut Vec<Variable>) -> Result<(), Stop> {
    let (Some(reference), Some(found)) = (&spec.model_integration, &seen.model) else { return Ok(()) };
    let field = "spec.modelIntegration";
    let endpoint = found.as_ref().map_err(|why| fault(why.reason, format!("spec.{}", why.message)))?;
    let (base, key) = match spec.model_type {
        ModelType::Openai => ("OPENAI_BASE_URL", "OPENAI_API_KEY"),
        ModelType::Anthropic => ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"),
        // Said before, of the integration.
        _ => return Ok(()),
    };
    env.push(Variable::Plain { name: base.to_owned(), value: escaped(&endpoint.base_url) });
    env.push(match &endpoint.key {
        Some((secret, name)) => {
            if *secret != secret_name(&ids::integration_name(reference)) {
                readable(seen, secret, field)?;
            }
            key_of(seen, secret, name, field)?;
            Variable::secret(key, secret, *name)
        }
        None => Variable::Plain { name: key.to_owned(), value: String::new() },
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::Arc;

    use slipway_api::integration::ModelEndpoint;

    use super::*;
    use crate::caches::secret::SecretState;
    use crate::fault::Fault;

    fn seen(model: Result<ModelEndpoint, Fault>, secrets: &[(&str, bool)]) -> Seen {
        let state = |readable: bool| Arc::new(SecretState { readable, keys: vec!["api_key".to_owned()], hash: [0; 32] });
        Seen {
            team: None,
            tools: Vec::new(),
            tool_faults: BTreeMap::new(),
            opened: BTreeSet::new(),
            model: Some(model),
            knowledge_bases: Vec::new(),
            skills: Vec::new(),
            policies: Vec::new(),
            team_policies: None,
            secrets: secrets.iter().map(|(name, readable)| ((*name).to_owned(), state(*readable))).collect(),
            secrets_known: true,
            mlflow_uri: None,
            differs: None,
            primary_ready: false,
            replicas_elsewhere: false,
        }
    }

    fn of(seen: &Seen) -> Result<Vec<Variable>, &'static str> {
        let spec = "{name: H, framework: custom, modelType: openai, modelId: m, modelIntegration: in_llm}";
        let spec: AgentSpec = serde_yaml::from_str(spec).unwrap();
        let mut env = Vec::new();
        model(&spec, seen, &mut env).map(|()| env).map_err(|stop| match stop {
            Stop::Fault(fault) => fault.reason,
            Stop::Unknown(what) => what,
        })
    }

    #[test]
    fn an_integration_gives_models_their_server_and_key() {
        let plain = |name: &str, value: &str| Variable::Plain { name: name.to_owned(), value: value.to_owned() };
        let endpoint = |secret: Option<&str>| ModelEndpoint {
            base_url: "https://llm.example/$(X)".to_owned(),
            key: secret.map(|secret| (secret.to_owned(), "api_key")),
        };
        let base = || plain("OPENAI_BASE_URL", "https://llm.example/$$(X)");
        assert_eq!(of(&seen(Ok(endpoint(None)), &[])), Ok(vec![base(), plain("OPENAI_API_KEY", "")]), "no other key goes there");
        let with = |secret: &str| Ok(vec![base(), Variable::secret("OPENAI_API_KEY", secret, "api_key")]);
        assert_eq!(of(&seen(Ok(endpoint(Some("in-llm"))), &[("in-llm", false)])), with("in-llm"));
        assert_eq!(of(&seen(Ok(endpoint(Some("keys"))), &[("keys", true)])), with("keys"));
        assert_eq!(of(&seen(Ok(endpoint(Some("keys"))), &[("keys", false)])), Err("SecretNotAllowed"));
        assert_eq!(of(&seen(Ok(endpoint(Some("in-other"))), &[("in-other", false)])), Err("SecretNotAllowed"), "it is another one's");
        assert_eq!(of(&seen(Ok(endpoint(Some("in-llm"))), &[])), Err("SecretKeyMissing"));
        let fault = Fault { reason: "IntegrationNotFound", message: "modelIntegration: there is none".to_owned() };
        assert_eq!(of(&seen(Err(fault), &[])), Err("IntegrationNotFound"));
    }
}
