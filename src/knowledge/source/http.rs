//! Requests to a source: over the platform's egress rules, with limits of time and bytes, repeated with backoff as long as the
//! source is busy. Each source reads its own errors.

mod redirect;
mod tree;
mod wait;

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION};
use reqwest::{Method, Response, StatusCode};
use serde::de::DeserializeOwned;
use slipway_egress::{Blocked, Egress, EgressProfile};
use url::Url;

use super::{Contact, Fetched, MAX_DOCUMENT_BYTES, SourceError, SourceErrorKind, Surroundings};

pub use wait::asked as retry_after;

const PROFILE: EgressProfile = EgressProfile {
    name: "knowledge sources",
    setting: "the chart value agents.egressAllow",
    user_agent: concat!("slipway/", env!("CARGO_PKG_VERSION")),
};

/// How much of an error's body is read.
const MAX_ERROR_BYTES: u64 = 64 * 1024;
/// Pages of lists have less than 5 MiB; the longest answer is a page of a wiki.
const MAX_ANSWER_BYTES: u64 = 16 * 1024 * 1024;
/// Of an answer together with what it becomes: a part of the ingestion's share of its pod, see [`crate::budget`].
const MAX_TREE_BYTES: u64 = 64 * 1024 * 1024;
/// As long as anybody may ask for it, and many may at once.
const MAX_SHORT_ANSWER_BYTES: u64 = 1024 * 1024;
const MAX_REDIRECTS: usize = 3;

/// The limits of requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HttpLimits {
    /// How often a request is sent in all.
    pub(crate) attempts: u32,
    /// How many redirects of a GET are followed.
    pub(crate) redirects: usize,
    /// The first wait; each further one may be twice as long.
    pub(crate) backoff: Duration,
    /// The longest wait within an ingestion. A source that wants a longer one ends it.
    pub(crate) longest_wait: Duration,
    /// From sending a request to the last byte of an answer that is no document.
    pub(crate) answer_timeout: Duration,
    /// Between two pieces of a document.
    pub(crate) idle_timeout: Duration,
    /// For a document as a whole.
    pub(crate) document_timeout: Duration,
    /// Of an answer that is no document.
    pub(crate) answer_bytes: u64,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            attempts: 5,
            redirects: MAX_REDIRECTS,
            backoff: Duration::from_millis(500),
            longest_wait: Duration::from_mins(1),
            answer_timeout: Duration::from_mins(1),
            idle_timeout: Duration::from_secs(30),
            document_timeout: Duration::from_mins(10),
            answer_bytes: MAX_ANSWER_BYTES,
        }
    }
}

impl HttpLimits {
    /// Of a server that is only tried: one request, which goes to no other place, and a short answer.
    pub(crate) fn once() -> Self {
        Self { attempts: 1, redirects: 0, answer_bytes: MAX_SHORT_ANSWER_BYTES, ..Self::default() }
    }
}

/// A source's server.
pub(crate) struct Http {
    egress: Egress,
    pub(crate) limits: HttpLimits,
    /// The field of the configuration that names the server.
    field: &'static str,
    /// Refuses answers that are successful by their status alone.
    pub(crate) suspect: Option<fn(&HeaderMap) -> Option<SourceError>>,
}

/// One request. Made anew for each attempt, because signatures hold the time.
pub(crate) struct SourceCall {
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) body: Option<String>,
}

/// An answer that is no success.
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    /// Scheme, host and port of the server.
    pub(crate) place: String,
}

pub(crate) type Maker<'a> = &'a (dyn Fn() -> Result<SourceCall, SourceError> + Send + Sync);
/// What a source makes of a refusal.
pub(crate) type Judge<'a> = &'a (dyn Fn(&Refusal) -> SourceError + Send + Sync);

impl SourceCall {
    pub(crate) fn get(url: Url) -> Self {
        Self { method: Method::GET, url, headers: Vec::new(), body: None }
    }

    pub(crate) fn post(url: Url, content_type: &'static str, body: String) -> Self {
        let headers = vec![(CONTENT_TYPE, HeaderValue::from_static(content_type))];
        Self { method: Method::POST, url, headers, body: Some(body) }
    }

    pub(crate) fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }
}

impl Refusal {
    pub(crate) fn json<T: DeserializeOwned + Default>(&self) -> T {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// What is said of an answer that the source has no better words for.
    pub(crate) fn other(&self, code: &str) -> SourceError {
        // A code is a word; anything longer could be anything.
        let is_word = (1..=64).contains(&code.len()) && code.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
        let code = if is_word { format!(" ({code})") } else { String::new() };
        SourceError::broken(format!("{} answers with status {}{code}", self.place, self.status.as_u16()))
    }
}

impl Http {
    pub(crate) fn new(surroundings: &Surroundings, field: &'static str) -> Self {
        let egress = Egress::without_redirects(PROFILE, &surroundings.allow, surroundings.proxy.clone());
        Self { egress, limits: HttpLimits::default(), field, suspect: None }
    }

