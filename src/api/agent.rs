//! `Agent`: what a team writes down, and what the operator says of it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Affinity, LocalObjectReference, Toleration};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::canary::{Canary, CanaryStatus, Expose};
use crate::model_type::{JUDGE_PATTERN, MODEL_PATTERN};
use crate::words::words;
use crate::{labels, schema};

pub use crate::model_type::ModelType;

/// An AI agent: a model, its instructions, and what it may use. Slipway runs it as a Deployment behind a Service of the same name.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[kube(
    group = "agents.slipway.dev",
    version = "v1",
    kind = "Agent",
    doc = "An AI agent: a model, its instructions, and what it may use. Slipway runs it as a Deployment behind a Service of the same name.",
    plural = "agents",
    shortname = "ag",
    category = "slipway",
    namespaced,
    derive = "PartialEq",
    status = "AgentStatus",
    scale(spec_replicas_path = ".spec.replicas", status_replicas_path = ".status.replicas", label_selector_path = ".status.selector"),
    selectable = ".spec.modelType",
    selectable = ".spec.framework",
    selectable = ".spec.suspend",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].reason"),
    printcolumn(name = "Replicas", type_ = "integer", json_path = ".status.replicas"),
    printcolumn(name = "Endpoint", type_ = "string", json_path = ".status.endpoint"),
    printcolumn(name = "Model", type_ = "string", json_path = ".spec.modelId", priority = 1),
    printcolumn(name = "Canary", type_ = "integer", json_path = ".status.canary.weight", priority = 1),
    printcolumn(name = "Canary-Phase", type_ = "string", json_path = ".status.canary.phase", priority = 1),
    printcolumn(name = "Canary-Version", type_ = "string", json_path = ".status.canary.version", priority = 1),
    printcolumn(name = "Canary-Requests", type_ = "integer", json_path = ".status.canary.canary.requests", priority = 1),
    printcolumn(name = "Canary-Score", type_ = "number", json_path = ".status.canary.canary.score", priority = 1),
    printcolumn(name = "Stable-Score", type_ = "number", json_path = ".status.canary.stable.score", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = kube::core::Rule::new("self.metadata.name.size() <= 52")
        .message("metadata.name: an agent's name has at most 52 characters"),
    validation = kube::core::Rule::new("self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')")
        .message("metadata.name: must begin with a lower-case letter and have only lower-case letters, digits and hyphens; a Service is named after it"),
    validation = kube::core::Rule::new("!self.metadata.name.endsWith('-canary') && !self.metadata.name.endsWith('-candidate') && !self.metadata.name.endsWith('-primary')")
        .message("metadata.name: must not end with -canary, -candidate or -primary; other tracks of an agent use these"),
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = kube::core::Rule::new("self.modelType == 'stub' || self.modelId != 'stub-echo'")
        .message("modelId: must name a model of the provider in modelType; stub-echo belongs to modelType stub"),
    validation = kube::core::Rule::new("self.strategy != 'custom' || has(self.image)")
        .message("image: is required with strategy custom, because the image brings the strategy"),
    validation = kube::core::Rule::new("!has(self.databaseCredentialsSecret) || has(self.databaseUrl)")
        .message("databaseCredentialsSecret: has an effect only together with databaseUrl"),
    validation = kube::core::Rule::new("!has(self.suggestions) || has(self.suggestionsProvider)")
        .message("suggestionsProvider: is required with suggestions"),
    validation = kube::core::Rule::new("!has(self.canary) || (has(self.canary.modelType) && self.canary.modelType == 'stub') || (!has(self.canary.modelType) && self.modelType == 'stub') || (has(self.canary.modelId) && self.canary.modelId != 'stub-echo') || (!has(self.canary.modelId) && self.modelId != 'stub-echo')")
        .message("canary.modelId: must name a model of the provider in modelType; stub-echo belongs to modelType stub"),
    validation = kube::core::Rule::new("!has(self.canary) || !has(self.canary.overrides) || !has(self.canary.overrides.strategy) || self.canary.overrides.strategy != 'custom' || has(self.canary.image) || has(self.image)")
        .message("canary.image: is required with strategy custom, because the image brings the strategy"),
    validation = kube::core::Rule::new("!has(self.expose) || !has(self.access) || self.access != 'platform'")
        .message("expose: a gateway does not reach an agent whose access is platform; leave one of them out"),
    validation = kube::core::Rule::new("!has(self.modelIntegration) || self.modelType in ['openai', 'anthropic']")
        .message("modelIntegration: takes modelType openai or anthropic"),
    validation = kube::core::Rule::new("!has(self.canary) || !has(self.canary.overrides) || !has(self.canary.overrides.modelIntegration) || (has(self.canary.modelType) && self.canary.modelType in ['openai', 'anthropic']) || (!has(self.canary.modelType) && self.modelType in ['openai', 'anthropic'])")
        .message("canary.overrides.modelIntegration: takes modelType openai or anthropic"),
)]
pub struct AgentSpec {
    /// Display name, shown to people. The resource's own name is in metadata.name.
    #[schemars(length(min = 1, max = 128))]
    pub name: String,

