//! How agents and workers are reached: within the cluster at their Service's address, over pooled connections; from outside through the
//! API server's proxy. The caller's credentials are never sent.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use kube::Client;
use slipway_cluster::Key;

use crate::http_client::{self, BoxError, HttpClient, RequestBody, SendError};

/// Agents and workers have the same.
const AGENT_PORT: u16 = slipway_api::worker::PORT;
/// The timeout of a connection to an agent.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The API server's proxy takes whole bodies only.
const PROXIED_BYTES_MAX: usize = 8 * 1024 * 1024;
pub(super) type AgentBody = UnsyncBoxBody<Bytes, BoxError>;

/// A request to an agent.
pub(super) struct AgentRequest {
    pub method: Method,
    /// Path and query, as the agent knows them.
    pub path: String,
    pub headers: HeaderMap,
    pub content: Content,
}

/// The body of a request.
pub(super) enum Content {
    Whole(Bytes),
    /// Sent as it comes, with chunked encoding.
    Stream(RequestBody),
}

impl AgentRequest {
    /// The request to repeat if the connection was closed: of a GET, as anything else may have had an effect.
    fn repeatable(&self) -> Option<Self> {
        let Content::Whole(body) = &self.content else { return None };
        (self.method == Method::GET).then(|| Self {
            method: self.method.clone(),
            path: self.path.clone(),
            headers: self.headers.clone(),
            content: Content::Whole(body.clone()),
        })
    }

    /// The same request below a base path.
    fn below(mut self, path: &str) -> Self {
        self.path.insert_str(0, path);
        self
    }
}

/// Why there is no response.
#[derive(Debug)]
pub(super) enum TransportError {
    /// No connection could be made.
    Unreachable(BoxError),
    /// The agent closed the connection without a response.
    Closed(BoxError),
    /// The API server's proxy failed.
    ApiServer(kube::Error),
    Internal(BoxError),
}

pub(super) enum AgentTransport {
    Service {
        http: HttpClient,
        domain: String,
    },
    /// With `{name}` and `{namespace}` in place of the Service's.
    Address {
        http: HttpClient,
        address: String,
    },
    ApiServer(Client),
}

impl AgentTransport {
    pub(super) fn service(domain: &str) -> Self {
        Self::Service { http: HttpClient::new(CONNECT_TIMEOUT), domain: domain.trim_matches('.').to_owned() }
    }

    pub(super) fn address(address: &str) -> Self {
        Self::Address { http: HttpClient::new(CONNECT_TIMEOUT), address: address.trim_end_matches('/').to_owned() }
    }

    /// Sends to a Service, which has this address.
    pub(super) async fn send(
        &self,
        service: &Key,
        address: IpAddr,
        mut request: AgentRequest,
    ) -> Result<Response<AgentBody>, TransportError> {
        let Key { namespace, name } = service;
        match self {
            Self::Service { http, domain } => {
                let host = HeaderValue::try_from(format!("{name}.{namespace}.svc.{domain}:{AGENT_PORT}"));
                request.headers.insert(header::HOST, host.map_err(|error| TransportError::Internal(error.into()))?);
                direct(http, SocketAddr::new(address, AGENT_PORT).to_string(), request).await
            }
            Self::Address { http, address } if address.contains('{') => {
                let address = address.replace("{name}", name).replace("{namespace}", namespace);
                let (server, path) = http_client::split_url(&address);
                direct(http, server.to_owned(), request.below(path)).await
            }
            Self::Address { http, address } => {
                let (server, path) = http_client::split_url(address);
                direct(http, server.to_owned(), request.below(path)).await
            }
            Self::ApiServer(client) => {
                let request = request.below(&format!("/api/v1/namespaces/{namespace}/services/{name}:{AGENT_PORT}/proxy"));
                let (request, content) = build(request)?;
                let body = match content {
                    Content::Whole(bytes) => bytes,
                    Content::Stream(body) => collected(body).await.map_err(TransportError::Closed)?,
                };
                let request = request.map(|()| kube::client::Body::from(body));
                let response = Box::pin(client.send(request)).await.map_err(TransportError::ApiServer)?;
                Ok(response.map(|body| body.map_err(Into::into).boxed_unsync()))
            }
        }
    }
}

async fn collected(mut body: RequestBody) -> Result<Bytes, BoxError> {
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        if whole.len() + data.len() > PROXIED_BYTES_MAX {
            return Err(format!("the API server's proxy takes at most {PROXIED_BYTES_MAX} bytes").into());
        }
        whole.extend_from_slice(&data);
    }
    Ok(whole.freeze())
}

async fn direct(http: &HttpClient, server: String, request: AgentRequest) -> Result<Response<AgentBody>, TransportError> {
    // A pooled connection may be closed just when it is used.
    let again = request.repeatable().map(|request| (server.clone(), request));
    let answer = match (http.send(server, sent(request)?).await, again) {
        (Err(SendError::Closed(_)), Some((server, request))) => http.send(server, sent(request)?).await,
        (answer, _) => answer,
    };
    match answer {
        Ok(response) => Ok(response.map(|body| body.map_err(Into::into).boxed_unsync())),
        Err(SendError::Connect(cause)) => Err(TransportError::Unreachable(cause)),
        Err(SendError::Closed(cause)) => Err(TransportError::Closed(cause)),
    }
}

fn sent(request: AgentRequest) -> Result<Request<RequestBody>, TransportError> {
    let (request, content) = build(request)?;
    Ok(request.map(|()| match content {
        Content::Whole(bytes) => Full::new(bytes).map_err(|never| match never {}).boxed_unsync(),
        Content::Stream(body) => body,
    }))
}

fn build(request: AgentRequest) -> Result<(Request<()>, Content), TransportError> {
    let mut built = Request::new(());
    *built.method_mut() = request.method;
    *built.uri_mut() = Uri::try_from(request.path).map_err(|error| TransportError::Internal(error.into()))?;
    *built.headers_mut() = request.headers;
    Ok((built, request.content))
}
