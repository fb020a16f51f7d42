//! Problems that an Agent with the platform's own image would meet only in a chat: a model without key or address, tools that are
//! never called, costs that nobody can count. The agent runs all the same. Of other images nothing is known.

use slipway_api::agent::{AgentSpec, Guard, Strategy};
use slipway_api::condition::{Finding, MODEL_CONFIGURED, SPENDING_COUNTED, TOOLS_UNUSED};
use slipway_api::contract;

use crate::agent::gather::Seen;
use crate::settings::Settings;

pub(super) fn warnings(spec: &AgentSpec, seen: &Seen, settings: &Settings) -> Vec<Finding> {
    [tools(spec), model(spec, seen, settings), spending(spec)].into_iter().flatten().collect()
}

fn tools(spec: &AgentSpec) -> Option<Finding> {
    (spec.strategy == Strategy::Simple && !spec.tools.is_empty()).then(|| {
        let message = "spec.tools: strategy simple calls no tools; use strategy: agent-react";
        Finding::new(TOOLS_UNUSED, true, "StrategySimple", message)
    })
}

/// The models that the agent asks: the field that names each, its provider and its id.
fn models(spec: &AgentSpec) -> impl Iterator<Item = (&'static str, &str, &str)> {
    let background = spec.background_model.as_deref().and_then(|model| model.split_once(':'));
    let own = ("modelId", spec.model_type.as_str(), spec.model_id.as_str());
    [own].into_iter().chain(background.map(|(provider, id)| ("backgroundModel", provider, id)))
}

/// A key that no Secret of the agent has, or an address that nobody names. Clouds know other ways to say who somebody is.
fn model(spec: &AgentSpec, seen: &Seen, settings: &Settings) -> Option<Finding> {
    let has = |variable: &str| {
        spec.env_secrets.iter().filter_map(|name| seen.secrets.get(name)).any(|secret| secret.keys.iter().any(|key| key == variable))
    };
    let key = |field: &str, provider: &str, names: &[&str]| {
        let message = format!(
            "spec.{field}: {provider} takes {}, and no Secret in spec.envSecrets ({}) has it; until one does, chats end in an error",
            names.join(" or "),
            spec.env_secrets.join(", ")
        );
        (!names.iter().any(|name| has(name))).then(|| Finding::new(MODEL_CONFIGURED, false, "KeyMissing", message))
    };
    // What an integration lacks is a fault.
    let is_given = |provider: &str| spec.model_integration.is_some() && provider == spec.model_type.as_str();
    models(spec).find_map(|(field, provider, _)| match provider {
        _ if is_given(provider) => None,
        // A server of one's own may want none.
        "openai" if has("OPENAI_BASE_URL") => None,
        "openai" => key(field, provider, &["OPENAI_API_KEY"]),
        "anthropic" => key(field, provider, &["ANTHROPIC_API_KEY"]),
        "google-ai" => key(field, provider, &["GOOGLE_API_KEY", "GEMINI_API_KEY"]),
        "ollama" if settings.ollama_base_url.is_none() && !has(contract::OLLAMA_BASE_URL) => {
            let message = format!(
                "spec.{field}: nobody names the address of Ollama: neither the platform (chart value ollama.baseUrl) nor {} in a Secret of \
                 spec.envSecrets; until one does, chats end in an error",
                contract::OLLAMA_BASE_URL
            );
            Some(Finding::new(MODEL_CONFIGURED, false, "AddressMissing", message))
        }
        _ => None,
    })
}

