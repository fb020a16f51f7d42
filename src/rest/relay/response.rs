//! Turns the response of an agent into REST's: a stream unchanged, JSON within `{"data": …}`, an error in REST's error
//! form.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use futures::stream;
use http::Response;
use http::response::Parts;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use serde::Deserialize;
use serde::de::IgnoredAny;
use slipway_http::{Error, HeaderName, HeaderValue, Reply, RequestSlot, StatusCode, header};
use tokio::time::timeout;

use super::agent_transport::AgentBody;
use super::headers;
use super::target::Target;
use crate::http_client::BoxError;
use crate::rate_limiter::Permit;

/// JSON up to this size is validated as a whole before any of it is sent.
const BUFFERED_BYTES_MAX: usize = 1024 * 1024;
/// The size of an error that is read, and of its message that is passed on.
pub(super) const ERROR_BYTES_MAX: usize = 64 * 1024;
const MESSAGE_BYTES_MAX: usize = 2048;
/// How long a large response may pause.
const PAUSE_MAX: Duration = Duration::from_secs(30);

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";

/// How the body is wrapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyForm {
    /// Within `{"data": …}`.
    InData,
    /// It has a `data` of its own.
    AsIs,
}

/// A body that holds the call's permit until it ends or the client leaves.
struct RelayedBody {
    body: AgentBody,
    _permit: Permit,
}