    /// What the agent is for, in a sentence or two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub description: Option<String>,

    /// A label of the author's choice, put on the workload as app.kubernetes.io/version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"))]
    pub version: Option<String>,

    /// What the agent was built with. It is put on the workload as a label and changes nothing else.
    pub framework: Framework,

    /// How the agent arrives at an answer: simple gives one answer, agent-react calls tools in a loop, custom leaves it to the image. Default simple.
    #[serde(default)]
    pub strategy: Strategy,

    /// How the agent is reached. Only rest exists. Default rest.
    #[serde(default)]
    pub channel: Channel,

    /// The model's provider. The stub needs no key and no network. Default stub.
    #[serde(default)]
    pub model_type: ModelType,

    /// The provider's name for the model. Default stub-echo.
    #[serde(default = "stub_echo")]
    #[schemars(length(min = 1, max = 256))]
    pub model_id: String,

    /// An Integration of the same namespace, by name or by id (in_...), whose type is modelType, openai or anthropic: the server and the key of the agent's own models of that provider, its background model too. Its judge keeps to OPENAI_BASE_URL, OPENAI_API_KEY and the like of envSecrets, and so do its models where this is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 66), regex(pattern = r"^[a-z]([-_a-z0-9]*[a-z0-9])?$"))]
    pub model_integration: Option<String>,

    /// A cheaper model for work behind the scenes (memory, suggestions, titles), as provider:model_id. Empty means the main model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256), regex(pattern = MODEL_PATTERN))]
    pub background_model: Option<String>,

