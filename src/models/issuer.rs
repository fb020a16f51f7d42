//! Services that hand out short-lived credentials: those beside the pod, and AWS's. Their answers are
//! short, and are theirs to read, refusals included.

use std::time::Duration;

use http::{HeaderMap, StatusCode};
use reqwest::{Client, Method, redirect};
use tokio::sync::OnceCell;
use tokio::time::{sleep, timeout};
use url::Url;

/// A longer answer is an error.
const MAX_ANSWER_BYTES: usize = 256 * 1024;
/// Of one attempt.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(5);
/// A pod may start before the service on its node.
const BACKOFF: [Duration; 2] = [Duration::from_millis(300), Duration::from_secs(1)];

pub(crate) struct Issuer {
    /// Asked past any proxy: another machine's answer would be another identity.
    near: bool,
    client: OnceCell<Client>,
}

pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) text: String,
}

impl Issuer {
    pub(crate) fn new(near: bool) -> Self {
        Self { near, client: OnceCell::new() }
    }

    pub(crate) async fn get(&self, url: &Url, headers: &HeaderMap) -> Result<Answer, String> {
        self.ask(Method::GET, url, headers, "").await
    }

    pub(crate) async fn post(&self, url: &Url, headers: &HeaderMap, body: &str) -> Result<Answer, String> {
        self.ask(Method::POST, url, headers, body).await
    }

    /// The error is why there is no answer.
    async fn ask(&self, method: Method, url: &Url, headers: &HeaderMap, body: &str) -> Result<Answer, String> {
        let client = self.client.get_or_try_init(|| async { self.client() }).await?;
        let mut pauses = BACKOFF.iter();
        loop {
            let request = client.request(method.clone(), url.clone()).headers(headers.clone()).body(body.to_owned());
            let answer = match timeout(ATTEMPT_TIMEOUT, read(request)).await {
                Ok(answer) => answer.map_err(|error| crate::transport::root(&error)),
                Err(_) => Err(format!("it said nothing for {} s", ATTEMPT_TIMEOUT.as_secs())),
            };
            let again =
                answer.as_ref().map_or(true, |answer| answer.status.is_server_error() || answer.status == StatusCode::TOO_MANY_REQUESTS);
            match pauses.next() {
                Some(pause) if again => sleep(*pause).await,
                _ => return answer,
            }
        }
    }

    fn client(&self) -> Result<Client, String> {
        let mut builder = Client::builder().redirect(redirect::Policy::none());
        if self.near {
            builder = builder.no_proxy();
        }
        builder.build().map_err(|error| crate::transport::root(&error))
    }
}

async fn read(request: reqwest::RequestBuilder) -> Result<Answer, reqwest::Error> {
    let mut response = request.send().await?;
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await?
        && body.len() < MAX_ANSWER_BYTES
    {
        body.extend_from_slice(&chunk);
    }
    Ok(Answer { status: response.status(), text: String::from_utf8_lossy(&body).into_owned() })
}
