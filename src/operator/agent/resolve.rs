//! Second step, pure: from what was seen to what shall run, or to the fault that its author can mend.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource, ResourceExt};
use slipway_api::agent::{AGENT_ENV, AgentSpec, PodTemplate, Resources, Storage};
use slipway_api::contract::{self, EmbeddingConfig, KnowledgeBaseConfig, ToolConfig};
use slipway_api::names::AgentName;
use slipway_api::{Agent, KnowledgeBaseSpec, ids, labels};

use super::gather::Seen;
use crate::database::{DatabaseUrl, qualified_url};
use crate::settings::Settings;
use crate::team;
use crate::world::secret::keyed_hash;

/// What came of looking at an Agent.
#[expect(clippy::large_enum_variant, reason = "it lives for one reconcile and is never stored")]
pub(super) enum Resolved {
    Plan(Plan),
    /// Its author must change something first.
    Fault(Fault),
    /// Something has not been read yet.
    Unknown(&'static str),
}

/// Something that keeps an Agent from running until somebody mends it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    pub reason: &'static str,
    pub message: String,
}

/// All that the builders need, and nothing that they would have to decide.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub name: String,
    pub namespace: String,
    pub owner: OwnerReference,
    pub track: &'static str,
    pub version: Option<String>,
    pub framework: &'static str,
    pub image: String,
    pub replicas: i32,
    pub suspended: bool,
    pub storage: Storage,
    pub variables: BTreeMap<&'static str, String>,
    pub env: Vec<Variable>,
    pub env_secrets: Vec<String>,
    pub credential_secret: Option<String>,
    pub gcp_service_account: Option<String>,
    pub secrets_hash: Option<String>,
    pub resources: Resources,
    pub pod: PodTemplate,
}

/// A variable that the container gets beside those of the ConfigMap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Variable {
    Plain { name: String, value: String },
    Secret { name: String, secret: String, key: String },
}

impl Variable {
    fn secret(name: impl Into<String>, secret: impl Into<String>, key: impl Into<String>) -> Self {
        Self::Secret { name: name.into(), secret: secret.into(), key: key.into() }
    }
}

pub(super) fn resolve(agent: &Agent, seen: &Seen, settings: &Settings) -> Resolved {
    match plan(agent, seen, settings) {
        Ok(plan) => Resolved::Plan(plan),
        Err(Stop::Fault(fault)) => Resolved::Fault(fault),
        Err(Stop::Unknown(what)) => Resolved::Unknown(what),
    }
}

enum Stop {
    Fault(Fault),
    Unknown(&'static str),
}

fn fault(reason: &'static str, message: impl Into<String>) -> Stop {
    Stop::Fault(Fault { reason, message: message.into() })
}

fn plan(agent: &Agent, seen: &Seen, settings: &Settings) -> Result<Plan, Stop> {
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
    let suffix = format!("{}.svc.{}", settings.platform_namespace, settings.cluster_domain);
    let platform_database = settings.database.clone().map(|url| url.qualified(&suffix));

    let mut env = secrets(spec, seen)?;
    let mut variables = base_variables(agent, slug)?;
    tools(seen, &mut variables, &mut env)?;
    let storage = database(spec, platform_database.as_ref(), &suffix, &mut variables, &mut env)?;
    knowledge_bases(seen, platform_database.as_ref(), &mut variables, &mut env)?;
    if let Some(url) = &settings.ollama_base_url {
        variables.insert(contract::OLLAMA_BASE_URL, qualified_url(url, &suffix));
    }
    if let Some((name, value)) = variables.iter().find(|(_, value)| value.len() > contract::VARIABLE_MAX) {
        let message = format!(
            "{name} would have {} bytes; a variable can have at most {} (spec.{})",
            value.len(),
            contract::VARIABLE_MAX,
            field_of(name)
        );
        return Err(fault("ConfigTooLarge", message));
    }
    Ok(Plan {
        namespace,
        owner,
        track: labels::STABLE,
        version: spec.version.clone(),
        framework: spec.framework.as_str(),
        image: spec.image.clone().unwrap_or_else(|| settings.runtime_image.clone()),
        replicas: spec.replicas,
        suspended: spec.suspend,
        storage,
        variables,
        env,
        env_secrets: spec.env_secrets.clone(),
        credential_secret: spec.credential_secret.clone(),
        gcp_service_account: spec.gcp_service_account.clone(),
        secrets_hash: secrets_hash(spec, seen, settings),
        resources: spec.resources.clone().unwrap_or_else(|| settings.agent_defaults.resources.clone()),
        pod: pod_template(spec.pod_template.as_ref(), &settings.agent_defaults.pod_template),
        name,
    })
}

/// The field that a variable is made from, for messages.
fn field_of(variable: &str) -> &'static str {
    match variable {
        contract::SYSTEM_PROMPT => "systemPrompt",
        contract::TOOLS => "tools",
        contract::KNOWLEDGE_BASES => "knowledgeBases",
        contract::SUGGESTIONS => "suggestions",
        _ => "*",
    }
}