    /// The body of a successful answer, as JSON.
    pub(crate) async fn json<T: DeserializeOwned>(&self, make: Maker<'_>, judge: Judge<'_>) -> Result<T, SourceError> {
        let body = self.bytes(make, judge).await?;
        if tree::bytes(&body) > MAX_TREE_BYTES {
            let what = format!("the source answers with JSON that takes more than {} MiB of memory", MAX_TREE_BYTES >> 20);
            return Err(SourceError::broken(what).with_contact(Contact::Answered));
        }
        serde_json::from_slice(&body).map_err(|error| {
            // The parser's words could quote the answer.
            let place = format!("at line {} column {}", error.line(), error.column());
            SourceError::broken(format!("the source answers with JSON of another form, {place}")).with_contact(Contact::Answered)
        })
    }

    /// The body of a successful answer.
    pub(crate) async fn bytes(&self, make: Maker<'_>, judge: Judge<'_>) -> Result<Vec<u8>, SourceError> {
        let mut sent = 1;
        loop {
            match self.answer(make()?, judge).await {
                Ok(body) => return Ok(body),
                Err(error) => self.pause(error, &mut sent).await?,
            }
        }
    }

    async fn answer(&self, call: SourceCall, judge: Judge<'_>) -> Result<Vec<u8>, SourceError> {
        let url = call.url.clone();
        let response = self.send(call, Some(self.limits.answer_timeout)).await?.map_err(|refusal| judged(&refusal, judge))?;
        match read(response, self.limits.answer_bytes).await {
            Ok(Some(body)) => Ok(body),
            Ok(None) => {
                let place = slipway_egress::redacted(&url);
                let what = format!("{place} answers with more than {} MiB", self.limits.answer_bytes >> 20);
                Err(SourceError::broken(what).with_contact(Contact::Answered))
            }
            Err(error) => Err(self.failed(&error, &url)),
        }
    }

    /// Writes the body of a successful answer to a file, behind what it has.
    pub(crate) async fn download(&self, make: Maker<'_>, judge: Judge<'_>, file: &mut File) -> Result<Fetched, SourceError> {
        let start = file.stream_position().map_err(|error| unwritable(&error))?;
        let (timeout, mut sent) = (self.limits.document_timeout, 1);
        loop {
            file.set_len(start).and_then(|()| file.seek(SeekFrom::Start(start)).map(drop)).map_err(|error| unwritable(&error))?;
            let outcome =
                tokio::time::timeout(timeout, self.document(make()?, judge, file, MAX_DOCUMENT_BYTES.saturating_sub(start))).await;
            match outcome {
                Ok(Ok(fetched)) => return Ok(fetched),
                Ok(Err(error)) => self.pause(error, &mut sent).await?,
                Err(_) => return Err(SourceError::unavailable(format!("the document takes more than {} s", timeout.as_secs()))),
            }
        }
    }

    async fn document(&self, call: SourceCall, judge: Judge<'_>, file: &mut File, room: u64) -> Result<Fetched, SourceError> {
        let url = call.url.clone();
        let mut response = self.send(call, None).await?.map_err(|refusal| judged(&refusal, judge))?;
        let content_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).map(str::to_owned);
        if response.content_length().is_some_and(|length| length > room) {
            return Err(too_large());
        }
        let stopped = |_| SourceError::unavailable(format!("{} stopped in the middle of a document", slipway_egress::redacted(&url)));
        let mut bytes = 0;
        loop {
            let piece = tokio::time::timeout(self.limits.idle_timeout, response.chunk()).await.map_err(stopped)?;
            let Some(piece) = piece.map_err(|error| self.failed(&error, &url))? else { return Ok(Fetched { bytes, content_type }) };
            bytes += piece.len() as u64;
            if bytes > room {
                return Err(too_large());
            }
            file.write_all(&piece).map_err(|error| unwritable(&error))?;
        }
    }

    /// Waits before a request is repeated: as long as the source asks for, within bounds. Gives the error back if it is final.
    async fn pause(&self, error: SourceError, sent: &mut u32) -> Result<(), SourceError> {
        if !error.is_transient() || *sent >= self.limits.attempts {
            return Err(error);
        }
        let wait = error.retry_after().unwrap_or_else(|| wait::backoff(self.limits.backoff, *sent));
        if wait > self.limits.longest_wait {
            return Err(error);
        }
        tracing::debug!(%error, wait_ms = wait.as_millis(), "the source is asked again");
        tokio::time::sleep(wait).await;
        *sent += 1;
        Ok(())
    }

