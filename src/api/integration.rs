//! `Integration`: a server outside of the platform, with the login there, that a team's sources, tools, models and alerts may name.
//!
//! `types` is the table of the types: which login each takes, and what may name it. `merge` is what an integration gives to what
//! names it. Whether the server answers, the operator asks through the team's worker, which holds no login.

mod merge;
#[cfg(test)]
mod tests;
mod types;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use url::Url;

use crate::guardrail_policy::Severity;
use crate::words::words;
use crate::{headers, ids, labels, schema};

pub use merge::{ANOTHER_HOST, INVALID, MergeFault, Merged, ModelEndpoint, NO_LOGIN, NOT_SEEN};
pub use types::{CredentialField, TYPES, TypeInfo, Use};

/// What the names of Secrets begin with that REST writes for integrations.
pub const SECRET_PREFIX: &str = "in-";
/// The longest name: that of its Secret is longer, and has 63 characters at most.
pub const NAME_MAX: usize = 60;
/// How many bytes all of its Secret may have that reaches a server.
pub const CREDENTIALS_BYTES_MAX: usize = 64 * 1024;
/// The last test's id where nobody asked: the integration or its Secret was another one, or the time had come.
pub const BY_CHANGE: &str = "change";
pub const BY_INTERVAL: &str = "interval";
/// The longest origin that a status has room for.
pub const ORIGIN_BYTES_MAX: usize = 1024;
/// How many bytes the annotation may have that asks for a test.
pub const TEST_ID_MAX: usize = 64;

/// Where a type's server is that its spec does not name.
const GOOGLE: &str = "https://www.googleapis.com";
const OPENAI: &str = "https://api.openai.com/v1";
const ANTHROPIC: &str = "https://api.anthropic.com";

