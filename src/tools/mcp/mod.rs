//! The MCP server of one Tool. It is connected on first use, its tool list is cached until it changes, and a lost connection
//! is restored. A server's answers are untrusted and bounded in size.

mod approval;
mod connection;
mod content;
mod digest;
mod http_client;
mod names;
mod program;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use rmcp::ServiceError;
use rmcp::model::{CallToolRequestParams, RequestMetaObject};
use serde_json::{Map, Value};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use url::Url;

use crate::outcome::{Context, Spec, ToolOutcome};
use approval::Approval;
use connection::Connection;
use slipway_egress::Egress;

pub(crate) use approval::ApprovedList;
pub use approval::ToolListChanges;
pub use http_client::McpFault;
pub(crate) use names::{MAX_NAME_BYTES, ReservedNames, prefix};

/// The longest time that a turn waits for a server to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const MIN_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_mins(1);
/// The interval of listing again, for servers that change their tools without a notification.
const REFRESH_INTERVAL: Duration = Duration::from_mins(5);

pub(crate) enum Endpoint {
    Remote { url: Url, headers: HeaderMap, egress: Egress },
    Program { binary: PathBuf, arguments: Vec<String> },
}

pub(crate) struct McpConfig {
    pub(crate) name: String,
    pub(crate) endpoint: Endpoint,
    pub(crate) timeout: Duration,
    pub(crate) approved: ApprovedList,
}

/// One of a server's tools.
#[derive(Debug, Clone)]
pub(crate) struct OfferedTool {
    pub(crate) spec: Spec,
    /// The server's own name for it.
    pub(crate) remote: String,
    /// Whether the server says that a call changes nothing.
    pub(crate) only_reads: bool,
}

pub(crate) struct McpServer {
    pub(crate) name: String,
    endpoint: Endpoint,
    pub(crate) timeout: Duration,
    limit: usize,
    reserved: ReservedNames,
    state: Mutex<State>,
    approval: Approval,
}

#[derive(Default)]
struct State {
    live: Option<Connected>,
    down: Option<Backoff>,
}

#[derive(Clone)]
struct Connected {
    connection: Arc<Connection>,
    offered: Arc<[OfferedTool]>,
    listed: Instant,
}

struct Backoff {
    until: Instant,
    pause: Duration,
    fault: String,
}

/// Connects to a server over streamable HTTP once, and says how many tools it offers.
pub async fn count_tools(url: &Url, headers: &HeaderMap, egress: &Egress) -> Result<usize, McpFault> {
    Box::pin(Connection::count(url, headers, egress)).await
}

impl McpServer {
    pub(crate) fn new(config: McpConfig, limit: usize, reserved: ReservedNames) -> Self {
        let McpConfig { name, endpoint, timeout, approved } = config;
        Self { name, endpoint, timeout, limit, reserved, state: Mutex::default(), approval: Approval::new(approved) }
    }

    pub(crate) fn digest(&self) -> Option<String> {
        self.approval.digest()
    }

    pub(crate) fn changes(&self) -> Option<ToolListChanges> {
        self.approval.changes()
    }

    /// Drops the connection and the backoff: the next call connects again.
    pub(crate) async fn reset(&self) {
        *self.state.lock().await = State::default();
    }

    /// The server's tools; empty while it is down.
    pub(crate) async fn offered(&self) -> Arc<[OfferedTool]> {
        match self.live().await {
            Ok(live) => live.offered,
            Err(_) => Arc::default(),
        }
    }

