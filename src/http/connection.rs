//! One connection: HTTP/1.1 with timeouts. Each request gets an answer even if the handler panics. Errors become response
//! bodies, and their causes log lines.

use std::any::Any;
use std::borrow::Cow;
use std::convert::Infallible;
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use futures::FutureExt;
use http::{HeaderValue, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::select;
use tokio::sync::watch;
use tracing::{debug, error};

use crate::budget::BUFFER_BYTES;
use crate::error::Error;
use crate::id::{self, RequestId};
use crate::metered::Metered;
use crate::reply::{Reply, ReplyBody};
use crate::request::Request;
use crate::serve::{Closing, ServerLimits};
use crate::slots::{RequestSlot, Slot};

/// The limit of unsent bytes in the kernel, which would otherwise buffer megabytes for a client that stops reading.
const SEND_BUFFER_BYTES: u32 = 32 * 1024;
/// A longer URL or header gets 414 or 431.
const MAX_URL_BYTES: usize = 8 * 1024;
const MAX_HEADER_BYTES: usize = 32 * 1024;

pub(crate) async fn run<H, F>(
    stream: TcpStream,
    slot: Arc<Slot>,
    limits: ServerLimits,
    handler: Arc<H>,
    mut closing: watch::Receiver<Closing>,
) where
    H: Fn(Request) -> F,
    F: Future<Output = Result<Reply, Error>>,
{
    // Best effort: without these options a connection is slower or stays open longer.
    let _ = stream.set_nodelay(true);
    let socket = SockRef::from(&stream);
    let _ = socket.set_tcp_user_timeout(Some(limits.send_timeout));
    let _ = socket.set_tcp_notsent_lowat(SEND_BUFFER_BYTES);
    let stream = Metered::new(stream, slot.clone());
    let told = closing.clone();
    let service = service_fn(|request| {
        let answered = answer(&*handler, request, &slot, &limits);
        let told = &told;
        async move {
            let mut response = answered.await?;
            if *told.borrow() != Closing::No {
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(response)
        }
    });
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.head_timeout)
            .max_buf_size(BUFFER_BYTES)
            .serve_connection(TokioIo::new(stream), service)
    );
    let ended = select! {
        ended = connection.as_mut() => ended,
        () = idle_no_longer(&mut closing) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        debug!(%error, "a connection broke");
    }
}

async fn idle_no_longer(closing: &mut watch::Receiver<Closing>) {
    let _ = closing.wait_for(|closing| *closing == Closing::WhenIdle).await;
}

async fn answer<H, F>(
    handler: &H,
    request: http::Request<Incoming>,
    slot: &Arc<Slot>,
    limits: &ServerLimits,
) -> Result<Response<ReplyBody>, Infallible>
where
    H: Fn(Request) -> F,
    F: Future<Output = Result<Reply, Error>>,
{
    let started = Instant::now();
    let request_slot = RequestSlot::new(slot, started);
    let id = RequestId::echoed(request.headers()).unwrap_or_else(|| RequestId::made(SystemTime::now(), random()));
    let method = request.method().clone();
    let uri = request.uri().clone();
    let fits = fits(&request);
    let request = Request::new(request, id.clone(), request_slot.clone(), limits.body_timeout);
    let outcome = AssertUnwindSafe(async {
        fits?;
        handler(request).await
    });
    let outcome = outcome.catch_unwind().await;
    let outcome = outcome.unwrap_or_else(|panic| Err(Error::internal(format!("panic: {}", panic_message(&*panic)))));
    let outcome = outcome.and_then(|reply| match request_slot.begin_answer(reply.bytes_held()) {
        Ok(()) => Ok(reply),
        Err(exhausted) => Err(exhausted.into()),
    });
    let path = shown(uri.path(), limits.secret_paths);
    let reply = outcome.unwrap_or_else(|error| {
        log(&error, &id);
        error.into_reply(&path)
    });
    debug!(
        request_id = %id,
        %method,
        path = &*path,
        status = reply.status().as_u16(),
        elapsed_us = started.elapsed().as_micros(),
        "answered"
    );
    Ok(reply.with_header(id::HEADER, id.value()).into_response(request_slot))
}

/// A path without the secret that it may hold.
fn shown<'a>(path: &'a str, secret_paths: &[&str]) -> Cow<'a, str> {
    let begins = secret_paths.iter().filter_map(|part| Some(path.find(*part)? + part.len())).min();
    match begins {
        Some(begins) if begins < path.len() => format!("{}…", &path[..begins]).into(),
        _ => path.into(),
    }
}

fn fits<B>(request: &http::Request<B>) -> Result<(), Error> {
    let url = request.uri().path_and_query().map_or(0, |url| url.as_str().len());
    if url > MAX_URL_BYTES {
        return Err(Error::new(StatusCode::URI_TOO_LONG, format!("the URL may have at most {MAX_URL_BYTES} bytes")));
    }
    let headers: usize = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    if headers > MAX_HEADER_BYTES {
        let message = format!("the headers may have at most {MAX_HEADER_BYTES} bytes");
        return Err(Error::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, message));
    }
    Ok(())
}

fn log(error: &Error, id: &RequestId) {
    let status = error.status().as_u16();
    match error.cause() {
        Some(cause) if error.status().is_server_error() => {
            error!(request_id = %id, status, %cause, "a request failed");
        }
        Some(cause) => debug!(request_id = %id, status, %cause, "a request was refused"),
        None => {}
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}

/// The random part of a request id: unique, not secret. The keys of hash maps cost no system call each time.
fn random() -> u128 {
    let half = || u128::from(RandomState::new().hash_one(()));
    half() << 64 | half()
}
