//! The HTTP beneath the streamable transport: remembers why a request failed, so that the right thing is tried next, and
//! recognises servers that answer 400 instead of 404 when they have forgotten a session.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures::stream::BoxStream;
use http::{HeaderName, HeaderValue};
use rmcp::model::{ClientJsonRpcMessage, JsonRpcMessage};
use rmcp::transport::streamable_http_client::{SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse};
use sse_stream::Sse;

use slipway_egress::explain;

type Headers = HashMap<HeaderName, HeaderValue>;
type Fault = StreamableHttpError<reqwest::Error>;

pub(super) struct Failure {
    pub(super) message: String,
    /// A 4xx without a word of JSON-RPC: as a server of the earlier HTTP with SSE answers.
    pub(super) earlier: bool,
}

#[derive(Clone, Default)]
pub(super) struct LastFault(Arc<Mutex<Option<Failure>>>);

impl LastFault {
    pub(super) fn take(&self) -> Option<Failure> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn put(&self, failure: Failure) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
    }
}

#[derive(Clone)]
pub(super) struct Wire {
    client: reqwest::Client,
    pub(super) fault: LastFault,
}

impl Wire {
    pub(super) fn new(client: reqwest::Client) -> Self {
        Self { client, fault: LastFault::default() }
    }

    fn note(&self, error: Fault) -> Fault {
        // URLs may hold secrets in their query.
        let error = match error {
            StreamableHttpError::Client(error) => StreamableHttpError::Client(error.without_url()),
            other => other,
        };
        let message = match &error {
            StreamableHttpError::Client(error) => explain(error, "it"),
            StreamableHttpError::AuthRequired(_) => "it asks for other credentials (HTTP 401); they belong into headersFrom".to_owned(),
            StreamableHttpError::InsufficientScope(_) => "the credentials do not suffice (HTTP 403)".to_owned(),
            other => other.to_string(),
        };
        let earlier = match &error {
            StreamableHttpError::UnexpectedServerResponse(text) => {
                text.starts_with("HTTP 4") && !text.starts_with("HTTP 401") && !text.starts_with("HTTP 403")
            }
            StreamableHttpError::UnexpectedContentType(_) => true,
            _ => false,
        };
        self.fault.put(Failure { message, earlier });
        error
    }
}

impl StreamableHttpClient for Wire {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        auth: Option<String>,
        headers: Headers,
    ) -> Result<StreamableHttpPostResponse, Fault> {
        self.post_message_with_max_sse_event_size(uri, message, session, auth, headers, super::connection::MESSAGE).await
    }

    async fn post_message_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        auth: Option<String>,
        headers: Headers,
        limit: usize,
    ) -> Result<StreamableHttpPostResponse, Fault> {
        let in_session = session.is_some();
        let answer = self.client.post_message_with_max_sse_event_size(uri, message, session, auth, headers, limit).await;
        match answer {
            // An error that belongs to no request, within a session: the server does not know the session.
            Ok(StreamableHttpPostResponse::Json(JsonRpcMessage::Error(error), _)) if in_session && error.id.is_none() => {
                Err(StreamableHttpError::SessionExpired)
            }
            Ok(answer) => Ok(answer),
            Err(error) => Err(self.note(error)),
        }
    }

    async fn delete_session(&self, uri: Arc<str>, session: Arc<str>, auth: Option<String>, headers: Headers) -> Result<(), Fault> {
        self.client.delete_session(uri, session, auth, headers).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last: Option<String>,
        auth: Option<String>,
        headers: Headers,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, Fault> {
        self.client.get_stream_with_max_sse_event_size(uri, session, last, auth, headers, super::connection::MESSAGE).await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last: Option<String>,
        auth: Option<String>,
        headers: Headers,
        limit: usize,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, Fault> {
        self.client.get_stream_with_max_sse_event_size(uri, session, last, auth, headers, limit).await
    }
}
