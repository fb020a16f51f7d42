//! Client of services that issue short-lived credentials: node agents, metadata servers and AWS STS. Callers interpret the
//! responses, errors included.

use std::time::Duration;

use http::{HeaderMap, StatusCode};
use reqwest::{Client, Method, redirect};
use tokio::sync::OnceCell;
use tokio::time::{sleep, timeout};
use url::Url;

/// The largest response.
const MAX_RESPONSE_BYTES: usize = 256 * 1024;
/// The timeout of one attempt.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(5);
/// The pauses between attempts: a pod may start before the service on its node.
const RETRY_PAUSES: [Duration; 2] = [Duration::from_millis(300), Duration::from_secs(1)];

pub(crate) struct CredentialService {
    /// Bypasses proxies: the service identifies the caller by its node.
    bypass_proxy: bool,
    client: OnceCell<Client>,
}

pub(crate) struct CredentialResponse {
    pub(crate) status: StatusCode,
    pub(crate) text: String,
}

impl CredentialService {
    pub(crate) fn new(bypass_proxy: bool) -> Self {
        Self { bypass_proxy, client: OnceCell::new() }
    }

    pub(crate) async fn get(&self, url: &Url, headers: &HeaderMap) -> Result<CredentialResponse, String> {
        self.ask(Method::GET, url, headers, "").await
    }

    pub(crate) async fn post(&self, url: &Url, headers: &HeaderMap, body: &str) -> Result<CredentialResponse, String> {
        self.ask(Method::POST, url, headers, body).await
    }

    /// The error says why there is no response.
    async fn ask(&self, method: Method, url: &Url, headers: &HeaderMap, body: &str) -> Result<CredentialResponse, String> {
        let client = self.client.get_or_try_init(|| async { self.client() }).await?;
        let mut pauses = RETRY_PAUSES.iter();
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
        if self.bypass_proxy {
            builder = builder.no_proxy();
        }
        builder.build().map_err(|error| crate::transport::root(&error))
    }
}

async fn read(request: reqwest::RequestBuilder) -> Result<CredentialResponse, reqwest::Error> {
    let mut response = request.send().await?;
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await?
        && body.len() < MAX_RESPONSE_BYTES
    {
        body.extend_from_slice(&chunk);
    }
    Ok(CredentialResponse { status: response.status(), text: String::from_utf8_lossy(&body).into_owned() })
}
