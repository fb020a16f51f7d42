//! How gix gets at the network: its requests, made by a client that keeps to the egress rules, within what an import
//! may take of time and bytes. gix waits for each answer on a thread of its own.

use std::io::{self, BufRead, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Buf, Bytes};
use gix_transport::client::blocking_io::http::{GetResponse, Http, PostBodyDataKind, PostResponse};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, RequestBuilder, Response};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};
use url::Url;

/// How many objects a pack may say that it has: room is made for each before it has come.
const OBJECTS_MAX: u32 = 250_000;
/// How a pack begins within the answer: the band that it is sent on, its name, its version.
const PACK: &[u8] = b"\x01PACK\0\0\0\x02";

/// Why no more comes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fault {
    Blocked(String),
    Unreachable(String),
    Status(u16),
    Slow,
    TooLarge(u64),
    TooMany(u32),
}

#[derive(Clone)]
pub(super) struct Wire {
    client: Client,
    runtime: Handle,
    deadline: Instant,
    most: u64,
    come: Arc<Mutex<u64>>,
    outcome: Outcome,
    /// Where the repository turned out to be, on the same host.
    base: Option<String>,
}

/// What the first fault was; gix has its own words for what follows from it.
#[derive(Clone, Default)]
pub(super) struct Outcome(Arc<Mutex<Option<Fault>>>);

impl Outcome {
    pub(super) fn fault(&self) -> Option<Fault> {
        lock(&self.0).clone()
    }