    /// The instructions that every conversation begins with. At most 120 KiB reach the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 122_880))]
    #[x_kube(validation = kube::core::Rule::new("bytes(self).size() <= 122880")
        .message("must have at most 120 KiB (122880 bytes), the most that reaches the agent"))]
    pub system_prompt: Option<String>,

    /// Where conversations and memories are kept. Default postgresql if the platform has a database, else memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<Storage>,

    /// A PostgreSQL database for this agent instead of the platform's. Credentials go into databaseCredentialsSecret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 2048), regex(pattern = r"^postgres(ql)?://[^\s]+$"))]
    #[x_kube(
        validation = kube::core::Rule::new("!self.matches('^[^:]*://[^@]*(:|%3[Aa])[^@]*@')")
            .message("must not hold a password; put username and password into a Secret and name it in databaseCredentialsSecret"),
        validation = kube::core::Rule::new("!self.matches('[?&][^=&]*([Pp][Aa][Ss][Ss]|%)[^=&]*=')")
            .message("must not hold a password parameter; put username and password into a Secret and name it in databaseCredentialsSecret"),
    )]
    pub database_url: Option<String>,

    /// A Secret with the keys username and password for databaseUrl. It needs the label agents.slipway.dev/agent-readable=true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub database_credentials_secret: Option<String>,

    /// Tools of the same namespace that the agent may use, in the order in which the model sees them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 63)))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub tools: Vec<String>,

    /// Knowledge bases of the same namespace that the agent searches, by name or by id (kb_...). They lie in the platform's database.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(min = 1, max = 66)))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub knowledge_bases: Vec<String>,

    /// Skills of the same namespace that the agent can load, by name or by id (sk_...).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(min = 1, max = 66)))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub skills: Vec<String>,

    /// What must not pass between people and the model, how much of it may, and what releases are held to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub governance: Option<Governance>,

    /// A label of the place that the agent is for, such as staging or production. It is written into releases and changes nothing else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"))]
    pub environment: Option<String>,

    /// The image that the agent runs. Default is the runtime of the installed release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), regex(pattern = r"^[^\s]+$"))]
    pub image: Option<String>,

    /// How many pods serve the agent, 0 to 10. Autoscalers use the scale subresource. Default 1.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 10))]
    pub replicas: i32,

    /// Stops the agent without forgetting replicas: its Deployment goes to zero while this is true. Default false.
    #[serde(default)]
    pub suspend: bool,

    /// Secrets whose keys become environment variables. Each but agent-env needs the label agents.slipway.dev/agent-readable=true and must exist. Default [agent-env].
    #[serde(default = "agent_env")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 253)))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub env_secrets: Vec<String>,

    /// A Secret mounted as files at /var/run/slipway/credentials; GOOGLE_APPLICATION_CREDENTIALS names its first file. It needs the label agents.slipway.dev/agent-readable=true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub credential_secret: Option<String>,

    /// A Google Cloud service account that the agent acts as, by workload identity. The Team must allow it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256), regex(pattern = r"^[^\s@]+@[^\s@]+$"))]
    pub gcp_service_account: Option<String>,

    /// Who may ask the agent on its port 8000. platform: only Slipway, which asks on behalf of those who may chat with it; everybody else is refused, by a NetworkPolicy and by the runtime. Left out: the agents and pods of its namespace, and whom the chart admits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<Access>,

    /// Where suggestions for the next message come from: static takes them from suggestions, llm asks a model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suggestions_provider: Option<SuggestionsProvider>,

    /// Suggestions as a JSON array of strings, for example '["What can you do?"]'.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16_384))]
    pub suggestions: Option<String>,

    /// The model that judges the agent's answers in evaluations, as provider:/model. Its key comes from the Secrets of the agent. Left out: words are compared, which passes no gate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256), regex(pattern = JUDGE_PATTERN))]
    pub judge_model: Option<String>,

    /// How many percent of the agent's answers to people are scored after they were given, by the scorers of governance.riskProfile that need no expected answer, 0 to 100. It takes storage postgresql, and the platform bounds how many answers a day. Default 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub eval_sample_rate: Option<i32>,

    /// CPU and memory that each pod asks for and is limited to. Default is the chart's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,

    /// Settings of the pods that concern the cluster rather than the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_template: Option<PodTemplate>,

    /// A version of the agent that serves a share of its users beside this one. Default none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canary: Option<Box<Canary>>,

    /// gateway: the chart's Gateway leads to the agent, past REST's rights and limits. Left out: it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expose: Option<Expose>,
}

/// What must not pass between people and the model, how much of it may, and what releases are held to.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = kube::core::Rule::new("!has(self.limits) || !has(self.limits.maxTokensPerRequest) || (has(self.guards) && 'max-tokens' in self.guards)")
        .message("limits.maxTokensPerRequest: has an effect only with max-tokens in guards"),
    validation = kube::core::Rule::new("!has(self.limits) || !has(self.limits.requestsPerMinute) || (has(self.guards) && 'rate-limit' in self.guards)")
        .message("limits.requestsPerMinute: has an effect only with rate-limit in guards"),
    validation = kube::core::Rule::new("!has(self.limits) || !has(self.limits.dailyCostUsd) || (has(self.guards) && 'spend-limit' in self.guards)")
        .message("limits.dailyCostUsd: has an effect only with spend-limit in guards"),
    validation = kube::core::Rule::new("!has(self.limits) || !has(self.limits.blockedTopics) || (has(self.guards) && 'blocked-topics' in self.guards)")
        .message("limits.blockedTopics: has an effect only with blocked-topics in guards"),
    validation = kube::core::Rule::new("!has(self.limits) || !has(self.limits.prices) || (has(self.guards) && 'spend-limit' in self.guards)")
        .message("limits.prices: has an effect only with spend-limit in guards"),
)]
pub struct Governance {
    /// Guards that look at every message and answer, or at what they cost.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub guards: Vec<Guard>,
    /// Settings of the guards. What is left out is the guard's own default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
    /// How much harm the agent could do, which is how strictly its releases are looked at: low, standard or high. medium is read as standard. Default standard. It decides which scorers an evaluation uses, and the score to reach where none is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risk_profile: Option<RiskProfile>,
    /// The score that a release must reach in its evaluation before it serves anybody, 0 to 100: the evaluation gate. Until then the active release goes on serving. 0 asks for none. Default 0. Lowering it takes the right to update agents/governance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub min_quality_score: Option<i32>,
    /// The Dataset of the same namespace that the agent is evaluated with, by name or by id (ds_...). Default is the oldest that is for this agent alone; an agent that has none gets one of five basic questions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub eval_dataset: Option<String>,
    /// Guardrail policies of the same namespace that the agent is held to, by name or by id (gp_...). default stands for default-tokens, default-latency, default-topics and default-cost, as far as they exist; so does an empty list. Those that the Team requires hold besides. A change of a policy reaches running agents within about a minute; releases keep the names alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(min = 1, max = 66)))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub policies: Vec<String>,
}

