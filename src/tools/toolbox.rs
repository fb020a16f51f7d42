//! All tools of one agent, by the names under which the model calls them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use serde_json::{Map, Value};
use slipway_api::contract::ToolConfig;
use slipway_api::contract::tools::PROTOCOL_HEADERS;
use slipway_api::tool::{Protocol, ToolType};
use tokio::time::Instant;
use url::Url;

use crate::arguments::decode;
use crate::builtin::{self, BuiltinTool};
use crate::cli::{CliTool, executable, server};
use crate::clip::{clip, line};
use crate::config_error::ConfigError;
use crate::http::HttpTool;
use crate::http::headers::HeaderSource;
use crate::mcp::{ApprovedList, Endpoint, MAX_NAME_BYTES, McpConfig, McpServer, ReservedNames, ToolListChanges, prefix};
use crate::outcome::{Builtins, Context, Spec, ToolOutcome};
use crate::settings::ToolSettings;
use slipway_egress::{Egress, redacted};

/// The time beyond the deadline in which a program is killed and cleaned up.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(2);

/// An MCP server on the standard input and output of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    pub name: String,
    pub binary: PathBuf,
    pub arguments: Vec<String>,
    pub timeout: Duration,
}

pub struct Toolbox {
    tools: BTreeMap<String, Tool>,
    servers: Vec<McpServer>,
    limit: usize,
}

struct Tool {
    spec: Spec,
    timeout: Duration,
    kind: ToolKind,
}

enum ToolKind {
    Http(Box<HttpTool>),
    Cli(CliTool),
    Builtin(BuiltinTool),
}

