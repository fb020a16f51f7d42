//! The configuration of the platform: ConfigMap `slipway-platform`, and the Secret of that name for tokens and keys.
//!
//! The operator reads `mlflow_uri`, as feedback does, the radar `prometheus_url`, the state role the fields of the mirror.

mod connections;
mod git;

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::Api;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::json;
use slipway_api::platform;
use slipway_database::knowledge::KnowledgeReader;
use slipway_database::{Fault, Reader};
use slipway_http::{Error, HeaderValue, header};
use slipway_mlflow::{Login, Servers};
use tokio::time::timeout;

use crate::answer::Data;
use crate::call::{Call, IDEMPOTENCY_KEY, Json};
use crate::context::Context;
use crate::permission::Right;
use crate::write::Expected;
use crate::{cluster_error, write};

pub(crate) use connections::test;
pub(crate) use platform::NAME;

pub(crate) const READ: Right = Right::on("get", "configmaps").of_group("");
pub(crate) const CHANGE: Right = Right::on("patch", "configmaps").of_group("");
const SUBJECT: &str = "configuration of the platform";

/// The settings of the installation.
#[derive(Debug, Clone, Default)]
pub struct PlatformSettings {
    /// The MLflow server of agents, unless the configuration names another.
    mlflow_uri: Option<String>,
    /// The platform's own login there.
    mlflow_login: Option<Login>,
    /// The Prometheus server that scrapes agents, unless the configuration names another.
    prometheus_url: Option<String>,
    /// The platform's database.
    database: Option<slipway_database::Options>,
}

impl PlatformSettings {
    pub fn new(mlflow_uri: Option<String>, database_url: Option<&str>) -> Self {
        // Of these only the URL is used, which they do not show.
        let options = |url: &str| slipway_database::Options {
            url: url.to_owned(),
            password: None,
            sslmode: None,
            team: "tk_platform".to_owned(),
            agent_id: "ag_platform".to_owned(),
            migrate: false,
            prepared_statements: false,
            run: slipway_database::PodRun::default(),
        };
        Self { mlflow_uri, mlflow_login: None, prometheus_url: None, database: database_url.map(options) }
    }

    #[must_use]
    pub fn with_mlflow_login(self, mlflow_login: Option<Login>) -> Self {
        Self { mlflow_login, ..self }
    }

    #[must_use]
    pub fn with_prometheus_url(self, prometheus_url: Option<String>) -> Self {
        Self { prometheus_url, ..self }
    }

    pub(crate) fn mlflow_servers(&self) -> Servers {
        Servers::new(self.mlflow_uri.clone(), self.mlflow_login.clone())
    }

    /// The reader of what is in the database of knowledge bases, if there is a database.
    fn knowledge_reader(&self) -> Result<Option<KnowledgeReader>, Fault> {
        self.database.as_ref().map(|database| KnowledgeReader::open(&database.url, None, None)).transpose()
    }

    /// The reader of stored conversations, if there is a database.
    pub(crate) fn reader(&self) -> Result<Option<Reader>, Fault> {
        self.database.as_ref().map(|database| Reader::open(&database.url, None, None)).transpose()
    }
}

/// The platform's configuration, as it is in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "PlatformConfig")]
pub(crate) struct Config {
    /// The MLflow server that agents send traces to. A change rolls the agents out anew.
    pub mlflow_uri: Option<String>,
    /// The Prometheus server from which the radar reads what agents did, where the platform has no database.
    pub prometheus_url: Option<String>,
    #[serde(flatten)]
    pub git: git::Config,
}

/// What is to be another from now on. What is not given stays; null goes back to what the platform was installed with.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "PlatformChanges")]
#[expect(clippy::option_option, reason = "nothing and null are two things here")]
pub(crate) struct Changes {
    /// The MLflow server that agents send traces to, without user and password.
    #[serde(default, deserialize_with = "given")]
    mlflow_uri: Option<Option<String>>,
    /// The Prometheus server that scrapes the agents, without user and password.
    #[serde(default, deserialize_with = "given")]
    prometheus_url: Option<Option<String>>,
    #[serde(flatten)]
    git: git::Changes,
}

/// Distinguishes null from a missing field.
#[expect(clippy::option_option, reason = "nothing and null are two things here")]
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

