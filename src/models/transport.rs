//! The HTTP client of providers: one connection pool per model, timeouts, and retries. Redirects are not followed, because a
//! key must not be sent to another host.

use std::error::Error;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Response, redirect};
use serde_json::Value;
use tokio::time::{sleep, timeout};
use url::Url;

use crate::fault::{FaultKind, ModelFault};
use crate::refusal::{ErrorResponse, redacted};

/// The most that is read of an error.
const MAX_ERROR_BYTES: usize = 64 * 1024;
/// The largest answer that is not streamed, such as a token or a batch of vectors.
const MAX_RESPONSE_BYTES: usize = 64 << 20;

#[derive(Debug, Clone, Copy)]
pub(crate) struct TransportLimits {
    pub(crate) connect: Duration,
    /// The time from the request to the head of the answer. Local models may have to be loaded first.
    pub(crate) first_byte: Duration,
    /// The time between two parts of the answer. Models may think silently for a while.
    pub(crate) idle: Duration,
    pub(crate) attempts: u32,
    /// The pause before the second attempt; it doubles with each further one.
    pub(crate) backoff: Duration,
    /// The longest `Retry-After` that is respected, and the time after which no attempt begins.
    pub(crate) max_wait: Duration,
}

impl Default for TransportLimits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            first_byte: Duration::from_mins(5),
            idle: Duration::from_mins(3),
            attempts: 4,
            backoff: Duration::from_millis(500),
            max_wait: Duration::from_mins(1),
        }
    }
}

