//! The server and the key of an agent's models, where it names an integration for them, in variables that the agent's own models alone
//! read: judges keep to the agent's Secrets, and no key of these goes to that server. The server is configuration like the model's name,
//! so that another one is another configuration; the key stands in the container itself.

use std::collections::BTreeMap;

use slipway_api::agent::AgentSpec;
use slipway_api::integration::secret_name;
use slipway_api::{contract, ids};

use super::secrets::{key_of, readable};
use super::{Stop, Variable, fault};
use crate::agent::gather::Seen;

pub(super) fn model(
    spec: &AgentSpec,
    seen: &Seen,
    variables: &mut BTreeMap<&'static str, String>,
    env: &mut Vec<Variable>,
) -> Result<(), Stop> {
    let (Some(reference), Some(found)) = (&spec.model_integration, &seen.model) else { return Ok(()) };
    let field = "spec.modelIntegration";
    let endpoint = found.as_ref().map_err(|why| fault(why.reason, format!("spec.{}", why.message)))?;
    variables.insert(contract::MODEL_BASE_URL, endpoint.base_url.clone());
    env.push(match &endpoint.key {
        Some((secret, name)) => {
            if *secret != secret_name(&ids::integration_name(reference)) {
                readable(seen, secret, field)?;
            }
            key_of(seen, secret, name, field)?;
            Variable::secret(contract::MODEL_API_KEY, secret, name)
        }
        // A Secret of the agent may hold the name.
        None => Variable::Plain { name: contract::MODEL_API_KEY.to_owned(), value: String::new() },
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use slipway_api::integration::ModelEndpoint;

    use super::*;
    use crate::caches::secret::SecretState;
    use crate::fault::ConditionFault;

    const BASE: &str = "https://llm.example/$(X)";

    fn seen(model: Result<ModelEndpoint, ConditionFault>, secrets: &[(&str, bool)]) -> Seen {
        let state = |readable: bool| Arc::new(SecretState { readable, keys: vec!["api_key".to_owned()], origin: None, hash: [0; 32] });
        Seen {
            team: None,
            tools: Vec::new(),
            tool_faults: BTreeMap::new(),
            opened: BTreeSet::new(),
            model: Some(model),
            knowledge_bases: Vec::new(),
            skills: Vec::new(),
            held_skills: BTreeMap::new(),
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

    /// The server, and the key.
    fn of(seen: &Seen) -> Result<(String, Variable), &'static str> {
        let spec = "{name: H, framework: custom, modelType: openai, modelId: m, modelIntegration: in_llm}";
        let spec: AgentSpec = serde_yaml::from_str(spec).unwrap();
        let (mut variables, mut env) = (BTreeMap::new(), Vec::new());
        model(&spec, seen, &mut variables, &mut env).map_err(|stop| match stop {
            Stop::Fault(fault) => fault.reason,
            Stop::Unknown(what) => what,
        })?;
        assert_eq!((variables.len(), env.len()), (1, 1), "nothing else is given");
        Ok((variables.remove("RUNTIME_MODEL_BASE_URL").unwrap(), env.remove(0)))
    }

    #[test]
    fn an_integration_gives_models_their_server_and_key() {
        let none = Variable::Plain { name: "RUNTIME_MODEL_API_KEY".to_owned(), value: String::new() };
        let endpoint = |secret: Option<&str>| ModelEndpoint {
            base_url: BASE.to_owned(),
            key: secret.map(|secret| (secret.to_owned(), "api_key".to_owned())),
        };
        assert_eq!(of(&seen(Ok(endpoint(None)), &[])), Ok((BASE.to_owned(), none)), "no other key goes there");
        let with = |secret: &str| Ok((BASE.to_owned(), Variable::secret("RUNTIME_MODEL_API_KEY", secret, "api_key")));
        assert_eq!(of(&seen(Ok(endpoint(Some("in-llm"))), &[("in-llm", false)])), with("in-llm"));
        assert_eq!(of(&seen(Ok(endpoint(Some("keys"))), &[("keys", true)])), with("keys"));
        assert_eq!(of(&seen(Ok(endpoint(Some("keys"))), &[("keys", false)])), Err("SecretNotAllowed"));
        assert_eq!(of(&seen(Ok(endpoint(Some("in-other"))), &[("in-other", false)])), Err("SecretNotAllowed"), "it is another one's");
        assert_eq!(of(&seen(Ok(endpoint(Some("in-llm"))), &[])), Err("SecretKeyMissing"));
        let fault = ConditionFault { reason: "IntegrationNotFound", message: "modelIntegration: there is none".to_owned() };
        assert_eq!(of(&seen(Err(fault), &[])), Err("IntegrationNotFound"));
    }
}