/// Settings of guards.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Limits {
    /// How many tokens a request may take, with guard max-tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000_000))]
    pub max_tokens_per_request: Option<i64>,
    /// How many requests a pod answers in a minute, with guard rate-limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub requests_per_minute: Option<i64>,
    /// How many US dollars the model may cost in a day, with guard spend-limit: 5 or "2.50".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::amount")]
    pub daily_cost_usd: Option<IntOrString>,
    /// Topics that the agent does not speak of, with guard blocked-topics.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 128), regex(pattern = r"\S")))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub blocked_topics: Vec<String>,
    /// What models cost, with guard spend-limit: those of which Slipway has no price, and those that have another price for this team. While the price of a model that the agent uses is not known, spend-limit refuses every chat, and the condition SpendingCounted says so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Map(vec!["model".into()]))]
    pub prices: Vec<Price>,
}

/// What a model costs.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Price {
    /// The model's id, as in modelId or after the provider in backgroundModel.
    #[schemars(length(min = 1, max = 256))]
    pub model: String,
    /// US dollars for a million tokens that the model reads: 3, "0.25", or 0 for a model of one's own.
    #[schemars(schema_with = "schema::price")]
    pub input_usd: IntOrString,
    /// US dollars for a million tokens that the model writes.
    #[schemars(schema_with = "schema::price")]
    pub output_usd: IntOrString,
}

/// CPU, memory and other resources by name.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
pub struct Resources {
    /// What the scheduler sets aside, for example cpu: 100m.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::quantities")]
    pub requests: BTreeMap<String, Quantity>,
    /// What a pod may use at most, for example memory: 256Mi.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::quantities")]
    pub limits: BTreeMap<String, Quantity>,
}

/// Settings of an agent's pods that concern the cluster.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodTemplate {
    /// Further labels. Those of Slipway and of app.kubernetes.io cannot be set here.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::label_map")]
    #[x_kube(validation = kube::core::Rule::new("self.all(k, !k.startsWith('agents.slipway.dev/') && !k.startsWith('app.kubernetes.io/') && k != 'version')")
        .message("must not set version, nor labels under agents.slipway.dev/ or app.kubernetes.io/; Slipway sets these"))]
    pub labels: BTreeMap<String, String>,
    /// Further annotations. Those of Slipway cannot be set here.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::annotations")]
    #[x_kube(validation = kube::core::Rule::new("self.all(k, !k.startsWith('agents.slipway.dev/'))")
        .message("must not set annotations under agents.slipway.dev/; Slipway sets these"))]
    pub annotations: BTreeMap<String, String>,
    /// Labels that a node must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::label_map")]
    pub node_selector: BTreeMap<String, String>,
    /// Taints that the pods tolerate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::bounded::<Vec<Toleration>>")]
    pub tolerations: Vec<Toleration>,
    /// Where the pods may run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::bounded::<Affinity>")]
    pub affinity: Option<Affinity>,
    /// The pods' PriorityClass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub priority_class_name: Option<String>,
    /// Secrets with credentials for the registry of the image.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::bounded::<Vec<LocalObjectReference>>")]
    pub image_pull_secrets: Vec<LocalObjectReference>,
    /// The pods' RuntimeClass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub runtime_class_name: Option<String>,
}

