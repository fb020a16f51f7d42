//! One request to a destination, and whether its answer allows a retry: OTLP over HTTP names 429, 502, 503 and 504, with
//! `Retry-After`; any other failure is final. MLflow needs the id of its experiment before it takes spans.

use std::error::Error as _;
use std::fmt::Write as _;
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, StatusCode};

use super::mlflow::{self, Experiment};
use super::otlp;
use super::settings::{Destination, below};

/// The rest of an answer is not read.
const MAX_ANSWER_BYTES: usize = 64 << 10;

pub(super) enum Sent {
    Accepted { refused: u64 },
    Refused { why: String },
    Later { why: String, after: Option<Duration> },
}

pub(super) struct Post {
    destination: Destination,
    client: Option<Client>,
    experiment: Option<Experiment>,
}

impl Post {
    pub(super) fn new(destination: Destination) -> Self {
        let experiment = destination.experiment.clone().map(|name| Experiment::new(destination.url.clone(), name));
        Self { destination, client: None, experiment }
    }

    /// Drops the HTTP client until the next span.
    pub(super) fn rest(&mut self) {
        self.client = None;
    }

    pub(super) async fn send(&mut self, body: &[u8]) -> Sent {
        match self.attempt(body).await {
            Ok(sent) => sent,
            Err(error) => Sent::Later { why: reason(&error), after: None },
        }
    }

    async fn attempt(&mut self, body: &[u8]) -> reqwest::Result<Sent> {
        let client = match &self.client {
            Some(client) => client.clone(),
            None => self.client.insert(self.connector()?).clone(),
        };
        let mut url = self.destination.url.clone();
        let mut experiment_id = None;
        if let Some(experiment) = &mut self.experiment {
            url = below(url, "v1/traces");
            match experiment.id(&client).await? {
                Ok(id) => experiment_id = HeaderValue::from_str(id).ok(),
                Err(sent) => return Ok(sent),
            }
        }
        let mut request = client.post(url).header(CONTENT_TYPE, "application/x-protobuf").body(body.to_vec());
        if let Some(id) = experiment_id {
            request = request.header(mlflow::EXPERIMENT_HEADER, id);
        }
        let answer = request.send().await?;
        let status = answer.status();
        if status.is_success() {
            return Ok(Sent::Accepted { refused: otlp::rejected(&start(answer).await?) });
        }
        if let Some(experiment) = self.experiment.as_mut().filter(|_| status.is_client_error()) {
            // It may have been deleted for good: the next batch looks again.
            experiment.forget();
        }
        Ok(judged(&answer, "answered"))
    }

    fn connector(&self) -> reqwest::Result<Client> {
        Client::builder()
            .user_agent(concat!("slipway-runtime/", env!("CARGO_PKG_VERSION")))
            .default_headers(self.destination.headers.clone())
            .timeout(self.destination.timeout)
            // A redirect would carry spans and credentials to a host that is not configured.
            .redirect(Policy::none())
            .pool_max_idle_per_host(1)
            .build()
    }
}

/// A failed request, in words, and whether another try makes sense.
pub(super) fn judged(answer: &Response, what: &str) -> Sent {
    let status = answer.status();
    let hint = match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => "; are the credentials right?",
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => "; is the URL right?",
        status if status.is_redirection() => "; redirects are not followed, configure the URL it leads to",
        _ => "",
    };
    let why = format!("it {what} {status}{hint}");
    match status.as_u16() {
        429 | 502..=504 => {
            let after = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
            Sent::Later { why, after: after.map(Duration::from_secs) }
        }
        _ => Sent::Refused { why },
    }
}

/// An answer's body as far as it is of interest.
pub(super) async fn start(mut answer: Response) -> reqwest::Result<Vec<u8>> {
    let mut body = Vec::new();
    while let Some(chunk) = answer.chunk().await? {
        body.extend_from_slice(&chunk);
        if body.len() > MAX_ANSWER_BYTES {
            break;
        }
    }
    Ok(body)
}

/// An error and its causes without the URL, which may hold credentials.
fn reason(error: &reqwest::Error) -> String {
    let mut text = match error {
        error if error.is_timeout() => "it did not answer in time".to_owned(),
        error if error.is_connect() => "it cannot be reached".to_owned(),
        error if error.is_builder() => "no request can be made".to_owned(),
        _ => "the request failed".to_owned(),
    };
    let mut cause = error.source();
    while let Some(error) = cause {
        write!(text, ": {error}").ok();
        cause = error.source();
    }
    text
}