impl Changes {
    /// The URLs that are to be others, or why one of them cannot be.
    fn urls(&self) -> Result<BTreeMap<&'static str, Option<String>>, Error> {
        let mut data = BTreeMap::new();
        if let Some(mlflow_uri) = &self.mlflow_uri {
            if let Some(fault) = mlflow_uri.as_deref().and_then(platform::public_url_fault) {
                return Err(Error::bad_request(format!("mlflow_uri: {fault}")));
            }
            data.insert(platform::MLFLOW_URI, mlflow_uri.clone());
        }
        if let Some(prometheus_url) = &self.prometheus_url {
            if let Some(fault) = prometheus_url.as_deref().and_then(platform::public_url_fault) {
                // Nobody has a password for it in a Secret.
                let fault = fault.split_once(';').map_or(fault, |(fault, _)| fault);
                return Err(Error::bad_request(format!("prometheus_url: {fault}")));
            }
            data.insert(platform::PROMETHEUS_URL, prometheus_url.clone());
        }
        Ok(data)
    }
}

pub(crate) async fn get(call: Call) -> Result<Data<Config>, Error> {
    let found = read(&call.context).await?;
    answer(&call, found.as_ref()).await
}

pub(crate) async fn change(call: Call<Json<Changes>>) -> Result<Data<Config>, Error> {
    let (mut call, Json(changes)) = call.split();
    // A PUT is idempotent by itself.
    call.headers.remove(IDEMPOTENCY_KEY);
    let mut data = changes.urls()?;
    let found = Some(read(&call.context).await?.ok_or_else(|| missing("ConfigMap"))?);
    Expected::of(&call)?.check(&found.as_ref().and_then(ResourceExt::resource_version).unwrap_or_default(), SUBJECT)?;
    let git = git::Writes::of(&call, changes.git, found.as_ref()).await?;
    if git.must_pause() {
        // The new credentials must not be sent to the old remote meanwhile.
        let pause = json!({"data": {platform::STATE_REPO: null}});
        let paused = write::change(&call, &api(&call.context), NAME, SUBJECT, |_: &ConfigMap| Ok(pause.clone())).await?;
        expect(&mut call, &paused)?;
    }
    git.hide(&mut call).await?;
    data.extend(git.data);
    let kept = write::change(&call, &api(&call.context), NAME, SUBJECT, |_: &ConfigMap| Ok(json!({"data": data}))).await?;
    answer(&call, Some(&kept)).await
}

/// From now on If-Match stands for the version that this call has written.
fn expect(call: &mut Call, now: &ConfigMap) -> Result<(), Error> {
    if call.headers.contains_key(header::IF_MATCH) {
        let tag = format!("\"{}\"", now.resource_version().unwrap_or_default());
        call.headers.insert(header::IF_MATCH, HeaderValue::try_from(tag).map_err(Error::internal)?);
    }
    Ok(())
}

/// REST fills objects of the chart and creates none: an account that may create Secrets may create one with a
/// ServiceAccount's token.
fn missing(kind: &str) -> Error {
    Error::unavailable(format!("the platform's namespace has no {kind} {NAME}, which the chart makes; install the chart anew"))
}

/// With REST's own rights: callers need none to the ConfigMap.
fn api(context: &Context) -> Api<ConfigMap> {
    Api::namespaced(context.client.clone(), &context.settings.platform_namespace)
}

async fn read(context: &Context) -> Result<Option<ConfigMap>, Error> {
    api(context).get_opt(NAME).await.map_err(|error| cluster_error::from_kube(error, SUBJECT))
}

/// The MLflow server that is in effect now.
pub(crate) async fn mlflow_uri(call: &Call) -> Result<Option<String>, Error> {
    Ok(mlflow(&call.context.settings.platform, read(&call.context).await?.as_ref()))
}

/// The same for an answer that does not wait longer for the cluster: then the server that the platform was installed with.
pub(crate) async fn mlflow_uri_within(context: &Context, limit: Duration) -> Option<String> {
    let found = timeout(limit, read(context)).await.ok().and_then(Result::ok).flatten();
    mlflow(&context.settings.platform, found.as_ref())
}

/// The Prometheus server that is in effect now.
pub(crate) async fn prometheus_url(context: &Context) -> Result<Option<String>, Error> {
    Ok(prometheus(&context.settings.platform, read(context).await?.as_ref()))
}