/// What the operator has seen and done.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentStatus {
    /// Pending, Running, Failed or Terminated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Pods that are ready.
    #[serde(default, deserialize_with = "schema::readable")]
    #[schemars(range(min = 0))]
    pub replicas: i32,
    /// Where the agent is reached within the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub endpoint: Option<String>,
    /// The agent's id in the REST API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub id: Option<String>,
    /// Selects the agent's pods; autoscalers read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub selector: Option<String>,
    /// The generation of the spec that this status speaks of.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The annotation agents.slipway.dev/restarted-at that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub restarted_at: Option<String>,
    /// When the agent was first ready.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Option::is_none")]
    pub first_deployed_at: Option<Time>,
    /// What new pods run, as a hash: their annotation agents.slipway.dev/run-hash. A release that runs so has it in its status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub run_hash: Option<String>,
    /// The version of the active release. Whether it runs, Ready says.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub active_release: Option<i64>,
    /// The version of the release that waits for its evaluation, if one does. The active release serves meanwhile.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub pending_release: Option<i64>,
    /// The EvaluationRun that decides on the pending release. It is made when the pods of the candidate track are ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub pending_evaluation: Option<String>,
    /// The governance.minQualityScore of the active release, where it has one above 0. Changes are held to it until another release is active, whatever the spec says.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub quality_gate: Option<i32>,
    /// While a release other than the spec's runs, because GitOps owns the spec: the hash of what the spec held when that was asked for. A change of the spec ends it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub pinned_content: Option<String>,
    /// Where the canary stands, while there is one.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Option::is_none")]
    pub canary: Option<CanaryStatus>,
    /// Ready says whether the agent serves, and has the words for what is wrong. Reconciling: its pods are on the way to what the spec says. Stalled: they will not get there until somebody changes something. Available: its Service has a pod to send requests to. Released: the release history has what runs. Approved, while an evaluation gate holds a change: Unknown while its release waits, False once it was rejected. CanaryReady, while there is a canary: whether its weight is in force. Exposed, with spec.expose: whether the Gateway leads to the agent. Besides, warnings: Alerting, ModelConfigured, SpendingCounted, StorageShared, ToolsUnused, AnswersSampled, ToolsAsReleased.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// The longest word that can stand in [`labels::RESTARTED_AT`].
const RESTARTED_AT_MAX: usize = 64;

impl Agent {
    /// What keeps the agent from having pods, if something does. An annotation counts before the spec, so that who
    /// does not own the spec can stop an agent and start it.
    pub fn stopped_by(&self) -> Option<&'static str> {
        if self.annotation(labels::ARCHIVED) == Some("true") {
            return Some("the annotation agents.slipway.dev/archived is true");
        }
        match self.annotation(labels::SUSPEND) {
            Some("true") => Some("the annotation agents.slipway.dev/suspend is true"),
            Some("false") => None,
            _ => self.spec.suspend.then_some("spec.suspend is true"),
        }
    }

    pub fn is_archived(&self) -> bool {
        self.annotation(labels::ARCHIVED) == Some("true")
    }

    /// When somebody last asked for new pods: a time, or whatever else tells one restart from the one before.
    pub fn restarted_at(&self) -> Option<&str> {
        let word = self.annotation(labels::RESTARTED_AT)?;
        (!word.is_empty() && word.len() <= RESTARTED_AT_MAX).then_some(word)
    }

    /// The canary that the spec asks for.
    pub fn canary(&self) -> Option<&Canary> {
        self.spec.canary.as_deref().filter(|canary| canary.enabled)
    }

    /// How the canary stood last.
    pub fn canary_status(&self) -> Option<&CanaryStatus> {
        self.status.as_ref()?.canary.as_ref()
    }

    /// What the annotation asks for to become of the canary.
    pub fn canary_action(&self) -> Option<&str> {
        self.annotation(labels::CANARY_ACTION)
    }

    /// Whether Flagger drives the agent's rollouts.
    pub fn is_flaggers(&self) -> bool {
        self.annotation(labels::FLAGGER) == Some("true")
    }

    /// The weight of the annotation, 0 to 100, in the place of the spec's.
    pub fn canary_weight(&self) -> Option<i32> {
        self.annotation(labels::CANARY_WEIGHT)?.parse::<i32>().ok().filter(|weight| (0..=100).contains(weight))
    }

    fn annotation(&self, name: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(name).map(String::as_str)
    }
}