fn base_variables(agent: &Agent, team: &str) -> Result<BTreeMap<&'static str, String>, Stop> {
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
        (contract::TRACK, labels::STABLE.to_owned()),
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

/// Checks that each Secret the Agent names exists and may be read by agents.
fn secrets(spec: &AgentSpec, seen: &Seen) -> Result<Vec<Variable>, Stop> {
    let named = spec.env_secrets.iter().filter(|name| *name != AGENT_ENV).map(|name| (name, "envSecrets"));
    let credential = spec.credential_secret.iter().map(|name| (name, "credentialSecret"));
    let database = spec.database_credentials_secret.iter().map(|name| (name, "databaseCredentialsSecret"));
    for (name, field) in named.chain(credential).chain(database) {
        readable(seen, name, &format!("spec.{field}"))?;
    }
    let mut env = Vec::new();
    if let Some(name) = &spec.credential_secret {
        let key = seen.secrets.get(name).and_then(|secret| secret.keys.first());
        let key = key.ok_or_else(|| fault("SecretKeyMissing", format!("spec.credentialSecret: Secret {name} holds no file")))?;
        env.push(Variable::Plain {
            name: contract::GOOGLE_APPLICATION_CREDENTIALS.to_owned(),
            value: format!("{}/{key}", contract::CREDENTIALS),
        });
    }
    if let Some(name) = &spec.database_credentials_secret {
        for (variable, key) in [("PGUSER", "username"), ("PGPASSWORD", "password")] {
            key_of(seen, name, key, "spec.databaseCredentialsSecret")?;
            env.push(Variable::secret(variable, name, key));
        }
    }
    Ok(env)
}

fn readable(seen: &Seen, name: &str, field: &str) -> Result<(), Stop> {
    match seen.secrets.get(name) {
        None => Err(fault("SecretMissing", format!("{field}: Secret {name} does not exist in this namespace"))),
        Some(secret) if !secret.readable => {
            let message =
                format!("{field}: Secret {name} lacks the label {}=true, without which agents cannot use it", labels::AGENT_READABLE);
            Err(fault("SecretNotAllowed", message))
        }
        Some(_) => Ok(()),
    }
}

fn key_of(seen: &Seen, name: &str, key: &str, field: &str) -> Result<(), Stop> {
    let has = seen.secrets.get(name).is_some_and(|secret| secret.keys.iter().any(|has| has == key));
    if has { Ok(()) } else { Err(fault("SecretKeyMissing", format!("{field}: Secret {name} has no key {key}"))) }
}

fn tools(seen: &Seen, variables: &mut BTreeMap<&'static str, String>, env: &mut Vec<Variable>) -> Result<(), Stop> {
    if seen.tools.is_empty() {
        return Ok(());
    }
    let mut configs = Vec::new();
    for (at, (name, tool)) in seen.tools.iter().enumerate() {
        let field = format!("spec.tools[{at}]");
        let Some(tool) = tool else {
            return Err(fault("ToolNotFound", format!("{field}: there is no Tool {name} in this namespace")));
        };
        let tool =
            tool.0.as_ref().map_err(|invalid| fault("ToolInvalid", format!("{field}: Tool {name} cannot be read: {}", invalid.error)))?;
        let spec = &tool.spec;
        if !spec.enabled {
            continue;
        }
        if let Some(error) = crate::tool::fault(spec) {
            return Err(fault("ToolInvalid", format!("{field}: Tool {name}: {}", error.message)));
        }
        let mut headers_from = BTreeMap::new();
        for header in &spec.headers_from {
            let field = format!("{field}: Tool {name}, headersFrom {}", header.name);
            readable(seen, &header.secret, &field)?;
            key_of(seen, &header.secret, &header.key, &field)?;
            let variable = format!("RUNTIME_TOOL_HEADER_{}_{}", word(name), word(&header.name));
            env.push(Variable::secret(&variable, &header.secret, &header.key));
            headers_from.insert(header.name.clone(), variable);
        }
        let spec = spec.clone();
        configs.push(ToolConfig {
            name: spec.name,
            type_: spec.type_,
            category: spec.category,
            description: spec.description,
            endpoint: spec.endpoint,
            method: spec.method,
            headers: spec.headers,
            headers_from,
            parameters: spec.parameters,
            binary: spec.binary,
            allowed_commands: spec.allowed_commands,
            mcp_endpoint: spec.mcp_endpoint,
            timeout: spec.timeout,
        });
    }
    variables.insert(contract::TOOLS, json(&configs));
    Ok(())
}

/// `Authorization` → `AUTHORIZATION`, `get-weather` → `GET_WEATHER`.
fn word(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect()
}

fn json(value: &impl serde::Serialize) -> String {
    // Plain structs of strings and numbers: there is nothing in them that could fail.
    serde_json::to_string(value).unwrap_or_default()
}

