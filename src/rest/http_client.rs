//! A pooled HTTP/1.1 client for servers within the cluster. The call that uses a connection also drives it: a response
//! wakes one task. A driver task per connection, as in hyper-util's client, would add a wake-up to every step.

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

use crate::fast_map::FastMap;

/// Below the runtime's idle timeout of 30 s, so that no connection is used while the server closes it.
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);
const IDLE_PER_SERVER_MAX: usize = 64;
/// TCP keepalive: a server whose node is gone is given up after a minute.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEPALIVE_RETRIES: u32 = 3;
const DEFAULT_PORT: u16 = 80;
/// The read buffer of a connection, and the longest response head.
const BUFFER_BYTES_MAX: usize = 16 * 1024;

pub(crate) type BoxError = Box<dyn StdError + Send + Sync>;
/// The body of a request.
pub(crate) type RequestBody = UnsyncBoxBody<Bytes, BoxError>;

/// Why there is no response.
#[derive(Debug)]
pub(crate) enum SendError {
    /// No connection could be made.
    Connect(BoxError),
    /// The server closed the connection without a response.
    Closed(BoxError),
}

/// A client for any number of servers.
pub(crate) struct HttpClient {
    pool: Arc<Pool>,
    /// How long a server may take to accept a connection.
    connect_timeout: Duration,
}

struct PooledConnection {
    requests: SendRequest<RequestBody>,
    /// None after its end. Boxed, because it is moved several times per call.
    connection: Option<Box<Connection<TokioIo<TcpStream>, RequestBody>>>,
}

/// The idle connections, by server.
struct Pool(Mutex<FastMap<String, Vec<(Instant, PooledConnection)>>>);

/// The body of a response. At its end the connection returns to the pool.
pub(crate) struct ResponseBody {
    body: Incoming,
    ended: bool,
    server: String,
    connection: Option<PooledConnection>,
    pool: Arc<Pool>,
}

impl HttpClient {
    /// Must be called within a runtime: a background task closes idle connections.
    pub(crate) fn new(connect_timeout: Duration) -> Self {
        let pool = Arc::new(Pool(Mutex::default()));
        tokio::spawn(Pool::sweep(Arc::downgrade(&pool)));
        Self { pool, connect_timeout }
    }

    /// Sends a request to a server, given as `host:port`, and waits for the response head. The `Host` header defaults to
    /// the server.
    pub(crate) async fn send(&self, server: String, mut request: Request<RequestBody>) -> Result<Response<ResponseBody>, SendError> {
        if !request.headers().contains_key(header::HOST) {
            let host = host_header(&server).map_err(SendError::Connect)?;
            request.headers_mut().insert(header::HOST, host);
        }
        loop {
            let kept = self.pool.take(&server);
            let fresh = kept.is_none();
            let mut connection = match kept {
                Some(connection) => connection,
                None => Box::pin(self.connect(&server)).await.map_err(SendError::Connect)?,
            };
            match connection.send(request).await {
                Ok(response) => {
                    let pool = self.pool.clone();
                    return Ok(response.map(|body| ResponseBody { body, ended: false, server, connection: Some(connection), pool }));
                }
                // The server closed an idle connection before it read anything: the request is sent on another one.
                Err(mut error) => match error.take_message() {
                    Some(unsent) if !fresh => request = unsent,
                    _ => return Err(SendError::Closed(error.into_error().into())),
                },
            }
        }
    }

    async fn connect(&self, server: &str) -> Result<PooledConnection, BoxError> {
        let (host, port) =
            server.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?))).unwrap_or((server, DEFAULT_PORT));
        // The brackets of an IPv6 address belong to URLs only.
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let connected = timeout(self.connect_timeout, TcpStream::connect((host, port))).await;
        let stream = connected.map_err(|_| format!("no connection within {} s", self.connect_timeout.as_secs()))??;
        stream.set_nodelay(true)?;
        let probes = TcpKeepalive::new().with_time(KEEPALIVE_INTERVAL).with_interval(KEEPALIVE_INTERVAL).with_retries(KEEPALIVE_RETRIES);
        SockRef::from(&stream).set_tcp_keepalive(&probes)?;
        let (requests, connection) = Builder::new().max_buf_size(BUFFER_BYTES_MAX).handshake(TokioIo::new(stream)).await?;
        Ok(PooledConnection { requests, connection: Some(Box::new(connection)) })
    }
}

