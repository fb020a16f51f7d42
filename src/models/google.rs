//! Access tokens for Google Cloud: from a file (the key of a service account, or the configuration of workload identity
//! federation) or from the metadata server. A token is cached until shortly before it expires.

mod account;
mod federation;
mod metadata;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use http::HeaderValue;
use serde_json::Value;
use tokio::sync::{Mutex, OnceCell};
use url::{Url, form_urlencoded};

use crate::fault::{FaultKind, ModelFault};
use crate::provider_settings::{self, Variables};
use crate::transport::{ProviderCall, Transport, TransportLimits};
use account::Account;
use federation::Federation;
use metadata::Metadata;

const FILE_VARIABLE: &str = "GOOGLE_APPLICATION_CREDENTIALS";
const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";
/// A token is replaced this long before it expires.
const EXPIRY_MARGIN: Duration = Duration::from_mins(2);

pub(crate) struct GoogleCredentials {
    source: CredentialSource,
    transport: Transport,
    token: Mutex<Option<(HeaderValue, Instant)>>,
    project: OnceCell<String>,
}

enum CredentialSource {
    File(PathBuf),
    Metadata(Metadata),
}

enum Content {
    Account(Account),
    Federation(Federation),
}

impl fmt::Debug for GoogleCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GoogleCredentials")
    }
}

impl GoogleCredentials {
    pub(crate) fn of(variables: Variables<'_>) -> Result<Self, ModelFault> {
        let source = match provider_settings::first(variables, &[FILE_VARIABLE]) {
            Some((_, path)) => CredentialSource::File(path.into()),
            None => CredentialSource::Metadata(Metadata::of(variables)?),
        };
        Ok(Self {
            source,
            transport: Transport::new("Google's token service", "", TransportLimits::default()),
            token: Mutex::new(None),
            project: OnceCell::new(),
        })
    }

    /// The value of an `Authorization` header.
    pub(crate) async fn token(&self) -> Result<HeaderValue, ModelFault> {
        // The lock is held while a token is fetched, so that concurrent requests fetch one token only.
        let mut kept = self.token.lock().await;
        if let Some((token, until)) = &*kept
            && *until > Instant::now()
        {
            return Ok(token.clone());
        }
        let answer = match &self.source {
            CredentialSource::Metadata(server) => server.token().await?,
            CredentialSource::File(path) => match read(path)? {
                Content::Account(account) => account.token(&self.transport).await?,
                Content::Federation(federation) => federation.token(&self.transport).await?,
            },
        };
        let token = answer["access_token"].as_str().ok_or_else(|| nonsense("no access_token"))?;
        let token = provider_settings::secret(&format!("Bearer {token}"), "Google's access token")?;
        // Limited to a day.
        let seconds = answer["expires_in"].as_u64().unwrap_or_default().min(86_400);
        let until = Instant::now() + Duration::from_secs(seconds).saturating_sub(EXPIRY_MARGIN);
        *kept = Some((token.clone(), until));
        Ok(token)
    }

    /// The project the credentials belong to.
    pub(crate) async fn project(&self) -> Result<String, ModelFault> {
        self.project.get_or_try_init(|| self.ask_project()).await.cloned()
    }

    async fn ask_project(&self) -> Result<String, ModelFault> {
        let path = match &self.source {
            CredentialSource::Metadata(server) => return server.project().await,
            CredentialSource::File(path) => path,
        };
        match read(path)? {
            Content::Account(Account { project_id: Some(project), .. }) => Ok(project),
            _ => Err(ModelFault::new(
                FaultKind::Misconfigured,
                format!("GOOGLE_CLOUD_PROJECT is not set, and the file of {FILE_VARIABLE} names no project_id"),
            )),
        }
    }
}

/// Reads the file each time, because it changes when the key in the Secret is replaced.
fn read(path: &Path) -> Result<Content, ModelFault> {
    let text = std::fs::read(path).map_err(|error| {
        ModelFault::new(FaultKind::MissingKey, format!("the file of {FILE_VARIABLE}, {}, cannot be read: {error}", path.display()))
    })?;
    let file: Value = serde_json::from_slice(&text).map_err(|_| unusable("it is not a JSON object with a type"))?;
    // The parser's error is dropped, because it may quote the key.
    match file["type"].as_str() {
        Some("service_account") => serde_json::from_value(file).map(Content::Account).map_err(|_| unusable("its fields are no texts")),
        Some("external_account") => serde_json::from_value(file).map(Content::Federation).map_err(|error| unusable(&error.to_string())),
        Some(kind) => Err(unusable(&format!("it is of type {kind}, and only service_account and external_account are supported"))),
        None => Err(unusable("it is not a JSON object with a type")),
    }
}

fn unusable(why: &str) -> ModelFault {
    ModelFault::new(FaultKind::Misconfigured, format!("the file of {FILE_VARIABLE} cannot be used: {why}"))
}

fn nonsense(what: &str) -> ModelFault {
    ModelFault::new(FaultKind::Broken, format!("Google's token service answered with {what}"))
}

/// A form request to the URL in a field of the file.
fn form(field: &str, address: &str, fields: &[(&str, &str)]) -> Result<ProviderCall, ModelFault> {
    let url = Url::parse(address).map_err(|_| unusable(&format!("its {field} is not a URL")))?;
    let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
    let mut call = ProviderCall::json(url, &Value::Null);
    call = call.header("content-type", HeaderValue::from_static("application/x-www-form-urlencoded"));
    call.body = body.into();
    Ok(call)
}

#[cfg(test)]
mod tests;
