//! One connection to an MCP server: streamable HTTP with `initialize`, streamable HTTP with `server/discover`, or the standard
//! input and output of a program. For the HTTP+SSE transport of 2024-11-05 see docs/decisions/011-mcp-transports.md.

use std::error::Error as StdError;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::HeaderMap;
use rmcp::model::{
    CallToolRequestParams, CallToolResult, ClientCapabilities, ClientConfig, Implementation, PaginatedRequestParams, ProtocolVersion, Tool,
};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, NotificationContext, RoleClient, RunningService, serve_client_with_lifecycle,
};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::{StreamableHttpClientTransportConfig, StreamableHttpError};
use rmcp::{ClientHandler, ServiceError};
use url::Url;

use super::Endpoint;
use super::http_client::{Failure, LastError, McpFault, McpHttpClient};
use super::program::Program;
use crate::clip::line;
use slipway_egress::Egress;

/// A longer message of a server ends the connection.
pub(super) const MAX_MESSAGE_BYTES: usize = 4 * 1024 * 1024;
const MAX_PAGES: usize = 32;
const MAX_TOOLS: usize = 256;

pub(super) struct Connection {
    service: RunningService<RoleClient, Handler>,
    stale: Arc<AtomicBool>,
}

impl Connection {
    pub(super) async fn open(endpoint: &Endpoint) -> Result<Self, String> {
        let stale = Arc::new(AtomicBool::new(false));
        let handler = Handler { stale: stale.clone() };
        let service = match endpoint {
            Endpoint::Remote { url, headers, egress } => remote(url, headers, egress, &handler).await.map_err(|failure| failure.message)?.0,
            Endpoint::Program { binary, arguments } => {
                let program =
                    Program::start(binary, arguments).map_err(|error| format!("{} could not be started: {error}", binary.display()))?;
                let started = serve_client_with_lifecycle(handler, program, ClientLifecycleMode::Initialize).await;
                started.map_err(|error| format!("the program does not speak MCP: {}", brief(&error)))?
            }
        };
        Ok(Self { service, stale })
    }

    /// The number of tools that a server offers, over a connection of its own.
    pub(super) async fn count(url: &Url, headers: &HeaderMap, egress: &Egress) -> Result<usize, McpFault> {
        let stale = Arc::new(AtomicBool::new(false));
        let handler = Handler { stale: stale.clone() };
        let (service, last_error) = remote(url, headers, egress, &handler).await.map_err(|failure| failure.fault)?;
        let tools = Self { service, stale }.list().await;
        tools.map(|tools| tools.len()).map_err(|_| last_error.take().map_or(McpFault::Other, |failure| failure.fault))
    }

    pub(super) fn is_closed(&self) -> bool {
        self.service.is_closed() || self.service.peer().is_transport_closed()
    }

    /// Whether the server has announced a changed list since the last call.
    pub(super) fn take_stale(&self) -> bool {
        self.stale.swap(false, Ordering::AcqRel)
    }

    pub(super) async fn list(&self) -> Result<Vec<Tool>, String> {
        let mut tools = Vec::new();
        let mut cursor = None;
        for _ in 0..MAX_PAGES {
            let params = PaginatedRequestParams::default().with_cursor(cursor);
            let page = self.service.peer().list_tools(Some(params)).await.map_err(|error| brief(&error))?;
            tools.extend(page.tools);
            cursor = page.next_cursor;
            if cursor.is_none() || tools.len() >= MAX_TOOLS {
                break;
            }
        }
        if tools.len() > MAX_TOOLS || cursor.is_some() {
            tracing::warn!("an MCP server offers more than {MAX_TOOLS} tools; the rest is left out");
            tools.truncate(MAX_TOOLS);
        }
        Ok(tools)
    }

    pub(super) async fn call(&self, params: CallToolRequestParams) -> Result<CallToolResult, ServiceError> {
        self.service.call_tool(params).await
    }
}

/// The client side of the protocol, without capabilities: no sampling, no elicitation, no roots.
#[derive(Clone)]
struct Handler {
    stale: Arc<AtomicBool>,
}

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        ClientConfig::new(ClientCapabilities::default(), Implementation::new("slipway-runtime", env!("CARGO_PKG_VERSION")))
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.stale.store(true, Ordering::Release);
    }
}

/// The service, and why its last request failed, if it has.
type Served = (RunningService<RoleClient, Handler>, LastError);

async fn remote(url: &Url, headers: &HeaderMap, egress: &Egress, handler: &Handler) -> Result<Served, Failure> {
    let client = egress.client(url).map_err(|blocked| {
        let message = blocked.to_string();
        Failure { message: message.clone(), fault: McpFault::Blocked(message) }
    })?;
    let streamable = async |lifecycle| {
        let http_client = McpHttpClient::new(client.clone());
        let last_error = http_client.last_error.clone();
        let config = StreamableHttpClientTransportConfig::with_uri(url.as_str())
            .custom_headers(headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect())
            .max_sse_event_size(MAX_MESSAGE_BYTES);
        let transport = StreamableHttpClientTransport::with_client(http_client, config);
        let served = serve_client_with_lifecycle(handler.clone(), transport, lifecycle).await;
        match served {
            Ok(service) => Ok((service, last_error)),
            Err(error) => Err((error, last_error.take())),
        }
    };
    let (error, failure) = match streamable(ClientLifecycleMode::Initialize).await {
        Ok(served) => return Ok(served),
        Err(failed) => failed,
    };
    let failure = match failure {
        Some(Failure { message, fault }) => Failure { message: line(&message, 500), fault },
        None => Failure { message: brief(&error), fault: McpFault::Other },
    };
    // Servers of the later protocol refuse `initialize` with a JSON-RPC error.
    if matches!(error, ClientInitializeError::JsonRpcError(_) | ClientInitializeError::NoCompatibleProtocolVersion { .. }) {
        let modern = ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::LATEST] };
        if let Ok(served) = streamable(modern).await {
            return Ok(served);
        }
    }
    Err(failure)
}

/// Whether the server certainly did not receive the call, so that it may be sent again.
pub(super) fn was_not_sent(error: &ServiceError) -> bool {
    let ServiceError::TransportSend(error) = error else { return false };
    let mut cause: Option<&(dyn StdError + 'static)> = Some(&*error.error);
    while let Some(current) = cause {
        if let Some(fault) = current.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
            return match fault {
                StreamableHttpError::Client(error) => error.is_connect(),
                StreamableHttpError::SessionExpired => true,
                _ => false,
            };
        }
        if let Some(error) = current.downcast_ref::<reqwest::Error>() {
            return error.is_connect();
        }
        cause = current.source();
    }
    false
}

/// An error with its causes, on one line of bounded length.
pub(super) fn brief(error: &(dyn StdError + 'static)) -> String {
    let mut last = error.to_string();
    let mut cause = error.source();
    while let Some(current) = cause {
        let text = current.to_string();
        if !last.contains(&text) {
            last = format!("{last}: {text}");
        }
        cause = current.source();
    }
    line(&last, 500)
}
