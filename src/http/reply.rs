//! What a handler answers: a status, headers and a body that is whole, a stream of events, or somebody else's.

use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use serde::Serialize;

use crate::broken::{Breaking, Broken};
use crate::error::Error;
use crate::events::{Event, Events};

const KEEP_ALIVE: Duration = Duration::from_secs(15);

pub(crate) type Body = UnsyncBoxBody<Bytes, Broken>;

#[derive(Debug)]
pub struct Reply(Response<Body>);

impl Reply {
    /// 200 with `value` as JSON.
    pub fn json(value: &impl Serialize) -> Result<Self, Error> {
        let bytes = serde_json::to_vec(value).map_err(Error::internal)?;
        Ok(Self::bytes("application/json", bytes))
    }

    /// 200 with plain text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::bytes("text/plain; charset=utf-8", text.into())
    }

    /// 200 with a body of any other kind.
    pub fn bytes(content_type: &'static str, bytes: impl Into<Bytes>) -> Self {
        Self::of(content_type, Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync())
    }

    /// 200 with a body that comes from elsewhere, passed on as it comes. It is polled only as fast as the client
    /// reads, and dropped when the client leaves.
    pub fn stream<B>(content_type: &'static str, body: B) -> Self
    where
        B: hyper::body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Broken>,
    {
        Self::of(content_type, Breaking::new(body).boxed_unsync())
    }

    /// 200 with server-sent events, and a comment every 15 s of silence so that proxies keep the
    /// connection. The stream is polled only as fast as the client reads, and dropped when it leaves.
    pub fn events(stream: impl Stream<Item = Event> + Send + 'static) -> Self {
        Self::of("text/event-stream", Events::new(stream, KEEP_ALIVE).boxed_unsync())
            .with_header(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"))
            .with_header(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"))
    }

    #[must_use]
    pub fn with_status(mut self, status: StatusCode) -> Self {
        *self.0.status_mut() = status;
        self
    }

    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.headers_mut().insert(name, value);
        self
    }

    pub fn status(&self) -> StatusCode {
        self.0.status()
    }

    pub(crate) fn into_response(self) -> Response<Body> {
        self.0
    }

    fn of(content_type: &'static str, body: Body) -> Self {
        let mut response = Response::new(body);
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        Self(response)
    }
}
