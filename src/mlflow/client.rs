//! One call of the API: over the egress rules of the platform, bounded in time and in bytes.

use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE};
use reqwest::{Method, RequestBuilder, Response};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use slipway_egress::{Allowed, Egress, EgressProfile};
use url::Url;

use crate::{Fault, Login};

/// MLflow answers its first request late.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_ANSWER_BYTES: usize = 4 * 1024 * 1024;
/// How much of MLflow's own words is passed on, in characters.
const MESSAGE_MAX: usize = 300;

const PROFILE: EgressProfile =
    EgressProfile { name: "the platform", setting: "mlflow_uri", user_agent: concat!("slipway/", env!("CARGO_PKG_VERSION")) };

/// An MLflow server.
pub struct Mlflow {
    egress: Egress,
    base: Url,
    login: Option<Login>,
}

#[derive(Deserialize)]
struct Complaint {
    error_code: String,
    #[serde(default)]
    message: String,
}

impl Mlflow {
    /// Connects to nothing yet. Only platform admins can name the server, so that private addresses are allowed, but no metadata
    /// services.
    pub fn new(uri: &str, login: Option<Login>) -> Result<Self, Fault> {
        let no_url = |_| Fault::Address("the URI of MLflow is no URL".to_owned());
        let base = Url::parse(&format!("{}/", uri.trim_end_matches('/'))).map_err(no_url)?;
        let host = base.host_str().zip(base.port_or_known_default()).map(|(host, port)| Allowed::Host { host: host.to_owned(), port });
        Ok(Self { egress: Egress::new(PROFILE, host.as_slice(), None), base, login })
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str, query: &[(&str, &str)]) -> Result<T, Fault> {
        self.call(Method::GET, path, query, None).await
    }

    pub(crate) async fn post<T: DeserializeOwned>(&self, path: &str, body: &Value) -> Result<T, Fault> {
        self.call(Method::POST, path, &[], Some(body)).await
    }

    pub(crate) async fn patch<T: DeserializeOwned>(&self, path: &str, body: &Value) -> Result<T, Fault> {
        self.call(Method::PATCH, path, &[], Some(body)).await
    }

    /// The beginning of a page beside the API.
    pub(crate) async fn page(&self, path: &str) -> Result<Vec<u8>, Fault> {
        let url = self.base.join(path).map_err(|_| Fault::Address("the URI of MLflow is no URL".to_owned()))?;
        let mut answer = self.request(Method::GET, url)?.send().await.map_err(|error| self.failed(&error))?;
        let place = self.place();
        match answer.status().as_u16() {
            200 => Ok(answer.chunk().await.map_err(|error| self.failed(&error))?.unwrap_or_default().to_vec()),
            status @ (401 | 403) => Err(Fault::Unauthorized { place, status }),
            status => Err(Fault::NotMlflow(format!("{place} answers {path} with status {status}; is it an MLflow server?"))),
        }
    }

    /// Scheme, host and port.
    pub(crate) fn place(&self) -> String {
        slipway_egress::redacted(&self.base)
    }

    /// A request with the login.
    fn request(&self, method: Method, url: Url) -> Result<RequestBuilder, Fault> {
        let client = self.egress.client(&url).map_err(|blocked| Fault::Address(blocked.to_string()))?;
        let request = client.request(method, url).timeout(CALL_TIMEOUT);
        Ok(match &self.login {
            Some(Login(value)) => request.header(AUTHORIZATION, value.clone()),
            None => request,
        })
    }

    fn failed(&self, error: &reqwest::Error) -> Fault {
        let message = slipway_egress::explain(error, &self.place());
        if slipway_egress::is_blocked(error) { Fault::Address(message) } else { Fault::Unreachable(message) }
    }

    async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Result<T, Fault> {
        let place = self.place();
        let mut url = self.base.join(&format!("api/{path}")).map_err(|_| Fault::Address("the URI of MLflow is no URL".to_owned()))?;
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let mut request = self.request(method, url)?;
        if let Some(body) = body {
            request = request.header(CONTENT_TYPE, "application/json").body(body.to_string());
        }
        let failed = |error: reqwest::Error| self.failed(&error);
        let again = request.try_clone();
        let answer = match (request.send().await, again) {
            // A server closes connections that nobody has used for some seconds, and may have done so just now.
            (Err(error), Some(again)) if error.is_request() && !error.is_connect() && !error.is_timeout() => again.send().await,
            (answer, _) => answer,
        };
        let answer = answer.map_err(failed)?;
        let status = answer.status().as_u16();
        let call = || path.split('/').skip(2).collect::<Vec<_>>().join("/");
        let not_mlflow = || Fault::NotMlflow(format!("{place} answers {} with status {status}, but not as MLflow does", call()));
        match status {
            401 | 403 => return Err(Fault::Unauthorized { place, status }),
            // An error of MLflow's own is told in its words below.
            429 | 502..=504 => return Err(Fault::Unreachable(format!("{place} answers with status {status}"))),
            _ => {}
        }
        let is_success = answer.status().is_success();
        let read = read(answer).await.map_err(failed)?;
        let bytes = read.ok_or_else(|| Fault::NotMlflow(format!("{place} answers {} with more than {MAX_ANSWER_BYTES} bytes", call())))?;
        if is_success {
            return serde_json::from_slice(&bytes).map_err(|_| not_mlflow());
        }
        let Complaint { error_code: code, message } = serde_json::from_slice(&bytes).map_err(|_| not_mlflow())?;
        Err(Fault::Refused { call: call(), status, code, message: message.chars().take(MESSAGE_MAX).collect() })
    }
}

/// None if the answer is too long.
async fn read(mut answer: Response) -> reqwest::Result<Option<Vec<u8>>> {
    let mut body = Vec::new();
    while let Some(chunk) = answer.chunk().await? {
        if body.len() + chunk.len() > MAX_ANSWER_BYTES {
            return Ok(None);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Some(body))
}

/// An id that MLflow gave and that becomes part of a path.
pub(crate) fn plain(id: String) -> Result<String, Fault> {
    let is_plain = (1..=128).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    if is_plain { Ok(id) } else { Err(Fault::NotMlflow("MLflow gives an id that is none".to_owned())) }
}

/// A text in a filter of MLflow's searches, which know no escapes.
pub(crate) fn quoted(text: &str) -> Result<String, Fault> {
    if text.contains(['\'', '"', '`', '\\']) {
        return Err(Fault::NotMlflow(format!("{text:?} cannot be searched for in MLflow")));
    }
    Ok(format!("'{text}'"))
}
