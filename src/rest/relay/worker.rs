//! Calls to the worker of a team. Its Service is owned by the Team, by UID, and is reached at its cluster address, as an agent's
//! is; the token names the team.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use k8s_openapi::api::core::v1::Service;
use kube::Client;
use kube::api::{Api, PartialObjectMeta};
use serde::de::DeserializeOwned;
use slipway_api::names::TeamSlug;
use slipway_api::{Team, ids, labels, worker};
use slipway_cluster::Key;
use slipway_http::{Error, Method, StatusCode, header};
use tokio::time::timeout;

use super::agent_transport::{AgentBody, AgentRequest, Content, TransportError};
use super::{CONNECTION_BYTES, Relay, endpoint, headers, response};
use crate::call::Call;
use crate::cluster_error;
use crate::context::Sign;
use crate::fast_map::FastMap;
use crate::http_client::RequestBody;
use crate::rate_limiter::Permit;

/// The time to live of a resolved Service. Tokens are valid twice as long.
const ENDPOINT_TTL: Duration = Duration::from_mins(1);
/// The timeout of a call, but for uploads. The worker's own is shorter.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
/// The timeout of an upload. Its body has a shorter one.
const UPLOAD_TIMEOUT: Duration = Duration::from_mins(16);
/// A hundred results, of the largest chunks that there are.
const RESPONSE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// A parsed answer takes some more memory than its JSON.
const PARSED_FACTOR: u64 = 2;

/// A resolved Service.
struct Endpoint {
    expires: Instant,
    address: IpAddr,
    token: Option<HeaderValue>,
}

pub(super) struct Workers {
    client: Client,
    sign: Option<Sign>,
    /// By the team's slug.
    known: Mutex<FastMap<String, Arc<Endpoint>>>,
}

/// The body of a call.
pub(crate) enum WorkerBody {
    Json(Bytes),
    /// A file, with its headers. It is sent as it comes.
    File(RequestBody, Vec<(HeaderName, HeaderValue)>),
    None,
}

/// A call to the worker of the caller's team.
pub(crate) struct WorkerCall<'a> {
    pub call: &'a Call,
    pub method: Method,
    pub path: String,
    pub body: WorkerBody,
}