/// The server and the path of an http URL.
pub(crate) fn split_url(url: &str) -> (&str, &str) {
    let place = url.strip_prefix("http://").unwrap_or(url);
    let (server, path) = place.split_at(place.find('/').unwrap_or(place.len()));
    (server, path.trim_end_matches('/'))
}

/// The value of `Host`. The dot that ends a full name is for the resolver only.
fn host_header(server: &str) -> Result<HeaderValue, BoxError> {
    Ok(match server.rsplit_once(".:") {
        Some((name, port)) => HeaderValue::try_from(format!("{name}:{port}"))?,
        None => HeaderValue::from_str(server)?,
    })
}

impl PooledConnection {
    async fn send(&mut self, request: Request<RequestBody>) -> Result<Response<Incoming>, TrySendError<Request<RequestBody>>> {
        let mut answer = pin!(self.requests.try_send_request(request));
        std::future::poll_fn(|context| {
            drive(&mut self.connection, context);
            answer.as_mut().poll(context)
        })
        .await
    }

    /// Whether the connection can take a request.
    fn is_ready(&mut self) -> bool {
        drive(&mut self.connection, &mut Context::from_waker(Waker::noop()));
        self.connection.is_some() && self.requests.is_ready()
    }
}

/// Makes what progress is possible. Errors surface at the pending request or body.
fn drive(connection: &mut Option<Box<Connection<TokioIo<TcpStream>, RequestBody>>>, context: &mut Context<'_>) {
    if connection.as_mut().is_some_and(|connection| Pin::new(connection).poll(context).is_ready()) {
        *connection = None;
    }
}

impl Pool {
    fn connections(&self) -> MutexGuard<'_, FastMap<String, Vec<(Instant, PooledConnection)>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The most recently used connection, so that superfluous ones expire.
    fn take(&self, server: &str) -> Option<PooledConnection> {
        let mut all = self.connections();
        let connections = all.get_mut(server)?;
        std::iter::from_fn(|| connections.pop())
            .find_map(|(since, mut connection)| (since.elapsed() < IDLE_TIMEOUT && connection.is_ready()).then_some(connection))
    }

    fn put(&self, server: &str, connection: PooledConnection) {
        let mut all = self.connections();
        match all.get_mut(server) {
            Some(connections) if connections.len() >= IDLE_PER_SERVER_MAX => {}
            Some(connections) => connections.push((Instant::now(), connection)),
            None => drop(all.insert(server.to_owned(), vec![(Instant::now(), connection)])),
        }
    }

    /// Runs until the client is dropped.
    async fn sweep(pool: Weak<Self>) {
        loop {
            sleep(IDLE_TIMEOUT).await;
            let Some(pool) = pool.upgrade() else { return };
            pool.prune();
        }
    }

    fn prune(&self) {
        self.connections().retain(|_, connections| {
            connections.retain_mut(|(since, connection)| since.elapsed() < IDLE_TIMEOUT && connection.is_ready());
            !connections.is_empty()
        });
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let mut polled = Pin::new(&mut self.body).poll_frame(context);
        if polled.is_pending()
            && let Some(connection) = &mut self.connection
        {
            drive(&mut connection.connection, context);
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

impl Drop for ResponseBody {
    /// A connection with an unread response is closed, which tells the server that the client has left.
    fn drop(&mut self) {
        let ended = self.is_end_stream();
        if let Some(mut connection) = self.connection.take().filter(|_| ended)
            && connection.is_ready()
        {
            self.pool.put(&self.server, connection);
        }
    }
}

#[cfg(test)]
mod tests;
