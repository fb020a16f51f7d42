//! The way to an agent: from within the cluster by its Service's address, over connections that are kept; from without
//! through the API server. Either way nothing of the caller's credentials goes along.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use kube::Client;
use slipway_cluster::Key;

use crate::line::{self, Broken, Failed, Lines, Sent};

const PORT: u16 = 8000;
/// How long an agent may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(5);
pub(super) type Body = UnsyncBoxBody<Bytes, Broken>;

/// What is sent to an agent.
#[derive(Debug, Clone)]
pub(super) struct Order {
    pub method: Method,
    /// With its query, as the agent knows it.
    pub path: String,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Order {
    /// The same, where what it is for answers below a path.
    fn below(mut self, path: &str) -> Self {
        self.path.insert_str(0, path);
        self
    }
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
        http: Lines,
        domain: String,
    },
    /// An address in which `{name}` and `{namespace}` stand for the agent's.
    Address {
        http: Lines,
        address: String,
    },
    ApiServer(Client),
}

impl Way {
    pub(super) fn service(domain: &str) -> Self {
        Self::Service { http: Lines::new(CONNECT), domain: domain.trim_matches('.').to_owned() }
    }

    pub(super) fn address(address: &str) -> Self {
        Self::Address { http: Lines::new(CONNECT), address: address.trim_end_matches('/').to_owned() }
    }

    /// `service` is the address of the agent's Service.
    pub(super) async fn send(&self, agent: &Key, service: IpAddr, mut order: Order) -> Result<Response<Body>, Failure> {
        let Key { namespace, name } = agent;
        match self {
            Self::Service { http, domain } => {
                let host = HeaderValue::try_from(format!("{name}.{namespace}.svc.{domain}:{PORT}"));
                order.headers.insert(header::HOST, host.map_err(|error| Failure::Ours(error.into()))?);
                direct(http, SocketAddr::new(service, PORT).to_string(), order).await
            }
            Self::Address { http, address } if address.contains('{') => {
                let address = address.replace("{name}", name).replace("{namespace}", namespace);
                let (server, path) = line::place(&address);
                direct(http, server.to_owned(), order.below(path)).await
            }
            Self::Address { http, address } => {
                let (server, path) = line::place(address);
                direct(http, server.to_owned(), order.below(path)).await
            }
            Self::ApiServer(client) => {
                let order = order.below(&format!("/api/v1/namespaces/{namespace}/services/{name}:{PORT}/proxy"));
                let response = Box::pin(client.send(request(order, kube::client::Body::from)?)).await.map_err(Failure::NoWay)?;
                Ok(response.map(|body| body.map_err(Into::into).boxed_unsync()))
            }
        }
    }
}

async fn direct(http: &Lines, server: String, order: Order) -> Result<Response<Body>, Failure> {
    // A connection that was kept may have been closed at the very moment in which it was used. What only reads is
    // asked once more; of anything else nobody knows whether it was done.
    let again = (order.method == Method::GET).then(|| (server.clone(), order.clone()));
    let answer = match (http.ask(server, request(order, whole)?).await, again) {
        (Err(Failed::Left(_)), Some((server, order))) => http.ask(server, request(order, whole)?).await,
        (answer, _) => answer,
    };
    match answer {
        Ok(response) => Ok(response.map(|body| body.map_err(Into::into).boxed_unsync())),
        Err(Failed::Unreachable(cause)) => Err(Failure::Unreachable(cause)),
        Err(Failed::Left(cause)) => Err(Failure::Left(cause)),
    }
}

fn request<B>(order: Order, body: fn(Bytes) -> B) -> Result<Request<B>, Failure> {
    let mut request = Request::new(body(order.body));
    *request.method_mut() = order.method;
    *request.uri_mut() = Uri::try_from(order.path).map_err(|error| Failure::Ours(error.into()))?;
    *request.headers_mut() = order.headers;
    Ok(request)
}

fn whole(bytes: Bytes) -> Sent {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}
