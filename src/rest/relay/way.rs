//! The way to an agent: from within the cluster by its Service's name, over connections that are kept; from without
//! through the API server. Either way nothing of the caller's credentials goes along.

use std::error::Error as StdError;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::Client;
use slipway_cluster::Key;
use slipway_http::{HeaderValue, header};

const PORT: u16 = 8000;
/// How long an agent may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// Below the 30 s after which a runtime closes an idle connection, so that none is used just then.
const IDLE: Duration = Duration::from_secs(20);
const IDLE_PER_AGENT: usize = 64;
/// A silent agent is asked by its kernel whether it is there; one whose node has gone is given up after a minute.
const PROBE: Duration = Duration::from_secs(15);
const PROBES: u32 = 3;

pub(super) type Broken = Box<dyn StdError + Send + Sync>;
pub(super) type Body = UnsyncBoxBody<Bytes, Broken>;
type Http = legacy::Client<HttpConnector, Full<Bytes>>;

/// What is sent to an agent.
#[derive(Debug, Clone)]
pub(super) struct Order {
    pub method: Method,
    /// With its query, as the agent knows it.
    pub path: String,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// Why there was no answer.
#[derive(Debug)]
pub(super) enum Failure {
    /// No connection came about.
    Unreachable(Broken),
    /// It was reached and left without an answer.
    Left(Broken),
    /// The way to it is closed, and it is not the agent's fault.
    NoWay(kube::Error),
    Ours(Broken),
}

pub(super) enum Way {
    Service {
        http: Box<Http>,
        domain: String,
    },
    /// An address in which `{name}` and `{namespace}` stand for the agent's.
    Address {
        http: Box<Http>,
        address: String,
    },
    ApiServer(Client),
}

impl Way {
    pub(super) fn service(domain: &str) -> Self {
        Self::Service { http: Box::new(http()), domain: domain.trim_matches('.').to_owned() }
    }

    pub(super) fn address(address: &str) -> Self {
        Self::Address { http: Box::new(http()), address: address.trim_end_matches('/').to_owned() }
    }

    pub(super) async fn send(&self, agent: &Key, order: Order) -> Result<Response<Body>, Failure> {
        let Key { namespace, name } = agent;
        match self {
            Self::Service { http, domain } => {
                // The dot at the end keeps the resolver from trying the names of all search domains first.
                let host = format!("{name}.{namespace}.svc.{domain}");
                direct(http, &format!("http://{host}.:{PORT}"), Some(&format!("{host}:{PORT}")), order).await
            }
            Self::Address { http, address } => {
                direct(http, &address.replace("{name}", name).replace("{namespace}", namespace), None, order).await
            }
            Self::ApiServer(client) => {
                let path = format!("/api/v1/namespaces/{namespace}/services/{name}:{PORT}/proxy{}", order.path);
                let response = client.send(request(&path, order)?).await.map_err(Failure::NoWay)?;
                Ok(response.map(|body| body.map_err(Into::into).boxed_unsync()))
            }
        }
    }
}

async fn direct(http: &Http, base: &str, host: Option<&str>, mut order: Order) -> Result<Response<Body>, Failure> {
    let uri = format!("{base}{}", order.path);
    if let Some(host) = host {
        order.headers.insert(header::HOST, HeaderValue::try_from(host).map_err(|error| Failure::Ours(error.into()))?);
    }
    // A connection that was kept may have been closed at the very moment in which it was used. What only reads is
    // asked once more; of anything else nobody knows whether it was done.
    let again = (order.method == Method::GET).then(|| order.clone());
    let answer = match (http.request(request(&uri, order)?).await, again) {
        (Err(error), Some(order)) if !error.is_connect() => http.request(request(&uri, order)?).await,
        (answer, _) => answer,
    };
    match answer {
        Ok(response) => Ok(response.map(|body| body.map_err(Into::into).boxed_unsync())),
        Err(error) if error.is_connect() => Err(Failure::Unreachable(error.into())),
        Err(error) => Err(Failure::Left(error.into())),
    }
}

fn request<B: From<Bytes>>(uri: &str, order: Order) -> Result<Request<B>, Failure> {
    let mut request = Request::new(order.body.into());
    *request.method_mut() = order.method;
    *request.uri_mut() = uri.parse::<Uri>().map_err(|error| Failure::Ours(error.into()))?;
    *request.headers_mut() = order.headers;
    Ok(request)
}

fn http() -> Http {
    let mut connector = HttpConnector::new();
    connector.set_connect_timeout(Some(CONNECT));
    connector.set_nodelay(true);
    connector.set_keepalive(Some(PROBE));
    connector.set_keepalive_interval(Some(PROBE));
    connector.set_keepalive_retries(Some(PROBES));
    legacy::Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(IDLE_PER_AGENT)
        .build(connector)
}
