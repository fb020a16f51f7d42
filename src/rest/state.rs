//! The way to the state role, which alone holds the history of releases: what is read of it, and Git's own requests,
//! which are passed on as they come.

mod git;

use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

use http::{Request as Order, Response};
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use slipway_http::{Error, HeaderValue, Method, StatusCode, header};
use slipway_release::wire::{Agents, Mirrors, Release, Releases, Tested};
use tokio::time::timeout;

use crate::line::{self, Answered, Failed, Lines, Sent};
pub(crate) use git::answer as git;

/// How long the state role may take to accept a connection, and to answer in whole.
const CONNECT: Duration = Duration::from_secs(3);
const PATIENCE: Duration = Duration::from_secs(10);
/// Connecting to a remote takes as long as that does.
const TEST_PATIENCE: Duration = Duration::from_secs(30);
/// More is not read of one answer: all agents of a large platform with their manifests.
const LONGEST: usize = 128 * 1024 * 1024;
const LONGEST_REFUSAL: usize = 64 * 1024;
/// How many seconds until it is worth asking again.
const RETRY: u64 = 5;

/// Where the state role is, and what REST shows it.
#[derive(Debug, Clone, Default)]
pub struct StateSettings {
    /// `http://host:port`; without it there are no releases.
    pub url: Option<String>,
    /// Holds REST's own token. Read anew for each call, as the kubelet renews it.
    pub token_file: Option<PathBuf>,
}

pub(crate) struct State {
    http: Lines,
    base: Option<String>,
    token_file: Option<PathBuf>,
}

impl State {
    pub(crate) fn new(settings: &StateSettings) -> Self {
        let base = settings.url.as_deref().map(|url| url.trim_end_matches('/').to_owned()).filter(|url| !url.is_empty());
        Self { http: Lines::new(CONNECT), base, token_file: settings.token_file.clone() }
    }

    /// A page of an agent's releases, newest first, those before `before`.
    pub(crate) async fn releases(&self, namespace: &str, slug: &str, limit: usize, before: Option<u64>) -> Result<Releases, Error> {
        let before = before.map(|before| format!("&before={before}")).unwrap_or_default();
        self.json(Method::GET, &format!("/releases/{namespace}/{slug}?limit={limit}{before}"), PATIENCE).await
    }

    pub(crate) async fn release(&self, namespace: &str, slug: &str, version: u64) -> Result<Release, Error> {
        self.json(Method::GET, &format!("/releases/{namespace}/{slug}/{version}"), PATIENCE).await
    }

    /// The agents that the repositories know.
    pub(crate) async fn agents(&self) -> Result<Agents, Error> {
        self.json(Method::GET, "/agents", TEST_PATIENCE).await
    }

    pub(crate) async fn mirrors(&self) -> Result<Mirrors, Error> {
        self.json(Method::GET, "/mirror", CONNECT).await
    }

    pub(crate) async fn test_mirror(&self) -> Result<Tested, Error> {
        self.json(Method::POST, "/mirror/test", TEST_PATIENCE).await
    }

    async fn json<T: DeserializeOwned>(&self, method: Method, path: &str, patience: Duration) -> Result<T, Error> {
        let asked = async {
            let response = self.send(method, path, header::HeaderMap::new(), nothing()).await?;
            if !response.status().is_success() {
                return Err(refusal(response).await);
            }
            let read = Limited::new(response.into_body(), LONGEST).collect().await;
            let bytes = read.map_err(|error| match error.downcast_ref::<LengthLimitError>() {
                Some(_) => Error::internal(format!("the state role's answer to {path} has more than {LONGEST} bytes")),
                None => away().because(error),
            })?;
            serde_json::from_slice(&bytes.to_bytes()).map_err(Error::internal)
        };
        timeout(patience, asked).await.unwrap_or_else(|_| Err(away()))
    }

    /// Asks, and waits for the head of the answer. `path` stands below the state role's address.
    async fn send(&self, method: Method, path: &str, headers: header::HeaderMap, body: Sent) -> Result<Response<Answered>, Error> {
        let Some(base) = &self.base else {
            return Err(unavailable("this API was not told where the state role is (SLIPWAY_STATE_URL), and releases are there alone"));
        };
        let (server, below) = line::place(base);
        let mut order = Order::builder().method(method).uri(format!("{below}{path}")).body(body).map_err(Error::internal)?;
        *order.headers_mut() = headers;
        if let Some(token) = self.token()? {
            order.headers_mut().insert(header::AUTHORIZATION, token);
        }
        self.http.ask(server.to_owned(), order).await.map_err(|(Failed::Unreachable(cause) | Failed::Left(cause))| away().because(cause))
    }

    fn token(&self) -> Result<Option<HeaderValue>, Error> {
        let Some(file) = &self.token_file else { return Ok(None) };
        let token = match std::fs::read_to_string(file) {
            Ok(token) => token,
            // Outside a cluster nobody has put one there.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::internal(error)),
        };
        let mut value = HeaderValue::try_from(format!("Bearer {}", token.trim())).map_err(|_| Error::internal("the token is no header"))?;
        value.set_sensitive(true);
        Ok(Some(value))
    }
}

fn nothing() -> Sent {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// 503: nothing is lost, and releases wait.
fn away() -> Error {
    unavailable("the state role, which keeps the releases, does not answer; whatever changes meanwhile is released once it is back")
}

fn unavailable(message: &str) -> Error {
    Error::unavailable(message).with_header(header::RETRY_AFTER, HeaderValue::from(RETRY))
}

/// What the state role says no to, in its words where these are meant for callers.
async fn refusal(response: Response<Answered>) -> Error {
    #[derive(Deserialize)]
    struct Said {
        message: String,
    }
    let status = response.status();
    let read = Limited::new(response.into_body(), LONGEST_REFUSAL).collect().await;
    let said = read.ok().and_then(|body| serde_json::from_slice::<Said>(&body.to_bytes()).ok());
    told(status, said.map(|said| said.message))
}

fn told(status: StatusCode, message: Option<String>) -> Error {
    match (status.as_u16(), message) {
        (400 | 404 | 409 | 502, Some(message)) => Error::new(status, message),
        (429 | 500..=599, message) => {
            let message = message.filter(|_| status == StatusCode::SERVICE_UNAVAILABLE);
            message.map_or_else(away, |message| unavailable(&message)).because(status.to_string())
        }
        // Whom the state role lets in is a matter of how the platform was set up, and no caller's.
        (_, message) => Error::internal(format!("the state role refused REST: {status} {}", message.unwrap_or_default())),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use slipway_http::{Limits, Reply, Request, serve};
    use tokio::net::TcpListener;

    use super::*;

    /// A state role that answers this, and keeps what it was shown.
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
        tokio::spawn(serve(listener, Limits::default(), handler, std::future::pending()));
        (format!("http://{address}/"), shown)
    }

    fn at(url: Option<String>, token_file: Option<PathBuf>) -> State {
        State::new(&StateSettings { url, token_file })
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
