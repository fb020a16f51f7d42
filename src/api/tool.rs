//! `Tool`: something that agents of a namespace may call.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::words::words;
use crate::{headers, schema};

/// A tool that agents of the same namespace may call.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[kube(
    group = "agents.slipway.dev",
    version = "v1",
    kind = "Tool",
    doc = "A tool that agents of the same namespace may call.",
    plural = "tools",
    shortname = "tl",
    category = "slipway",
    namespaced,
    derive = "PartialEq",
    status = "ToolStatus",
    selectable = ".spec.type",
    selectable = ".spec.category",
    printcolumn(name = "Name", type_ = "string", json_path = ".spec.name"),
    printcolumn(name = "Type", type_ = "string", json_path = ".spec.type"),
    printcolumn(name = "Category", type_ = "string", json_path = ".spec.category"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Enabled", type_ = "boolean", json_path = ".spec.enabled", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = kube::core::Rule::new("self.metadata.name.size() <= 63 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')")
        .message("metadata.name: must begin with a lower-case letter and have at most 63 lower-case letters, digits and hyphens"),
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = kube::core::Rule::new("self.type != 'http' || has(self.endpoint)")
        .message("endpoint: is required for a tool of type http"),
    validation = kube::core::Rule::new("self.type != 'cli' || has(self.binary)")
        .message("binary: is required for a tool of type cli"),
    validation = kube::core::Rule::new("self.type != 'mcp' || has(self.mcpEndpoint) || has(self.integration)")
        .message("mcpEndpoint: is required for a tool of type mcp that names no integration"),
    validation = kube::core::Rule::new("self.type == 'http' || (!has(self.endpoint) && !has(self.method))")
        .message("endpoint and method: have an effect only on a tool of type http"),
    validation = kube::core::Rule::new("self.type == 'cli' || (!has(self.binary) && !has(self.allowedCommands))")
        .message("binary and allowedCommands: have an effect only on a tool of type cli"),
    validation = kube::core::Rule::new("!has(self.protocol) || self.type == 'cli'")
        .message("protocol: has an effect only on a tool of type cli"),
    validation = kube::core::Rule::new("!has(self.protocol) || self.protocol != 'mcp' || !has(self.parameters) || self.parameters.size() == 0")
        .message("parameters: a program that speaks mcp names the parameters of its tools itself"),
    validation = kube::core::Rule::new("!has(self.protocol) || self.protocol != 'mcp' || !has(self.allowedCommands) || (self.allowedCommands.size() <= 1 && self.allowedCommands.all(c, !c.matches('[{}]') && !c.matches('(^|\\\\s)([*]|[.]{3})(\\\\s|$)')))")
        .message("allowedCommands: a program that speaks mcp is started once, with at most one entry, which has no placeholders, no * and no ..."),
    validation = kube::core::Rule::new("self.type == 'mcp' || !has(self.mcpEndpoint)")
        .message("mcpEndpoint: has an effect only on a tool of type mcp"),
    validation = kube::core::Rule::new("!has(self.toolsDigest) || self.type == 'mcp' || (has(self.protocol) && self.protocol == 'mcp')")
        .message("toolsDigest: has an effect only on a tool of type mcp, or of type cli whose protocol is mcp"),
    validation = kube::core::Rule::new("self.type in ['http', 'mcp'] || (!has(self.headers) && !has(self.headersFrom))")
        .message("headers and headersFrom: have an effect only on tools of type http and mcp"),
    validation = kube::core::Rule::new("!has(self.endpoint) || sets.contains(has(self.parameters) ? self.parameters.map(q, '{' + q.name + '}') : [], self.endpoint.findAll('[{][^}]*[}]'))")
        .message("endpoint: each placeholder must be declared in parameters under the same name"),
    validation = kube::core::Rule::new("!has(self.integration) || self.type in ['http', 'mcp']")
        .message("integration: has an effect only on tools of type http and mcp"),
    validation = kube::core::Rule::new("!has(self.integration) || !has(self.mcpEndpoint)")
        .message("mcpEndpoint: the integration gives the server; leave one of them out"),
    validation = kube::core::Rule::new("!has(self.integration) || !has(self.endpoint) || self.endpoint.startsWith('/')")
        .message("endpoint: with integration it is the path there, and begins with a slash"),
    validation = kube::core::Rule::new("!has(self.endpoint) || !self.endpoint.startsWith('/') || has(self.integration)")
        .message("endpoint: must begin with http:// or https://; a path alone takes an integration, which gives the server"),
)]
pub struct ToolSpec {
    /// The name by which the model calls the tool.
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[A-Za-z0-9_-]+$"))]
    pub name: String,

