//! What an agent answers becomes what REST answers: a stream as it is, JSON within `{"data": …}`, and a refusal in the
//! words of the specification's error body, under REST's own path.

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
use slipway_http::{Error, HeaderName, HeaderValue, Place, Reply, StatusCode, header};
use tokio::time::timeout;

use super::agent::Target;
use super::head;
use super::way::Body;
use crate::limits::Pass;
use crate::line::Broken;

/// An answer up to this size is looked at whole, and is known to be JSON before any of it goes out.
const WHOLE: usize = 1024 * 1024;
/// How much of a refusal is read, and how much of its message is passed on.
const REFUSAL: usize = 64 * 1024;
const LONGEST_MESSAGE: usize = 2048;
/// How long a longer answer may pause on its way.
const PAUSE: Duration = Duration::from_secs(30);

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";

/// How an answer is given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Within `{"data": …}`.
    Wrapped,
    /// It has a `data` of its own.
    AsIs,
}

/// A body that holds its place among the calls under way until it has ended or its client has left.
struct Held {
    body: Body,
    _pass: Pass,
}

impl HttpBody for Held {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        loop {
            match Pin::new(&mut self.body).poll_frame(context) {
                // Trailers belong to the connection that they came by.
                Poll::Ready(Some(Ok(frame))) if !frame.is_data() => {}
                other => return other,
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The events of an agent, byte by byte and as they come.
pub(super) fn stream(target: &Target, response: Response<Body>, pass: Pass) -> Result<Reply, Error> {
    let (head, body) = response.into_parts();
    if !head::is(&head.headers, EVENTS) || !head::is_plain(&head.headers) {
        return Err(bad(target, "answered, but not with a stream of events"));
    }
    Ok(Reply::stream(EVENTS, Held { body, _pass: pass })
        .with_header(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"))
        .with_header(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")))
}

/// JSON. What is short is checked to be some; of what is long, memory holds no more than the first of it, which is charged
/// to the caller.
pub(super) async fn json(target: &Target, response: Response<Body>, form: Form, pass: Pass, place: &Place) -> Result<Reply, Error> {
    let (head, mut body) = response.into_parts();
    let (begin, ended) = match begin(&mut body, WHOLE, |bytes| place.charge(bytes)).await {
        Ok(begun) => begun,
        Err(Unread::Broken(error)) => return Err(cut_off(target, error)),
        Err(Unread::Refused(error)) => return Err(error),
    };
    if ended && begin.is_empty() {
        return Ok(Reply::bytes(JSON, "{\"data\":null}"));
    }
    if !head::is(&head.headers, JSON) || !head::is_plain(&head.headers) {
        return Err(bad(target, "answered, but not with JSON"));
    }
    let (open, close) = match form {
        Form::Wrapped => ("{\"data\":", "}"),
        Form::AsIs => ("", ""),
    };
    if ended {
        if let Err(error) = serde_json::from_slice::<IgnoredAny>(&begin) {
            return Err(bad(target, "answered, but not with JSON").because(error));
        }
        let mut whole = BytesMut::with_capacity(open.len() + begin.len() + close.len());
        for part in [open.as_bytes(), &begin, close.as_bytes()] {
            whole.extend_from_slice(part);
        }
        return Ok(Reply::bytes(JSON, whole.freeze()));
    }
    let rest = stream::unfold(Held { body, _pass: pass }, |mut held| async {
        let frame = match timeout(PAUSE, held.frame()).await {
            Ok(frame) => frame?,
            Err(_) => Err("the agent paused for too long in the middle of its answer".into()),
        };
        Some((frame, held))
    });
    let begin = stream::iter([Bytes::from_static(open.as_bytes()), begin].map(|part| Ok::<_, Broken>(Frame::data(part))));
    let end = stream::iter([Ok(Frame::data(Bytes::from_static(close.as_bytes())))]);
    Ok(Reply::stream(JSON, StreamBody::new(begin.chain(rest).chain(end).boxed())))
}

/// What is told of a refusal.
#[derive(Deserialize)]
struct Refusal {
    message: String,
}

/// What the API server says when it stands in between.
#[derive(Deserialize)]
struct Said {
    kind: String,
    message: Option<String>,
}

/// Anything but a 2xx.
pub(super) async fn refusal(target: &Target, response: Response<Body>, through_api_server: bool) -> Error {
    let (head, mut body) = response.into_parts();
    let read = timeout(PAUSE, begin(&mut body, REFUSAL, |_| Ok(()))).await;
    let begin = match read {
        Ok(Ok((begin, _))) => begin,
        Ok(Err(Unread::Broken(error))) => return cut_off(target, error),
        Ok(Err(Unread::Refused(error))) => return error,
        Err(_) => return late(target),
    };
    if through_api_server && let Some(said) = serde_json::from_slice::<Said>(&begin).ok().filter(|said| said.kind == "Status") {
        return by_api_server(target, head.status, said.message.unwrap_or_default());
    }
    let message = serde_json::from_slice::<Refusal>(&begin).ok().map(|refusal| cut(refusal.message));
    told(target, &head, message.as_deref())
}

fn told(target: &Target, head: &Parts, message: Option<&str>) -> Error {
    let status = head.status;
    let said = || message.map_or_else(|| format!("agent {} refused: {status}", target.key.name), str::to_owned);
    let failed = |what: &str| {
        let name = &target.key.name;
        let more = message.map(|message| format!(": {message}")).unwrap_or_default();
        Error::new(StatusCode::BAD_GATEWAY, format!("agent {name} {what}{more}"))
    };
    let error = match status.as_u16() {
        404 if message.is_some() => Error::not_found(said()),
        // An image of somebody's own need not have all that the runtime has.
        404 | 405 | 501 => Error::not_found(format!("agent {} does not offer this", target.key.name)),
        400 | 408 | 409 | 413 | 415 | 429 | 502..=504 => Error::new(status, said()),
        // Whom it lets in is not for an agent to say, and its callers must not take its word for REST's.
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
        504 => late(target).because(message),
        403 => Error::internal(format!("REST may not use the API server's proxy to services: {message}")),
        429 => crate::fault::away().because(message),
        _ => unreachable(target, message),
    }
}

pub(super) fn unreachable(target: &Target, cause: impl Into<Broken>) -> Error {
    Error::new(StatusCode::BAD_GATEWAY, format!("{target} cannot be reached: nothing answers on its port")).because(cause)
}

/// There is nothing that could be asked in the agent's name.
pub(super) fn without_service(target: &Target, why: &str) -> Error {
    Error::new(StatusCode::BAD_GATEWAY, format!("{target} cannot be reached: {why}"))
}

pub(super) fn late(target: &Target) -> Error {
    Error::new(StatusCode::GATEWAY_TIMEOUT, format!("{target} took too long to answer"))
}

pub(super) fn cut_off(target: &Target, cause: impl Into<Broken>) -> Error {
    bad(target, "closed the connection before it had answered").because(cause)
}

fn bad(target: &Target, what: &str) -> Error {
    Error::new(StatusCode::BAD_GATEWAY, format!("{target} {what}"))
}

fn cut(mut message: String) -> String {
    if message.len() > LONGEST_MESSAGE {
        message.truncate(message.floor_char_boundary(LONGEST_MESSAGE));
        message.push('…');
    }
    message
}

/// Why there is no beginning of a body.
enum Unread {
    Broken(Broken),
    Refused(Error),
}

/// The body as far as `most` bytes, and whether that was all of it. What is held of it besides one frame is charged before.
async fn begin(body: &mut Body, most: usize, charge: impl Fn(u64) -> Result<(), Error>) -> Result<(Bytes, bool), Unread> {
    let mut begin = BytesMut::new();
    while let Some(frame) = body.frame().await.transpose().map_err(Unread::Broken)? {
        let Ok(data) = frame.into_data() else { continue };
        if begin.is_empty() && body.is_end_stream() {
            return Ok((data, true));
        }
        let room = begin.capacity() - begin.len();
        if data.len() > room {
            let more = data.len().max(begin.len());
            charge(more as u64).map_err(Unread::Refused)?;
            begin.reserve(more);
        }
        begin.extend_from_slice(&data);
        if begin.len() > most {
            return Ok((begin.freeze(), false));
        }
    }
    Ok((begin.freeze(), true))
}
