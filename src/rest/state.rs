//! The client of the state role, which owns the release history: reads, and Git requests that are passed on.

mod git;

use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

use http::{Request, Response};
use http_body_util::{BodyExt, Empty, Full, LengthLimitError, Limited};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use slipway_evaluation::wire::{CallbackCall, GateAnswer, GateCall, GateOutcome, Heard};
use slipway_http::{Error, HeaderValue, Method, StatusCode, header};
use slipway_release::wire::{Agents, MirrorTest, Mirrors, Release, Releases, Tested};
use tokio::time::timeout;

use crate::http_client::{self, HttpClient, RequestBody, ResponseBody, SendError};
pub(crate) use git::answer as git;

/// Timeouts for a connection, and for a whole response.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// For requests that connect to a remote or read everything.
const SLOW_TIMEOUT: Duration = Duration::from_secs(30);
/// The limit of a response: all agents of a large platform with their manifests.
const RESPONSE_BYTES_MAX: usize = 128 * 1024 * 1024;
const ERROR_BYTES_MAX: usize = 64 * 1024;
/// Retry-After while the state role is unavailable.
const RETRY_SECONDS: u64 = 5;

/// The address of the state role, and REST's credentials for it.
#[derive(Debug, Clone, Default)]
pub struct StateSettings {
    /// `http://host:port`; without it there are no releases.
    pub url: Option<String>,
    /// The file with REST's own token. Read for each request, as the kubelet renews it.
    pub token_file: Option<PathBuf>,
}

pub(crate) struct StateClient {
    http: HttpClient,
    base: Option<String>,
    token_file: Option<PathBuf>,
}

impl StateClient {
    pub(crate) fn new(settings: &StateSettings) -> Self {
        let base = settings.url.as_deref().map(|url| url.trim_end_matches('/').to_owned()).filter(|url| !url.is_empty());
        Self { http: HttpClient::new(CONNECT_TIMEOUT), base, token_file: settings.token_file.clone() }
    }

    /// Whether there is a state role to ask.
    pub(crate) fn is_configured(&self) -> bool {
        self.base.is_some()
    }

    /// A page of an agent's releases before `before`, newest first.
    pub(crate) async fn releases(&self, namespace: &str, slug: &str, limit: usize, before: Option<u64>) -> Result<Releases, Error> {
        let before = before.map(|before| format!("&before={before}")).unwrap_or_default();
        self.json(Method::GET, &format!("/releases/{namespace}/{slug}?limit={limit}{before}"), RESPONSE_TIMEOUT).await
    }

    pub(crate) async fn release(&self, namespace: &str, slug: &str, version: u64) -> Result<Release, Error> {
        self.json(Method::GET, &format!("/releases/{namespace}/{slug}/{version}"), RESPONSE_TIMEOUT).await
    }

    /// The agents in the repositories.
    pub(crate) async fn agents(&self) -> Result<Agents, Error> {
        self.json(Method::GET, "/agents", SLOW_TIMEOUT).await
    }

    pub(crate) async fn mirrors(&self) -> Result<Mirrors, Error> {
        self.json(Method::GET, "/mirror", CONNECT_TIMEOUT).await
    }

    /// Has a remote connected to: `other`, or the one in force.
    pub(crate) async fn test_mirror(&self, other: Option<&MirrorTest>) -> Result<Tested, Error> {
        match other {
            Some(other) => self.post_within("/mirror/test", other, SLOW_TIMEOUT).await,
            None => self.json(Method::POST, "/mirror/test", SLOW_TIMEOUT).await,
        }
    }

    /// Passes on what a runtime reports of an evaluation.
    pub(crate) async fn callback(&self, call: &CallbackCall) -> Result<Heard, Error> {
        self.post("/callbacks", call).await
    }

    /// Passes on a question of a quality gate.
    pub(crate) async fn gate(&self, call: &GateCall) -> Result<GateAnswer, Error> {
        self.post("/gates", call).await
    }

