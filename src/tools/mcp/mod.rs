//! An MCP server, whose tools one Tool brings. The server is connected when it is first needed, its list is cached until it
//! changes, and a lost connection is made again. A server's answers are untrusted data: bounded in size, and shown to the
//! model as such.

mod approval;
mod connection;
mod content;
mod digest;
mod names;
mod program;
mod wire;

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

use crate::outcome::{Context, Outcome, Spec};
use approval::Approval;
use connection::Connection;
use slipway_egress::Egress;

pub(crate) use approval::Approved;
pub use approval::Changes;
pub(crate) use names::{Taken, prefix};

/// How long a turn waits for a server to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const MIN_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_mins(1);
/// For servers that change their list without a notification.
const REFRESH_INTERVAL: Duration = Duration::from_mins(5);

pub(crate) enum Endpoint {
    Remote { url: Url, headers: HeaderMap, egress: Egress },
    Program { binary: PathBuf, arguments: Vec<String> },
}

pub(crate) struct Config {
    pub(crate) name: String,
    pub(crate) endpoint: Endpoint,
    pub(crate) timeout: Duration,
    pub(crate) approved: Approved,
}

/// One of a server's tools.
#[derive(Debug, Clone)]
pub(crate) struct Offered {
    pub(crate) spec: Spec,
    /// The server's own name for it.
    pub(crate) remote: String,
}

pub(crate) struct Server {
    pub(crate) name: String,
    endpoint: Endpoint,
    pub(crate) timeout: Duration,
    limit: usize,
    taken: Taken,
    state: Mutex<State>,
    approval: Approval,
}

#[derive(Default)]
struct State {
    live: Option<Live>,
    down: Option<Down>,
}

#[derive(Clone)]
struct Live {
    connection: Arc<Connection>,
    offered: Arc<[Offered]>,
    listed: Instant,
}

struct Down {
    until: Instant,
    pause: Duration,
    fault: String,
}

impl Server {
    pub(crate) fn new(config: Config, limit: usize, taken: Taken) -> Self {
        let Config { name, endpoint, timeout, approved } = config;
        Self { name, endpoint, timeout, limit, taken, state: Mutex::default(), approval: Approval::new(approved) }
    }

    pub(crate) fn digest(&self) -> Option<String> {
        self.approval.digest()
    }

    pub(crate) fn changes(&self) -> Option<Changes> {
        self.approval.changes()
    }

    /// Drops the connection and the backoff: the next call connects again.
    pub(crate) async fn reset(&self) {
        *self.state.lock().await = State::default();
    }

    /// The server's tools; none while it is down.
    pub(crate) async fn offered(&self) -> Arc<[Offered]> {
        match self.live().await {
            Ok(live) => live.offered,
            Err(_) => Arc::default(),
        }
    }

    /// `arguments` have passed the top level of the tool's schema.
    pub(crate) async fn call(&self, remote: &str, arguments: Map<String, Value>, context: &Context) -> Outcome {
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
                    return Outcome::error(format!(
                        "the server of {} is not available: {fault}. Go on without it, or try again later",
                        self.name
                    ));
                }
            };
            match Box::pin(live.connection.call(params.clone())).await {
                Ok(result) => return content::tell(result, self.limit),
                Err(ServiceError::McpError(error)) => {
                    let message = crate::clip::line(&error.message, 2000);
                    return Outcome::error(format!("the server refused the call (code {}): {message}", error.code.0));
                }
                Err(error) => {
                    tracing::warn!(tool = %self.name, error = %connection::brief(&error), "a call to an MCP server failed");
                    self.forget(&live).await;
                    if first && connection::undelivered(&error) {
                        continue;
                    }
                    return Outcome::error(match error {
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
        Outcome::error(format!("the server of {} cannot be reached. Go on without it, or try again later", self.name))
    }

    async fn live(&self) -> Result<Live, String> {
        let mut state = self.state.lock().await;
        if let Some(live) = state.live.take_if(|live| live.connection.is_closed()) {
            drop(live);
            tracing::info!(tool = %self.name, "an MCP server closed its connection");
        }
        if let Some(live) = &mut state.live {
            if live.connection.take_stale() || live.listed.elapsed() > REFRESH_INTERVAL {
                match timeout(self.patience(), Box::pin(self.list(&live.connection))).await {
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
        // Rarely needed and big: not a part of every call's future.
        let attempt = Box::pin(async {
            let connection = Arc::new(Connection::open(&self.endpoint).await?);
            let offered = self.list(&connection).await?;
            Ok(Live { connection, offered, listed: Instant::now() })
        });
        let outcome = timeout(self.patience(), attempt).await;
        match outcome.unwrap_or_else(|_| Err(format!("it did not answer within {} s", self.patience().as_secs()))) {
            Ok(live) => {
                tracing::info!(tool = %self.name, tools = live.offered.len(), "an MCP server is connected");
                *state = State { live: Some(live.clone()), down: None };
                Ok(live)
            }
            Err(fault) => {
                let pause = state.down.as_ref().map_or(MIN_BACKOFF, |down| (down.pause * 2).min(MAX_BACKOFF));
                tracing::warn!(tool = %self.name, fault, retry_seconds = pause.as_secs(), "an MCP server is not available; its tools are left out");
                state.down = Some(Down { until: Instant::now() + pause, pause, fault: fault.clone() });
                Err(fault)
            }
        }
    }

    async fn list(&self, connection: &Connection) -> Result<Arc<[Offered]>, String> {
        let tools = self.approval.filter(&self.name, connection.list().await?);
        Ok(content::offered(tools, &self.name, &self.taken).into())
    }

    async fn forget(&self, broken: &Live) {
        let mut state = self.state.lock().await;
        state.live.take_if(|live| Arc::ptr_eq(&live.connection, &broken.connection));
    }

    fn patience(&self) -> Duration {
        self.timeout.min(CONNECT_TIMEOUT)
    }
}