/// A request that can be repeated.
#[derive(Clone)]
pub(crate) struct ProviderCall {
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl ProviderCall {
    pub(crate) fn json(url: Url, body: &Value) -> Self {
        let headers = HeaderMap::from_iter([(http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        Self { url, headers, body: body.to_string().into() }
    }

    pub(crate) fn header(mut self, name: &'static str, value: HeaderValue) -> Self {
        self.headers.insert(HeaderName::from_static(name), value);
        self
    }
}

pub(crate) struct Transport {
    /// The name of the provider in messages.
    name: &'static str,
    model: String,
    limits: TransportLimits,
    /// Built on first use, so that an idle agent has no certificates in memory.
    client: OnceLock<Client>,
}

impl Transport {
    pub(crate) fn new(name: &'static str, model: &str, limits: TransportLimits) -> Self {
        Self { name, model: model.to_owned(), limits, client: OnceLock::new() }
    }

    pub(crate) fn limits(&self) -> &TransportLimits {
        &self.limits
    }

    /// An error response of this provider and model.
    pub(crate) fn refused<'a>(&'a self, status: u16, body: &'a Value) -> ErrorResponse<'a> {
        ErrorResponse { name: self.name, model: &self.model, status, body, headers: None }
    }

    /// One attempt, up to the head of a successful answer.
    pub(crate) async fn attempt(&self, call: &ProviderCall) -> Result<Response, ModelFault> {
        let request = self.client()?.post(call.url.clone()).headers(call.headers.clone()).body(call.body.clone());
        let response = match timeout(self.limits.first_byte, request.send()).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(redacted(self.unreachable(&call.url, &error), &call.headers)),
            Err(_) => return Err(self.silent(self.limits.first_byte)),
        };
        if response.status().is_success() {
            return Ok(response);
        }
        Err(self.refusal(response, &call.headers).await)
    }

    /// A call with a JSON answer that is not streamed, with retries.
    pub(crate) async fn json(&self, call: &ProviderCall) -> Result<Value, ModelFault> {
        let mut attempts = Attempts::new();
        loop {
            match self.once(call).await {
                Ok(value) => return Ok(value),
                Err(fault) => attempts.pause(&self.limits, fault).await?,
            }
        }
    }

    async fn once(&self, call: &ProviderCall) -> Result<Value, ModelFault> {
        let mut response = self.attempt(call).await?;
        let mut body = Vec::new();
        while let Some(chunk) = self.chunk(&mut response).await? {
            if body.len() + chunk.len() > MAX_RESPONSE_BYTES {
                return Err(ModelFault::new(FaultKind::Broken, format!("{} answered with more than 64 MiB", self.name)));
            }
            body.extend_from_slice(&chunk);
        }
        serde_json::from_slice(&body)
            .map_err(|_| ModelFault::new(FaultKind::Broken, format!("{} answered with something that is not JSON", self.name)))
    }

    /// The next part of an answer.
    pub(crate) async fn chunk(&self, response: &mut Response) -> Result<Option<Bytes>, ModelFault> {
        match timeout(self.limits.idle, response.chunk()).await {
            Ok(Ok(chunk)) => Ok(chunk),
            Ok(Err(_)) => {
                Err(ModelFault::new(FaultKind::Broken, format!("the connection to {} was lost within the answer; try again", self.name)))
            }
            Err(_) => Err(self.silent(self.limits.idle)),
        }
    }

    fn client(&self) -> Result<&Client, ModelFault> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let built = Client::builder()
            .connect_timeout(self.limits.connect)
            .redirect(redirect::Policy::none())
            .pool_idle_timeout(Duration::from_mins(1))
            .user_agent(concat!("slipway/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| ModelFault::new(FaultKind::Misconfigured, format!("no connections can be made: {}", root(&error))))?;
        Ok(self.client.get_or_init(|| built))
    }

    async fn refusal(&self, mut response: Response, sent: &HeaderMap) -> ModelFault {
        let status = response.status().as_u16();
        let headers = response.headers().clone();
        let mut body = Vec::new();
        while let Ok(Some(chunk)) = self.chunk(&mut response).await {
            body.extend_from_slice(&chunk);
            if body.len() > MAX_ERROR_BYTES {
                break;
            }
        }
        let body = serde_json::from_slice(&body).unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&body).into_owned()));
        redacted(ErrorResponse { headers: Some(&headers), ..self.refused(status, &body) }.fault(), sent)
    }

    fn unreachable(&self, url: &Url, error: &reqwest::Error) -> ModelFault {
        let host = url.host_str().unwrap_or_default();
        let port = url.port_or_known_default().unwrap_or_default();
        ModelFault::new(
            FaultKind::Unreachable,
            format!(
                "{} cannot be reached at {host}:{port}: {}; see that the address is right and may be reached from here",
                self.name,
                root(error)
            ),
        )
    }

    fn silent(&self, waited: Duration) -> ModelFault {
        ModelFault::new(FaultKind::Timeout, format!("{} said nothing for {} s; try again", self.name, waited.as_secs_f32()))
    }
}

/// The message of the innermost cause; the outer ones repeat the URL.
pub(crate) fn root(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

/// Counts attempts, and waits between them.
pub(crate) struct Attempts {
    made: u32,
    began: Instant,
}

impl Attempts {
    pub(crate) fn new() -> Self {
        Self { made: 0, began: Instant::now() }
    }

    /// Waits before the next attempt, or returns the fault if there is none.
    pub(crate) async fn pause(&mut self, limits: &TransportLimits, fault: ModelFault) -> Result<(), ModelFault> {
        self.made += 1;
        let Some(wait) = self.wait(limits, &fault) else { return Err(fault) };
        tracing::info!(
            fault = fault.kind().name(),
            attempt = self.made,
            wait_ms = wait.as_millis(),
            "the model's provider failed and is asked again"
        );
        sleep(wait).await;
        Ok(())
    }

    fn wait(&self, limits: &TransportLimits, fault: &ModelFault) -> Option<Duration> {
        if self.made >= limits.attempts || !fault.retryable() {
            return None;
        }
        let backoff = limits.backoff * 2_u32.saturating_pow(self.made - 1);
        // Jitter, so that callers that failed together do not retry together.
        let wait = fault.retry_after().unwrap_or_default() + backoff.mul_f32(0.5 + 0.5 * chance());
        (self.began.elapsed() + wait <= limits.max_wait).then_some(wait)
    }
}

/// A number from 0 to 1.
fn chance() -> f32 {
    f32::from(getrandom::u32().unwrap_or_default().to_be_bytes()[0]) / 255.0
}
