//! The reply of a handler: a status, headers, and a body, which is bytes, a stream of events, or relayed.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use serde::Serialize;

use crate::budget::{RELAYED_BYTES, STREAM_BYTES};
use crate::delayed_error::{BodyError, DelayedError};
use crate::error::Error;
use crate::events::{Event, EventBody};
use crate::slots::RequestSlot;

/// Smaller frames of streams are not charged, as few of them are buffered at once.
const UNCHARGED_FRAME_BYTES: usize = 1024;
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

type Boxed = UnsyncBoxBody<Bytes, BodyError>;

#[derive(Debug)]
pub struct Reply {
    response: Response<Boxed>,
    /// The memory that it takes until it is sent.
    bytes: u64,
}

/// A body that is being sent.
pub(crate) struct ReplyBody {
    inner: Boxed,
    slot: RequestSlot,
}

/// Unsent bytes of a body, with the slot that they are charged to.
struct ChargedBytes {
    data: Bytes,
    _slot: RequestSlot,
}

impl AsRef<[u8]> for ChargedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl HttpBody for ReplyBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(context);
        let kept = |data: Bytes| match data.len() {
            ..=UNCHARGED_FRAME_BYTES => data,
            _ => Bytes::from_owner(ChargedBytes { data, _slot: self.slot.clone() }),
        };
        polled.map(|frame| frame.map(|frame| frame.map(|frame| frame.map_data(kept))))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

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

    /// 200 with a body of another type.
    pub fn bytes(content_type: &'static str, bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        let length = bytes.len() as u64;
        Self::of(content_type, Full::new(bytes).map_err(|never| match never {}).boxed_unsync(), length)
    }

    /// 200 with a body that all replies share, and that is not charged.
    pub fn shared(content_type: &'static str, bytes: Bytes) -> Self {
        Self { bytes: 0, ..Self::bytes(content_type, bytes) }
    }

    /// 200 with a relayed body. It is polled only as fast as the client reads, and dropped when the client disconnects.
    pub fn stream<B>(content_type: &'static str, body: B) -> Self
    where
        B: hyper::body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BodyError>,
    {
        Self::of(content_type, DelayedError::new(body).boxed_unsync(), RELAYED_BYTES)
    }

    /// 200 with server-sent events, and a comment after 15 s without one, so that proxies keep the connection open. The
    /// stream is polled only as fast as the client reads, and dropped when the client disconnects.
    pub fn events(stream: impl Stream<Item = Event> + Send + 'static) -> Self {
        Self::of("text/event-stream", EventBody::new(stream, KEEP_ALIVE_INTERVAL).boxed_unsync(), STREAM_BYTES)
            .with_header(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"))
            .with_header(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"))
    }

    #[must_use]
    pub fn with_status(mut self, status: StatusCode) -> Self {
        *self.response.status_mut() = status;
        self
    }

    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.response.headers_mut().insert(name, value);
        self
    }

    pub fn status(&self) -> StatusCode {
        self.response.status()
    }

    pub(crate) fn bytes_held(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn into_response(self, slot: RequestSlot) -> Response<ReplyBody> {
        self.response.map(|inner| ReplyBody { inner, slot })
    }

    fn of(content_type: &'static str, body: Boxed, bytes: u64) -> Self {
        let mut response = Response::new(body);
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        Self { response, bytes }
    }
}
