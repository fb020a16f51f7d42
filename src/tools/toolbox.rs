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
use crate::http::HttpTool;
use crate::http::headers::Source;
use crate::mcp::{Approved, Changes, Config, Endpoint, Server, Taken, prefix};
use crate::outcome::{Builtins, Context, Outcome, Spec};
use crate::refusal::Refusal;
use crate::settings::Settings;
use slipway_egress::{Egress, redacted};

/// How much longer than its limit a program may take to be ended and cleaned up.
const CLEANUP: Duration = Duration::from_secs(2);

/// An MCP server that is a program speaking over its input and output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    pub name: String,
    pub binary: PathBuf,
    pub arguments: Vec<String>,
    pub timeout: Duration,
}

pub struct Toolbox {
    tools: BTreeMap<String, Tool>,
    servers: Vec<Server>,
    limit: usize,
}

struct Tool {
    spec: Spec,
    timeout: Duration,
    kind: Kind,
}

enum Kind {
    Http(Box<HttpTool>),
    Cli(CliTool),
    Builtin(BuiltinTool),
}

impl Toolbox {
    /// Checks every configuration; nothing is connected yet. `variables` is where `headersFrom` finds its secrets.
    pub fn open(
        configs: Vec<ToolConfig>,
        builtin: Builtins,
        settings: Settings,
        variables: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, Vec<Refusal>> {
        Self::open_with_programs(configs, Vec::new(), builtin, settings, variables)
    }

    /// The same with further MCP servers that are programs.
    #[expect(clippy::needless_pass_by_value, reason = "a toolbox is what becomes of them")]
    pub fn open_with_programs(
        configs: Vec<ToolConfig>,
        programs: Vec<Program>,
        builtin: Builtins,
        settings: Settings,
        variables: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, Vec<Refusal>> {
        let egress = settings.egress();
        let mut opening = Opening { egress, settings: &settings, variables, foreign: BTreeMap::new(), refusals: Vec::new() };
        for tool in builtin {
            opening.foreign.insert(tool.spec().name, BuiltinTool::Foreign(tool));
        }
        let mut seen = BTreeSet::new();
        for name in configs.iter().map(|config| &config.name).chain(programs.iter().map(|program| &program.name)) {
            if !seen.insert(name.clone()) {
                opening.refusals.push(Refusal::new(
                    name,
                    "name",
                    "is taken by another tool of this agent; the model could not tell them apart",
                ));
            } else if name.is_empty() || name.len() > 64 || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
            {
                opening.refusals.push(Refusal::new(name, "name", "must have 1 to 64 letters, digits, - and _"));
            }
        }
        let mut tools = BTreeMap::new();
        let mut servers = Vec::new();
        let server = |name: &str, endpoint: Endpoint, timeout: Duration, pinned: Option<&String>| {
            let approved = match (pinned.or_else(|| settings.approved.as_ref()?.get(name)), &settings.approved) {
                (Some(digest), _) => Approved::Digest(digest.clone()),
                (None, Some(_)) => Approved::First,
                (None, None) => Approved::Any,
            };
            Config { name: name.to_owned(), endpoint, timeout, approved }
        };
        for config in &configs {
            let timeout = Duration::from_secs(u64::try_from(config.timeout).unwrap_or_default().clamp(1, 3600));
            if config.type_ == ToolType::Mcp {
                servers
                    .extend(opening.remote(config).map(|endpoint| server(&config.name, endpoint, timeout, config.tools_digest.as_ref())));
            } else if config.type_ == ToolType::Cli && config.protocol == Some(Protocol::Mcp) {
                servers
                    .extend(opening.program(config).map(|endpoint| server(&config.name, endpoint, timeout, config.tools_digest.as_ref())));
            } else if let Some((kind, spec)) = opening.tool(config) {
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
                Err(fault) => opening.refusals.push(Refusal::new(&program.name, "binary", fault)),
            }
        }
        for name in opening.foreign.keys().filter(|name| seen.contains(*name)) {
            opening.refusals.push(Refusal::new(
                name,
                "name",
                "belongs to a builtin of the runtime; only a tool of type builtin can have it",
            ));
        }
        if !opening.refusals.is_empty() {
            return Err(opening.refusals);
        }
        for (name, kind) in opening.foreign {
            tools.insert(name, Tool { spec: kind.spec(), timeout: builtin::TIMEOUT, kind: Kind::Builtin(kind) });
        }
        let taken = Taken { names: tools.keys().cloned().collect(), prefixes: servers.iter().map(|server| prefix(&server.name)).collect() };
        let server = |config: Config| Server::new(config, settings.output_limit, taken.clone());
        Ok(Self { servers: servers.into_iter().map(server).collect(), tools, limit: settings.output_limit })
    }

    /// What the model is shown. Servers that are down show nothing and are asked again later.
    pub fn specs(&self) -> BoxFuture<'_, Vec<Spec>> {
        self.offered().boxed()
    }

    async fn offered(&self) -> Vec<Spec> {
        let offered = join_all(self.servers.iter().map(Server::offered)).await;
        let remote = offered.iter().flat_map(|offered| offered.iter()).map(|offered| offered.spec.clone());
        self.tools.values().map(|tool| tool.spec.clone()).chain(remote).collect()
    }

    /// Every MCP server is connected anew and asked for its tools when it is needed next.
    pub async fn refresh(&self) {
        join_all(self.servers.iter().map(Server::reset)).await;
    }

    /// The kind of a tool, for spans: `http`, `cli`, `builtin`, or `mcp` for all tools of servers.
    pub fn kind(&self, name: &str) -> &'static str {
        match self.tools.get(name).map(|tool| &tool.kind) {
            Some(Kind::Http(_)) => "http",
            Some(Kind::Cli(_)) => "cli",
            Some(Kind::Builtin(_)) => "builtin",
            None => "mcp",
        }
    }