impl Toolbox {
    /// Checks every configuration without connecting. `variables` resolves the secrets of `headersFrom`.
    pub fn open(
        configs: Vec<ToolConfig>,
        builtin: Builtins,
        settings: ToolSettings,
        variables: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, Vec<ConfigError>> {
        Self::open_with_programs(configs, Vec::new(), builtin, settings, variables)
    }

    /// As `open`, with further MCP servers that are programs.
    #[expect(clippy::needless_pass_by_value, reason = "a toolbox is what becomes of them")]
    pub fn open_with_programs(
        configs: Vec<ToolConfig>,
        programs: Vec<Program>,
        builtin: Builtins,
        settings: ToolSettings,
        variables: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, Vec<ConfigError>> {
        let egress = settings.egress();
        let mut builder = ToolboxBuilder { egress, settings: &settings, variables, external: BTreeMap::new(), errors: Vec::new() };
        for tool in builtin {
            builder.external.insert(tool.spec().name, BuiltinTool::External(tool));
        }
        let mut seen = BTreeSet::new();
        for name in configs.iter().map(|config| &config.name).chain(programs.iter().map(|program| &program.name)) {
            if !seen.insert(name.clone()) {
                builder.errors.push(ConfigError::new(
                    name,
                    "name",
                    "is taken by another tool of this agent; the model could not tell them apart",
                ));
            } else if name.is_empty()
                || name.len() > MAX_NAME_BYTES
                || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
            {
                builder.errors.push(ConfigError::new(name, "name", "must have 1 to 64 letters, digits, - and _"));
            }
        }
        let mut tools = BTreeMap::new();
        let mut servers = Vec::new();
        let server = |name: &str, endpoint: Endpoint, timeout: Duration, pinned: Option<&String>| {
            let approved = match (pinned.or_else(|| settings.approved.as_ref()?.get(name)), &settings.approved) {
                (Some(digest), _) => ApprovedList::Digest(digest.clone()),
                (None, Some(_)) => ApprovedList::First,
                (None, None) => ApprovedList::Any,
            };
            McpConfig { name: name.to_owned(), endpoint, timeout, approved }
        };
        for config in &configs {
            let timeout = Duration::from_secs(u64::try_from(config.timeout).unwrap_or_default().clamp(1, 3600));
            if config.type_ == ToolType::Mcp {
                servers
                    .extend(builder.remote(config).map(|endpoint| server(&config.name, endpoint, timeout, config.tools_digest.as_ref())));
            } else if config.type_ == ToolType::Cli && config.protocol == Some(Protocol::Mcp) {
                servers
                    .extend(builder.program(config).map(|endpoint| server(&config.name, endpoint, timeout, config.tools_digest.as_ref())));
            } else if let Some((kind, spec)) = builder.tool(config) {
                let spec = Spec { name: config.name.clone(), description: config.description.clone().unwrap_or(spec.description), ..spec };
                tools.insert(config.name.clone(), Tool { spec, timeout, kind });
            }
        }
        for program in programs {
            match executable(&program.binary) {
                Ok(()) => {
                    let endpoint = Endpoint::Program { binary: program.binary, arguments: program.arguments };
                    servers.push(server(&program.name, endpoint, program.timeout, None));
                }
                Err(fault) => builder.errors.push(ConfigError::new(&program.name, "binary", fault)),
            }
        }
        for name in builder.external.keys().filter(|name| seen.contains(*name)) {
            builder.errors.push(ConfigError::new(
                name,
                "name",
                "belongs to a builtin of the runtime; only a tool of type builtin can have it",
            ));
        }
        if !builder.errors.is_empty() {
            return Err(builder.errors);
        }
        for (name, kind) in builder.external {
            tools.insert(name, Tool { spec: kind.spec(), timeout: builtin::BUILTIN_TIMEOUT, kind: ToolKind::Builtin(kind) });
        }
        let reserved =
            ReservedNames { names: tools.keys().cloned().collect(), prefixes: servers.iter().map(|server| prefix(&server.name)).collect() };
        let server = |config: McpConfig| McpServer::new(config, settings.output_limit, reserved.clone());
        Ok(Self { servers: servers.into_iter().map(server).collect(), tools, limit: settings.output_limit })
    }

    /// The tools for the model. Servers that are down are left out and retried later.
    pub fn specs(&self) -> BoxFuture<'_, Vec<Spec>> {
        self.offered().boxed()
    }

    async fn offered(&self) -> Vec<Spec> {
        let offered = join_all(self.servers.iter().map(McpServer::offered)).await;
        let remote = offered.iter().flat_map(|offered| offered.iter()).map(|offered| offered.spec.clone());
        self.tools.values().map(|tool| tool.spec.clone()).chain(remote).collect()
    }

    /// Drops the connections of all MCP servers, so that their tools are listed again on next use.
    pub async fn refresh(&self) {
        join_all(self.servers.iter().map(McpServer::reset)).await;
    }

    /// The kind of a tool, for spans: `http`, `cli`, `builtin`, or `mcp` for all tools of servers.
    pub fn kind(&self, name: &str) -> &'static str {
        match self.tools.get(name).map(|tool| &tool.kind) {
            Some(ToolKind::Http(_)) => "http",
            Some(ToolKind::Cli(_)) => "cli",
            Some(ToolKind::Builtin(_)) => "builtin",
            None => "mcp",
        }
    }

    /// The Tool that a call belongs to: itself, or its MCP server. None if there is no such tool.
    pub async fn origin<'a>(&'a self, call: &'a str) -> Option<&'a str> {
        if self.tools.contains_key(call) {
            return Some(call);
        }
        for server in self.servers.iter().filter(|server| call.starts_with(&prefix(&server.name)) || call.len() == MAX_NAME_BYTES) {
            if server.offered().await.iter().any(|offered| offered.spec.name == call) {
                return Some(&server.name);
            }
        }
        None
    }

    /// The MCP servers that a call may belong to by its name, whether they are up or not. Empty for tools of another kind.
    pub fn possible_servers(&self, call: &str) -> Vec<&str> {
        if self.tools.contains_key(call) {
            return Vec::new();
        }
        let servers = self.servers.iter().filter(|server| call.starts_with(&prefix(&server.name)) || call.len() == MAX_NAME_BYTES);
        servers.map(|server| server.name.as_str()).collect()
    }

