//! The servers that the configuration names: MLflow and Prometheus. Only platform admins can name them, so that private addresses
//! are allowed, but no metadata services.

use slipway_mlflow::Fault;
use tokio::time::timeout;

use super::{Finding, LONG_PROBE_TIMEOUT, PROBE_TIMEOUT, Status};
use crate::platform::PlatformSettings;
use crate::radar::Prometheus;

/// With the platform's login, where that is for this server.
pub(super) async fn mlflow(uri: Option<&str>, installed: &PlatformSettings) -> Finding {
    let Some(uri) = uri else { return Finding::new(Status::NotConfigured, "there is no MLflow server; agents send no traces to one") };
    let is_anothers = installed.mlflow_login.is_some() && installed.mlflow_uri.as_deref() != Some(uri);
    let asked = async { installed.mlflow_servers().at(uri)?.probe().await };
    Finding::of(match timeout(LONG_PROBE_TIMEOUT, asked).await {
        Ok(Ok(version)) => Ok(format!("MLflow {version} answers")),
        Ok(Err(fault @ Fault::Unauthorized { .. })) if is_anothers => {
            Err(format!("{fault}; the platform's login is for the server that it was installed with, and is sent to no other"))
        }
        Ok(Err(fault)) => Err(fault.to_string()),
        Err(_) => Err(format!("the MLflow server does not answer within {} s", LONG_PROBE_TIMEOUT.as_secs())),
    })
}

/// Servers that only speak the query language of Prometheus have no page that says whether they are ready: a query is asked.
pub(super) async fn prometheus(url: Option<&str>) -> Finding {
    let Some(url) = url else { return Finding::new(Status::NotConfigured, "there is no Prometheus server; the radar reads from none") };
    let asked = async { Prometheus::new(url)?.targets().await };
    Finding::of(match timeout(PROBE_TIMEOUT, asked).await {
        Ok(Ok(count)) => Ok(format!("Prometheus answers, and {count} of its targets are up")),
        Ok(Err(why)) => Err(why),
        Err(_) => Err(format!("the Prometheus server does not answer within {} s", PROBE_TIMEOUT.as_secs())),
    })
}

#[cfg(test)]
mod tests {
    use slipway_mlflow::Login;

    use super::*;

    fn installed() -> PlatformSettings {
        PlatformSettings::default()
    }

    #[tokio::test]
    async fn the_login_is_shown_to_the_server_of_the_installation_alone() {
        let server = slipway_peers::mlflow_with_login("hunter2-is-right");
        let elsewhere = server.url().replace("127.0.0.1", "localhost");
        let with = |password: &str| {
            let login = Login::new(Some("admin"), Some(password), None).unwrap();
            PlatformSettings::new(Some(server.url().to_owned()), None).with_mlflow_login(login)
        };
        let good = mlflow(Some(server.url()), &with("hunter2-is-right")).await;
        assert!(good.status == Status::Ok && good.message.starts_with("MLflow "), "{good:?}");
        for (uri, platform, says) in [
            (server.url(), with("hunter2-is-wrong"), "refuses the login"),
            (server.url(), installed(), "refuses the login, or wants one"),
            (&*elsewhere, with("hunter2-is-right"), "is sent to no other"),
        ] {
            let found = mlflow(Some(uri), &platform).await;
            assert!(
                found.status == Status::Error && found.message.contains(says) && !found.message.contains("hunter2"),
                "{uri}: {found:?}"
            );
        }
    }

    #[tokio::test]
    async fn an_mlflow_server_is_known_by_its_answers() {
        let server = slipway_peers::mlflow();
        let found = mlflow(Some(server.url()), &installed()).await;
        assert_eq!(found.status, Status::Ok, "{found:?}");
        assert!(found.message.starts_with("MLflow 3") || found.message.starts_with("MLflow 2"), "{found:?}");
    }

    #[tokio::test]
    async fn what_is_not_there_or_something_else_is_told() {
        assert_eq!(mlflow(None, &installed()).await.status, Status::NotConfigured);
        let nobody = format!("http://127.0.0.1:{}", slipway_peers::free_port());
        let other = slipway_peers::mock_llm("{}");
        for (uri, says) in [
            (nobody.as_str(), "could not be reached"),
            (other.url(), "MLflow server"),
            ("http://169.254.169.254", "link-local"),
            ("http://[fd00:ec2::254]", "metadata service"),
            ("http://metadata.google.internal", "could not be reached"),
        ] {
            let found = mlflow(Some(uri), &installed()).await;
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
}
