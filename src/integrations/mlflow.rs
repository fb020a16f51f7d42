//! `mlflow`: whether the server is well, which version it is, and whether it lets experiments be read.

use reqwest::header::AUTHORIZATION;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;
use url::Url;

use crate::exchange::{Line, ServerCall, beneath};
use crate::login::IntegrationLogin;
use crate::outcome::{ConnectionFault, Subject};

const SERVER: &str = "an MLflow server";
const VERSION_BYTES_MAX: usize = 32;

/// Without experiments the object is empty.
#[derive(Deserialize)]
struct Found {
    #[serde(default, rename = "experiments")]
    _experiments: Vec<IgnoredAny>,
}

pub(crate) async fn ask(server: &Url, login: &IntegrationLogin<'_>, line: &Line<'_>) -> Result<String, ConnectionFault> {
    let authorization = login.authorization()?;
    let subject = Subject { server: SERVER, missing: None, has_login: authorization.is_some() };
    let get = |path: &str| Ok::<_, ConnectionFault>(ServerCall::get(beneath(server, path)?).with(AUTHORIZATION, authorization.clone()));
    let health = line.send(get("health")?).await?.successful(subject)?;
    if health.text().trim() != "OK" {
        return Err(ConnectionFault::other(&health.place, SERVER));
    }
    let version = line.send(get("version")?).await?.successful(subject)?;
    let is_version = |text: &str| text.len() <= VERSION_BYTES_MAX && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'.');
    let version = Some(version.text().trim()).filter(|text| !text.is_empty() && is_version(text)).map(str::to_owned);
    let version = version.ok_or_else(|| ConnectionFault::other(&health.place, SERVER))?;
    let search = ServerCall::post(beneath(server, "api/2.0/mlflow/experiments/search")?, &json!({"max_results": 1}));
    let found = line.send(search.with(AUTHORIZATION, authorization)).await?.successful(subject)?;
    let _: Found = found.json(SERVER)?;
    Ok(format!("{} answers as MLflow {version}", found.place))
}
