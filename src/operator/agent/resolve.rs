//! Second step, pure: from what was gathered to a plan, or to the fault that the author can mend.

mod database;
mod guards;
mod model;
mod own_image;
mod platform;
mod policies;
mod sampling;
mod secrets;
mod skills;
mod tools;
mod variables;
mod warnings;

use std::collections::{BTreeMap, HashSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource, ResourceExt};
use slipway_api::agent::{Access, PodTemplate, Resources, Storage};
use slipway_api::condition::Finding;
use slipway_api::names::AgentName;
use slipway_api::{Agent, Track};

use super::gather::Seen;
use super::released_tools::Differs;
use crate::settings::Settings;

pub(super) use crate::fault::ConditionFault;

pub(super) use skills::Folder;

/// What came of looking at an Agent.
#[expect(clippy::large_enum_variant, reason = "it lives for one reconcile and is never stored")]
pub(super) enum Resolved {
    Plan(Plan),
    /// Its author must change something first.
    Fault(ConditionFault),
    /// Something has not been read yet.
    Unknown(&'static str),
}
/// All that the builders need, and nothing that they would have to decide.
#[expect(clippy::struct_excessive_bools, reason = "each is true for reasons of its own")]
#[derive(Debug, Clone)]
pub(super) struct Plan {
    /// Of the agent; see [`Plan::workload`].
    pub name: String,
    pub namespace: String,
    pub owner: OwnerReference,
    pub track: Track,
    pub version: Option<String>,
    pub framework: &'static str,
    pub image: String,
    /// Whether that is the platform's own image, which has all endpoints of the contract.
    pub own_image: bool,
    pub replicas: i32,
    /// Whether somebody else sets the replicas of the Deployment.
    pub replicas_elsewhere: bool,
    /// Whether the Service is to select the pods of Flagger's Deployment.
    pub primary_ready: bool,
    pub suspended: bool,
    pub restarted_at: Option<String>,
    pub storage: Storage,
    pub variables: BTreeMap<&'static str, String>,
    pub env: Vec<Variable>,
    /// `RUNTIME_TOOL_DIGESTS`, where the agent uses servers that speak mcp.
    pub tool_digests: Option<String>,
    pub skills: Vec<Folder>,
    pub env_secrets: Vec<String>,
    pub credential_secret: Option<String>,
    pub gcp_service_account: Option<String>,
    pub secrets_hash: Option<String>,
    /// Whether only the platform may ask it.
    pub closed: bool,
    pub resources: Resources,
    pub pod: PodTemplate,
    /// What does not keep the agent from running, and its author should know. Nothing is built from it.
    pub warnings: Vec<Finding>,
}

impl Plan {
    /// The name of the Deployment and of what belongs to it.
    pub(super) fn workload(&self) -> String {
        self.track.workload(&self.name)
    }
}

/// A variable that the container gets beside those of the ConfigMap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Variable {
    Plain {
        name: String,
        value: String,
    },
    Secret {
        name: String,
        secret: String,
        key: String,
    },
    /// One of the pod's own annotations.
    Annotation {
        name: String,
        annotation: &'static str,
    },
}

impl Variable {
    pub(super) fn secret(name: impl Into<String>, secret: impl Into<String>, key: impl Into<String>) -> Self {
        Self::Secret { name: name.into(), secret: secret.into(), key: key.into() }
    }

    pub(super) fn name(&self) -> &str {
        match self {
            Self::Plain { name, .. } | Self::Secret { name, .. } | Self::Annotation { name, .. } => name,
        }
    }
}

/// `agent` has the effective spec of the track.
pub(super) fn resolve(agent: &Agent, track: Track, seen: &Seen, settings: &Settings) -> Resolved {
    match plan(agent, track, seen, settings) {
        Ok(plan) => Resolved::Plan(plan),
        Err(Stop::Fault(fault)) => Resolved::Fault(fault),
        Err(Stop::Unknown(what)) => Resolved::Unknown(what),
    }
}