impl HttpBody for RelayedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        loop {
            match Pin::new(&mut self.body).poll_frame(context) {
                // Trailers belong to the connection.
                Poll::Ready(Some(Ok(frame))) if !frame.is_data() => {}
                other => return other,
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The events of an agent, unchanged.
pub(super) fn stream(target: &Target, response: Response<AgentBody>, permit: Permit) -> Result<Reply, Error> {
    let (head, body) = response.into_parts();
    if !headers::is(&head.headers, EVENTS) || !headers::is_plain(&head.headers) {
        return Err(bad_response(target, "answered, but not with a stream of events"));
    }
    Ok(Reply::stream(EVENTS, RelayedBody { body, _permit: permit })
        .with_header(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"))
        .with_header(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")))
}

/// JSON. A short body is validated. Of a long one only the start is buffered, and charged to the caller.
pub(super) async fn json(
    target: &Target,
    response: Response<AgentBody>,
    form: BodyForm,
    permit: Permit,
    slot: &RequestSlot,
) -> Result<Reply, Error> {
    let (head, mut body) = response.into_parts();
    let (begin, ended) = match read_start(&mut body, BUFFERED_BYTES_MAX, |bytes| slot.charge(bytes)).await {
        Ok(begun) => begun,
        Err(ReadError::BoxError(error)) => return Err(closed_early(target, error)),
        Err(ReadError::Refused(error)) => return Err(error),
    };
    if ended && begin.is_empty() {
        return Ok(Reply::bytes(JSON, "{\"data\":null}"));
    }
    if !headers::is(&head.headers, JSON) || !headers::is_plain(&head.headers) {
        return Err(bad_response(target, "answered, but not with JSON"));
    }
    let (open, close) = match form {
        BodyForm::InData => ("{\"data\":", "}"),
        BodyForm::AsIs => ("", ""),
    };
    if ended {
        if let Err(error) = serde_json::from_slice::<IgnoredAny>(&begin) {
            return Err(bad_response(target, "answered, but not with JSON").because(error));
        }
        let mut whole = BytesMut::with_capacity(open.len() + begin.len() + close.len());
        for part in [open.as_bytes(), &begin, close.as_bytes()] {
            whole.extend_from_slice(part);
        }
        return Ok(Reply::bytes(JSON, whole.freeze()));
    }
    let rest = stream::unfold(RelayedBody { body, _permit: permit }, |mut held| async {
        let frame = match timeout(PAUSE_MAX, held.frame()).await {
            Ok(frame) => frame?,
            Err(_) => Err("the agent paused for too long in the middle of its answer".into()),
        };
        Some((frame, held))
    });
    let begin = stream::iter([Bytes::from_static(open.as_bytes()), begin].map(|part| Ok::<_, BoxError>(Frame::data(part))));
    let end = stream::iter([Ok(Frame::data(Bytes::from_static(close.as_bytes())))]);
    Ok(Reply::stream(JSON, StreamBody::new(begin.chain(rest).chain(end).boxed())))
}

/// An agent's error.
#[derive(Deserialize)]
pub(super) struct ErrorBody {
    pub(super) message: String,
}

/// An error of the API server's proxy.
#[derive(Deserialize)]
struct ApiServerStatus {
    kind: String,
    message: Option<String>,
}

/// The error for a response without success.
pub(super) async fn refusal(target: &Target, response: Response<AgentBody>, through_api_server: bool) -> Error {
    let (head, mut body) = response.into_parts();
    let read = timeout(PAUSE_MAX, read_start(&mut body, ERROR_BYTES_MAX, |_| Ok(()))).await;
    let begin = match read {
        Ok(Ok((begin, _))) => begin,
        Ok(Err(ReadError::BoxError(error))) => return closed_early(target, error),
        Ok(Err(ReadError::Refused(error))) => return error,
        Err(_) => return timed_out(target),
    };
    if through_api_server && let Some(said) = serde_json::from_slice::<ApiServerStatus>(&begin).ok().filter(|said| said.kind == "Status") {
        return by_api_server(target, head.status, said.message.unwrap_or_default());
    }
    let message = serde_json::from_slice::<ErrorBody>(&begin).ok().map(|refusal| truncate(refusal.message));
    to_error(target, &head, message.as_deref())
}

fn to_error(target: &Target, head: &Parts, message: Option<&str>) -> Error {
    let status = head.status;
    let said = || message.map_or_else(|| format!("agent {} refused: {status}", target.key.name), str::to_owned);
    let failed = |what: &str| {
        let name = &target.key.name;
        let more = message.map(|message| format!(": {message}")).unwrap_or_default();
        Error::new(StatusCode::BAD_GATEWAY, format!("agent {name} {what}{more}"))
    };
    let error = match status.as_u16() {
        404 if message.is_some() => Error::not_found(said()),
        // A custom image may lack endpoints of the runtime.
        404 | 405 | 501 => Error::not_found(format!("agent {} does not offer this", target.key.name)),
        400 | 408 | 409 | 413 | 415 | 429 | 502..=504 => Error::new(status, said()),
        // An agent's 401 is not REST's: it says nothing about the caller's token.
        401 | 403 | 407 => failed("does not let the platform in"),
        421 => failed("was not reached, but another agent in its place"),
        500 => failed("failed"),
        _ => failed(&format!("answered {status}")),
    };
    match head.headers.get(header::RETRY_AFTER) {
        Some(value) => error.with_header(header::RETRY_AFTER, value.clone()),
        None => error,
    }
}

fn by_api_server(target: &Target, status: StatusCode, message: String) -> Error {
    match status.as_u16() {
        504 => timed_out(target).because(message),
        403 => Error::internal(format!("REST may not use the API server's proxy to services: {message}")),
        429 => crate::cluster_error::unavailable().because(message),
        _ => unreachable(target, message),
    }
}

pub(super) fn unreachable(target: &Target, cause: impl Into<BoxError>) -> Error {
    Error::new(StatusCode::BAD_GATEWAY, format!("{target} cannot be reached: nothing answers on its port")).because(cause)
}

/// The agent has no Service of its own.
pub(super) fn without_service(target: &Target, why: &str) -> Error {
    Error::new(StatusCode::BAD_GATEWAY, format!("{target} cannot be reached: {why}"))
}

pub(super) fn timed_out(target: &Target) -> Error {
    Error::new(StatusCode::GATEWAY_TIMEOUT, format!("{target} took too long to answer"))
}

pub(super) fn closed_early(target: &Target, cause: impl Into<BoxError>) -> Error {
    bad_response(target, "closed the connection before it had answered").because(cause)
}

fn bad_response(target: &Target, what: &str) -> Error {
    Error::new(StatusCode::BAD_GATEWAY, format!("{target} {what}"))
}

pub(super) fn truncate(mut message: String) -> String {
    if message.len() > MESSAGE_BYTES_MAX {
        message.truncate(message.floor_char_boundary(MESSAGE_BYTES_MAX));
        message.push('…');
    }
    message
}

/// Why the start of a body could not be read.
pub(super) enum ReadError {
    BoxError(BoxError),
    Refused(Error),
}

/// The body up to `most` bytes, and whether it ended there. Buffered bytes are charged first.
pub(super) async fn read_start(
    body: &mut AgentBody,
    most: usize,
    charge: impl Fn(u64) -> Result<(), Error>,
) -> Result<(Bytes, bool), ReadError> {
    let mut begin = BytesMut::new();
    while let Some(frame) = body.frame().await.transpose().map_err(ReadError::BoxError)? {
        let Ok(data) = frame.into_data() else { continue };
        if begin.is_empty() && body.is_end_stream() {
            return Ok((data, true));
        }
        let room = begin.capacity() - begin.len();
        if data.len() > room {
            let more = data.len().max(begin.len());
            charge(more as u64).map_err(ReadError::Refused)?;
            begin.reserve(more);
        }
        begin.extend_from_slice(&data);
        if begin.len() > most {
            return Ok((begin.freeze(), false));
        }
    }
    Ok((begin.freeze(), true))
}
