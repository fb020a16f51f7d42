//! Settings that the platform's own image would refuse at its start, reported before a pod rolls. Another image may bring tools,
//! models and strategies of its own, so that nothing of it is checked here.

use std::collections::BTreeSet;

use slipway_api::agent::{AgentSpec, ModelType, Strategy};
use slipway_api::contract::tools::{MEMORY, With, builtin, builtin_names};
use slipway_api::contract::{STUB_MODELS, ToolConfig};
use slipway_api::tool::ToolType;
use url::Url;

use super::{Stop, fault};
use crate::agent::gather::Seen;
use crate::settings::Settings;

/// As an agent's settings name it: by default, or by the very name.
pub(super) fn runs_it(spec: &AgentSpec, settings: &Settings) -> bool {
    spec.image.as_ref().is_none_or(|image| *image == settings.runtime_image)
}

pub(super) fn model(spec: &AgentSpec) -> Result<(), Stop> {
    if spec.strategy == Strategy::Custom {
        return Err(fault("InvalidStrategy", "spec.strategy: custom is the image's own; name an image that brings one in spec.image"));
    }
    let known = STUB_MODELS.join(" and ");
    let unknown = |id: &str| !STUB_MODELS.contains(&id);
    if spec.model_type == ModelType::Stub && unknown(&spec.model_id) {
        let message = format!(
            "spec.modelId: the provider stub has no model {}; it has {known}. A model of another provider takes spec.modelType",
            spec.model_id
        );
        return Err(fault("InvalidModel", message));
    }
    if let Some(id) = spec.background_model.as_deref().and_then(|model| model.strip_prefix("stub:")).filter(|id| unknown(id)) {
        return Err(fault("InvalidModel", format!("spec.backgroundModel: the provider stub has no model {id}; it has {known}")));
    }
    let judge = spec.judge_model.as_deref().filter(|_| spec.eval_sample_rate.is_some_and(|rate| rate > 0));
    if let Some(id) = judge.and_then(|model| model.strip_prefix("stub:/")).filter(|id| unknown(id)) {
        return Err(fault("InvalidModel", format!("spec.judgeModel: the provider stub has no model {id}; it has {known}")));
    }
    Ok(())
}

/// `named` are the tools that are in use, each with the field and the Tool that it comes from.
pub(super) fn tools(named: &[(String, ToolConfig)], seen: &Seen, settings: &Settings) -> Result<(), Stop> {
    let is_builtin = |tool: &ToolConfig| tool.type_ == ToolType::Builtin;
    let memory = named.iter().any(|(_, tool)| is_builtin(tool) && tool.name == MEMORY);
    let mut taken = BTreeSet::new();
    for (place, tool) in named {
        let name = &tool.name;
        let invalid = |why: String| Err(fault("ToolInvalid", format!("{place}: {why}")));
        // The builtin of memory is a name for several tools, so that a second Tool of it takes no name from another.
        let is_group = is_builtin(tool) && name == MEMORY;
        if !is_group && !taken.insert(name) {
            return invalid(format!("spec.name: {name} is the name of another tool of this agent; the model could not tell them apart"));
        }
        // What comes along, and by what.
        let along = match builtin(name) {
            Some(With::Memory) => Some((memory, format!("the builtin {MEMORY}, and the agent names no Tool of it"))),
            Some(With::Skills) => Some((!seen.skills.is_empty(), "skills, and the agent names none in spec.skills".to_owned())),
            _ => None,
        };
        match (is_builtin(tool), along) {
            (true, Some((false, with))) => return invalid(format!("spec.name: {name} comes with {with}")),
            (false, Some((true, _))) => {
                return invalid(format!(
                    "spec.name: {name} is a builtin that this agent has; a Tool of type {} needs another name",
                    word(tool.type_)
                ));
            }
            _ => {}
        }
        if is_builtin(tool) && builtin(name).is_none() {
            let known = builtin_names().join(", ");
            return invalid(format!("spec.name: the runtime has no builtin {name}; there are {known}"));
        }
        if is_builtin(tool) && builtin(name) == Some(With::Search) && settings.platform.search_url.is_none() {
            return invalid(format!("spec.name: {name} needs a search server, and the platform names none (chart value agents.searchUrl)"));
        }
        if let Some(Ok(url)) = tool.mcp_endpoint.as_deref().map(Url::parse)
            && let Err(blocked) = crate::tool_rules::egress(settings).check(&url)
        {
            return invalid(format!("spec.mcpEndpoint: {blocked}"));
        }
    }
    Ok(())
}

fn word(type_: ToolType) -> &'static str {
    match type_ {
        ToolType::Http => "http",
        ToolType::Cli => "cli",
        ToolType::Mcp => "mcp",
        ToolType::Builtin => "builtin",
    }
}
