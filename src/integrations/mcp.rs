//! `mcp`: the tools of a server, listed over a connection as those of Tools are.

use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName};
use slipway_api::contract::tools::CONNECTION_HEADERS;
use slipway_api::integration::McpIntegration;
use slipway_tools::{McpFault, count_tools};

use crate::exchange::{self, Line};
use crate::login::IntegrationLogin;
use crate::outcome::{ConnectionFault, Reason, Subject};

const SERVER: &str = "an MCP server";

pub(crate) async fn ask(config: &McpIntegration, login: &IntegrationLogin<'_>, line: &Line<'_>) -> Result<String, ConnectionFault> {
    let invalid = |message: &str| ConnectionFault::new(Reason::Invalid, message);
    let url = exchange::url(&config.url).ok_or_else(|| invalid("url is no http or https URL without user and password"))?;
    let (name, value) = match &config.header {
        None => (AUTHORIZATION, login.header("token", "Bearer ")?),
        Some(name) => {
            let header = name.parse::<HeaderName>().ok().filter(|header| !CONNECTION_HEADERS.contains(&header.as_str()));
            (header.ok_or_else(|| invalid("header cannot be sent"))?, login.header("token", "")?)
        }
    };
    let subject = Subject { server: SERVER, missing: None, has_login: value.is_some() };
    let headers: HeaderMap = value.map(|value| (name, value)).into_iter().collect();
    let place = slipway_egress::redacted(&url);
    // Before the clock starts: the first client of a process reads the certificates of the system.
    line.egress.client(&url).map_err(|blocked| ConnectionFault::blocked(&blocked))?;
    line.begin(&place);
    let counted = count_tools(&url, &headers, line.egress).await;
    if matches!(counted, Ok(_) | Err(McpFault::Status(_) | McpFault::Other)) {
        line.hear();
    }
    counted.map(|tools| format!("{place} offers {tools} tools")).map_err(|fault| match fault {
        McpFault::Blocked(words) => ConnectionFault::new(Reason::AddressNotAllowed, words),
        McpFault::Unreachable(cause) => exchange::unreached(&place, &cause, line.egress.may_disclose(&url)),
        McpFault::TimedOut => ConnectionFault::late(&place),
        // Other servers say so of what they cannot read.
        McpFault::Status(200..=299 | 400 | 406 | 415 | 422) | McpFault::Other => ConnectionFault::other(&place, SERVER),
        McpFault::Status(status) => ConnectionFault::refused(&place, status, subject),
    })
}
