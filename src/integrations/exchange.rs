//! Requests to a server over the egress rules, bounded in bytes, and when the last answer came.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Instant;

use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Response, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::Value;
use slipway_egress::Egress;
use url::Url;

use crate::outcome::{ConnectionFault, Reason, Subject};

/// How much of an answer is read.
const MAX_ANSWER_BYTES: usize = 1024 * 1024;
/// What is said of a connection that failed, in the words of TLS and of the system.
const WORDS_MAX: usize = 200;
/// No answer has come.
const NOTHING: i64 = -1;

/// The requests of one test, or of one delivery.
pub(crate) struct Line<'a> {
    pub(crate) egress: &'a Egress,
    begun: OnceLock<Instant>,
    /// When the last answer came, in milliseconds after the beginning.
    heard: AtomicI64,
    /// Scheme, host and port of the last request.
    place: Mutex<String>,
}

pub(crate) struct ServerCall {
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Option<Vec<u8>>,
}

/// What a server answered, and where it stands.
pub(crate) struct ServerAnswer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    body: Vec<u8>,
    pub(crate) place: String,
}

impl ServerCall {
    pub(crate) fn get(url: Url) -> Self {
        let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static("application/json"))]);
        Self { method: Method::GET, url, headers, body: None }
    }

    pub(crate) fn post(url: Url, body: &Value) -> Self {
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        Self { method: Method::POST, url, headers, body: Some(body.to_string().into_bytes()) }
    }

    pub(crate) fn with(mut self, name: HeaderName, value: Option<HeaderValue>) -> Self {
        if let Some(value) = value {
            self.headers.insert(name, value);
        }
        self
    }
}

impl<'a> Line<'a> {
    pub(crate) fn new(egress: &'a Egress) -> Self {
        Self { egress, begun: OnceLock::new(), heard: AtomicI64::new(NOTHING), place: Mutex::new("the server".to_owned()) }
    }

    /// What is asked last, for words.
    pub(crate) fn place(&self) -> String {
        self.place.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A request is about to be sent there.
    pub(crate) fn begin(&self, place: &str) {
        self.begun.get_or_init(Instant::now);
        place.clone_into(&mut self.place.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// An answer has come.
    pub(crate) fn hear(&self) {
        if let Some(begun) = self.begun.get() {
            self.heard.store(crate::milliseconds(begun.elapsed()), Ordering::Relaxed);
        }
    }

    /// From the first request to the last answer, in milliseconds.
    pub(crate) fn latency(&self) -> Option<i64> {
        Some(self.heard.load(Ordering::Relaxed)).filter(|heard| *heard != NOTHING)
    }

    /// Sends a request. An answer is one whatever its status.
    pub(crate) async fn send(&self, call: ServerCall) -> Result<ServerAnswer, ConnectionFault> {
        let ServerCall { method, url, headers, body } = call;
        let place = slipway_egress::redacted(&url);
        // Before the clock starts: the first client of a process reads the certificates of the system.
        let client = self.egress.client(&url).map_err(|blocked| ConnectionFault::blocked(&blocked))?;
        let mut request = client.request(method, url.clone()).headers(headers);
        if let Some(body) = body {
            request = request.body(body);
        }
        self.begin(&place);
        let response = request.send().await.map_err(|error| self.failed(&error, &url))?;
        self.hear();
        let (status, headers) = (response.status(), response.headers().clone());
        let body = read(response).await.map_err(|error| self.failed(&error, &url))?;
        let body = body.ok_or_else(|| {
            ConnectionFault::new(Reason::Unexpected, format!("{place} answers with more than {} MiB", MAX_ANSWER_BYTES >> 20))
        })?;
        Ok(ServerAnswer { status, headers, body, place })
    }

    fn failed(&self, error: &reqwest::Error, url: &Url) -> ConnectionFault {
        let place = slipway_egress::redacted(url);
        if slipway_egress::is_blocked(error) {
            return ConnectionFault::new(Reason::AddressNotAllowed, slipway_egress::explain(error, &place));
        }
        if error.is_timeout() {
            return ConnectionFault::late(&place);
        }
        unreached(&place, &slipway_egress::root_cause(error), self.egress.may_disclose(url))
    }
}

/// What is said where no answer came. Why is told of public places alone, and of those that the operator has allowed.
pub(crate) fn unreached(place: &str, cause: &str, is_told: bool) -> ConnectionFault {
    let message = if is_told {
        let cause: String = cause.chars().take(WORDS_MAX).collect();
        format!("{place} could not be reached: {cause}")
    } else {
        format!("{place} could not be reached, or is not public")
    };
    ConnectionFault::new(Reason::Unreachable, message)
}

impl ServerAnswer {
    /// A success, or what its status says.
    pub(crate) fn successful(self, subject: Subject<'_>) -> Result<Self, ConnectionFault> {
        if self.status.is_success() {
            return Ok(self);
        }
        Err(ConnectionFault::refused(&self.place, self.status.as_u16(), subject))
    }

    /// The body as JSON of this form, or the words for another server.
    pub(crate) fn json<T: DeserializeOwned>(&self, server: &str) -> Result<T, ConnectionFault> {
        serde_json::from_slice(&self.body).map_err(|_| ConnectionFault::other(&self.place, server))
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap_or_default()
    }
}

/// An http or https URL, which has no user and no password.
pub(crate) fn url(text: &str) -> Option<Url> {
    let url = Url::parse(text).ok()?;
    let is_plain = url.username().is_empty() && url.password().is_none() && url.has_host();
    (is_plain && matches!(url.scheme(), "http" | "https")).then_some(url)
}

/// A path beneath a URL that ends with a slash.
pub(crate) fn beneath(base: &Url, path: &str) -> Result<Url, ConnectionFault> {
    base.join(path).map_err(|_| ConnectionFault::new(Reason::Invalid, "the server's URL is none"))
}

/// None if the answer is too long.
async fn read(mut answer: Response) -> reqwest::Result<Option<Vec<u8>>> {
    let mut body = Vec::new();
    while let Some(piece) = answer.chunk().await? {
        if body.len() + piece.len() > MAX_ANSWER_BYTES {
            return Ok(None);
        }
        body.extend_from_slice(&piece);
    }
    Ok(Some(body))
}