impl Workers {
    pub(super) fn new(client: Client, sign: Option<Sign>) -> Self {
        Self { client, sign, known: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, FastMap<String, Arc<Endpoint>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn find(&self, team: &TeamSlug) -> Result<Arc<Endpoint>, Error> {
        let now = Instant::now();
        let known = self.known().get(team.as_str()).filter(|endpoint| now < endpoint.expires).cloned();
        match known {
            Some(endpoint) => Ok(endpoint),
            None => Box::pin(self.resolve(team)).await,
        }
    }

    async fn resolve(&self, team: &TeamSlug) -> Result<Arc<Endpoint>, Error> {
        let teams: Api<Team> = Api::all(self.client.clone());
        let services: Api<Service> = Api::namespaced(self.client.clone(), &team.namespace());
        let failed = |error| cluster_error::from_kube(error, &format!("worker of team {team}", team = team.as_str()));
        let (owner, service) = futures::try_join!(teams.get_metadata(team.as_str()), services.get_opt(worker::NAME)).map_err(failed)?;
        let address = address(&owner, service.as_ref()).map_err(|why| unavailable(team, &why))?;
        let now = Instant::now();
        let token = endpoint::token(self.sign.as_ref(), &ids::team(team.as_str()));
        let endpoint = Arc::new(Endpoint { expires: now + ENDPOINT_TTL, address, token });
        let mut known = self.known();
        known.retain(|_, endpoint| now < endpoint.expires);
        known.insert(team.as_str().to_owned(), endpoint.clone());
        Ok(endpoint)
    }

    /// The error for a request that was not answered.
    fn failed(&self, team: &TeamSlug, error: TransportError) -> Error {
        match error {
            TransportError::Unreachable(cause) => {
                self.known().remove(team.as_str());
                unavailable(team, "nothing answers on its port").because(cause)
            }
            TransportError::Closed(cause) => bad(team, "closed the connection before it had answered").because(cause),
            TransportError::ApiServer(error) => cluster_error::from_kube(error, worker::NAME),
            TransportError::Internal(cause) => Error::internal(cause),
        }
    }
}

/// Whether the worker of a team says that it is ready, or what is wrong. The request carries nobody's token.
pub(crate) async fn worker_is_ready(call: &Call, team: &TeamSlug) -> Result<(), Error> {
    let Relay { transport, workers, .. } = &call.context.relay;
    let endpoint = workers.find(team).await?;
    let headers = headers::to_agent(&HeaderMap::new(), &call.id, None);
    let request = AgentRequest { method: Method::GET, path: "/readyz".to_owned(), headers, content: Content::Whole(Bytes::new()) };
    let response = transport.send(&Key::new(team.namespace(), worker::NAME), endpoint.address, request).await;
    let status = response.map_err(|error| workers.failed(team, error))?.status();
    if status.is_success() { Ok(()) } else { Err(bad(team, &format!("is not ready: it answers with status {}", status.as_u16()))) }
}

/// The cluster address of the Service, if it is this Team's own; otherwise what is wrong.
fn address(team: &PartialObjectMeta<Team>, service: Option<&Service>) -> Result<IpAddr, String> {
    let name = worker::NAME;
    let Some(service) = service else { return Err(format!("there is no Service {name} yet")) };
    if !endpoint::is_owned(service, "Team", team.metadata.uid.as_deref()) {
        return Err(format!("Service {name} does not belong to the Team; delete it"));
    }
    endpoint::cluster_address(service, (labels::NAME, name))
        .ok_or_else(|| format!("Service {name} is not as the operator makes it: of type ClusterIP, with an address, for the worker's pods"))
}

/// 503: the worker is not there, or not yet.
fn unavailable(team: &TeamSlug, why: &str) -> Error {
    let message = format!("the worker of team {}, which searches and fills its knowledge bases, cannot be reached: {why}", team.as_str());
    Error::unavailable(message).with_header(header::RETRY_AFTER, HeaderValue::from_static("5"))
}

impl WorkerCall<'_> {
    /// The JSON of a successful answer.
    pub(crate) async fn json<T: DeserializeOwned>(self) -> Result<T, Error> {
        let call = self.call;
        let (team, mut response, _permit) = self.send(RESPONSE_TIMEOUT).await?;
        let charge = |bytes: u64| call.slot.charge(bytes * (1 + PARSED_FACTOR));
        let read = timeout(RESPONSE_TIMEOUT, response::read_start(response.body_mut(), RESPONSE_BYTES_MAX, charge)).await;
        match read {
            Ok(Ok((bytes, true))) => {
                serde_json::from_slice(&bytes).map_err(|error| bad(&team, "answered, but not with what is expected").because(error))
            }
            Ok(Ok((_, false))) => Err(bad(&team, "answered with more than is expected")),
            Ok(Err(response::ReadError::BoxError(error))) => Err(bad(&team, "closed the connection before it had answered").because(error)),
            Ok(Err(response::ReadError::Refused(error))) => Err(error),
            Err(_) => Err(late(&team)),
        }
    }

    /// Only whether it succeeds.
    pub(crate) async fn done(self) -> Result<(), Error> {
        self.send(RESPONSE_TIMEOUT).await.map(drop)
    }

    /// The JSON of the answer to an upload.
    pub(crate) async fn uploaded<T: DeserializeOwned>(self) -> Result<T, Error> {
        let (team, mut response, _permit) = self.send(UPLOAD_TIMEOUT).await?;
        let read = timeout(RESPONSE_TIMEOUT, response::read_start(response.body_mut(), response::ERROR_BYTES_MAX, |_| Ok(()))).await;
        match read {
            Ok(Ok((bytes, true))) => {
                serde_json::from_slice(&bytes).map_err(|error| bad(&team, "answered, but not with what is expected").because(error))
            }
            _ => Err(bad(&team, "closed the connection before it had answered")),
        }
    }

    /// Sends the request, and waits for the head of a successful response.
    async fn send(self, response_timeout: Duration) -> Result<(TeamSlug, Response<AgentBody>, Permit), Error> {
        let Self { call, method, path, body } = self;
        let context = &call.context;
        let team = call.team.clone().ok_or_else(|| Error::internal("a call to a worker has no team"))?;
        let permit = context.rate_limiter.admit_worker_call(team.as_str(), Instant::now())?;
        call.slot.charge(CONNECTION_BYTES)?;
        let Relay { transport, workers, .. } = &context.relay;
        let endpoint = workers.find(&team).await?;
        let mut given = headers::to_agent(&call.headers, &call.id, endpoint.token.as_ref());
        given.remove(header::CONTENT_TYPE);
        given.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        let sent_body = content(body, &mut given);
        let key = Key::new(team.namespace(), worker::NAME);
        let request = AgentRequest { method, path, headers: given, content: sent_body };
        let sent = timeout(response_timeout, transport.send(&key, endpoint.address, request)).await;
        let response = match sent {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(workers.failed(&team, error)),
            Err(_) => return Err(late(&team)),
        };
        if response.status().is_success() {
            return Ok((team, response, permit));
        }
        if matches!(response.status(), StatusCode::UNAUTHORIZED | StatusCode::MISDIRECTED_REQUEST) {
            workers.known().remove(team.as_str());
        }
        Err(refusal(&team, response).await)
    }
}

fn content(body: WorkerBody, headers: &mut HeaderMap) -> Content {
    match body {
        WorkerBody::None => Content::Whole(Bytes::new()),
        WorkerBody::Json(bytes) => {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            Content::Whole(bytes)
        }
        WorkerBody::File(body, more) => {
            headers.extend(more);
            Content::Stream(body)
        }
    }
}

/// The error for a response without success.
async fn refusal(team: &TeamSlug, response: Response<AgentBody>) -> Error {
    let (head, mut body) = response.into_parts();
    let read = timeout(RESPONSE_TIMEOUT, response::read_start(&mut body, response::ERROR_BYTES_MAX, |_| Ok(()))).await;
    let Ok(Ok((begin, _))) = read else { return bad(team, "closed the connection before it had answered") };
    let message = serde_json::from_slice::<response::ErrorBody>(&begin).ok().map(|refusal| response::truncate(refusal.message));
    let said = || message.clone().unwrap_or_else(|| format!("the worker of team {} refused: {}", team.as_str(), head.status));
    let error = match head.status.as_u16() {
        400 | 404 | 408 | 409 | 413 | 415 | 429 | 502..=504 => Error::new(head.status, said()),
        // A worker's 401 says nothing about the caller's token.
        401 | 403 => bad(team, "does not let the platform in"),
        421 => bad(team, "was not reached, but another in its place"),
        _ => bad(team, &format!("failed: {}", said())),
    };
    match head.headers.get(header::RETRY_AFTER) {
        Some(value) => error.with_header(header::RETRY_AFTER, value.clone()),
        None => error,
    }
}

fn bad(team: &TeamSlug, what: &str) -> Error {
    Error::new(StatusCode::BAD_GATEWAY, format!("the worker of team {} {what}", team.as_str()))
}

fn late(team: &TeamSlug) -> Error {
    Error::new(StatusCode::GATEWAY_TIMEOUT, format!("the worker of team {} took too long to answer", team.as_str()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn own() -> Value {
        json!({
            "metadata": {"name": "slipway-worker", "ownerReferences": [
                {"apiVersion": "agents.slipway.dev/v1", "kind": "Team", "name": "a", "uid": "u-1", "controller": true}]},
            "spec": {"type": "ClusterIP", "clusterIP": "10.96.0.7", "selector": {"app.kubernetes.io/name": "slipway-worker"}},
        })
    }

    fn found(service: Value) -> Result<IpAddr, String> {
        let team = serde_json::from_value(json!({"metadata": {"name": "a", "uid": "u-1"}})).unwrap();
        address(&team, Some(&serde_json::from_value(service).unwrap()))
    }

    #[test]
    fn only_the_teams_own_service_is_its_worker() {
        assert_eq!(found(own()).unwrap().to_string(), "10.96.0.7");
        for (pointer, value) in [
            ("/metadata/ownerReferences", json!([])),
            ("/metadata/ownerReferences/0/uid", json!("u-2")),
            ("/metadata/ownerReferences/0/kind", json!("Agent")),
            ("/metadata/ownerReferences/0/controller", json!(false)),
            ("/spec/type", json!("ExternalName")),
            ("/spec/clusterIP", json!("None")),
            ("/spec/selector", json!({"app.kubernetes.io/name": "other"})),
        ] {
            let mut service = own();
            *service.pointer_mut(pointer).unwrap() = value.clone();
            assert!(found(service).is_err(), "{pointer} {value}");
        }
    }
}