    /// Tells how REST has answered one.
    pub(crate) async fn gate_outcome(&self, outcome: &GateOutcome) -> Result<(), Error> {
        self.post::<IgnoredAny>("/gates/outcome", outcome).await.map(drop)
    }

    async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, Error> {
        self.post_within(path, body, RESPONSE_TIMEOUT).await
    }

    async fn post_within<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize, limit: Duration) -> Result<T, Error> {
        let body = Full::from(serde_json::to_vec(body).map_err(Error::internal)?);
        let headers = header::HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        self.ask(Method::POST, path, headers, body.map_err(|never| match never {}).boxed_unsync(), limit).await
    }

    async fn json<T: DeserializeOwned>(&self, method: Method, path: &str, limit: Duration) -> Result<T, Error> {
        self.ask(method, path, header::HeaderMap::new(), empty_body(), limit).await
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        headers: header::HeaderMap,
        body: RequestBody,
        limit: Duration,
    ) -> Result<T, Error> {
        let asked = async {
            let response = self.send(method, path, headers, body).await?;
            if !response.status().is_success() {
                return Err(read_error(response).await);
            }
            let read = Limited::new(response.into_body(), RESPONSE_BYTES_MAX).collect().await;
            let bytes = read.map_err(|error| match error.downcast_ref::<LengthLimitError>() {
                Some(_) => Error::internal(format!("the state role's answer to {path} has more than {RESPONSE_BYTES_MAX} bytes")),
                None => unreachable().because(error),
            })?;
            serde_json::from_slice(&bytes.to_bytes()).map_err(Error::internal)
        };
        timeout(limit, asked).await.unwrap_or_else(|_| Err(unreachable()))
    }

    /// Sends a request, and waits for the response head. `path` is below the state role's address.
    async fn send(
        &self,
        method: Method,
        path: &str,
        headers: header::HeaderMap,
        body: RequestBody,
    ) -> Result<Response<ResponseBody>, Error> {
        let Some(base) = &self.base else {
            return Err(unavailable("this API was not told where the state role is (SLIPWAY_STATE_URL), and releases are there alone"));
        };
        let (server, below) = http_client::split_url(base);
        let mut request = Request::builder().method(method).uri(format!("{below}{path}")).body(body).map_err(Error::internal)?;
        *request.headers_mut() = headers;
        if let Some(token) = self.token()? {
            request.headers_mut().insert(header::AUTHORIZATION, token);
        }
        self.http
            .send(server.to_owned(), request)
            .await
            .map_err(|(SendError::Connect(cause) | SendError::Closed(cause))| unreachable().because(cause))
    }

    fn token(&self) -> Result<Option<HeaderValue>, Error> {
        let Some(file) = &self.token_file else { return Ok(None) };
        let token = match std::fs::read_to_string(file) {
            Ok(token) => token,
            // Outside a cluster there is no token.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::internal(error)),
        };
        let mut value = HeaderValue::try_from(format!("Bearer {}", token.trim())).map_err(|_| Error::internal("the token is no header"))?;
        value.set_sensitive(true);
        Ok(Some(value))
    }
}

