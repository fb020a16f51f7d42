//! The HTTP transport of gix: its requests go through a client that keeps to the egress rules, within a deadline and a
//! limit of bytes. gix is blocking and runs on a thread of its own.

use std::io::{self, BufRead, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Buf, Bytes};
use gix_transport::client::blocking_io::http::{GetResponse, Http, PostBodyDataKind, PostResponse};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, RequestBuilder, Response};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};
use url::Url;

/// The number of objects that a pack may announce: gix allocates for each before it arrives.
const OBJECTS_MAX: u32 = 250_000;
/// The start of a pack within the response: its side band, signature and version.
const PACK_START: &[u8] = b"\x01PACK\0\0\0\x02";

/// Why the transfer ended early.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TransportFault {
    Blocked(String),
    Unreachable(String),
    Status(u16),
    Slow,
    TooLarge(u64),
    TooMany(u32),
}

#[derive(Clone)]
pub(super) struct HttpTransport {
    client: Client,
    runtime: Handle,
    deadline: Instant,
    bytes_max: u64,
    received: Arc<Mutex<u64>>,
    first_fault: FirstFault,
    /// The URL of the repository after redirects, on the same host.
    base: Option<String>,
}

/// The first fault of the transfer. gix reports only what follows from it.
#[derive(Clone, Default)]
pub(super) struct FirstFault(Arc<Mutex<Option<TransportFault>>>);

impl FirstFault {
    pub(super) fn get(&self) -> Option<TransportFault> {
        lock(&self.0).clone()
    }