/// A server that sources, tools, models and alerts of the same namespace may name, with the login there.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[kube(
    group = "agents.slipway.dev",
    version = "v1",
    kind = "Integration",
    doc = "A server that sources, tools, models and alerts of the same namespace may name, with the login there.",
    plural = "integrations",
    shortname = "ig",
    category = "slipway",
    namespaced,
    derive = "PartialEq",
    status = "IntegrationStatus",
    printcolumn(name = "Name", type_ = "string", json_path = ".spec.name", priority = 1),
    printcolumn(name = "Type", type_ = "string", json_path = ".status.type"),
    printcolumn(name = "Status", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Latency-ms", type_ = "integer", json_path = ".status.lastTest.latencyMs"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].reason"),
    printcolumn(name = "Tested", type_ = "date", json_path = ".status.lastTest.at", priority = 1),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].message", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = kube::core::Rule::new("self.metadata.name.size() <= 60 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')")
        .message("metadata.name: must begin with a lower-case letter and have at most 60 lower-case letters, digits and hyphens; its Secret is named in-<name>"),
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = kube::core::Rule::new("[has(self.local), has(self.googleDrive), has(self.s3), has(self.confluence), has(self.jira), has(self.databricks), has(self.mlflow), has(self.prometheus), has(self.webhook), has(self.slack), has(self.openai), has(self.anthropic), has(self.mcp)].filter(is, is).size() == 1")
        .message("exactly one of local, googleDrive, s3, confluence, jira, databricks, mlflow, prometheus, webhook, slack, openai, anthropic and mcp is required"),
    validation = kube::core::Rule::new("has(self.local) == has(oldSelf.local) && has(self.googleDrive) == has(oldSelf.googleDrive) && has(self.s3) == has(oldSelf.s3) && has(self.confluence) == has(oldSelf.confluence) && has(self.jira) == has(oldSelf.jira) && has(self.databricks) == has(oldSelf.databricks) && has(self.mlflow) == has(oldSelf.mlflow) && has(self.prometheus) == has(oldSelf.prometheus) && has(self.webhook) == has(oldSelf.webhook) && has(self.slack) == has(oldSelf.slack) && has(self.openai) == has(oldSelf.openai) && has(self.anthropic) == has(oldSelf.anthropic) && has(self.mcp) == has(oldSelf.mcp)")
        .message("an integration keeps its type; make another one"),
    validation = kube::core::Rule::new("!has(self.local) || !has(self.credentialsSecret)").message("credentialsSecret: local has none"),
    validation = kube::core::Rule::new("!has(self.alerts) || has(self.webhook) || has(self.slack)")
        .message("alerts: are delivered by webhook and slack alone"),
)]
pub struct IntegrationSpec {
    /// Display name, shown to people.
    #[schemars(length(min = 1, max = 128))]
    pub name: String,
    /// What it is for. At most 1024 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    #[x_kube(validation = kube::core::Rule::new("bytes(self).size() <= 1024").message("must have at most 1024 bytes"))]
    pub description: Option<String>,
    /// The Secret with the login: in-<the integration's own name>, or one labelled agents.slipway.dev/agent-readable=true. docs/integrations.md says which keys each type looks for. Default in-<name>, where the type has a login.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub credentials_secret: Option<String>,
    /// Which alerts of the team's agents are sent there. Left out: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alerts: Option<AlertSubscription>,
    /// Files on the volume that the Team names in spec.knowledgeVolume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<LocalIntegration>,
    /// Google Drive, with a service account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub google_drive: Option<GoogleDriveIntegration>,
    /// S3, or a server that speaks its protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub s3: Option<S3Integration>,
    /// A site of Confluence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confluence: Option<SiteIntegration>,
    /// A site of Jira.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jira: Option<SiteIntegration>,
    /// A workspace of Databricks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub databricks: Option<DatabricksIntegration>,
    /// An MLflow tracking server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mlflow: Option<ServerIntegration>,
    /// A Prometheus server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prometheus: Option<ServerIntegration>,
    /// A server that takes signed messages (Standard Webhooks).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<WebhookIntegration>,
    /// An incoming webhook of Slack, or of a server that takes the same messages. Its URL is a credential.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slack: Option<SlackIntegration>,
    /// A server that speaks OpenAI's chat completions protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub openai: Option<ModelIntegration>,
    /// Anthropic, or a server that speaks its protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anthropic: Option<ModelIntegration>,
    /// A server that speaks the Model Context Protocol over streamable HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mcp: Option<McpIntegration>,
}

/// Which alerts are sent. What is left out asks for all.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AlertSubscription {
    /// Only these severities. Default both.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub severities: Vec<Severity>,
    /// Only these agents, by name. Default all of the team.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50), inner(length(min = 1, max = 52)))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub agents: Vec<String>,
    /// Only alerts about these, by the metric that docs/alerts.md has. Default all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 63), regex(pattern = r"^[a-z][a-z0-9_]*$")))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub metrics: Vec<String>,
    /// Whether the end of an alert is sent, too. Default true.
    #[serde(default = "yes")]
    pub resolved: bool,
}

/// Files on the team's volume.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalIntegration {
    /// A folder within the volume, beneath which sources read. Default all of it. At most 1024 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    #[x_kube(
        validation = kube::core::Rule::new("!self.matches('(^|/)[.][.](/|$)')").message("must be within the volume: no part of it is .."),
        validation = kube::core::Rule::new("bytes(self).size() <= 1024").message("must have at most 1024 bytes"),
    )]
    pub path: Option<String>,
}

/// Google's APIs.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct GoogleDriveIntegration {
    /// A private endpoint of Google's APIs. Default https://www.googleapis.com.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024), regex(pattern = r"^https?://[^/?#@\s]+/?$"))]
    pub endpoint: Option<String>,
}

/// An object store.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct S3Integration {
    /// The server's URL, if it is not Amazon's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024), regex(pattern = r"^https?://[^/?#@\s]+/?$"))]
    pub endpoint: Option<String>,
    /// The region. Default us-east-1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[a-z0-9-]+$"))]
    pub region: Option<String>,
    /// The bucket that a test lists. Left out: a test lists the buckets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 3, max = 63), regex(pattern = r"^[a-z0-9][a-z0-9.-]*[a-z0-9]$"))]
    pub bucket: Option<String>,
}