fn spending(spec: &AgentSpec) -> Option<Finding> {
    let governance = spec.governance.as_ref().filter(|governance| governance.guards.contains(&Guard::SpendLimit))?;
    let given = |id: &str| governance.limits.iter().flat_map(|limits| &limits.prices).any(|price| price.model == id);
    let (field, provider, id) = models(spec).find(|(_, provider, id)| !given(id) && !slipway_prices::is_known(provider, id))?;
    let message = format!(
        "spec.{field}: nobody knows what {provider}:{id} costs, so that spend-limit refuses every chat; give its price in \
         spec.governance.limits.prices, or take spend-limit out of spec.governance.guards"
    );
    Some(Finding::new(SPENDING_COUNTED, false, "PriceUnknown", message))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::Arc;

    use super::*;
    use crate::caches::secret::SecretState;
    use crate::testing::settings;

    /// The warnings of a spec, beside a Secret agent-env with these keys.
    fn of(spec: &str, keys: &[&str], ollama: Option<&str>) -> Vec<(&'static str, String, String)> {
        let spec: AgentSpec = serde_yaml::from_str(&format!("{{name: H, framework: custom, {spec}}}")).unwrap();
        let secret = SecretState { readable: true, keys: keys.iter().map(|key| (*key).to_owned()).collect(), origin: None, hash: [0; 32] };
        let seen = Seen {
            team: None,
            tools: Vec::new(),
            tool_faults: BTreeMap::new(),
            opened: BTreeSet::new(),
            model: None,
            knowledge_bases: Vec::new(),
            skills: Vec::new(),
            held_skills: BTreeMap::new(),
            policies: Vec::new(),
            team_policies: None,
            secrets: BTreeMap::from([("agent-env".to_owned(), Arc::new(secret))]),
            secrets_known: true,
            mlflow_uri: None,
            differs: None,
            primary_ready: false,
            replicas_elsewhere: false,
        };
        let settings = Settings { ollama_base_url: ollama.map(str::to_owned), ..settings(None) };
        warnings(&spec, &seen, &settings).into_iter().map(|found| (found.kind, found.reason, found.message)).collect()
    }

    #[test]
    fn what_would_be_found_out_in_a_chat_is_said_before() {
        const KEY: Option<(&str, &str)> = Some((MODEL_CONFIGURED, "KeyMissing"));
        const ADDRESS: Option<(&str, &str)> = Some((MODEL_CONFIGURED, "AddressMissing"));
        const PRICE: Option<(&str, &str)> = Some((SPENDING_COUNTED, "PriceUnknown"));
        const UNUSED: Option<(&str, &str)> = Some((TOOLS_UNUSED, "StrategySimple"));
        let counted = "governance: {guards: [spend-limit]}";
        let priced = "governance: {guards: [spend-limit], limits: {prices: [{model: mine, inputUsd: 0, outputUsd: 1}]}}";
        let mine = |more: &str| format!("modelType: openai, modelId: mine, {more}");
        for (spec, keys, ollama, expected, says) in [
            ("replicas: 1".to_owned(), &[][..], None, None, ""),
            ("modelType: openai, modelId: gpt-4o".to_owned(), &[], None, KEY, "OPENAI_API_KEY"),
            ("modelType: openai, modelId: gpt-4o".to_owned(), &["OPENAI_API_KEY"], None, None, ""),
            ("modelType: openai, modelId: gpt-4o, modelIntegration: llm".to_owned(), &[], None, None, ""),
            ("modelType: openai, modelId: gpt-4o".to_owned(), &["OPENAI_BASE_URL"], None, None, ""),
            ("modelType: openai, modelId: gpt-4o, envSecrets: []".to_owned(), &["OPENAI_API_KEY"], None, KEY, "spec.envSecrets"),
            ("modelType: anthropic, modelId: claude-sonnet-4".to_owned(), &["OPENAI_API_KEY"], None, KEY, "ANTHROPIC_API_KEY"),
            ("modelType: google-ai, modelId: gemini-2.5-flash".to_owned(), &["GEMINI_API_KEY"], None, None, ""),
            ("modelType: bedrock, modelId: amazon.nova-micro-v1".to_owned(), &[], None, None, ""),
            ("modelType: vertex-ai, modelId: gemini-2.5-flash".to_owned(), &[], None, None, ""),
            ("backgroundModel: 'openai:gpt-4o'".to_owned(), &[], None, KEY, "spec.backgroundModel"),
            ("modelType: ollama, modelId: llama3.2".to_owned(), &[], None, ADDRESS, "chart value ollama.baseUrl"),
            ("modelType: ollama, modelId: llama3.2".to_owned(), &[], Some("http://ollama:11434"), None, ""),
            ("modelType: ollama, modelId: llama3.2".to_owned(), &["OLLAMA_BASE_URL"], None, None, ""),
            ("tools: [a]".to_owned(), &[], None, UNUSED, "agent-react"),
            ("tools: [a], strategy: agent-react".to_owned(), &[], None, None, ""),
            (counted.to_owned(), &[], None, None, ""),
            (mine(counted), &["OPENAI_API_KEY"], None, PRICE, "openai:mine"),
            (mine("replicas: 1"), &["OPENAI_API_KEY"], None, None, ""),
            (mine(priced), &["OPENAI_API_KEY"], None, None, ""),
            (format!("modelType: openai, modelId: gpt-4o, {counted}"), &["OPENAI_API_KEY"], None, None, ""),
            (format!("backgroundModel: 'openai:theirs', {priced}"), &["OPENAI_API_KEY"], None, PRICE, "spec.backgroundModel"),
        ] {
            let found = of(&spec, keys, ollama);
            assert_eq!(found.first().map(|(kind, reason, _)| (*kind, reason.as_str())), expected, "{spec} {keys:?}");
            assert!(found.len() < 2 && found.iter().all(|(_, _, message)| message.contains(says)), "{spec}: {found:?}");
        }
    }
}