    /// `arguments` are validated at the top level of the tool's schema.
    pub(crate) async fn call(&self, remote: &str, arguments: Map<String, Value>, context: &Context) -> ToolOutcome {
        let mut params = CallToolRequestParams::new(remote.to_owned()).with_arguments(arguments);
        if let Some(parent) = &context.trace.parent {
            let mut meta = RequestMetaObject::new();
            meta.set_traceparent(parent);
            if let Some(state) = &context.trace.state {
                meta.set_tracestate(state);
            }
            params.meta = Some(meta);
        }
        for first in [true, false] {
            let live = match self.live().await {
                Ok(live) => live,
                Err(fault) => {
                    return ToolOutcome::error(format!(
                        "the server of {} is not available: {fault}. Go on without it, or try again later",
                        self.name
                    ));
                }
            };
            match Box::pin(live.connection.call(params.clone())).await {
                Ok(result) => return content::outcome(result, self.limit),
                Err(ServiceError::McpError(error)) => {
                    let message = crate::clip::line(&error.message, 2000);
                    return ToolOutcome::error(format!("the server refused the call (code {}): {message}", error.code.0));
                }
                Err(error) => {
                    tracing::warn!(tool = %self.name, error = %connection::brief(&error), "a call to an MCP server failed");
                    self.forget(&live).await;
                    if first && connection::was_not_sent(&error) {
                        continue;
                    }
                    return ToolOutcome::error(match error {
                        ServiceError::TransportClosed | ServiceError::TransportSend(_) => {
                            format!("the connection to the server of {} was lost; whether the call was carried out is not known", self.name)
                        }
                        ServiceError::InputRequiredRoundsExceeded { .. } => {
                            "the server keeps asking for input that this agent cannot give".to_owned()
                        }
                        other => format!("the server's answer cannot be used: {}", connection::brief(&other)),
                    });
                }
            }
        }
        ToolOutcome::error(format!("the server of {} cannot be reached. Go on without it, or try again later", self.name))
    }

    async fn live(&self) -> Result<Connected, String> {
        let mut state = self.state.lock().await;
        if let Some(live) = state.live.take_if(|live| live.connection.is_closed()) {
            drop(live);
            tracing::info!(tool = %self.name, "an MCP server closed its connection");
        }
        if let Some(live) = &mut state.live {
            if live.connection.take_stale() || live.listed.elapsed() > REFRESH_INTERVAL {
                match timeout(self.connect_timeout(), Box::pin(self.list(&live.connection))).await {
                    Ok(Ok(offered)) => (live.offered, live.listed) = (offered, Instant::now()),
                    Ok(Err(fault)) => {
                        tracing::warn!(tool = %self.name, fault, "an MCP server's tools could not be listed again");
                        live.listed = Instant::now();
                    }
                    Err(_) => {
                        tracing::warn!(tool = %self.name, "an MCP server did not list its tools again in time");
                        live.listed = Instant::now();
                    }
                }
            }
            return Ok(live.clone());
        }
        if let Some(down) = state.down.as_ref().filter(|down| down.until > Instant::now()) {
            return Err(down.fault.clone());
        }
        // Boxed: large and rarely needed, so not part of every call's future.
        let attempt = Box::pin(async {
            let connection = Arc::new(Connection::open(&self.endpoint).await?);
            let offered = self.list(&connection).await?;
            Ok(Connected { connection, offered, listed: Instant::now() })
        });
        let outcome = timeout(self.connect_timeout(), attempt).await;
        match outcome.unwrap_or_else(|_| Err(format!("it did not answer within {} s", self.connect_timeout().as_secs()))) {
            Ok(live) => {
                tracing::info!(tool = %self.name, tools = live.offered.len(), "an MCP server is connected");
                *state = State { live: Some(live.clone()), down: None };
                Ok(live)
            }
            Err(fault) => {
                let pause = state.down.as_ref().map_or(MIN_BACKOFF, |down| (down.pause * 2).min(MAX_BACKOFF));
                tracing::warn!(tool = %self.name, fault, retry_seconds = pause.as_secs(), "an MCP server is not available; its tools are left out");
                state.down = Some(Backoff { until: Instant::now() + pause, pause, fault: fault.clone() });
                Err(fault)
            }
        }
    }

    async fn list(&self, connection: &Connection) -> Result<Arc<[OfferedTool]>, String> {
        let tools = self.approval.filter(&self.name, connection.list().await?);
        Ok(content::offered(tools, &self.name, &self.reserved).into())
    }

    async fn forget(&self, broken: &Connected) {
        let mut state = self.state.lock().await;
        state.live.take_if(|live| Arc::ptr_eq(&live.connection, &broken.connection));
    }

    fn connect_timeout(&self) -> Duration {
        self.timeout.min(CONNECT_TIMEOUT)
    }
}