fn empty_body() -> RequestBody {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// 503: releases are delayed, none is lost.
fn unreachable() -> Error {
    unavailable("the state role, which keeps the releases, does not answer; whatever changes meanwhile is released once it is back")
}

fn unavailable(message: &str) -> Error {
    Error::unavailable(message).with_header(header::RETRY_AFTER, HeaderValue::from(RETRY_SECONDS))
}

/// The error in a response. Messages that are meant for callers are kept.
async fn read_error(response: Response<ResponseBody>) -> Error {
    #[derive(Deserialize)]
    struct Said {
        message: String,
    }
    let status = response.status();
    let read = Limited::new(response.into_body(), ERROR_BYTES_MAX).collect().await;
    let said = read.ok().and_then(|body| serde_json::from_slice::<Said>(&body.to_bytes()).ok());
    to_error(status, said.map(|said| said.message))
}

fn to_error(status: StatusCode, message: Option<String>) -> Error {
    match (status.as_u16(), message) {
        (400 | 404 | 409 | 502, Some(message)) => Error::new(status, message),
        (429 | 500..=599, message) => {
            let message = message.filter(|_| status == StatusCode::SERVICE_UNAVAILABLE);
            message.map_or_else(unreachable, |message| unavailable(&message)).because(status.to_string())
        }
        // REST's access to the state role is a matter of the installation, not of the caller.
        (_, message) => Error::internal(format!("the state role refused REST: {status} {}", message.unwrap_or_default())),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use slipway_http::{Reply, Request, ServerLimits, serve};
    use tokio::net::TcpListener;

    use super::*;

    /// A state role with a fixed answer, which records the requests.
    async fn role(status: u16, body: &'static str) -> (String, Arc<Mutex<Vec<String>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shown: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = shown.clone();
        let handler = move |request: Request| {
            let token = request.headers().get(header::AUTHORIZATION).map(|value| value.to_str().unwrap().to_owned());
            seen.lock().unwrap().push(format!("{} {}", request.path(), token.unwrap_or_default()));
            std::future::ready(Ok(Reply::bytes("application/json", body).with_status(StatusCode::from_u16(status).unwrap())))
        };
        tokio::spawn(serve(listener, ServerLimits::default(), handler, std::future::pending()));
        (format!("http://{address}/"), shown)
    }

    fn at(url: Option<String>, token_file: Option<PathBuf>) -> StateClient {
        StateClient::new(&StateSettings { url, token_file })
    }

    #[tokio::test]
    async fn the_token_is_the_files_of_the_moment() {
        let (url, shown) = role(200, r#"{"data": []}"#).await;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        let state = at(Some(url), Some(file.clone()));
        let ask = async || state.releases("team-a", "helper", 5, Some(9)).await.unwrap();
        assert!(ask().await.data.is_empty());
        for token in ["one\n", "two"] {
            std::fs::write(&file, token).unwrap();
            ask().await;
        }
        let path = "/releases/team-a/helper";
        assert_eq!(*shown.lock().unwrap(), [format!("{path} "), format!("{path} Bearer one"), format!("{path} Bearer two")]);
    }

    #[tokio::test]
    async fn refusals_are_told_in_words_for_callers() {
        for (status, body, expected, says) in [
            (404, r#"{"error": "Not Found", "message": "there is no release v9", "path": "/x"}"#, 404, "no release v9"),
            (502, r#"{"message": "release v7 does not match its checksum"}"#, 502, "checksum"),
            (503, r#"{"message": "the disk is full"}"#, 503, "the disk is full"),
            (503, "not JSON", 503, "the state role"),
            (500, r#"{"message": "secret"}"#, 503, "the state role"),
            (401, r#"{"message": "no token"}"#, 500, "something went wrong"),
            (403, "{}", 500, "something went wrong"),
            (200, "not JSON", 500, "something went wrong"),
        ] {
            let (url, _) = role(status, body).await;
            let error = at(Some(url), None).release("team-a", "helper", 9).await.unwrap_err();
            assert_eq!(error.status().as_u16(), expected, "{status} {body}");
            assert!(error.message().contains(says) && !error.message().contains("secret"), "{status} {body}: {}", error.message());
            assert_eq!(error.header(&header::RETRY_AFTER).is_some(), expected == 503, "{status} {body}");
        }
    }

    #[tokio::test]
    async fn a_role_that_is_away_is_a_503() {
        let nobody = format!("http://127.0.0.1:{}", slipway_peers::free_port());
        for (url, says) in [(None, "SLIPWAY_STATE_URL"), (Some(nobody), "does not answer")] {
            let error = at(url, None).agents().await.unwrap_err();
            assert!(error.status() == StatusCode::SERVICE_UNAVAILABLE && error.message().contains(says), "{}", error.message());
        }
    }
}
