//! The client of the API server, with metrics of its requests.

use std::time::Duration;

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderValue, Uri};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::Client as LegacyClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::TokioExecutor;
use kube::client::retry::RetryPolicy;
use kube::client::{Body, ClientBuilder, ConfigExt, DynBody};
use kube::{Client, Config};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use slipway_cluster::Metrics;
use slipway_cluster::page::Pages;
use tower::retry::RetryLayer;
use tower::util::{BoxService, MapRequestLayer};
use tower::{BoxError, ServiceBuilder, ServiceExt as _};

type Stack = BoxService<http::Request<Body>, http::Response<Box<DynBody>>, BoxError>;

/// The read timeout: longer than the 290 s of a watch, and than the 330 s until the answer to a chat begins.
const READ_TIMEOUT: Duration = Duration::from_secs(340);

pub(crate) async fn connect(metrics: &Metrics) -> anyhow::Result<Client> {
    let mut config = Config::infer()
        .await
        .context("no cluster is configured: neither a kubeconfig nor the files of a pod's ServiceAccount were found")?;
    // Closes dead connections. Watches and chats end before.
    config.read_timeout = Some(READ_TIMEOUT);
    if config.proxy_url.is_none() {
        config.proxy_url = proxy(&config.cluster_url, &Matcher::from_env());
    }
    let metrics = metrics.clone();
    let count = MapRequestLayer::new(move |request: http::Request<Body>| {
        metrics.request(request.method().as_str(), request.uri().path(), request.uri().query());
        request
    });
    Ok(stack(config).context("the cluster's settings cannot be used")?.with_layer(&count).with_layer(&Pages).build())
}

/// kube's own layers over connections with `TCP_NODELAY`, which kube leaves off. Without it the first request of a connection waits
/// some 40 ms for the server's delayed acknowledgement of the TLS handshake, and a manager opens thirty connections at its start, one
/// for each watch. Through a proxy it is kube's own stack. Neither asks for compression: it takes the API server longer to compress the
/// lists of a start than to send them within a cluster.
fn stack(config: Config) -> anyhow::Result<ClientBuilder<Stack>> {
    if config.proxy_url.is_some() {
        return Ok(ClientBuilder::try_from(config)?);
    }
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    let mut connector = TimeoutConnector::new(config.rustls_https_connector_with_connector(tcp)?);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.default_retry.then(|| RetryLayer::new(RetryPolicy::server_retry())))
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(LegacyClient::builder(TokioExecutor::new()).build(connector))
        .map_response(|answer: http::Response<Incoming>| answer.map(|body| Box::new(body.map_err(BoxError::from)) as Box<DynBody>));
    Ok(ClientBuilder::new(service.boxed(), config.default_namespace))
}

/// The proxy for `url` from `HTTPS_PROXY` and `NO_PROXY`, which kube reads only with a kubeconfig. The URL may hold user and
/// password, of which the client makes the header `Proxy-Authorization`; it is never logged.
fn proxy(url: &Uri, environment: &Matcher) -> Option<Uri> {
    let proxy = environment.intercept(url)?;
    let Some(login) = proxy.basic_auth().and_then(login) else { return Some(proxy.uri().clone()) };
    let mut parts = proxy.uri().clone().into_parts();
    let host = parts.authority?;
    parts.authority = format!("{}@{host}", utf8_percent_encode(&login, NON_ALPHANUMERIC)).parse().ok();
    Uri::from_parts(parts).ok()
}

/// `user:password` of a header `Basic …`.
fn login(header: &HeaderValue) -> Option<String> {
    let encoded = header.to_str().ok()?.strip_prefix("Basic ")?;
    String::from_utf8(STANDARD.decode(encoded).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[test]
    fn a_proxy_is_used_unless_the_host_is_excepted() {
        let environment = Matcher::builder().https("http://proxy.example:3128").no("10.0.0.1,.svc").build();
        let through = |url: &str| proxy(&url.parse().unwrap(), &environment).map(|proxy| proxy.to_string());
        assert_eq!(through("https://api.example:6443").as_deref(), Some("http://proxy.example:3128/"));
        assert_eq!(through("https://10.0.0.1:443"), None);
        assert_eq!(through("https://kubernetes.default.svc"), None);
    }

    /// The CONNECT request that the client sends to the proxy.
    async fn connect_through(proxy_of_environment: &str) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let environment = Matcher::builder().https(proxy_of_environment.replace("PROXY", &address)).build();
        let mut config = Config::new("https://api.example:6443".parse().unwrap());
        config.proxy_url = proxy(&config.cluster_url, &environment);
        let client = stack(config).unwrap().build();
        let asking = tokio::spawn(async move { client.apiserver_version().await.is_ok() });
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut heard = Vec::new();
        while !heard.ends_with(b"\r\n\r\n") {
            assert!(stream.read_buf(&mut heard).await.unwrap() > 0);
        }
        stream.write_all(b"HTTP/1.1 502 Bad Gateway\r\n\r\n").await.unwrap();
        assert!(!asking.await.unwrap(), "there is nobody behind this proxy");
        String::from_utf8(heard).unwrap().to_ascii_lowercase()
    }

    #[tokio::test]
    async fn the_proxy_receives_user_and_password() {
        let open = connect_through("http://PROXY").await;
        assert!(open.starts_with("connect api.example:6443 ") && !open.contains("proxy-authorization"), "{open}");
        let guarded = connect_through("http://me:p%40ss:w%2Ford%25@PROXY").await;
        let expected = format!("proxy-authorization: basic {}", STANDARD.encode("me:p@ss:w/ord%").to_ascii_lowercase());
        assert!(guarded.contains(&expected), "{guarded}");
    }

    #[tokio::test]
    async fn requests_have_token_and_path_and_are_repeated_where_the_server_is_busy() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut config = Config::new(format!("http://{}/behind", listener.local_addr().unwrap()).parse().unwrap());
        config.auth_info.token = Some("secret".to_owned().into());
        let client = stack(config).unwrap().build();
        let asking = tokio::spawn(async move { client.apiserver_version().await });
        let version = r#"{"major": "1", "minor": "35", "gitVersion": "v1.35.0", "gitCommit": "", "gitTreeState": "", "buildDate": "", "goVersion": "", "compiler": "", "platform": ""}"#;
        let (mut stream, _) = listener.accept().await.unwrap();
        for answer in ["HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\n\r\n".to_owned(), ok(version)] {
            let mut heard = Vec::new();
            while !heard.ends_with(b"\r\n\r\n") {
                assert!(stream.read_buf(&mut heard).await.unwrap() > 0);
            }
            let heard = String::from_utf8(heard).unwrap().to_ascii_lowercase();
            assert!(heard.starts_with("get /behind/version ") && heard.contains("authorization: bearer secret"), "{heard}");
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
        assert_eq!(asking.await.unwrap().unwrap().git_version, "v1.35.0");
    }

    fn ok(body: &str) -> String {
        format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len())
    }
}