    fn note(&self, fault: Fault) -> io::Error {
        let words = format!("{fault:?}");
        lock(&self.0).get_or_insert(fault);
        io::Error::other(words)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Wire {
    pub(super) fn new(client: Client, runtime: Handle, deadline: Instant, most: u64) -> Self {
        Self { client, runtime, deadline, most, come: Arc::default(), outcome: Outcome::default(), base: None }
    }

    pub(super) fn outcome(&self) -> Outcome {
        self.outcome.clone()
    }

    /// Waits within the time there is.
    fn wait<T>(&self, url: &Url, work: impl Future<Output = Result<T, reqwest::Error>>) -> io::Result<T> {
        match self.runtime.block_on(timeout_at(self.deadline, work)) {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(error)) => {
                let words = slipway_egress::explain(&error, &slipway_egress::redacted(url));
                let fault = if slipway_egress::is_blocked(&error) { Fault::Blocked(words) } else { Fault::Unreachable(words) };
                Err(self.outcome.note(fault))
            }
            Err(_) => Err(self.outcome.note(Fault::Slow)),
        }
    }

    fn send(&self, url: &Url, request: RequestBuilder) -> io::Result<Response> {
        let response = self.wait(url, request.send())?;
        match response.status().as_u16() {
            200 => Ok(response),
            status => Err(self.outcome.note(Fault::Status(status))),
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

impl Http for Wire {
    type Headers = Headers;
    type ResponseBody = Body;
    type PostBody = Sent;

    fn get(
        &mut self,
        url: &str,
        base_url: &str,
        headers: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> gix_error::Result<GetResponse<Headers, Body>> {
        let (url, request) = self.request(reqwest::Method::GET, url, headers).map_err(gix_error::Error::from_error)?;
        let response = self.send(&url, request).map_err(gix_error::Error::from_error)?;
        // A host may say that a repository has moved; what follows is asked there.
        let tail = url.as_str().strip_prefix(base_url.trim_end_matches('/'));
        self.base = tail.and_then(|tail| response.url().as_str().strip_suffix(tail)).map(str::to_owned);
        let exchange = Arc::new(Mutex::new(Exchange::Answered(response)));
        let headers = Headers { wire: self.clone(), exchange: exchange.clone(), text: None };
        Ok(GetResponse { headers, body: Body { wire: self.clone(), exchange, piece: Bytes::new(), begun: Vec::new() } })
    }

    fn post(
        &mut self,
        url: &str,
        _: &str,
        headers: impl IntoIterator<Item = impl AsRef<str>>,
        _: PostBodyDataKind,
    ) -> gix_error::Result<PostResponse<Headers, Body, Sent>> {
        let (url, request) = self.request(reqwest::Method::POST, url, headers).map_err(gix_error::Error::from_error)?;
        let exchange = Arc::new(Mutex::new(Exchange::Asking { url, request: Box::new(request), body: Vec::new() }));
        let headers = Headers { wire: self.clone(), exchange: exchange.clone(), text: None };
        let body = Body { wire: self.clone(), exchange: exchange.clone(), piece: Bytes::new(), begun: Vec::new() };
        Ok(PostResponse { post_body: Sent(exchange), headers, body })
    }

    fn configure(&mut self, _: &dyn std::any::Any) -> gix_error::Result {
        Ok(())
    }

    fn redirected_base_url(&self) -> Option<String> {
        self.base.clone()
    }
}

/// A question, until its answer is first looked at; then the answer.
enum Exchange {
    Asking { url: Url, request: Box<RequestBuilder>, body: Vec<u8> },
    Answered(Response),
    Over,
}

/// The answer to a question, which is asked now if it was not.
fn answered<'a>(wire: &Wire, exchange: &'a mut Exchange) -> io::Result<Option<&'a mut Response>> {
    if matches!(exchange, Exchange::Asking { .. })
        && let Exchange::Asking { url, request, body } = std::mem::replace(exchange, Exchange::Over)
    {
        *exchange = Exchange::Answered(wire.send(&url, request.body(body))?);
    }
    Ok(match exchange {
        Exchange::Answered(response) => Some(response),
        _ => None,
    })
}

/// What is posted: a few lines of what we have and want.
pub(super) struct Sent(Arc<Mutex<Exchange>>);

impl Write for Sent {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut *lock(&self.0) {
            Exchange::Asking { body, .. } => body.extend_from_slice(bytes),
            _ => return Err(io::Error::other("the question was asked already")),
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The answer's headers, as lines.
pub(super) struct Headers {
    wire: Wire,
    exchange: Arc<Mutex<Exchange>>,
    text: Option<io::Cursor<Vec<u8>>>,
}

impl Headers {
    fn text(&mut self) -> io::Result<&mut io::Cursor<Vec<u8>>> {
        if self.text.is_none() {
            let mut text = Vec::new();
            if let Some(response) = answered(&self.wire, &mut lock(&self.exchange))? {
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

impl Read for Headers {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.text()?.read(buffer)
    }
}

impl BufRead for Headers {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.text()?.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        if let Some(text) = &mut self.text {
            text.consume(count);
        }
    }
}

/// The answer's body, counted.
pub(super) struct Body {
    wire: Wire,
    exchange: Arc<Mutex<Exchange>>,
    piece: Bytes,
    /// The last bytes of the piece before, in which a pack may have begun.
    begun: Vec<u8>,
}

impl Body {
    fn next(&mut self) -> io::Result<Option<Bytes>> {
        let wire = &self.wire;
        let mut exchange = lock(&self.exchange);
        let Some(response) = answered(wire, &mut exchange)? else { return Ok(None) };
        let url = response.url().clone();
        let piece = wire.wait(&url, response.chunk())?;
        let Some(piece) = piece else {
            *exchange = Exchange::Over;
            return Ok(None);
        };
        let mut come = lock(&wire.come);
        *come += piece.len() as u64;
        if *come > wire.most {
            return Err(wire.outcome.note(Fault::TooLarge(wire.most)));
        }
        drop(come);
        self.begun.extend_from_slice(&piece);
        if let Some(count) = objects(&self.begun)
            && count > OBJECTS_MAX
        {
            return Err(wire.outcome.note(Fault::TooMany(OBJECTS_MAX)));
        }
        let kept = self.begun.len().saturating_sub(PACK.len() + 4);
        self.begun.drain(..kept);
        Ok(Some(piece))
    }
}

/// How many objects a pack says that it has, if one begins here.
fn objects(bytes: &[u8]) -> Option<u32> {
    let at = bytes.windows(PACK.len()).position(|window| window == PACK)? + PACK.len();
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes)
}

impl Read for Body {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let ready = self.fill_buf()?;
        let count = ready.len().min(buffer.len());
        buffer[..count].copy_from_slice(&ready[..count]);
        self.consume(count);
        Ok(count)
    }
}

impl BufRead for Body {
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
