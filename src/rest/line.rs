//! Calls to servers within the cluster, over connections that are kept for the next call. A connection is moved on by
//! the call that uses it: answering one wakes one task, where a connection with a task of its own would have them wake
//! each other for every step.

use std::error::Error as StdError;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, header};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::map::Map;

/// Below the 30 s after which a runtime closes an idle connection, so that none is used just then.
const IDLE: Duration = Duration::from_secs(20);
const IDLE_PER_SERVER: usize = 64;
/// A silent server is asked by its kernel whether it is there; one whose node has gone is given up after a minute.
const PROBE: Duration = Duration::from_secs(15);
const PROBES: u32 = 3;
const PORT: u16 = 80;
/// What a line holds of what its server sends faster than it is passed on, and the longest head of an answer.
const BUFFER_BYTES: usize = 16 * 1024;

pub(crate) type Broken = Box<dyn StdError + Send + Sync>;
/// The body of a request.
pub(crate) type Sent = UnsyncBoxBody<Bytes, Broken>;

/// Why there was no answer.
#[derive(Debug)]
pub(crate) enum Failed {
    /// No connection came about.
    Unreachable(Broken),
    /// It was reached and left without an answer.
    Left(Broken),
}

/// Lines to any number of servers.
pub(crate) struct Lines {
    idle: Arc<Idle>,
    /// How long a server may take to accept a connection.
    patience: Duration,
}

struct Line {
    requests: SendRequest<Sent>,
    /// Until it has ended. Boxed, as a line is handed on several times for each call.
    connection: Option<Box<Connection<TokioIo<TcpStream>, Sent>>>,
}

/// The lines that nobody uses, by server.
struct Idle(Mutex<Map<String, Vec<(Instant, Line)>>>);

/// An answer's body, which takes its line along and gives it back at its end.
pub(crate) struct Answered {
    body: Incoming,
    ended: bool,
    server: String,
    line: Option<Line>,
    idle: Arc<Idle>,
}

impl Lines {
    /// Within a runtime, as lines that were idle for too long are closed in the background.
    pub(crate) fn new(patience: Duration) -> Self {
        let idle = Arc::new(Idle(Mutex::default()));
        tokio::spawn(Idle::sweep(Arc::downgrade(&idle)));
        Self { idle, patience }
    }

    /// Sends a request to a server, given as `host:port`, and waits for the head of the answer. The server is told that it is
    /// called so, unless the request calls it otherwise.
    pub(crate) async fn ask(&self, server: String, mut request: Request<Sent>) -> Result<Response<Answered>, Failed> {
        if !request.headers().contains_key(header::HOST) {
            let host = host(&server).map_err(Failed::Unreachable)?;
            request.headers_mut().insert(header::HOST, host);
        }
        loop {
            let kept = self.idle.take(&server);
            let fresh = kept.is_none();
            let mut line = match kept {
                Some(line) => line,
                None => Box::pin(self.connect(&server)).await.map_err(Failed::Unreachable)?,
            };
            match line.ask(request).await {
                Ok(response) => {
                    let idle = self.idle.clone();
                    return Ok(response.map(|body| Answered { body, ended: false, server, line: Some(line), idle }));
                }
                // A line that was closed meanwhile, of which not a byte was used, is as good as none.
                Err(mut error) => match error.take_message() {
                    Some(unsent) if !fresh => request = unsent,
                    _ => return Err(Failed::Left(error.into_error().into())),
                },
            }
        }
    }

    async fn connect(&self, server: &str) -> Result<Line, Broken> {
        let (host, port) = server.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?))).unwrap_or((server, PORT));
        // In brackets, an address of IPv6 stands in a URL and nowhere else.
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let connected = timeout(self.patience, TcpStream::connect((host, port))).await;
        let stream = connected.map_err(|_| format!("no connection within {} s", self.patience.as_secs()))??;
        stream.set_nodelay(true)?;
        let probes = TcpKeepalive::new().with_time(PROBE).with_interval(PROBE).with_retries(PROBES);
        SockRef::from(&stream).set_tcp_keepalive(&probes)?;
        let (requests, connection) = Builder::new().max_buf_size(BUFFER_BYTES).handshake(TokioIo::new(stream)).await?;
        Ok(Line { requests, connection: Some(Box::new(connection)) })
    }
}

