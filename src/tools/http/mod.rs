//! A tool that calls a URL: arguments fill its placeholders, and the others go into the query or a JSON body.

pub(crate) mod body;
pub(crate) mod headers;
mod template;

use std::collections::BTreeSet;

use http::header::{ACCEPT, CONTENT_TYPE, LOCATION};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::{Map, Value};
use slipway_api::contract::ToolConfig;
use slipway_api::contract::endpoint::Endpoint;
use slipway_api::tool::Method;

use crate::arguments;
use crate::clip::{clip, edge};
use crate::config_error::ConfigError;
use crate::outcome::{Context, ToolOutcome};
use body::ResponseBody;
use headers::HeaderSource;
use slipway_egress::{Egress, explain, redacted};

const DEFAULT_ACCEPT: HeaderValue = HeaderValue::from_static("application/json, text/*;q=0.9, */*;q=0.5");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

pub(crate) struct HttpTool {
    endpoint: Endpoint,
    placeholders: BTreeSet<String>,
    method: Method,
    headers: HeaderMap,
    has_body: bool,
    egress: Egress,
    limit: usize,
    pub(crate) schema: Value,
}

impl HttpTool {
    pub(crate) fn open(
        config: &ToolConfig,
        egress: &Egress,
        limit: usize,
        variables: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, Vec<ConfigError>> {
        let refuse = |message: String| ConfigError::new(&config.name, "endpoint", message);
        let mut errors = Vec::new();
        let source = HeaderSource::of(config, variables);
        let headers = source.read().unwrap_or_else(|mut faults| {
            errors.append(&mut faults);
            HeaderMap::new()
        });
        let endpoint = match config.endpoint.as_deref().map(Endpoint::parse) {
            Some(Ok(endpoint)) => endpoint,
            Some(Err(fault)) => {
                errors.push(refuse(fault));
                return Err(errors);
            }
            None => {
                errors.push(refuse("is required for a tool of type http".to_owned()));
                return Err(errors);
            }
        };
        let placeholders = endpoint.placeholders();
        for name in &placeholders {
            if !config.parameters.iter().any(|parameter| parameter.name == *name) {
                errors.push(refuse(format!("the placeholder {{{name}}} is not declared in parameters")));
            }
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let method = config.method.unwrap_or(Method::Get);
        let placeholders: BTreeSet<String> = placeholders.into_iter().map(str::to_owned).collect();
        let needed = endpoint.needed();
        Ok(Self {
            schema: arguments::schema(&config.parameters, |parameter| parameter.required || needed.contains(parameter.name.as_str())),
            has_body: takes_body(method) && config.parameters.iter().any(|parameter| !placeholders.contains(&parameter.name)),
            endpoint,
            placeholders,
            method,
            headers,
            egress: egress.clone(),
            limit,
        })
    }

    /// By its method. What a server does all the same is its own fault.
    pub(crate) fn only_reads(&self) -> bool {
        matches!(self.method, Method::Get | Method::Head)
    }

    /// `arguments` are validated.
    pub(crate) async fn call(&self, arguments: &Map<String, Value>, context: &Context) -> ToolOutcome {
        let remaining: Vec<(&String, &Value)> = arguments.iter().filter(|(name, _)| !self.placeholders.contains(*name)).collect();
        let query: Vec<(&str, String)> = if takes_body(self.method) {
            Vec::new()
        } else {
            remaining.iter().map(|(name, value)| (name.as_str(), template::plain(value))).collect()
        };
        let url = match template::fill(&self.endpoint, arguments, &query) {
            Ok(url) => url,
            Err(fault) => return ToolOutcome::error(fault),
        };
        let client = match self.egress.client(&url) {
            Ok(client) => client,
            Err(blocked) => return ToolOutcome::error(blocked.to_string()),
        };
        let mut headers = self.headers.clone();
        headers.entry(ACCEPT).or_insert(DEFAULT_ACCEPT);
        headers.extend(context.trace.headers());
        let host = redacted(&url);
        let mut request = client.request(method(self.method), url);
        if self.has_body {
            headers.entry(CONTENT_TYPE).or_insert(JSON);
            let body: Map<String, Value> = remaining.into_iter().map(|(name, value)| (name.clone(), value.clone())).collect();
            request = request.body(Value::Object(body).to_string());
        }
        match request.headers(headers).send().await {
            Ok(response) => self.outcome(response).await,
            Err(error) => ToolOutcome::error(explain(&error.without_url(), &host)),
        }
    }

    async fn outcome(&self, response: reqwest::Response) -> ToolOutcome {
        let status = response.status();
        let head = head(status, response.headers());
        let only_head = self.method == Method::Head;
        let shown = if only_head { shown_headers(response.headers()) } else { String::new() };
        match body::read(response, self.limit).await {
            _ if only_head => ToolOutcome { content: format!("{head}{shown}"), is_error: !status.is_success(), truncated: false },
            Ok(ResponseBody::Text { text, more }) => self.text(status, &head, &text, more),
            Ok(ResponseBody::Other(note)) => {
                ToolOutcome { content: joined(status, &head, &note), is_error: !status.is_success(), truncated: false }
            }
            Err(error) => ToolOutcome::error(format!("{head}, but its body broke off: {}", error.without_url())),
        }
    }

    fn text(&self, status: StatusCode, head: &str, text: &str, more: bool) -> ToolOutcome {
        if more {
            let text = format!("{}\n[cut here: only the first {} bytes were read]", &text[..edge(text, self.limit)], self.limit);
            return ToolOutcome { content: joined(status, head, &text), is_error: !status.is_success(), truncated: true };
        }
        let empty = text.trim().is_empty();
        let content = if empty { format!("{head}, without a body") } else { joined(status, head, text) };
        clip(content, !status.is_success(), self.limit + head.len() + 64)
    }
}

/// The body, preceded by the status unless that is a success.
fn joined(status: StatusCode, head: &str, body: &str) -> String {
    if status.is_success() { body.to_owned() } else { format!("{head}\n\n{body}") }
}

fn head(status: StatusCode, headers: &HeaderMap) -> String {
    let reason = status.canonical_reason().unwrap_or_default();
    let head = format!("HTTP {} {reason}", status.as_u16()).trim_end().to_owned();
    match headers.get(LOCATION).and_then(|location| location.to_str().ok()) {
        Some(location) if status.is_redirection() => format!("{head} to {location}"),
        _ => head,
    }
}

fn shown_headers(headers: &HeaderMap) -> String {
    ["content-type", "content-length", "last-modified", "etag"]
        .iter()
        .filter_map(|name| headers.get(*name).and_then(|value| value.to_str().ok()).map(|value| format!("\n{name}: {value}")))
        .collect()
}

const fn takes_body(method: Method) -> bool {
    matches!(method, Method::Post | Method::Put | Method::Patch)
}

const fn method(method: Method) -> http::Method {
    match method {
        Method::Get => http::Method::GET,
        Method::Head => http::Method::HEAD,
        Method::Post => http::Method::POST,
        Method::Put => http::Method::PUT,
        Method::Patch => http::Method::PATCH,
        Method::Delete => http::Method::DELETE,
    }
}