    /// http calls a URL, cli runs a program, mcp speaks to a Model Context Protocol server, builtin comes with the runtime.
    #[serde(rename = "type")]
    pub type_: ToolType,

    /// A heading to file the tool under. Default general.
    #[serde(default = "general")]
    #[schemars(length(min = 1, max = 63))]
    pub category: String,

    /// What the tool does and when to use it; the model reads this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub description: Option<String>,

    /// The URL of an http tool, or the path within its integration, as in /api/v1/query. A {placeholder} in path, query or fragment is filled from the parameter of that name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 2048), regex(pattern = r"^(https?://[^/?#{}@\s]+([/?#][^\s]*)?|/[^\s]*)$"))]
    #[x_kube(validation = kube::core::Rule::new("self.matches('^[^{}]*([{][^{}]+[}][^{}]*)*$')")
        .message("must close every placeholder, as in https://api.example.com/weather/{city}"))]
    pub endpoint: Option<String>,

    /// The method of an http tool. Without it, GET.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<Method>,

    /// Headers sent with every call of an http or mcp tool. Secret values belong into headersFrom.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(length(max = 32), schema_with = "headers::map")]
    #[x_kube(
        validation = headers::no_known_credentials()
            .message("must not hold credentials; name a Secret for this header in headersFrom"),
        validation = headers::no_named_credentials()
            .message("must not hold credentials, and a header of such a name holds one (token, secret, key, password, credential); put the value into a Secret and name it in headersFrom"),
        validation = headers::well_formed(),
        validation = kube::core::Rule::new("self.map(k, bytes(self[k]).size()).sum() <= 122880")
            .message("must have at most 120 KiB (122880 bytes) together, the most that reaches an agent"),
    )]
    pub headers: BTreeMap<String, String>,

    /// Headers whose values come from Secrets of the same namespace. These need the label agents.slipway.dev/agent-readable=true.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Map(vec!["name".into()]))]
    pub headers_from: Vec<SecretHeader>,

    /// What the model may pass to the tool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(
        merge_strategy = kube::core::ListMerge::Map(vec!["name".into()]),
        validation = kube::core::Rule::new("self.map(p, has(p.description) ? bytes(p.description).size() : 0).sum() <= 122880")
            .message("must have at most 120 KiB (122880 bytes) together, the most that reaches an agent"),
    )]
    pub parameters: Vec<Parameter>,

    /// The program of a cli tool, as an absolute path within the agent's image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2, max = 512), regex(pattern = r"^/[^\s]+$"))]
    pub binary: Option<String>,

    /// The arguments that a cli tool may be run with. Nothing else is run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128), inner(length(min = 1, max = 512)))]
    #[x_kube(validation = kube::core::Rule::new("self.map(c, bytes(c).size()).sum() <= 122880")
        .message("must have at most 120 KiB (122880 bytes) together, the most that reaches an agent"))]
    pub allowed_commands: Option<Vec<String>>,

    /// How a cli tool's program is spoken to. arguments runs it anew for each call, with the arguments of an allowed
    /// command; mcp starts it once, with the one allowed command or without arguments, and speaks the Model Context
    /// Protocol over its input and output. Without it, arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,

    /// The URL of an mcp tool's server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 2048), regex(pattern = r"^https?://[^/?#{}@\s]+([/?#][^{}\s]*)?$"))]
    pub mcp_endpoint: Option<String>,

    /// An Integration of the same namespace, by name or by id (in_...), that gives an http or mcp tool the server and the login there. endpoint is then the path within it, and an mcp tool has no mcpEndpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 66), regex(pattern = r"^[a-z]([-_a-z0-9]*[a-z0-9])?$"))]
    pub integration: Option<String>,

    /// The digest of the one list of tools that agents take from a server that speaks mcp. Without it, the list that
    /// was seen first is approved, and stands in status.toolsDigest. When the server offers another, the phase is Error;
    /// write status.observedDigest here to approve it, which restarts the agents that name this tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 71), regex(pattern = r"^sha256:[0-9a-f]{64}$"))]
    pub tools_digest: Option<String>,

    /// How long a call may take, in seconds. Default 30.
    #[serde(default = "thirty")]
    #[schemars(range(min = 1, max = 3600))]
    pub timeout: i32,

    /// False takes the tool away from all agents without deleting it. Default true.
    #[serde(default = "yes")]
    pub enabled: bool,
}