    /// Sends a request, and follows redirects of a GET. With a timeout for the whole answer, or for its head alone.
    async fn send(&self, mut call: SourceCall, timeout: Option<Duration>) -> Result<Result<Response, Box<Refusal>>, SourceError> {
        for _ in 0..=self.limits.redirects {
            let url = call.url.clone();
            let blocked = |blocked: Blocked| SourceError::field(self.field, blocked.to_string()).with_contact(Contact::Blocked);
            let client = self.egress.client(&url).map_err(blocked)?;
            let mut request = client.request(call.method.clone(), url.clone());
            for (name, value) in &call.headers {
                request = request.header(name, value);
            }
            if let Some(body) = &call.body {
                request = request.body(body.clone());
            }
            if let Some(timeout) = timeout {
                request = request.timeout(timeout);
            }
            let head = tokio::time::timeout(self.limits.answer_timeout, request.send()).await;
            let slow = || {
                SourceError::unavailable(format!(
                    "{} does not answer within {} s",
                    slipway_egress::redacted(&url),
                    self.limits.answer_timeout.as_secs()
                ))
                .with_contact(Contact::Late)
            };
            let response = head.map_err(|_| slow())?.map_err(|error| self.failed(&error, &url))?;
            if response.status().is_success() {
                let suspected = self.suspect.and_then(|suspect| suspect(response.headers()));
                return suspected.map_or(Ok(Ok(response)), |error| Err(error.with_contact(Contact::Answered)));
            }
            let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
            if let (true, Some(location)) = (call.method == Method::GET && response.status().is_redirection(), location) {
                if self.limits.redirects == 0 {
                    let place = slipway_egress::redacted(&url);
                    let what = format!("{place} redirects to another place, which is not followed");
                    return Err(SourceError::broken(what).with_contact(Contact::Answered));
                }
                call = redirect::follow(call, location)?;
                continue;
            }
            let (status, headers) = (response.status(), response.headers().clone());
            let body = tokio::time::timeout(self.limits.idle_timeout, read_some(response)).await.unwrap_or_default();
            let refusal = Refusal { status, headers, body, place: slipway_egress::redacted(&url) };
            return Ok(Err(Box::new(refusal)));
        }
        let (place, most) = (slipway_egress::redacted(&call.url), self.limits.redirects);
        Err(SourceError::broken(format!("{place} redirects more than {most} times")).with_contact(Contact::Answered))
    }

    fn failed(&self, error: &reqwest::Error, url: &Url) -> SourceError {
        let place = slipway_egress::redacted(url);
        if slipway_egress::is_blocked(error) {
            return SourceError::field(self.field, slipway_egress::explain(error, &place)).with_contact(Contact::Blocked);
        }
        let contact = if error.is_timeout() { Contact::Late } else { Contact::Failed };
        let why = if self.egress.may_disclose(url) {
            slipway_egress::explain(error, &place)
        } else {
            format!("{place} could not be reached, or is not public")
        };
        SourceError::unavailable(why).at(self.field).with_contact(contact)
    }
}

fn judged(refusal: &Refusal, judge: Judge<'_>) -> SourceError {
    let status = refusal.status.as_u16();
    let error = judge(refusal).with_contact(Contact::Answered);
    if matches!(status, 408 | 429 | 500 | 502..=504) && error.kind() == SourceErrorKind::Broken {
        let busy = SourceError::unavailable(format!("{} answers with status {status}", refusal.place));
        return busy.after(wait::asked(&refusal.headers)).with_contact(Contact::Answered);
    }
    if error.is_transient() { error.after(wait::asked(&refusal.headers)) } else { error }
}

/// None if the answer is too long.
async fn read(mut answer: Response, most: u64) -> reqwest::Result<Option<Vec<u8>>> {
    let mut body = Vec::new();
    while let Some(piece) = answer.chunk().await? {
        if (body.len() + piece.len()) as u64 > most {
            return Ok(None);
        }
        body.extend_from_slice(&piece);
    }
    Ok(Some(body))
}

async fn read_some(answer: Response) -> Vec<u8> {
    read(answer, MAX_ERROR_BYTES).await.ok().flatten().unwrap_or_default()
}

pub(crate) fn unwritable(error: &std::io::Error) -> SourceError {
    SourceError::unavailable(format!("the document could not be written to the worker's disk: {error}"))
}

pub(crate) fn too_large() -> SourceError {
    SourceError::unfetchable(format!("the document is larger than {} MiB", MAX_DOCUMENT_BYTES >> 20))
}