/// The server that a URL of http names, and the path below which it answers.
pub(crate) fn place(url: &str) -> (&str, &str) {
    let place = url.strip_prefix("http://").unwrap_or(url);
    let (server, path) = place.split_at(place.find('/').unwrap_or(place.len()));
    (server, path.trim_end_matches('/'))
}

/// What a server is told that it is called. The dot that ends a full name is for the resolver.
fn host(server: &str) -> Result<HeaderValue, Broken> {
    Ok(match server.rsplit_once(".:") {
        Some((name, port)) => HeaderValue::try_from(format!("{name}:{port}"))?,
        None => HeaderValue::from_str(server)?,
    })
}

impl Line {
    async fn ask(&mut self, request: Request<Sent>) -> Result<Response<Incoming>, TrySendError<Request<Sent>>> {
        let mut answer = pin!(self.requests.try_send_request(request));
        std::future::poll_fn(|context| {
            drive(&mut self.connection, context);
            answer.as_mut().poll(context)
        })
        .await
    }

    /// Whether it can take a request, as far as is known here.
    fn is_ready(&mut self) -> bool {
        drive(&mut self.connection, &mut Context::from_waker(Waker::noop()));
        self.connection.is_some() && self.requests.is_ready()
    }
}

/// Moves bytes both ways as far as that goes now. What went wrong, the request or the body that waits is told.
fn drive(connection: &mut Option<Box<Connection<TokioIo<TcpStream>, Sent>>>, context: &mut Context<'_>) {
    if connection.as_mut().is_some_and(|connection| Pin::new(connection).poll(context).is_ready()) {
        *connection = None;
    }
}

impl Idle {
    fn lines(&self) -> MutexGuard<'_, Map<String, Vec<(Instant, Line)>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The line that was used last, so that those that are too many grow old.
    fn take(&self, server: &str) -> Option<Line> {
        let mut all = self.lines();
        let lines = all.get_mut(server)?;
        std::iter::from_fn(|| lines.pop()).find_map(|(since, mut line)| (since.elapsed() < IDLE && line.is_ready()).then_some(line))
    }

    fn put(&self, server: &str, line: Line) {
        let mut all = self.lines();
        match all.get_mut(server) {
            Some(lines) if lines.len() >= IDLE_PER_SERVER => {}
            Some(lines) => lines.push((Instant::now(), line)),
            None => drop(all.insert(server.to_owned(), vec![(Instant::now(), line)])),
        }
    }

    /// For as long as there is somebody to use them.
    async fn sweep(idle: Weak<Self>) {
        loop {
            sleep(IDLE).await;
            let Some(idle) = idle.upgrade() else { return };
            idle.prune();
        }
    }

    fn prune(&self) {
        self.lines().retain(|_, lines| {
            lines.retain_mut(|(since, line)| since.elapsed() < IDLE && line.is_ready());
            !lines.is_empty()
        });
    }
}

impl Body for Answered {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let mut polled = Pin::new(&mut self.body).poll_frame(context);
        if polled.is_pending()
            && let Some(line) = &mut self.line
        {
            drive(&mut line.connection, context);
            polled = Pin::new(&mut self.body).poll_frame(context);
        }
        self.ended |= matches!(polled, Poll::Ready(None));
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.ended || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Answered {
    /// A line in the middle of an answer is closed, which tells the server that nobody listens any more.
    fn drop(&mut self) {
        let ended = self.is_end_stream();
        if let Some(mut line) = self.line.take().filter(|_| ended)
            && line.is_ready()
        {
            self.idle.put(&self.server, line);
        }
    }
}

#[cfg(test)]
mod tests;