    /// For every mcp tool whose server has been reached, a digest of the tools that it offered last (threat 14).
    pub fn digests(&self) -> BTreeMap<String, String> {
        self.servers.iter().filter_map(|server| Some((server.name.clone(), server.digest()?))).collect()
    }

    /// For every mcp tool whose server does not offer the approved list: how its list differs.
    pub fn changes(&self) -> BTreeMap<String, Changes> {
        self.servers.iter().filter_map(|server| Some((server.name.clone(), server.changes()?))).collect()
    }

    /// Boxed, as `specs` is: so what stands behind a tool is compiled here, and not once more for all who call it.
    pub fn call<'a>(&'a self, call: &'a str, arguments: Value, context: &'a Context) -> BoxFuture<'a, Outcome> {
        self.answer(call, arguments, context).boxed()
    }

    async fn answer(&self, call: &str, arguments: Value, context: &Context) -> Outcome {
        if let Some(tool) = self.tools.get(call) {
            return match decode(&tool.spec.schema, arguments) {
                Ok(arguments) => self.run(call, tool, arguments, context).await,
                Err(faults) => Outcome::error(format!("{call} was not called: {faults}")),
            };
        }
        // Connecting counts against the time of the call, too.
        for server in self.servers.iter().filter(|server| call.starts_with(&prefix(&server.name)) || call.len() == 64) {
            let until = until(server.timeout, context);
            let attempt = async {
                let offered = server.offered().await;
                let tool = offered.iter().find(|offered| offered.spec.name == call)?;
                Some(match decode(&tool.spec.schema, arguments.clone()) {
                    Ok(arguments) => server.call(&tool.remote, arguments, context).await,
                    Err(faults) => Outcome::error(format!("{call} was not called: {faults}")),
                })
            };
            match limited(call, until, context, attempt).await {
                Ok(Some(outcome)) | Err(outcome) => return outcome,
                Ok(None) => {}
            }
        }
        let known = self.specs().await.into_iter().map(|spec| spec.name).collect::<Vec<_>>().join(", ");
        Outcome::error(format!("there is no tool '{}' at the moment; there are: {}", line(call, 100), line(&known, 4000)))
    }

    async fn run(&self, call: &str, tool: &Tool, arguments: Map<String, Value>, context: &Context) -> Outcome {
        let until = until(tool.timeout, context);
        let outcome = match &tool.kind {
            // It sees to its limits itself, because it has something to clean up.
            Kind::Cli(cli) => {
                let cleaned = until + CLEANUP;
                tokio::time::timeout_at(cleaned, cli.call(&arguments, until, context)).await.map_err(|_| late(call))
            }
            Kind::Http(http) => limited(call, until, context, http.call(&arguments, context)).await,
            Kind::Builtin(builtin) => limited(call, until, context, builtin.call(Value::Object(arguments), context)).await,
        };
        let outcome = outcome.unwrap_or_else(|stopped| stopped);
        // A tool that cut its own output has said so; some slack keeps that note whole.
        if outcome.truncated || outcome.content.len() <= self.limit + 256 {
            outcome
        } else {
            clip(outcome.content, outcome.is_error, self.limit)
        }
    }
}

