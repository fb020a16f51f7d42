//! An agent as REST shows it.

use kube::ResourceExt;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde_json::Value;
use slipway_api::agent::Phase;
use slipway_api::{Agent, condition, ids, labels};
use slipway_http::Error;

use crate::fields::{self, AGENT};
use crate::shelf::Item;

/// An agent.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Agent")]
pub(crate) struct View {
    pub id: String,
    pub name: String,
    pub slug: String,
    pub description: Option<String>,
    pub framework: &'static str,
    pub model_type: &'static str,
    pub model_id: String,
    pub status: Status,
    /// Why the status is what it is, where there is more to say.
    pub message: Option<String>,
    pub team_id: Option<String>,
    pub replicas: i32,
    pub ready_replicas: i32,
    pub endpoint: Option<String>,
    pub version: Option<String>,
    /// All that was written down about the agent.
    #[schemars(schema_with = "config")]
    pub config: Value,
    pub resource_version: Option<String>,
    pub created_at: String,
    pub deployed_at: Option<String>,
}

fn config(generator: &mut SchemaGenerator) -> Schema {
    fields::agent_form(generator)
}

/// Where an agent is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    Created,
    Deploying,
    Deployed,
    DeployFailed,
    Stopped,
    Archived,
}

impl Status {
    pub(crate) fn of(agent: &Agent) -> Self {
        let status = agent.status.as_ref();
        let deployed_once = status.is_some_and(|status| status.first_deployed_at.is_some());
        if agent.annotations().get(labels::ARCHIVED).is_some_and(|archived| archived == "true") {
            return Self::Archived;
        }
        if agent.spec.suspend {
            return if deployed_once { Self::Stopped } else { Self::Created };
        }
        let current = status.and_then(|status| status.observed_generation) == agent.metadata.generation;
        match status.and_then(|status| status.phase).filter(|_| current) {
            Some(Phase::Running) => Self::Deployed,
            Some(Phase::Failed) => Self::DeployFailed,
            _ => Self::Deploying,
        }
    }
}

impl View {
    pub(crate) fn of(agent: &Agent) -> Result<Self, Error> {
        let (namespace, slug) = (agent.namespace().unwrap_or_default(), agent.name_any());
        let status = agent.status.clone().unwrap_or_default();
        let ready = status.conditions.iter().find(|found| found.type_ == condition::READY);
        let spec = serde_json::to_value(&agent.spec).map_err(Error::internal)?;
        Ok(Self {
            id: ids::agent(&namespace, &slug),
            name: agent.spec.name.clone(),
            description: agent.spec.description.clone(),
            framework: agent.spec.framework.as_str(),
            model_type: agent.spec.model_type.as_str(),
            model_id: agent.spec.model_id.clone(),
            status: Status::of(agent),
            message: ready.filter(|ready| ready.status != "True").map(|ready| ready.message.clone()).filter(|message| !message.is_empty()),
            team_id: namespace.strip_prefix("team-").map(ids::team),
            replicas: agent.spec.replicas,
            ready_replicas: status.replicas,
            endpoint: status.endpoint,
            version: agent.spec.version.clone(),
            config: fields::to_callers(&AGENT, spec)?,
            resource_version: agent.resource_version(),
            created_at: time(agent.creation_timestamp().map(|time| time.0)),
            deployed_at: status.first_deployed_at.map(|time| time.0.to_string()),
            slug,
        })
    }
}

pub(crate) fn time(time: Option<jiff::Timestamp>) -> String {
    time.map(|time| time.to_string()).unwrap_or_default()
}

/// What the list of agents keeps of one.
pub(crate) fn item(agent: &Agent) -> Option<Item> {
    let view = View::of(agent).ok()?;
    Some(Item {
        created: agent.creation_timestamp().map_or(0, |time| time.0.as_second()),
        search: format!("{} {} {}", view.name, view.slug, view.description.as_deref().unwrap_or_default()).to_lowercase(),
        json: serde_json::to_string(&view).ok()?,
        id: view.id,
    })
}