/// A site of Atlassian's.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct SiteIntegration {
    /// The site's URL, for example https://company.atlassian.net, without /wiki.
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"^https?://[^/?#@\s]+(/[^?#\s]*)?$"))]
    pub base_url: String,
}

/// A workspace of Databricks.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct DatabricksIntegration {
    /// The workspace's host or URL, for example https://dbc-1234.cloud.databricks.com.
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"^(https?://)?[^/?#@\s]+/?$"))]
    pub host: String,
    /// The SQL warehouse that reads tables, of sources that name none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[A-Za-z0-9]+$"))]
    pub warehouse_id: Option<String>,
}

/// A server at a URL.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServerIntegration {
    /// The server's URL, without user and password.
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"^https?://[^/?#{}@\s]+(/[^?#{}\s]*)?$"))]
    pub url: String,
}

/// A server that speaks the Model Context Protocol.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct McpIntegration {
    /// The server's URL, without user and password.
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"^https?://[^/?#{}@\s]+([/?][^#{}\s]*)?$"))]
    pub url: String,
    /// The header that carries the token of the Secret as it is, for example X-Api-Key. Default Authorization, with the word Bearer before the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128), regex(pattern = r"^[A-Za-z0-9-]+$"))]
    pub header: Option<String>,
}

/// A receiver of signed messages.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct WebhookIntegration {
    /// The URL that messages are posted to, without user and password.
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"^https?://[^/?#{}@\s]+([/?][^#{}\s]*)?$"))]
    pub url: String,
    /// Headers sent with every message. Secret values belong into the Secret.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(length(max = 32), schema_with = "headers::map")]
    #[x_kube(
        validation = headers::no_known_credentials()
            .message("must not hold credentials; put the value into the Secret of the integration"),
        validation = headers::no_named_credentials()
            .message("must not hold credentials, and a header of such a name holds one (token, secret, key, password, credential); put the value into the Secret of the integration"),
        validation = headers::well_formed(),
        validation = kube::core::Rule::new("self.map(k, bytes(self[k]).size()).sum() <= 16384")
            .message("must have at most 16 KiB (16384 bytes) together"),
    )]
    pub headers: BTreeMap<String, String>,
}

/// An incoming webhook of Slack.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct SlackIntegration {
    /// By what name messages are posted, where the server lets that be said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 80))]
    pub username: Option<String>,
    /// The channel, where the server lets that be said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 80))]
    pub channel: Option<String>,
}

/// A server of models.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelIntegration {
    /// The base URL. Default the provider's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"^https?://[^/?#{}@\s]+(/[^?#{}\s]*)?$"))]
    pub base_url: Option<String>,
    /// A model that a test asks where the server lists none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub model: Option<String>,
}

/// How an integration stands.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IntegrationStatus {
    /// Connected: the last test of it as it is reached the server. Error: it did not. Disconnected: it was not tested as it is, or its login is not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<IntegrationPhase>,
    /// The type, as the REST API spells it.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<IntegrationType>,
    /// The id in the REST API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub id: Option<String>,
    /// The keys that the Secret has.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(max = 253)))]
    pub credential_keys: Vec<String>,
    /// A keyed hash of the Secret, while that is in-<name>.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub credentials: Option<String>,
    /// Scheme, host and port that this Secret is for: by its annotation agents.slipway.dev/origin, or as it was first seen. It is sent nowhere else: who changes the host writes the Secret anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub origin: Option<String>,
    /// The last test.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Option::is_none")]
    pub last_test: Option<IntegrationTest>,
    /// The delivery of alerts. Only where some are asked for.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Option::is_none")]
    pub delivery: Option<DeliveryStatus>,
    /// The generation of the spec that this status speaks of.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready: the server was reached. Delivering: alerts reach it.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

