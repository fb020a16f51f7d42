//! Tests the connections of the configuration, all at the same time.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use slipway_database::{Options, Store};
use slipway_egress::{Allowed, Egress, EgressProfile};
use slipway_http::Error;
use tokio::time::timeout;
use url::Url;

use super::{git, mlflow as mlflow_uri, prometheus as prometheus_url, read};
use crate::answer::Data;
use crate::call::Call;
use crate::radar::Prometheus;

const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// How each of the others is.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "PlatformTest")]
pub(crate) struct Tested {
    /// The remote that the state repositories are mirrored to.
    pub git: Finding,
    pub mlflow: Finding,
    /// The server that scrapes the agents.
    pub prometheus: Finding,
    pub database: Finding,
    pub cluster: Finding,
}

#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "PlatformFinding")]
pub(crate) struct Finding {
    pub status: Status,
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "FindingStatus")]
pub(crate) enum Status {
    Ok,
    Error,
    NotConfigured,
}

impl Finding {
    pub(super) fn new(status: Status, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    fn of(outcome: Result<String, String>) -> Self {
        outcome.map_or_else(|message| Self::new(Status::Error, message), |message| Self::new(Status::Ok, message))
    }
}

pub(crate) async fn test(call: Call) -> Result<Data<Tested>, Error> {
    let installed = &call.context.settings.platform;
    // Without the cluster only the settings of the installation are known.
    let stored = read(&call.context).await.ok().flatten();
    let uri = mlflow_uri(installed, stored.as_ref());
    let prometheus_url = prometheus_url(installed, stored.as_ref());
    let (git, mlflow, prometheus, database, cluster) = tokio::join!(
        git::test(&call, stored.as_ref()),
        mlflow(uri.as_deref()),
        prometheus(prometheus_url.as_deref()),
        database(installed.database.as_ref()),
        cluster(&call.context.client)
    );
    Ok(Data::new(Tested { git, mlflow, prometheus, database, cluster }))
}

async fn cluster(client: &kube::Client) -> Finding {
    let asked = http::Request::get("/readyz").body(Vec::new());
    let Ok(asked) = asked else { return Finding::new(Status::Error, "the API server cannot be asked") };
    Finding::of(match timeout(PROBE_TIMEOUT, client.request_text(asked)).await {
        Ok(Ok(_)) => Ok("the API server is ready".to_owned()),
        Ok(Err(kube::Error::Api(status))) => Err(format!("the API server is not ready: {}", status.message)),
        Ok(Err(_)) => Err("the API server does not answer".to_owned()),
        Err(_) => Err(format!("the API server does not answer within {} s", PROBE_TIMEOUT.as_secs())),
    })
}

async fn database(options: Option<&Options>) -> Finding {
    let Some(options) = options else {
        return Finding::new(Status::NotConfigured, "there is no database; agents keep what they know in memory");
    };
    let ping = async { Store::open(options)?.ping().await };
    // Errors of the database crate contain neither URL nor password.
    Finding::of(match timeout(PROBE_TIMEOUT, ping).await {
        Ok(Ok(())) => Ok("the database answers and has a schema that fits".to_owned()),
        Ok(Err(fault)) => Err(fault.to_string()),
        Err(_) => Err(format!("the database does not answer within {} s", PROBE_TIMEOUT.as_secs())),
    })
}

async fn mlflow(uri: Option<&str>) -> Finding {
    let Some(uri) = uri else { return Finding::new(Status::NotConfigured, "there is no MLflow server; agents send no traces to one") };
    match Url::parse(&format!("{}/", uri.trim_end_matches('/'))) {
        Ok(uri) => Finding::of(ask_mlflow(&uri).await),
        Err(_) => Finding::new(Status::Error, "mlflow_uri is no URL"),
    }
}

/// Servers that only speak the query language of Prometheus have no page that says whether they are ready: a query is asked.
async fn prometheus(url: Option<&str>) -> Finding {
    let Some(url) = url else { return Finding::new(Status::NotConfigured, "there is no Prometheus server; the radar reads from none") };
    let asked = async { Prometheus::new(url)?.targets().await };
    Finding::of(match timeout(PROBE_TIMEOUT, asked).await {
        Ok(Ok(count)) => Ok(format!("Prometheus answers, and {count} of its targets are up")),
        Ok(Err(why)) => Err(why),
        Err(_) => Err(format!("the Prometheus server does not answer within {} s", PROBE_TIMEOUT.as_secs())),
    })
}

/// Only platform admins can name the server, so that private addresses are allowed, but no metadata services.
async fn ask_mlflow(base: &Url) -> Result<String, String> {
    let place = slipway_egress::redacted(base);
    let profile = EgressProfile { name: "the platform", setting: "mlflow_uri", user_agent: concat!("slipway/", env!("CARGO_PKG_VERSION")) };
    let host = base.host_str().zip(base.port_or_known_default()).map(|(host, port)| Allowed::Host { host: host.to_owned(), port });
    let egress = Egress::new(profile, host.as_slice(), None);
    let client = egress.client(base).map_err(|blocked| blocked.to_string())?;
    let get = async |path: &str| {
        let url = base.join(path).map_err(|_| "mlflow_uri is no URL".to_owned())?;
        let answer = client.get(url).timeout(PROBE_TIMEOUT).send().await.map_err(|error| slipway_egress::explain(&error, &place))?;
        match answer.status().as_u16() {
            200 => Ok(answer),
            status => Err(format!("{place} answers {path} with status {status}; is it an MLflow server?")),
        }
    };
    get("health").await?;
    // `/version` returns only a number. The page of another server is not passed on.
    let mut version = get("version").await?;
    let text = version.chunk().await.ok().flatten().unwrap_or_default();
    let text = std::str::from_utf8(&text).unwrap_or_default().trim();
    let is_number = (1..=32).contains(&text.len()) && text.starts_with(|first: char| first.is_ascii_digit());
    let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".+-".contains(&byte));
    if is_number && is_plain {
        Ok(format!("MLflow {text} answers"))
    } else {
        Err(format!("{place} answers, but not as an MLflow server does"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::PlatformSettings;

    #[tokio::test]
    async fn an_mlflow_server_is_known_by_its_answers() {
        let server = slipway_peers::mlflow();
        let found = mlflow(Some(server.url())).await;
        assert_eq!(found.status, Status::Ok, "{found:?}");
        assert!(found.message.starts_with("MLflow 3") || found.message.starts_with("MLflow 2"), "{found:?}");
    }

    #[tokio::test]
    async fn what_is_not_there_or_something_else_is_told() {
        assert_eq!(mlflow(None).await.status, Status::NotConfigured);
        let nobody = format!("http://127.0.0.1:{}", slipway_peers::free_port());
        let other = slipway_peers::mock_llm("{}");
        for (uri, says) in [
            (nobody.as_str(), "could not be reached"),
            (other.url(), "MLflow server"),
            ("http://169.254.169.254", "link-local"),
            ("http://[fd00:ec2::254]", "metadata service"),
            ("http://metadata.google.internal", "could not be reached"),
        ] {
            let found = mlflow(Some(uri)).await;
            assert!(found.status == Status::Error && found.message.contains(says), "{uri}: {found:?}");
        }
    }

    #[tokio::test]
    async fn a_prometheus_server_is_really_asked() {
        assert_eq!(prometheus(None).await.status, Status::NotConfigured);
        let nobody = format!("127.0.0.1:{}", slipway_peers::free_port());
        let server = slipway_peers::Prometheus::start(&[slipway_peers::Target { address: &nobody, labels: &[] }], &[]);
        server.until("up", |found| !found.is_empty());
        let found = prometheus(Some(&server.url())).await;
        assert_eq!((found.status, &*found.message), (Status::Ok, "Prometheus answers, and 0 of its targets are up"));
        let other = slipway_peers::mock_llm("{}");
        for (url, says) in [
            (format!("http://{nobody}"), "could not be reached"),
            (other.url().to_owned(), "status"),
            ("http://169.254.169.254".to_owned(), "link-local"),
        ] {
            let found = prometheus(Some(&url)).await;
            assert!(found.status == Status::Error && found.message.contains(says), "{url}: {found:?}");
        }
    }

    #[tokio::test]
    async fn the_database_is_really_asked_and_no_password_told() {
        assert_eq!(database(None).await.status, Status::NotConfigured);
        let postgres = slipway_peers::Postgres::start();
        let options = |url: String| PlatformSettings::new(None, Some(&url)).database.unwrap();
        let empty = database(Some(&options(postgres.url()))).await;
        assert!(empty.status == Status::Error && empty.message.contains("schema"), "{empty:?}");
        slipway_database::migrate(&postgres.url(), None, None).await.unwrap();
        let good = database(Some(&options(postgres.url()))).await;
        assert_eq!(good.status, Status::Ok, "{good:?}");
        let wrong = database(Some(&options(postgres.url_of("postgres", "hunter2", "postgres")))).await;
        assert!(wrong.status == Status::Error && wrong.message.contains("login") && !wrong.message.contains("hunter2"), "{wrong:?}");
        postgres.stop();
        assert_eq!(database(Some(&options(postgres.url()))).await.status, Status::Error);
    }
}