/// The MLflow server that is in effect.
fn mlflow(installed: &PlatformSettings, found: Option<&ConfigMap>) -> Option<String> {
    stored_url(found, platform::MLFLOW_URI).or_else(|| installed.mlflow_uri.clone())
}

/// The Prometheus server that is in effect.
fn prometheus(installed: &PlatformSettings, found: Option<&ConfigMap>) -> Option<String> {
    stored_url(found, platform::PROMETHEUS_URL).or_else(|| installed.prometheus_url.clone())
}

/// A URL in the ConfigMap. What is no URL is ignored, as the operator does.
fn stored_url(found: Option<&ConfigMap>, name: &str) -> Option<String> {
    let stored = found.and_then(|found| found.data.as_ref()?.get(name));
    stored.filter(|url| platform::public_url_fault(url).is_none()).cloned()
}

/// The configuration as it would be after a change of its URLs.
fn after(found: Option<ConfigMap>, urls: BTreeMap<&'static str, Option<String>>) -> ConfigMap {
    let mut map = found.unwrap_or_default();
    let data = map.data.get_or_insert_default();
    for (name, url) in urls {
        match url {
            Some(url) => drop(data.insert(name.to_owned(), url)),
            None => drop(data.remove(name)),
        }
    }
    map
}

async fn answer(call: &Call, found: Option<&ConfigMap>) -> Result<Data<Config>, Error> {
    let installed = &call.context.settings.platform;
    let config =
        Config { mlflow_uri: mlflow(installed, found), prometheus_url: prometheus(installed, found), git: git::config(call, found).await? };
    Ok(Data::at(config, found.and_then(ResourceExt::resource_version)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_comes_before_what_was_installed() {
        let installed = PlatformSettings::new(Some("http://installed".to_owned()), None);
        let stored = |uri: &str| {
            let data = Some([(platform::MLFLOW_URI.to_owned(), uri.to_owned())].into());
            ConfigMap { data, ..ConfigMap::default() }
        };
        for (found, expected) in [
            (None, "http://installed"),
            (Some(ConfigMap::default()), "http://installed"),
            (Some(stored("http://stored")), "http://stored"),
            (Some(stored("http://me:hunter2@stored")), "http://installed"),
        ] {
            assert_eq!(mlflow(&installed, found.as_ref()).as_deref(), Some(expected), "{found:?}");
        }
    }

    #[test]
    fn what_would_be_is_known_before_it_is_stored() {
        let installed = PlatformSettings::new(Some("http://installed".to_owned()), None);
        let stored =
            || ConfigMap { data: Some([(platform::MLFLOW_URI.to_owned(), "http://stored".to_owned())].into()), ..ConfigMap::default() };
        for (body, expected) in [
            ("{}", Ok("http://stored")),
            ("{\"mlflow_uri\": \"http://new\"}", Ok("http://new")),
            ("{\"mlflow_uri\": null}", Ok("http://installed")),
            ("{\"mlflow_uri\": \"http://me:hunter2@new\"}", Err("mlflow_uri: it must hold no user and password")),
            ("{\"prometheus_url\": \"prometheus\"}", Err("prometheus_url: it is no URL")),
        ] {
            let changes: Changes = serde_json::from_str(body).unwrap();
            let found = changes.urls().map(|urls| mlflow(&installed, Some(&after(Some(stored()), urls))));
            match (found, expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found.as_deref(), Some(expected), "{body}"),
                (Err(error), Err(says)) => assert!(error.message().contains(says) && !error.message().contains("hunter2"), "{body}"),
                (found, expected) => panic!("{body}: {found:?}, not {expected:?}"),
            }
        }
    }

    #[test]
    fn null_is_not_nothing() {
        for (body, expected) in [
            ("{}", Ok(None)),
            ("{\"mlflow_uri\": null}", Ok(Some(None))),
            ("{\"mlflow_uri\": \"http://x\"}", Ok(Some(Some("http://x".to_owned())))),
            ("{\"grafana_url\": \"http://x\"}", Err("unknown field `grafana_url`")),
        ] {
            let read = serde_json::from_str::<Changes>(body).map(|changes| changes.mlflow_uri).map_err(|error| error.to_string());
            match expected {
                Ok(expected) => assert_eq!(read, Ok(expected), "{body}"),
                Err(says) => assert!(read.unwrap_err().contains(says), "{body}"),
            }
        }
    }
}