words!(
    /// What an agent was built with.
    Framework { Custom = "custom", Langchain = "langchain", Crewai = "crewai", Autogen = "autogen", Adk = "adk" }
);
words!(
    /// How an agent arrives at an answer.
    Strategy { Simple = "simple", AgentReact = "agent-react", Custom = "custom" }
);
words!(
    /// How an agent is reached.
    Channel { Rest = "rest" }
);
words!(
    /// Who may ask an agent on its port.
    Access { Platform = "platform" }
);
words!(
    /// Where an agent keeps conversations and memories.
    Storage { Memory = "memory", Postgresql = "postgresql" }
);
words!(
    /// Where suggestions come from.
    SuggestionsProvider { Static = "static", Llm = "llm" }
);
words!(
    /// How much harm an agent could do. Medium is another word for standard.
    RiskProfile { Standard = "standard", Low = "low", Medium = "medium", High = "high" }
);
words!(
    /// Something that looks at messages and answers, or at what they cost.
    Guard {
        PiiDetection = "pii-detection",
        SecretsScanner = "secrets-scanner",
        PromptInjection = "prompt-injection",
        BlockedTopics = "blocked-topics",
        MaxTokens = "max-tokens",
        RateLimit = "rate-limit",
        SpendLimit = "spend-limit",
    }
);
words!(
    /// Where an agent is in its life.
    Phase { Pending = "Pending", Running = "Running", Failed = "Failed", Terminated = "Terminated" }
);

/// The Secret that every agent of a team may read, and that need not exist.
pub const AGENT_ENV: &str = "agent-env";

/// The container of an agent's pod that is the agent.
pub const CONTAINER: &str = "agent";

/// The Secret in a team's namespace that completes what ConfigMaps must not hold.
pub const RUNTIME_SECRET: &str = "slipway-runtime";

fn agent_env() -> Vec<String> {
    vec![AGENT_ENV.to_owned()]
}

fn stub_echo() -> String {
    "stub-echo".to_owned()
}

const fn one() -> i32 {
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(suspend: bool, annotations: &[(&str, &str)]) -> Agent {
        let mut agent = Agent::new("helper", AgentSpec { suspend, ..AgentSpec::default() });
        agent.metadata.annotations = Some(annotations.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect());
        agent
    }

    #[test]
    fn annotations_count_before_the_spec_and_nonsense_does_not_count() {
        for (suspend, annotations, stopped) in [
            (false, &[][..], false),
            (true, &[], true),
            (false, &[(labels::SUSPEND, "true")], true),
            (true, &[(labels::SUSPEND, "false")], false),
            (true, &[(labels::SUSPEND, "no")], true),
            (false, &[(labels::SUSPEND, "yes")], false),
            (false, &[(labels::ARCHIVED, "true")], true),
            (false, &[(labels::ARCHIVED, "true"), (labels::SUSPEND, "false")], true),
            (false, &[(labels::ARCHIVED, "false")], false),
        ] {
            assert_eq!(agent(suspend, annotations).stopped_by().is_some(), stopped, "{suspend} {annotations:?}");
        }
    }

    #[test]
    fn a_restart_is_a_word_that_fits_into_the_status() {
        let long = "x".repeat(65);
        for (word, counts) in [("2026-11-21T12:00:00Z", true), ("", false), (&long, false), (&long[..64], true)] {
            assert_eq!(agent(false, &[(labels::RESTARTED_AT, word)]).restarted_at(), counts.then_some(word));
        }
    }

    #[test]
    fn a_weight_is_a_number_up_to_100_and_a_canary_is_one_that_is_enabled() {
        for (word, weight) in
            [("0", Some(0)), ("30", Some(30)), ("100", Some(100)), ("101", None), ("-1", None), ("half", None), ("", None)]
        {
            assert_eq!(agent(false, &[(labels::CANARY_WEIGHT, word)]).canary_weight(), weight, "{word}");
        }
        for (word, is_flaggers) in [("true", true), ("false", false), ("yes", false)] {
            assert_eq!(agent(false, &[(labels::FLAGGER, word)]).is_flaggers(), is_flaggers, "{word}");
        }
        for enabled in [true, false] {
            let mut agent = agent(false, &[]);
            agent.spec.canary = Some(Box::new(Canary { enabled, weight: 5, ..Canary::default() }));
            assert_eq!(agent.canary().is_some(), enabled);
        }
    }
}