/// Storage, and the URL of the database: without its password here, complete from the team's Secret.
fn database(
    spec: &AgentSpec,
    platform: Option<&DatabaseUrl>,
    suffix: &str,
    variables: &mut BTreeMap<&'static str, String>,
    env: &mut Vec<Variable>,
) -> Result<Storage, Stop> {
    let storage = spec.storage.unwrap_or(if platform.is_some() { Storage::Postgresql } else { Storage::Memory });
    variables.insert(contract::STORAGE, storage.as_str().to_owned());
    if let Some(text) = &spec.database_url {
        let url = DatabaseUrl::parse(text).map_err(|error| fault("InvalidDatabaseUrl", format!("spec.databaseUrl: {error}")))?;
        variables.insert(contract::DATABASE_URL, url.qualified(suffix).public());
    } else if let Some(url) = platform {
        variables.insert(contract::DATABASE_URL, url.public());
        env.push(Variable::secret(contract::DATABASE_URL, team::RUNTIME_SECRET, contract::DATABASE_URL));
    } else if storage == Storage::Postgresql {
        let message =
            "spec.storage: postgresql needs a database, and neither spec.databaseUrl nor the platform (chart value database) names one";
        return Err(fault("DatabaseRequired", message));
    }
    Ok(storage)
}

fn knowledge_bases(
    seen: &Seen,
    platform: Option<&DatabaseUrl>,
    variables: &mut BTreeMap<&'static str, String>,
    env: &mut Vec<Variable>,
) -> Result<(), Stop> {
    if seen.knowledge_bases.is_empty() {
        return Ok(());
    }
    let mut found = Vec::new();
    for (at, (name, knowledge_base)) in seen.knowledge_bases.iter().enumerate() {
        let field = format!("spec.knowledgeBases[{at}]");
        let Some(object) = knowledge_base else {
            return Err(fault("KnowledgeBaseNotFound", format!("{field}: there is no KnowledgeBase {name} in this namespace")));
        };
        let object = object
            .0
            .as_ref()
            .map_err(|invalid| fault("KnowledgeBaseInvalid", format!("{field}: KnowledgeBase {name} cannot be read: {}", invalid.error)))?;
        found.push((name, &object.spec));
    }
    let Some(database) = platform else {
        let message =
            "spec.knowledgeBases: the chunks of knowledge bases lie in the platform's database, and it has none (chart value database)";
        return Err(fault("DatabaseRequired", message));
    };
    // In a variable's value the kubelet replaces `$(NAME)`; `$$` is a plain dollar.
    let text = |connection_url: &str, plain: fn(&str) -> String| {
        let config = |(name, spec): &(&String, &KnowledgeBaseSpec)| KnowledgeBaseConfig {
            kb_id: ids::knowledge_base(name),
            name: plain(&spec.name),
            description: spec.description.as_deref().map(plain),
            store: "pgvector".to_owned(),
            connection_url: connection_url.to_owned(),
            embedding: EmbeddingConfig {
                model: plain(&spec.embedding_model),
                chunk_size: spec.chunk_size,
                chunk_overlap: spec.chunk_overlap,
            },
        };
        json(&found.iter().map(config).collect::<Vec<_>>())
    };
    variables.insert(contract::KNOWLEDGE_BASES, text(&database.knowledge(), str::to_owned));
    if let Some(mode) = database.sslmode() {
        variables.insert(contract::PGSSLMODE, mode);
    }
    if database.password().is_some() {
        let url = database.knowledge().replace('$', "$$").replacen('@', &format!(":$({})@", contract::DATABASE_PASSWORD), 1);
        env.push(Variable::secret(contract::DATABASE_PASSWORD, team::RUNTIME_SECRET, contract::DATABASE_PASSWORD));
        env.push(Variable::Plain { name: contract::KNOWLEDGE_BASES.to_owned(), value: text(&url, |text| text.replace('$', "$$")) });
    }
    Ok(())
}

/// A keyed hash over the Secrets that the pod uses, so that a change of one rolls the pods.
fn secrets_hash(spec: &AgentSpec, seen: &Seen, settings: &Settings) -> Option<String> {
    let mut used: Vec<(&[u8], &[u8])> = Vec::new();
    for (name, secret) in &seen.secrets {
        // The team's runtime Secret counts only for agents that get something from it.
        if name != team::RUNTIME_SECRET || (settings.database.is_some() && spec.database_url.is_none()) {
            used.push((name.as_bytes(), &secret.hash));
        }
    }
    (!used.is_empty()).then(|| hex::encode(keyed_hash(&settings.secrets_hash_key, used.into_iter())))
}

/// The agent's settings over the chart's: maps are merged, the rest is the agent's if it says anything.
fn pod_template(own: Option<&PodTemplate>, defaults: &PodTemplate) -> PodTemplate {
    let mut merged = defaults.clone();
    let Some(own) = own.cloned() else { return merged };
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
    merged
}