    fn set(&self, fault: TransportFault) -> io::Error {
        let words = format!("{fault:?}");
        lock(&self.0).get_or_insert(fault);
        io::Error::other(words)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl HttpTransport {
    pub(super) fn new(client: Client, runtime: Handle, deadline: Instant, bytes_max: u64) -> Self {
        Self { client, runtime, deadline, bytes_max, received: Arc::default(), first_fault: FirstFault::default(), base: None }
    }

    pub(super) fn first_fault(&self) -> FirstFault {
        self.first_fault.clone()
    }

    /// Waits, until the deadline at most.
    fn wait<T>(&self, url: &Url, work: impl Future<Output = Result<T, reqwest::Error>>) -> io::Result<T> {
        match self.runtime.block_on(timeout_at(self.deadline, work)) {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(error)) => {
                let words = slipway_egress::explain(&error, &slipway_egress::redacted(url));
                let fault =
                    if slipway_egress::is_blocked(&error) { TransportFault::Blocked(words) } else { TransportFault::Unreachable(words) };
                Err(self.first_fault.set(fault))
            }
            Err(_) => Err(self.first_fault.set(TransportFault::Slow)),
        }
    }

    fn send(&self, url: &Url, request: RequestBuilder) -> io::Result<Response> {
        let response = self.wait(url, request.send())?;
        match response.status().as_u16() {
            200 => Ok(response),
            status => Err(self.first_fault.set(TransportFault::Status(status))),
        }
    }

    fn request(
        &self,
        method: reqwest::Method,
        url: &str,
        headers: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> io::Result<(Url, RequestBuilder)> {
        let url = Url::parse(url).map_err(io::Error::other)?;
        let mut map = HeaderMap::new();
        for line in headers {
            let (name, value) = line.as_ref().split_once(':').unwrap_or((line.as_ref(), ""));
            let name: HeaderName = name.trim().parse().map_err(io::Error::other)?;
            map.insert(name, HeaderValue::from_str(value.trim()).map_err(io::Error::other)?);
        }
        Ok((url.clone(), self.client.request(method, url).headers(map)))
    }
}

impl Http for HttpTransport {
    type Headers = ResponseHeaders;
    type ResponseBody = ResponseBody;
    type PostBody = RequestBody;

    fn get(
        &mut self,
        url: &str,
        base_url: &str,
        headers: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> gix_error::Result<GetResponse<ResponseHeaders, ResponseBody>> {
        let (url, request) = self.request(reqwest::Method::GET, url, headers).map_err(gix_error::Error::from_error)?;
        let response = self.send(&url, request).map_err(gix_error::Error::from_error)?;
        // After a redirect, the following requests go to the new URL.
        let tail = url.as_str().strip_prefix(base_url.trim_end_matches('/'));
        self.base = tail.and_then(|tail| response.url().as_str().strip_suffix(tail)).map(str::to_owned);
        let exchange = Arc::new(Mutex::new(Exchange::Responded(response)));
        let headers = ResponseHeaders { transport: self.clone(), exchange: exchange.clone(), text: None };
        Ok(GetResponse { headers, body: ResponseBody { transport: self.clone(), exchange, piece: Bytes::new(), tail: Vec::new() } })
    }

    fn post(
        &mut self,
        url: &str,
        _: &str,
        headers: impl IntoIterator<Item = impl AsRef<str>>,
        _: PostBodyDataKind,
    ) -> gix_error::Result<PostResponse<ResponseHeaders, ResponseBody, RequestBody>> {
        let (url, request) = self.request(reqwest::Method::POST, url, headers).map_err(gix_error::Error::from_error)?;
        let exchange = Arc::new(Mutex::new(Exchange::Pending { url, request: Box::new(request), body: Vec::new() }));
        let headers = ResponseHeaders { transport: self.clone(), exchange: exchange.clone(), text: None };
        let body = ResponseBody { transport: self.clone(), exchange: exchange.clone(), piece: Bytes::new(), tail: Vec::new() };
        Ok(PostResponse { post_body: RequestBody(exchange), headers, body })
    }

    fn configure(&mut self, _: &dyn std::any::Any) -> gix_error::Result {
        Ok(())
    }

    fn redirected_base_url(&self) -> Option<String> {
        self.base.clone()
    }
}

/// A request until its response is first read; then the response.
enum Exchange {
    Pending { url: Url, request: Box<RequestBuilder>, body: Vec<u8> },
    Responded(Response),
    Done,
}

/// The response; sends the request first if it is pending.
fn response_of<'a>(transport: &HttpTransport, exchange: &'a mut Exchange) -> io::Result<Option<&'a mut Response>> {
    if matches!(exchange, Exchange::Pending { .. })
        && let Exchange::Pending { url, request, body } = std::mem::replace(exchange, Exchange::Done)
    {
        *exchange = Exchange::Responded(transport.send(&url, request.body(body))?);
    }
    Ok(match exchange {
        Exchange::Responded(response) => Some(response),
        _ => None,
    })
}

/// The body of a POST: a few lines of haves and wants.
pub(super) struct RequestBody(Arc<Mutex<Exchange>>);

impl Write for RequestBody {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut *lock(&self.0) {
            Exchange::Pending { body, .. } => body.extend_from_slice(bytes),
            _ => return Err(io::Error::other("the request was sent already")),
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The headers of the response, as lines.
pub(super) struct ResponseHeaders {
    transport: HttpTransport,
    exchange: Arc<Mutex<Exchange>>,
    text: Option<io::Cursor<Vec<u8>>>,
}

impl ResponseHeaders {
    fn text(&mut self) -> io::Result<&mut io::Cursor<Vec<u8>>> {
        if self.text.is_none() {
            let mut text = Vec::new();
            if let Some(response) = response_of(&self.transport, &mut lock(&self.exchange))? {
                for (name, value) in response.headers() {
                    text.extend_from_slice(name.as_str().as_bytes());
                    text.extend_from_slice(b": ");
                    text.extend_from_slice(value.as_bytes());
                    text.push(b'\n');
                }
            }
            self.text = Some(io::Cursor::new(text));
        }
        self.text.as_mut().ok_or_else(|| io::Error::other("no headers"))
    }
}

impl Read for ResponseHeaders {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.text()?.read(buffer)
    }
}

impl BufRead for ResponseHeaders {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.text()?.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        if let Some(text) = &mut self.text {
            text.consume(count);
        }
    }
}

/// The body of the response, counted.
pub(super) struct ResponseBody {
    transport: HttpTransport,
    exchange: Arc<Mutex<Exchange>>,
    piece: Bytes,
    /// The last bytes of the previous piece, in which a pack may have started.
    tail: Vec<u8>,
}

impl ResponseBody {
    fn next(&mut self) -> io::Result<Option<Bytes>> {
        let transport = &self.transport;
        let mut exchange = lock(&self.exchange);
        let Some(response) = response_of(transport, &mut exchange)? else { return Ok(None) };
        let url = response.url().clone();
        let piece = transport.wait(&url, response.chunk())?;
        let Some(piece) = piece else {
            *exchange = Exchange::Done;
            return Ok(None);
        };
        let mut received = lock(&transport.received);
        *received += piece.len() as u64;
        if *received > transport.bytes_max {
            return Err(transport.first_fault.set(TransportFault::TooLarge(transport.bytes_max)));
        }
        drop(received);
        self.tail.extend_from_slice(&piece);
        if let Some(count) = announced_objects(&self.tail)
            && count > OBJECTS_MAX
        {
            return Err(transport.first_fault.set(TransportFault::TooMany(OBJECTS_MAX)));
        }
        let kept = self.tail.len().saturating_sub(PACK_START.len() + 4);
        self.tail.drain(..kept);
        Ok(Some(piece))
    }
}

/// The number of objects of a pack that starts in `bytes`.
fn announced_objects(bytes: &[u8]) -> Option<u32> {
    let at = bytes.windows(PACK_START.len()).position(|window| window == PACK_START)? + PACK_START.len();
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes)
}

impl Read for ResponseBody {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let ready = self.fill_buf()?;
        let count = ready.len().min(buffer.len());
        buffer[..count].copy_from_slice(&ready[..count]);
        self.consume(count);
        Ok(count)
    }
}

impl BufRead for ResponseBody {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.piece.is_empty() {
            match self.next()? {
                Some(piece) => self.piece = piece,
                None => break,
            }
        }
        Ok(&self.piece)
    }

    fn consume(&mut self, count: usize) {
        self.piece.advance(count.min(self.piece.len()));
    }
}
