//! The variables that an agent's pods get: those that the spec says by itself, and how large each may be. What the spec names or the
//! platform adds has a file of its subject beside this one, each of which adds its own variables; `build/config_map.rs` writes them down.

use std::collections::BTreeMap;

use kube::ResourceExt;
use slipway_api::{Agent, AgentSpec, Track, contract, ids};

use super::{Stop, fault};
use crate::settings::Settings;

/// What the Agent is called, where it runs and what its spec says, without looking at anything else.
pub(super) fn base(agent: &Agent, track: Track, team: &str) -> Result<BTreeMap<&'static str, String>, Stop> {
    let spec = &agent.spec;
    let (name, namespace) = (agent.name_any(), agent.namespace().unwrap_or_default());
    let mut variables = BTreeMap::from([
        (contract::CHANNEL, spec.channel.as_str().to_owned()),
        (contract::STRATEGY, spec.strategy.as_str().to_owned()),
        (contract::MODEL_TYPE, spec.model_type.as_str().to_owned()),
        (contract::MODEL_ID, spec.model_id.clone()),
        (contract::AGENT_ID, ids::agent(&namespace, &name)),
        (contract::AGENT_NAME, name),
        (contract::TEAM, ids::team(team)),
        (contract::TRACK, track.as_str().to_owned()),
    ]);
    let optional = [
        (contract::BACKGROUND_MODEL, &spec.background_model),
        (contract::SYSTEM_PROMPT, &spec.system_prompt),
        (contract::SUGGESTIONS, &spec.suggestions),
    ];
    for (variable, value) in optional {
        if let Some(value) = value.as_ref().filter(|value| !value.is_empty()) {
            variables.insert(variable, value.clone());
        }
    }
    if let Some(provider) = spec.suggestions_provider {
        variables.insert(contract::SUGGESTIONS_PROVIDER, provider.as_str().to_owned());
    }
    if let Some(text) = &spec.suggestions {
        serde_json::from_str::<Vec<String>>(text).map_err(|error| {
            fault(
                "InvalidSuggestions",
                format!("spec.suggestions: must be a JSON array of strings, such as [\"What can you do?\"]: {error}"),
            )
        })?;
    }
    Ok(variables)
}

/// An agent that is for the platform alone is closed by the team's network policies, and the runtime refuses callers that get
/// past them. Another image is not asked to.
pub(super) fn access(
    spec: &AgentSpec,
    settings: &Settings,
    own_image: bool,
    variables: &mut BTreeMap<&'static str, String>,
) -> Result<(), Stop> {
    let Some(access) = spec.access else { return Ok(()) };
    if !own_image && !settings.team_network.enabled {
        let message = "spec.access: nothing keeps others from an image of its own, because the platform makes no network policies (chart value agents.network.enabled)";
        return Err(fault("AccessNotEnforced", message));
    }
    variables.insert(contract::ACCESS, access.as_str().to_owned());
    Ok(())
}

/// No variable is larger than what reaches a container.
pub(super) fn sizes(variables: &BTreeMap<&'static str, String>) -> Result<(), Stop> {
    let Some((name, value)) = variables.iter().find(|(_, value)| value.len() > contract::VARIABLE_MAX) else { return Ok(()) };
    let message = format!(
        "{name} would have {} bytes; a variable can have at most {} (spec.{})",
        value.len(),
        contract::VARIABLE_MAX,
        field_of(name)
    );
    Err(fault("ConfigTooLarge", message))
}

/// The field that a variable is made from, for messages.
fn field_of(variable: &str) -> &'static str {
    match variable {
        contract::SYSTEM_PROMPT => "systemPrompt",
        contract::TOOLS => "tools",
        contract::KNOWLEDGE_BASES => "knowledgeBases",
        contract::SKILLS => "skills",
        contract::GUARDS | contract::POLICIES => "governance",
        contract::SUGGESTIONS => "suggestions",
        _ => "*",
    }
}