words!(
    /// Whether an integration's server was reached.
    IntegrationPhase { Disconnected = "Disconnected", Connected = "Connected", Error = "Error" }
);
words!(
    /// What an integration is.
    #[derive(PartialOrd, Ord, Hash)]
    IntegrationType {
        Local = "local", GoogleDrive = "google-drive", S3 = "s3", Confluence = "confluence", Jira = "jira", Databricks = "databricks",
        Mlflow = "mlflow", Prometheus = "prometheus", Webhook = "webhook", Slack = "slack", Openai = "openai", Anthropic = "anthropic",
        Mcp = "mcp",
    }
);

/// A test of an integration.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IntegrationTest {
    /// Who asked: the annotation agents.slipway.dev/test, or change, or interval.
    #[schemars(length(max = 64))]
    pub id: String,
    /// What was tested, as a hash.
    #[schemars(length(max = 64))]
    pub digest: String,
    /// Whether the server was reached, and took the login.
    pub succeeded: bool,
    /// Connected, or why not, in one word.
    #[schemars(length(max = 64))]
    pub reason: String,
    /// The same in a sentence.
    #[schemars(length(max = 1024))]
    pub message: String,
    /// How long the server took to answer, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub latency_ms: Option<i64>,
    /// When it ended.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Option::is_none")]
    pub at: Option<Time>,
}

/// Alerts that are on their way.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeliveryStatus {
    /// How many wait, in steps: 0, 1, 10, 100, 1000.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub waiting: i64,
    /// Since when none has arrived, if the last one did not.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Option::is_none")]
    pub failing_since: Option<Time>,
    /// What the receiver said last, while it takes none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub last_error: Option<String>,
}

impl IntegrationSpec {
    /// The type, if exactly one of its parts is there.
    pub fn kind(&self) -> Option<IntegrationType> {
        use IntegrationType as Type;
        // Taken apart without `..`, so that a new type cannot be forgotten.
        let Self {
            name: _,
            description: _,
            credentials_secret: _,
            alerts: _,
            local,
            google_drive,
            s3,
            confluence,
            jira,
            databricks,
            mlflow,
            prometheus,
            webhook,
            slack,
            openai,
            anthropic,
            mcp,
        } = self;
        let parts = [
            (local.is_some(), Type::Local),
            (google_drive.is_some(), Type::GoogleDrive),
            (s3.is_some(), Type::S3),
            (confluence.is_some(), Type::Confluence),
            (jira.is_some(), Type::Jira),
            (databricks.is_some(), Type::Databricks),
            (mlflow.is_some(), Type::Mlflow),
            (prometheus.is_some(), Type::Prometheus),
            (webhook.is_some(), Type::Webhook),
            (slack.is_some(), Type::Slack),
            (openai.is_some(), Type::Openai),
            (anthropic.is_some(), Type::Anthropic),
            (mcp.is_some(), Type::Mcp),
        ];
        let mut there = parts.into_iter().filter_map(|(is, kind)| is.then_some(kind));
        there.next().filter(|_| there.next().is_none())
    }

    /// The Secret with the login, of an integration of this name. None of a type without one.
    pub fn secret(&self, name: &str) -> Option<String> {
        let has_login = self.kind().is_some_and(|kind| !kind.info().credentials.is_empty());
        has_login.then(|| self.credentials_secret.clone().unwrap_or_else(|| secret_name(name)))
    }

    /// The part of its type, as JSON in the resource's spelling: what the worker is sent.
    pub fn config(&self) -> Value {
        let part = |kind: IntegrationType| serde_json::to_value(self).ok()?.get_mut(kind.field()).map(Value::take);
        self.kind().and_then(part).unwrap_or_default()
    }