enum Stop {
    Fault(ConditionFault),
    Unknown(&'static str),
}

fn fault(reason: &'static str, message: impl Into<String>) -> Stop {
    Stop::Fault(ConditionFault { reason, message: message.into() })
}

fn plan(agent: &Agent, track: Track, seen: &Seen, settings: &Settings) -> Result<Plan, Stop> {
    let spec = &agent.spec;
    let (name, namespace) = (agent.name_any(), agent.namespace().unwrap_or_default());
    AgentName::new(&*name).map_err(|error| fault("InvalidName", format!("metadata.name: {error}")))?;
    let owner = agent.controller_owner_ref(&()).ok_or(Stop::Unknown("the Agent's uid"))?;
    let Some((slug, team)) = &seen.team else {
        let message = format!(
            "namespace {namespace} belongs to no Team; agents run in namespaces named team-<slug>, each made by the Team of that slug (kubectl get teams)"
        );
        return Err(fault("NotATeamNamespace", message));
    };
    if !seen.secrets_known {
        return Err(Stop::Unknown("the Secrets of the namespace"));
    }
    let allowed = team.0.as_ref().map(|team| team.spec.gcp_service_accounts.as_slice()).unwrap_or_default();
    if let Some(account) = spec.gcp_service_account.as_ref().filter(|account| !allowed.contains(account)) {
        let message = format!(
            "spec.gcpServiceAccount: {account} is not in spec.gcpServiceAccounts of Team {slug}; a platform admin can add it there"
        );
        return Err(fault("ServiceAccountNotAllowed", message));
    }
    let suffix = settings.platform_suffix();
    let platform_database = settings.database.clone().map(|url| url.qualified(&suffix));

    let own_image = own_image::runs_it(spec, settings);
    if own_image {
        own_image::model(spec)?;
    }
    let mut env = secrets::secrets(spec, seen)?;
    let mut variables = variables::base(agent, track, slug)?;
    model::model(spec, seen, &mut variables, &mut env)?;
    let (named, tool_digests) = tools::tools(track, seen, &mut variables, &mut env)?;
    if own_image {
        own_image::tools(&named, seen, settings)?;
    }
    let skills = skills::skills(seen, &mut variables)?;
    guards::guards(spec, &mut variables)?;
    policies::policies(spec, seen, &mut variables)?;
    let storage = database::database(spec, platform_database.as_ref(), &suffix, &mut variables, &mut env)?;
    sampling::sampling(spec, storage, settings, &mut variables);
    database::knowledge_bases(seen, platform_database.as_ref(), settings.embedding_model(), &mut variables, &mut env)?;
    platform::platform(agent, slug, seen.mlflow_uri.as_ref(), settings, own_image, &mut variables);
    env.extend(platform::explicit(spec, settings, &variables));
    variables::access(spec, settings, own_image, &mut variables)?;
    variables::sizes(&variables)?;
    let mut warnings = if own_image { warnings::warnings(spec, seen, settings) } else { Vec::new() };
    warnings.extend(seen.differs.as_ref().and_then(Differs::finding));
    Ok(Plan {
        namespace,
        owner,
        track,
        version: spec.version.clone(),
        framework: spec.framework.as_str(),
        image: spec.image.clone().unwrap_or_else(|| settings.runtime_image.clone()),
        own_image,
        replicas: spec.replicas,
        replicas_elsewhere: seen.replicas_elsewhere,
        primary_ready: seen.primary_ready,
        suspended: agent.stopped_by().is_some(),
        restarted_at: agent.restarted_at().map(str::to_owned),
        storage,
        variables,
        env,
        tool_digests,
        skills,
        env_secrets: spec.env_secrets.clone(),
        credential_secret: spec.credential_secret.clone(),
        gcp_service_account: spec.gcp_service_account.clone(),
        secrets_hash: secrets::secrets_hash(spec, seen, settings),
        closed: spec.access == Some(Access::Platform),
        resources: spec.resources.clone().unwrap_or_else(|| settings.agent_defaults.resources.clone()),
        pod: pod_template(spec.pod_template.as_ref(), &settings.agent_defaults.pod_template),
        warnings,
        name,
    })
}

fn json(value: &impl serde::Serialize) -> String {
    // Plain structs of strings and numbers: there is nothing in them that could fail.
    serde_json::to_string(value).unwrap_or_default()
}

/// The agent's settings over the chart's: maps are merged, the rest is the agent's if it says anything.
fn pod_template(own: Option<&PodTemplate>, defaults: &PodTemplate) -> PodTemplate {
    let mut merged = defaults.clone();
    let own = own.cloned().unwrap_or_default();
    merged.labels.extend(own.labels);
    merged.annotations.extend(own.annotations);
    merged.node_selector.extend(own.node_selector);
    if !own.tolerations.is_empty() {
        merged.tolerations = own.tolerations;
    }
    if !own.image_pull_secrets.is_empty() {
        merged.image_pull_secrets = own.image_pull_secrets;
    }
    merged.affinity = own.affinity.or(merged.affinity);
    merged.priority_class_name = own.priority_class_name.or(merged.priority_class_name);
    merged.runtime_class_name = own.runtime_class_name.or(merged.runtime_class_name);
    // It is a list by name, of which the API server can apply no two entries of one name.
    let mut names = HashSet::new();
    merged.image_pull_secrets.retain(|secret| names.insert(secret.name.clone()));
    merged
}
