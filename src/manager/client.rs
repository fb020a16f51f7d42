//! The connection to the API server, with every request counted.

use anyhow::Context;
use kube::client::{Body, ClientBuilder};
use kube::{Client, Config};
use slipway_operator::metrics::Metrics;
use tower::util::MapRequestLayer;

pub(crate) async fn connect(metrics: &Metrics) -> anyhow::Result<Client> {
    let config =
        Config::infer().await.context("no cluster to talk to: neither a kubeconfig nor the files of a pod's ServiceAccount were found")?;
    let metrics = metrics.clone();
    let count = MapRequestLayer::new(move |request: http::Request<Body>| {
        metrics.request(request.method().as_str(), request.uri().path(), request.uri().query());
        request
    });
    Ok(ClientBuilder::try_from(config).context("the cluster's settings cannot be used")?.with_layer(&count).build())
}