    /// Whether a call of the tool changes nothing: http tools by their method, tools of MCP servers as these say; programs may
    /// always change something. None if there is no such tool.
    pub async fn only_reads(&self, call: &str) -> Option<bool> {
        match self.tools.get(call).map(|tool| &tool.kind) {
            Some(ToolKind::Http(http)) => Some(http.only_reads()),
            Some(ToolKind::Builtin(builtin)) => Some(builtin.only_reads()),
            Some(ToolKind::Cli(_)) => Some(false),
            None => {
                for server in self.servers.iter().filter(|server| call.starts_with(&prefix(&server.name)) || call.len() == MAX_NAME_BYTES) {
                    if let Some(tool) = server.offered().await.iter().find(|offered| offered.spec.name == call) {
                        return Some(tool.only_reads);
                    }
                }
                None
            }
        }
    }

    /// The digest of the last list of each MCP server that has been reached, by tool (threat 14).
    pub fn digests(&self) -> BTreeMap<String, String> {
        self.servers.iter().filter_map(|server| Some((server.name.clone(), server.digest()?))).collect()
    }

    /// The changes of each MCP server whose list differs from the approved one, by tool.
    pub fn changes(&self) -> BTreeMap<String, ToolListChanges> {
        self.servers.iter().filter_map(|server| Some((server.name.clone(), server.changes()?))).collect()
    }

    /// Boxed, like `specs`, so that the futures of all tools are compiled in this crate only.
    pub fn call<'a>(&'a self, call: &'a str, arguments: Value, context: &'a Context) -> BoxFuture<'a, ToolOutcome> {
        self.answer(call, arguments, context).boxed()
    }

    async fn answer(&self, call: &str, arguments: Value, context: &Context) -> ToolOutcome {
        if let Some(tool) = self.tools.get(call) {
            return match decode(&tool.spec.schema, arguments) {
                Ok(arguments) => self.run(call, tool, arguments, context).await,
                Err(faults) => ToolOutcome::error(format!("{call} was not called: {faults}")),
            };
        }
        // Connecting counts towards the deadline of the call.
        for server in self.servers.iter().filter(|server| call.starts_with(&prefix(&server.name)) || call.len() == MAX_NAME_BYTES) {
            let until = call_deadline(server.timeout, context);
            let attempt = async {
                let offered = server.offered().await;
                let tool = offered.iter().find(|offered| offered.spec.name == call)?;
                Some(match decode(&tool.spec.schema, arguments.clone()) {
                    Ok(arguments) => server.call(&tool.remote, arguments, context).await,
                    Err(faults) => ToolOutcome::error(format!("{call} was not called: {faults}")),
                })
            };
            match with_deadline(call, until, context, attempt).await {
                Ok(Some(outcome)) | Err(outcome) => return outcome,
                Ok(None) => {}
            }
        }
        let known = self.specs().await.into_iter().map(|spec| spec.name).collect::<Vec<_>>().join(", ");
        ToolOutcome::error(format!("there is no tool '{}' at the moment; there are: {}", line(call, 100), line(&known, 4000)))
    }

    async fn run(&self, call: &str, tool: &Tool, arguments: Map<String, Value>, context: &Context) -> ToolOutcome {
        let until = call_deadline(tool.timeout, context);
        let outcome = match &tool.kind {
            // Enforces the deadline itself, because it has to clean up.
            ToolKind::Cli(cli) => {
                let cleaned = until + CLEANUP_TIMEOUT;
                tokio::time::timeout_at(cleaned, cli.call(&arguments, until, context)).await.map_err(|_| timed_out(call))
            }
            ToolKind::Http(http) => with_deadline(call, until, context, http.call(&arguments, context)).await,
            ToolKind::Builtin(builtin) => with_deadline(call, until, context, builtin.call(Value::Object(arguments), context)).await,
        };
        let outcome = outcome.unwrap_or_else(|stopped| stopped);
        // Some slack for the note of a tool that has cut its own output.
        if outcome.truncated || outcome.content.len() <= self.limit + 256 {
            outcome
        } else {
            clip(outcome.content, outcome.is_error, self.limit)
        }
    }
}

fn call_deadline(timeout: Duration, context: &Context) -> Instant {
    (Instant::now() + timeout).min(context.deadline)
}

