//! Access tokens for Google Cloud: by a file (a service account's key, or the configuration of workload
//! identity federation), or from the metadata server of the machine or cluster one runs on. A token is
//! kept until shortly before it expires.

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

use crate::fault::{Fault, FaultKind};
use crate::settings::{self, Variables};
use crate::transport::{Call, Limits, Transport};
use account::Account;
use federation::Federation;
use metadata::Metadata;

const FILE: &str = "GOOGLE_APPLICATION_CREDENTIALS";
const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";
/// A token that expires this soon is not used any more.
const SPARE: Duration = Duration::from_mins(2);

pub(crate) struct Credentials {
    source: Source,
    transport: Transport,
    token: Mutex<Option<(HeaderValue, Instant)>>,
    project: OnceCell<String>,
}

enum Source {
    File(PathBuf),
    Metadata(Metadata),
}

enum Content {
    Account(Account),
    Federation(Federation),
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}

impl Credentials {
    pub(crate) fn of(variables: Variables<'_>) -> Result<Self, Fault> {
        let source = match settings::first(variables, &[FILE]) {
            Some((_, path)) => Source::File(path.into()),
            None => Source::Metadata(Metadata::of(variables)?),
        };
        Ok(Self {
            source,
            transport: Transport::new("Google's token service", "", Limits::default()),
            token: Mutex::new(None),
            project: OnceCell::new(),
        })
    }

    /// The value of an `Authorization` header.
    pub(crate) async fn token(&self) -> Result<HeaderValue, Fault> {
        // Held while a token is fetched, so that many requests at once fetch one.
        let mut kept = self.token.lock().await;
        if let Some((token, until)) = &*kept
            && *until > Instant::now()
        {
            return Ok(token.clone());
        }
        let answer = match &self.source {
            Source::Metadata(server) => server.token().await?,
            Source::File(path) => match read(path)? {
                Content::Account(account) => account.token(&self.transport).await?,
                Content::Federation(federation) => federation.token(&self.transport).await?,
            },
        };
        let token = answer["access_token"].as_str().ok_or_else(|| nonsense("no access_token"))?;
        let token = settings::secret(&format!("Bearer {token}"), "Google's access token")?;
        // None is good for longer than a day.
        let seconds = answer["expires_in"].as_u64().unwrap_or_default().min(86_400);
        let until = Instant::now() + Duration::from_secs(seconds).saturating_sub(SPARE);
        *kept = Some((token.clone(), until));
        Ok(token)
    }

    /// The project the credentials belong to.
    pub(crate) async fn project(&self) -> Result<String, Fault> {
        self.project.get_or_try_init(|| self.ask_project()).await.cloned()
    }

    async fn ask_project(&self) -> Result<String, Fault> {
        let path = match &self.source {
            Source::Metadata(server) => return server.project().await,
            Source::File(path) => path,
        };
        match read(path)? {
            Content::Account(Account { project_id: Some(project), .. }) => Ok(project),
            _ => Err(Fault::new(
                FaultKind::Misconfigured,
                format!("GOOGLE_CLOUD_PROJECT is not set, and the file of {FILE} names no project_id"),
            )),
        }
    }
}

/// Read anew each time: a Secret's file changes when the key is replaced.
fn read(path: &Path) -> Result<Content, Fault> {
    let text = std::fs::read(path)
        .map_err(|error| Fault::new(FaultKind::MissingKey, format!("the file of {FILE}, {}, cannot be read: {error}", path.display())))?;
    let file: Value = serde_json::from_slice(&text).map_err(|_| unusable("it is not a JSON object with a type"))?;
    // What a parser says may quote the key.
    match file["type"].as_str() {
        Some("service_account") => serde_json::from_value(file).map(Content::Account).map_err(|_| unusable("its fields are no texts")),
        Some("external_account") => serde_json::from_value(file).map(Content::Federation).map_err(|error| unusable(&error.to_string())),
        Some(kind) => Err(unusable(&format!("it is of type {kind}, and only service_account and external_account are supported"))),
        None => Err(unusable("it is not a JSON object with a type")),
    }
}

fn unusable(why: &str) -> Fault {
    Fault::new(FaultKind::Misconfigured, format!("the file of {FILE} cannot be used: {why}"))
}

fn nonsense(what: &str) -> Fault {
    Fault::new(FaultKind::Broken, format!("Google's token service answered with {what}"))
}

/// A form for the address that a field of the file names.
fn form(field: &str, address: &str, fields: &[(&str, &str)]) -> Result<Call, Fault> {
    let url = Url::parse(address).map_err(|_| unusable(&format!("its {field} is not a URL")))?;
    let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
    let mut call = Call::json(url, &Value::Null);
    call = call.header("content-type", HeaderValue::from_static("application/x-www-form-urlencoded"));
    call.body = body.into();
    Ok(call)
}

#[cfg(test)]
mod tests;
