//! The HTTP client of the streamable transport. It records why a request failed, for the message to the model, and recognises
//! servers that answer 400 instead of 404 after they lost a session.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures::stream::BoxStream;
use http::{HeaderName, HeaderValue};
use rmcp::model::{ClientJsonRpcMessage, JsonRpcMessage};
use rmcp::transport::streamable_http_client::{SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse};
use sse_stream::Sse;

use slipway_egress::{explain, is_blocked, root_cause};

type Headers = HashMap<HeaderName, HeaderValue>;
type HttpError = StreamableHttpError<reqwest::Error>;

/// What keeps a server from being used. Nothing of its answers is in here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum McpFault {
    /// The egress rules refuse its address, in these words.
    Blocked(String),
    /// No answer came, and why.
    Unreachable(String),
    TimedOut,
    /// An answer with this status came.
    Status(u16),
    /// It answers, but not as MCP servers do.
    Other,
}

/// A request that failed, in words for the model and for programs.
pub(super) struct Failure {
    pub(super) message: String,
    pub(super) fault: McpFault,
}

/// The last request that failed.
#[derive(Clone, Default)]
pub(super) struct LastError(Arc<Mutex<Option<Failure>>>);

impl LastError {
    pub(super) fn take(&self) -> Option<Failure> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn put(&self, failure: Failure) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
    }
}

impl McpFault {
    fn of(error: &HttpError) -> Self {
        match error {
            StreamableHttpError::Client(error) if is_blocked(error) => Self::Blocked(explain(error, "it")),
            StreamableHttpError::Client(error) if error.is_timeout() => Self::TimedOut,
            StreamableHttpError::Client(error) => {
                error.status().map_or_else(|| Self::Unreachable(root_cause(error)), |status| Self::Status(status.as_u16()))
            }
            StreamableHttpError::HttpStatus(error) => Self::Status(error.status),
            StreamableHttpError::AuthRequired(_) => Self::Status(401),
            StreamableHttpError::InsufficientScope(_) => Self::Status(403),
            StreamableHttpError::UnexpectedServerResponse(text) => {
                let status = text.strip_prefix("HTTP ").and_then(|rest| rest.get(..3)?.parse().ok());
                status.map_or(Self::Other, Self::Status)
            }
            _ => Self::Other,
        }
    }
}

#[derive(Clone)]
pub(super) struct McpHttpClient {
    client: reqwest::Client,
    pub(super) last_error: LastError,
}

impl McpHttpClient {
    pub(super) fn new(client: reqwest::Client) -> Self {
        Self { client, last_error: LastError::default() }
    }

    fn note(&self, error: HttpError) -> HttpError {
        // URLs may hold secrets in their query.
        let error = match error {
            StreamableHttpError::Client(error) => StreamableHttpError::Client(error.without_url()),
            other => other,
        };
        let message = match &error {
            StreamableHttpError::Client(error) => explain(error, "it"),
            StreamableHttpError::AuthRequired(_) => "it asks for other credentials (HTTP 401); they belong into headersFrom".to_owned(),
            StreamableHttpError::InsufficientScope(_) => "the credentials do not suffice (HTTP 403)".to_owned(),
            StreamableHttpError::UnexpectedServerResponse(text) if text.starts_with("HTTP 404") || text.starts_with("HTTP 405") => {
                format!("it has no streamable HTTP endpoint at this URL, and HTTP+SSE of 2024-11-05 is not supported: {text}")
            }
            other => other.to_string(),
        };
        self.last_error.put(Failure { message, fault: McpFault::of(&error) });
        error
    }
}

impl StreamableHttpClient for McpHttpClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        auth: Option<String>,
        headers: Headers,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        self.post_message_with_max_sse_event_size(uri, message, session, auth, headers, super::connection::MAX_MESSAGE_BYTES).await
    }

    async fn post_message_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        auth: Option<String>,
        headers: Headers,
        limit: usize,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        let in_session = session.is_some();
        let answer = self.client.post_message_with_max_sse_event_size(uri, message, session, auth, headers, limit).await;
        match answer {
            // Within a session, an error without a request id means that the server has lost the session.
            Ok(StreamableHttpPostResponse::Json(JsonRpcMessage::Error(error), _)) if in_session && error.id.is_none() => {
                Err(StreamableHttpError::SessionExpired)
            }
            Ok(answer) => Ok(answer),
            Err(error) => Err(self.note(error)),
        }
    }

    async fn delete_session(&self, uri: Arc<str>, session: Arc<str>, auth: Option<String>, headers: Headers) -> Result<(), HttpError> {
        self.client.delete_session(uri, session, auth, headers).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last: Option<String>,
        auth: Option<String>,
        headers: Headers,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, HttpError> {
        self.client.get_stream_with_max_sse_event_size(uri, session, last, auth, headers, super::connection::MAX_MESSAGE_BYTES).await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last: Option<String>,
        auth: Option<String>,
        headers: Headers,
        limit: usize,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, HttpError> {
        self.client.get_stream_with_max_sse_event_size(uri, session, last, auth, headers, limit).await
    }
}