    /// The server's URL, where the spec or the type's default says it. None of local, and of slack, whose URL is a credential.
    pub fn server(&self) -> Option<String> {
        let or = |given: Option<&str>, default: &str| Some(given.unwrap_or(default).to_owned());
        match self.kind()? {
            IntegrationType::Local | IntegrationType::Slack => None,
            IntegrationType::GoogleDrive => or(self.google_drive.as_ref()?.endpoint.as_deref(), GOOGLE),
            IntegrationType::S3 => self.s3.as_ref().map(S3Integration::server),
            IntegrationType::Confluence => Some(self.confluence.as_ref()?.base_url.clone()),
            IntegrationType::Jira => Some(self.jira.as_ref()?.base_url.clone()),
            IntegrationType::Databricks => self.databricks.as_ref().map(DatabricksIntegration::server),
            IntegrationType::Mlflow => Some(self.mlflow.as_ref()?.url.clone()),
            IntegrationType::Prometheus => Some(self.prometheus.as_ref()?.url.clone()),
            IntegrationType::Webhook => Some(self.webhook.as_ref()?.url.clone()),
            IntegrationType::Openai => or(self.openai.as_ref()?.base_url.as_deref(), OPENAI),
            IntegrationType::Anthropic => or(self.anthropic.as_ref()?.base_url.as_deref(), ANTHROPIC),
            IntegrationType::Mcp => Some(self.mcp.as_ref()?.url.clone()),
        }
    }

    /// Scheme, host and port that the login is sent to. Two spellings of one are the same.
    pub fn origin(&self) -> Option<String> {
        origin_of(&self.server()?)
    }

    /// What a test depends on: all but what is for people, and for alerts.
    #[must_use]
    pub fn tested(&self) -> Self {
        Self { name: String::new(), description: None, alerts: None, ..self.clone() }
    }
}

impl S3Integration {
    /// The server's URL, or that of Amazon's in the region.
    fn server(&self) -> String {
        let amazon = || format!("https://s3.{}.amazonaws.com", self.region.as_deref().unwrap_or("us-east-1"));
        self.endpoint.clone().unwrap_or_else(amazon)
    }
}

impl DatabricksIntegration {
    /// The workspace's URL.
    fn server(&self) -> String {
        if self.host.contains("://") { self.host.clone() } else { format!("https://{}", self.host) }
    }
}

impl AlertSubscription {
    /// Whether an alert of this agent is sent.
    pub fn takes(&self, severity: Severity, agent: &str, metric: &str) -> bool {
        let is_asked = |list: &[String], one: &str| list.is_empty() || list.iter().any(|name| name == one);
        (self.severities.is_empty() || self.severities.contains(&severity))
            && is_asked(&self.agents, agent)
            && is_asked(&self.metrics, metric)
    }
}

impl Default for AlertSubscription {
    fn default() -> Self {
        Self { severities: Vec::new(), agents: Vec::new(), metrics: Vec::new(), resolved: true }
    }
}

impl Integration {
    /// What somebody asked a test with: [`crate::labels::TEST`].
    pub fn asked_test(&self) -> Option<&str> {
        let word = self.metadata.annotations.as_ref()?.get(labels::TEST)?;
        (!word.is_empty() && word.len() <= TEST_ID_MAX).then_some(word)
    }

    /// Its id in the REST API.
    pub fn id(&self) -> String {
        ids::integration(self.metadata.name.as_deref().unwrap_or_default())
    }
}

/// The host that the login in a Secret was given for, where the Secret's annotations say so. A text that is no URL is no host's.
pub fn given_for(annotations: &BTreeMap<String, String>) -> Option<String> {
    let text = annotations.get(labels::ORIGIN)?;
    let mut origin = origin_of(text).unwrap_or_else(|| text.clone());
    origin.truncate(origin.floor_char_boundary(ORIGIN_BYTES_MAX));
    Some(origin)
}

/// Scheme, host and port of a URL.
pub fn origin_of(url: &str) -> Option<String> {
    Some(Url::parse(url).ok()?.origin().ascii_serialization())
}

/// The Secret that belongs to an integration of this name.
pub fn secret_name(name: &str) -> String {
    format!("{SECRET_PREFIX}{name}")
}

const fn yes() -> bool {
    true
}