async fn with_deadline<T>(call: &str, until: Instant, context: &Context, work: impl Future<Output = T>) -> Result<T, ToolOutcome> {
    tokio::select! {
        done = work => Ok(done),
        () = tokio::time::sleep_until(until) => Err(timed_out(call)),
        () = context.cancellation() => Err(ToolOutcome::error(format!("{call} was cancelled"))),
    }
}

fn timed_out(call: &str) -> ToolOutcome {
    ToolOutcome::error(format!("{call} took longer than its time limit and was given up; it may have had an effect all the same"))
}

/// Opens tools and collects all errors.
struct ToolboxBuilder<'a> {
    egress: Egress,
    settings: &'a ToolSettings,
    variables: &'a dyn Fn(&str) -> Option<String>,
    external: BTreeMap<String, BuiltinTool>,
    errors: Vec<ConfigError>,
}

impl ToolboxBuilder<'_> {
    fn tool(&mut self, config: &ToolConfig) -> Option<(ToolKind, Spec)> {
        let limit = self.settings.output_limit;
        let spec = |schema: &Value| Spec { name: config.name.clone(), description: String::new(), schema: schema.clone() };
        let opened = match config.type_ {
            ToolType::Http => {
                HttpTool::open(config, &self.egress, limit, self.variables).map(|http| (spec(&http.schema), ToolKind::Http(Box::new(http))))
            }
            ToolType::Cli => CliTool::open(config, limit).map(|cli| (spec(&cli.schema), ToolKind::Cli(cli))),
            ToolType::Builtin | ToolType::Mcp => self.builtin(config).map(|builtin| (builtin.spec(), ToolKind::Builtin(builtin))),
        };
        match opened {
            Ok((spec, kind)) => Some((kind, spec)),
            Err(mut errors) => {
                self.errors.append(&mut errors);
                None
            }
        }
    }

    /// A builtin of the runtime, or of this crate.
    fn builtin(&mut self, config: &ToolConfig) -> Result<BuiltinTool, Vec<ConfigError>> {
        if let Some(external) = self.external.remove(&config.name) {
            return Ok(external);
        }
        let external: Vec<String> = self.external.keys().cloned().collect();
        BuiltinTool::open(config, &self.egress, self.settings, &external).map_err(|refusal| vec![refusal])
    }

    fn program(&mut self, config: &ToolConfig) -> Option<Endpoint> {
        match server(config) {
            Ok((binary, arguments)) => Some(Endpoint::Program { binary, arguments }),
            Err(mut errors) => {
                self.errors.append(&mut errors);
                None
            }
        }
    }

    fn remote(&mut self, config: &ToolConfig) -> Option<Endpoint> {
        let source = HeaderSource::of(config, self.variables);
        let headers = match source.read() {
            Ok(headers) => headers,
            Err(mut errors) => {
                self.errors.append(&mut errors);
                return None;
            }
        };
        if let Some(name) = PROTOCOL_HEADERS.iter().find(|name| headers.contains_key(**name)) {
            self.errors.push(ConfigError::new(&config.name, "headers", format!("{name} belongs to the protocol and cannot be set")));
            return None;
        }
        let text = config.mcp_endpoint.as_deref().unwrap_or_default();
        match Url::parse(text) {
            Ok(url) if matches!(url.scheme(), "http" | "https") && url.username().is_empty() && url.password().is_none() => {
                // Names are checked when they are resolved; the URL itself is checked now.
                if let Err(blocked) = self.egress.check(&url) {
                    self.errors.push(ConfigError::new(&config.name, "mcpEndpoint", blocked.to_string()));
                    return None;
                }
                Some(Endpoint::Remote { url, headers, egress: self.egress.clone() })
            }
            Ok(url) => {
                let shown = redacted(&url);
                self.errors.push(ConfigError::new(
                    &config.name,
                    "mcpEndpoint",
                    format!("{shown} must be an http or https URL without credentials; these belong into headersFrom"),
                ));
                None
            }
            Err(error) => {
                self.errors.push(ConfigError::new(&config.name, "mcpEndpoint", format!("is not a URL: {error}")));
                None
            }
        }
    }
}

#[cfg(test)]
mod tests;
