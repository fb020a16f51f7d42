//! Access tokens for Google Cloud: from a service account's key file, or from the metadata server of
//! the machine or cluster one runs on (workload identity). A token is kept until shortly before it
//! expires.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::HeaderValue;
use jiff::Timestamp;
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{Mutex, OnceCell};
use tokio::time::timeout;
use url::Url;

use crate::fault::{Fault, FaultKind};
use crate::settings::{self, Variables};
use crate::transport::{Call, Limits, Transport};

const FILE: &str = "GOOGLE_APPLICATION_CREDENTIALS";
const HOST: &str = "GCE_METADATA_HOST";
const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";
/// A token that expires this soon is not used any more.
const SPARE: Duration = Duration::from_mins(2);
/// The metadata server is on this machine, or not at all.
const NEAR: Duration = Duration::from_secs(5);

pub(crate) struct Credentials {
    source: Source,
    transport: Transport,
    token: Mutex<Option<(HeaderValue, Instant)>>,
    project: OnceCell<String>,
}

enum Source {
    File(PathBuf),
    /// The address of the metadata server.
    Metadata(String),
}

/// A service account with its key, as Google's console hands it out.
#[derive(Deserialize)]
struct Account {
    #[serde(rename = "type")]
    kind: String,
    project_id: Option<String>,
    #[serde(default)]
    private_key_id: String,
    #[serde(default)]
    private_key: String,
    #[serde(default)]
    client_email: String,
    #[serde(default)]
    token_uri: String,
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
            None => Source::Metadata(match settings::first(variables, &[HOST]) {
                None => "metadata.google.internal".to_owned(),
                Some((_, host)) if host.contains(['/', '@', ' ']) => {
                    return Err(Fault::new(
                        FaultKind::Misconfigured,
                        format!("{HOST} is `{host}`; it takes a host, and a port if need be"),
                    ));
                }
                Some((_, host)) => host,
            }),
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
            Source::File(path) => self.exchange(&read(path)?).await?,
            Source::Metadata(host) => {
                let text = metadata(host, "instance/service-accounts/default/token").await?;
                serde_json::from_str(&text).map_err(|_| nonsense("no JSON"))?
            }
        };
        let token = answer["access_token"].as_str().ok_or_else(|| nonsense("no access_token"))?;
        let token = settings::secret(&format!("Bearer {token}"), "Google's access token")?;
        let seconds = answer["expires_in"].as_u64().unwrap_or_default();
        let until = Instant::now() + Duration::from_secs(seconds).saturating_sub(SPARE);
        *kept = Some((token.clone(), until));
        Ok(token)
    }

    /// The project the credentials belong to.
    pub(crate) async fn project(&self) -> Result<String, Fault> {
        self.project.get_or_try_init(|| self.ask_project()).await.cloned()
    }

    async fn ask_project(&self) -> Result<String, Fault> {
        match &self.source {
            Source::File(path) => read(path)?.project_id.ok_or_else(|| {
                Fault::new(FaultKind::Misconfigured, format!("GOOGLE_CLOUD_PROJECT is not set, and the file of {FILE} names no project_id"))
            }),
            Source::Metadata(host) => Ok(metadata(host, "project/project-id").await?.trim().to_owned()),
        }
    }

    async fn exchange(&self, account: &Account) -> Result<Value, Fault> {
        let url = Url::parse(&account.token_uri).map_err(|_| unusable("its token_uri is not a URL"))?;
        let assertion = assertion(account, Timestamp::now())?;
        let form = HeaderValue::from_static("application/x-www-form-urlencoded");
        let mut call = Call::json(url, &Value::Null).header("content-type", form);
        // Neither part has a character that a form would have to encode but the colons.
        call.body = format!("grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion={assertion}").into();
        self.transport.json(&call).await.map_err(|fault| match fault.kind() {
            FaultKind::Refused | FaultKind::UnknownModel => Fault::new(
                FaultKind::Unauthorized,
                format!("Google gives no token for the service account of {FILE}; see that its key still exists"),
            ),
            _ => fault,
        })
    }
}

/// Read anew each time: a Secret's file changes when the key is replaced.
fn read(path: &Path) -> Result<Account, Fault> {
    let text = std::fs::read(path)
        .map_err(|error| Fault::new(FaultKind::MissingKey, format!("the file of {FILE}, {}, cannot be read: {error}", path.display())))?;
    let account: Account = serde_json::from_slice(&text).map_err(|_| unusable("it is not a JSON object with a type"))?;
    if account.kind != "service_account" {
        return Err(unusable(&format!("it is of type {}, and only service_account is supported", account.kind)));
    }
    Ok(account)
}

fn unusable(why: &str) -> Fault {
    Fault::new(FaultKind::Misconfigured, format!("the file of {FILE} is no key of a service account: {why}"))
}

fn nonsense(what: &str) -> Fault {
    Fault::new(FaultKind::Broken, format!("Google's token service answered with {what}"))
}

/// The signed statement that is exchanged for a token (RFC 7523).
fn assertion(account: &Account, now: Timestamp) -> Result<String, Fault> {
    let now = now.as_second();
    let header = json!({"alg": "RS256", "typ": "JWT", "kid": account.private_key_id});
    let claims = json!({"iss": account.client_email, "scope": SCOPE, "aud": account.token_uri, "iat": now, "exp": now + 3600});
    let mut statement = format!("{}.{}", URL_SAFE_NO_PAD.encode(header.to_string()), URL_SAFE_NO_PAD.encode(claims.to_string()));
    let pem: String = account.private_key.lines().filter(|line| !line.starts_with("-----")).map(str::trim).collect();
    let der = STANDARD.decode(pem).map_err(|_| unusable("its private_key is not PEM"))?;
    let pair = RsaKeyPair::from_pkcs8(&der).map_err(|_| unusable("its private_key is no RSA key in PKCS #8"))?;
    let mut signature = vec![0; pair.public().modulus_len()];
    pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), statement.as_bytes(), &mut signature)
        .map_err(|_| unusable("its private_key cannot sign"))?;
    statement.push('.');
    URL_SAFE_NO_PAD.encode_string(signature, &mut statement);
    Ok(statement)
}

/// Asked directly, past any proxy.
async fn metadata(host: &str, what: &str) -> Result<String, Fault> {
    let absent = || {
        Fault::new(
            FaultKind::MissingKey,
            format!("there are no Google credentials: {FILE} is not set, and no metadata server with a service account answers at {host}"),
        )
    };
    let client = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().map_err(|_| absent())?;
    let request = client.get(format!("http://{host}/computeMetadata/v1/{what}")).header("metadata-flavor", "Google");
    let answer = timeout(NEAR, async { request.send().await?.error_for_status()?.text().await }).await;
    answer.map_err(|_| absent())?.map_err(|_| absent())
}

#[cfg(test)]
mod tests;