impl ToolSpec {
    /// Whether its integration has yet to give it the server.
    pub fn lacks_server(&self) -> bool {
        let has_url = self.mcp_endpoint.is_some() || self.endpoint.as_ref().is_some_and(|endpoint| !endpoint.starts_with('/'));
        self.integration.is_some() && !has_url
    }

    /// Whether it stands for a server that speaks mcp.
    pub fn speaks_mcp(&self) -> bool {
        self.type_ == ToolType::Mcp || (self.type_ == ToolType::Cli && self.protocol == Some(Protocol::Mcp))
    }

    /// The server that offers this tool's tools, if it stands for one that speaks mcp: its URL or its command line.
    pub fn server(&self) -> Option<String> {
        match self.type_ {
            ToolType::Mcp => self.mcp_endpoint.clone(),
            ToolType::Cli if self.protocol == Some(Protocol::Mcp) => {
                let words = self.binary.iter().chain(self.allowed_commands.iter().flatten());
                Some(words.map(String::as_str).collect::<Vec<_>>().join(" "))
            }
            _ => None,
        }
    }
}

/// A header with a secret value.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = kube::core::Rule::new("!has(self.usernameKey) || (has(self.scheme) && self.scheme == 'basic')")
        .message("usernameKey: has an effect only with scheme basic"),
    validation = kube::core::Rule::new("!has(self.scheme) || self.scheme != 'basic' || has(self.usernameKey)")
        .message("usernameKey: is required with scheme basic"),
)]
pub struct SecretHeader {
    /// The header, for example Authorization.
    #[schemars(length(min = 1, max = 128), regex(pattern = r"^[A-Za-z0-9-]+$"))]
    pub name: String,
    /// The Secret.
    #[schemars(length(min = 1, max = 253))]
    pub secret: String,
    /// The key within the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
    /// How the header is made of the value: bearer puts the word Bearer before it, basic makes it of usernameKey and key. Left out: the value as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheme: Option<HeaderScheme>,
    /// The key with the user's name within the Secret, with scheme basic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub username_key: Option<String>,
}

words!(
    /// How the value of a header is made.
    HeaderScheme { Bearer = "bearer", Basic = "basic" }
);

/// One argument of a tool.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, JsonSchema)]
pub struct Parameter {
    /// The argument's name.
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[A-Za-z_][A-Za-z0-9_-]*$"))]
    pub name: String,
    /// The argument's type.
    #[serde(rename = "type")]
    pub type_: ParameterType,
    /// What the argument means; the model reads this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub description: Option<String>,
    /// Whether the model must pass it. Default false.
    #[serde(default)]
    pub required: bool,
}

/// What a tool is.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ToolType {
    Http,
    Cli,
    Mcp,
    Builtin,
}

/// How a program is spoken to.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    Arguments,
    Mcp,
}

/// The type of an argument.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ParameterType {
    String,
    Integer,
    Number,
    Boolean,
}

/// The method of an HTTP request.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Method {
    Get,
    Head,
    Post,
    Put,
    Patch,
    Delete,
}

/// Whether the tool can be used.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolStatus {
    /// Available: agents can use it. Error: they cannot, and Ready says why. Unknown: nobody can say yet, as of an mcp server that no agent has reached. Disabled: spec.enabled is false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<ToolPhase>,
    /// The digest of the approved list of tools, of a tool that speaks mcp: spec.toolsDigest, else of the first that was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools_digest: Option<String>,
    /// The server whose list that is; another one has a list of its own to be seen first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools_server: Option<String>,
    /// The digest of the list that the server offers now, when it is not the approved one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_digest: Option<String>,
    /// The generation of the spec that this status speaks of.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready, with a reason, and a message that names the field at fault.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// Whether a tool can be used.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, JsonSchema)]
pub enum ToolPhase {
    Available,
    Error,
    Unknown,
    Disabled,
}

fn general() -> String {
    "general".to_owned()
}

const fn thirty() -> i32 {
    30
}

const fn yes() -> bool {
    true
}
