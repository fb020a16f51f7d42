//! The pod that evaluates an agent with an image of its own. It runs the platform's runtime, with what it takes to judge that
//! agent's answers and with the keys of the agent's Secrets, which the judge is asked with. It has none of the agent's tools,
//! skills and knowledge bases, and no identity of a cloud.

use k8s_openapi::api::core::v1::{Container, PodSpec};
use slipway_api::agent::RUNTIME_SECRET;
use slipway_api::contract;

use super::deployment;
use crate::agent::resolve::{Plan, Variable};
use crate::settings::Settings;
use crate::worker::escaped;

/// The name of the container.
pub(crate) const EVALUATOR: &str = "evaluator";

/// `model` is the agent's, as `provider:model_id`, if answers can be priced by it. With `persists` results lie in the platform's database.
pub(in crate::agent) fn pod(plan: &Plan, settings: &Settings, model: Option<String>, persists: bool) -> PodSpec {
    let evaluator = Plan {
        image: settings.runtime_image.clone(),
        own_image: true,
        env: env(plan, settings, model, persists),
        tool_digests: None,
        skills: Vec::new(),
        gcp_service_account: None,
        resources: settings.agent_defaults.resources.clone(),
        pod: settings.agent_defaults.pod_template.clone(),
        ..plan.clone()
    };
    let pod = deployment::pod(&evaluator);
    PodSpec {
        containers: pod.containers.into_iter().map(confined).collect(),
        restart_policy: Some("Never".to_owned()),
        topology_spread_constraints: None,
        ..pod
    }
}

/// Of the agent's sources of variables it keeps the Secrets: what else it is told stands in the container itself.
fn confined(container: Container) -> Container {
    let secrets = container.env_from.into_iter().flatten().filter(|source| source.config_map_ref.is_none()).collect();
    Container {
        name: EVALUATOR.to_owned(),
        env_from: Some(secrets),
        lifecycle: None,
        // Of a process that was killed, the last lines of its log.
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        ..container
    }
}

fn env(plan: &Plan, settings: &Settings, model: Option<String>, persists: bool) -> Vec<Variable> {
    let fixed = |name: &str, value: &str| Variable::Plain { name: name.to_owned(), value: escaped(value) };
    let shared = |name: &&str| plan.variables.get(*name).map_or_else(|| fixed(name, ""), |value| fixed(name, value));
    let unset = contract::EVALUATOR_UNSET.iter().map(|name| fixed(name, ""));
    let mut all: Vec<Variable> = contract::EVALUATOR_SHARED.iter().map(shared).chain(unset).collect();
    // Keys and files of models, and nothing that is the runtime's or a database's: no server and key of the agent's own models either,
    // which are no judge's.
    let is_models = |variable: &&Variable| !["RUNTIME_", "PG"].iter().any(|prefix| variable.name().starts_with(prefix));
    all.extend(plan.env.iter().filter(is_models).cloned());
    all.push(fixed(contract::EVALUATOR, "true"));
    all.push(fixed(contract::EVALUATED_MODEL, &model.unwrap_or_default()));
    all.push(fixed(contract::POLICIES_FILE, contract::policies::PATH));
    if persists {
        all.push(fixed(contract::STORAGE, "postgresql"));
        all.push(Variable::secret(contract::DATABASE_URL, RUNTIME_SECRET, contract::DATABASE_URL));
        let prepared = if settings.platform.prepared_statements { "true" } else { "" };
        all.push(fixed(contract::DATABASE_PREPARED_STATEMENTS, prepared));
    } else {
        all.push(fixed(contract::STORAGE, "memory"));
    }
    all
}