fn until(timeout: Duration, context: &Context) -> Instant {
    (Instant::now() + timeout).min(context.deadline)
}

async fn limited<T>(call: &str, until: Instant, context: &Context, work: impl Future<Output = T>) -> Result<T, Outcome> {
    tokio::select! {
        done = work => Ok(done),
        () = tokio::time::sleep_until(until) => Err(late(call)),
        () = context.cancellation() => Err(Outcome::error(format!("{call} was cancelled"))),
    }
}

fn late(call: &str) -> Outcome {
    Outcome::error(format!("{call} took longer than its time limit and was given up; it may have had an effect all the same"))
}

/// Collects every refusal on the way.
struct Opening<'a> {
    egress: Egress,
    settings: &'a Settings,
    variables: &'a dyn Fn(&str) -> Option<String>,
    foreign: BTreeMap<String, BuiltinTool>,
    refusals: Vec<Refusal>,
}

impl Opening<'_> {
    fn tool(&mut self, config: &ToolConfig) -> Option<(Kind, Spec)> {
        let limit = self.settings.output_limit;
        let spec = |schema: &Value| Spec { name: config.name.clone(), description: String::new(), schema: schema.clone() };
        let opened = match config.type_ {
            ToolType::Http => {
                HttpTool::open(config, &self.egress, limit, self.variables).map(|http| (spec(&http.schema), Kind::Http(Box::new(http))))
            }
            ToolType::Cli => CliTool::open(config, limit).map(|cli| (spec(&cli.schema), Kind::Cli(cli))),
            ToolType::Builtin | ToolType::Mcp => self.builtin(config).map(|builtin| (builtin.spec(), Kind::Builtin(builtin))),
        };
        match opened {
            Ok((spec, kind)) => Some((kind, spec)),
            Err(mut refusals) => {
                self.refusals.append(&mut refusals);
                None
            }
        }
    }

    /// One that the runtime brought, or one of ours.
    fn builtin(&mut self, config: &ToolConfig) -> Result<BuiltinTool, Vec<Refusal>> {
        if let Some(foreign) = self.foreign.remove(&config.name) {
            return Ok(foreign);
        }
        let foreign: Vec<String> = self.foreign.keys().cloned().collect();
        BuiltinTool::open(config, &self.egress, self.settings, &foreign).map_err(|refusal| vec![refusal])
    }

    fn program(&mut self, config: &ToolConfig) -> Option<Endpoint> {
        match server(config) {
            Ok((binary, arguments)) => Some(Endpoint::Program { binary, arguments }),
            Err(mut refusals) => {
                self.refusals.append(&mut refusals);
                None
            }
        }
    }

    fn remote(&mut self, config: &ToolConfig) -> Option<Endpoint> {
        let source = Source { tool: &config.name, literal: &config.headers, secret: &config.headers_from, variables: self.variables };
        let headers = match source.read() {
            Ok(headers) => headers,
            Err(mut refusals) => {
                self.refusals.append(&mut refusals);
                return None;
            }
        };
        if let Some(name) = PROTOCOL_HEADERS.iter().find(|name| headers.contains_key(**name)) {
            self.refusals.push(Refusal::new(&config.name, "headers", format!("{name} belongs to the protocol and cannot be set")));
            return None;
        }
        let text = config.mcp_endpoint.as_deref().unwrap_or_default();
        match Url::parse(text) {
            Ok(url) if matches!(url.scheme(), "http" | "https") && url.username().is_empty() && url.password().is_none() => {
                // A name is checked when it is resolved; what is wrong with the URL itself can be told at once.
                if let Err(blocked) = self.egress.check(&url) {
                    self.refusals.push(Refusal::new(&config.name, "mcpEndpoint", blocked.to_string()));
                    return None;
                }
                Some(Endpoint::Remote { url, headers, egress: self.egress.clone() })
            }
            Ok(url) => {
                let shown = redacted(&url);
                self.refusals.push(Refusal::new(
                    &config.name,
                    "mcpEndpoint",
                    format!("{shown} must be an http or https URL without credentials; these belong into headersFrom"),
                ));
                None
            }
            Err(error) => {
                self.refusals.push(Refusal::new(&config.name, "mcpEndpoint", format!("is not a URL: {error}")));
                None
            }
        }
    }
}

#[cfg(test)]
mod strange;
