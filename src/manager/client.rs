//! The connection to the API server, with every request counted.

use anyhow::Context;
use http::Uri;
use hyper_util::client::proxy::matcher::Matcher;
use kube::client::{Body, ClientBuilder};
use kube::{Client, Config};
use slipway_operator::metrics::Metrics;
use tower::util::MapRequestLayer;

pub(crate) async fn connect(metrics: &Metrics) -> anyhow::Result<Client> {
    let mut config =
        Config::infer().await.context("no cluster to talk to: neither a kubeconfig nor the files of a pod's ServiceAccount were found")?;
    if config.proxy_url.is_none() {
        config.proxy_url = proxy(&config.cluster_url, &Matcher::from_env());
    }
    let metrics = metrics.clone();
    let count = MapRequestLayer::new(move |request: http::Request<Body>| {
        metrics.request(request.method().as_str(), request.uri().path(), request.uri().query());
        request
    });
    Ok(ClientBuilder::try_from(config).context("the cluster's settings cannot be used")?.with_layer(&count).build())
}

/// The proxy for `url`, by `HTTPS_PROXY` and `NO_PROXY`, which the client reads only beside a kubeconfig.
fn proxy(url: &Uri, environment: &Matcher) -> Option<Uri> {
    environment.intercept(url).map(|proxy| proxy.uri().clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_used_unless_the_host_is_excepted() {
        let environment = Matcher::builder().https("http://proxy.example:3128").no("10.0.0.1,.svc").build();
        let through = |url: &str| proxy(&url.parse().unwrap(), &environment).map(|proxy| proxy.to_string());
        assert_eq!(through("https://api.example:6443").as_deref(), Some("http://proxy.example:3128/"));
        assert_eq!(through("https://10.0.0.1:443"), None);
        assert_eq!(through("https://kubernetes.default.svc"), None);
    }
}
