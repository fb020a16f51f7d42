//! Relays calls to agents (chat, conversations, memories, suggestions). A call ends on both sides when one side ends it.
//!
//! `target` finds the agent, `track` chooses between its tracks while it has a canary, `endpoint` resolves and verifies its Service,
//! `agent_transport` sends the request, `headers` selects the headers, `response` passes the reply on. `stored_conversations` answers for
//! agents without pods from the database. `worker` calls the workers of teams by the same way.

mod agent_transport;
mod endpoint;
mod headers;
mod response;
mod schemas;
mod stored_conversations;
mod target;
mod track;
mod worker;

use std::fmt::Write;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use slipway_api::names::TeamSlug;
use slipway_http::{Error, HeaderMap, HeaderValue, Method, Reply, Request, RequestId, StatusCode};
use tokio::time::timeout;

use crate::answer::{Answer, Created, Data, Events};
use crate::call::{Body, Call};
use crate::cluster_error;
use crate::context::RestSettings;
use crate::page::Page;
use crate::rate_limiter::Permit;
use crate::route::Parameter;
use agent_transport::{AgentBody, AgentRequest, AgentTransport, Content, TransportError};
use endpoint::{Endpoint, Endpoints};
use response::BodyForm;
use schemas::{
    Chat, ChatReply, Conversation, ConversationStatus, ConversationSummary, Forgotten, Memory, MemoryResults, MemorySearch, MemoryStatus,
    NewMemory, Suggestions,
};
pub(crate) use stored_conversations::from_database;
pub(crate) use target::{Target, target};
use track::{By, Destination, Shares};
use worker::Workers;
pub(crate) use worker::{WorkerBody, WorkerCall, worker_is_ready};

/// The timeout of every call but a chat, until the response begins.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
const ID_LEN_MAX: usize = 64;
/// The memory of a call besides its body and response: a connection to the agent.
const CONNECTION_BYTES: u64 = 32 * 1024;

pub(crate) const SUGGESTED: &[Parameter] =
    &[Parameter { name: "conversation_id", about: "The conversation to go on with.", kind: "string" }];

pub(crate) const LISTED: &[Parameter] = &[
    Parameter { name: "limit", about: "How many at most.", kind: "integer" },
    Parameter { name: "cursor", about: "Where to go on: next_cursor of the page before.", kind: "string" },
];

pub(crate) struct Relay {
    transport: AgentTransport,
    endpoints: Endpoints,
    workers: Workers,
    /// The timeout of a chat until the response begins.
    chat_timeout: Duration,
}

impl Relay {
    /// `untimed` has no timeout of its own and reaches agents; `client` is for everything else.
    pub(crate) fn new(untimed: kube::Client, client: kube::Client, settings: &RestSettings) -> Self {
        let transport = match &settings.agent_address {
            Some(address) => AgentTransport::address(address),
            None if settings.in_cluster => AgentTransport::service(&settings.cluster_domain),
            None => AgentTransport::ApiServer(untimed),
        };
        let workers = Workers::new(client.clone(), settings.sign.clone());
        Self { transport, endpoints: Endpoints::new(client, settings.sign.clone()), workers, chat_timeout: settings.chat_time }
    }
}

/// JSON that is passed on unread; the agent validates it. `T` is its schema in the OpenAPI document.
pub(crate) struct Passed<T>(Request, PhantomData<fn() -> T>);

impl<T: JsonSchema + 'static> Body for Passed<T> {
    fn form(generator: &mut SchemaGenerator) -> Option<(&'static str, Schema)> {
        Some(("application/json", generator.subschema_for::<T>()))
    }

    async fn read(request: Request) -> Result<Self, Error> {
        Ok(Self(request, PhantomData))
    }
}

/// The response of an agent, of the form `A`.
pub(crate) struct Relayed<A>(Reply, PhantomData<fn() -> A>);

impl<A> Relayed<A> {
    fn of(reply: Reply) -> Self {
        Self(reply, PhantomData)
    }
}

impl<A: Answer> Answer for Relayed<A> {
    const STATUS: StatusCode = A::STATUS;
    const MEDIA: &'static str = A::MEDIA;
    const IS_CHARGED_ELSEWHERE: bool = true;

    fn form(generator: &mut SchemaGenerator) -> Schema {
        A::form(generator)
    }

    fn reply(self) -> Result<Reply, Error> {
        // Agents answer 200 to every success.
        Ok(if A::STATUS == StatusCode::OK { self.0 } else { self.0.with_status(A::STATUS) })
    }
}

pub(crate) async fn chat(call: Call<Passed<Chat>>) -> Result<Relayed<Data<ChatReply>>, Error> {
    let response_timeout = call.context.relay.chat_timeout;
    json(call, Question::new(Method::POST, "/chat", By::Body), BodyForm::InData, response_timeout).await
}

pub(crate) async fn stream(call: Call<Passed<Chat>>) -> Result<Events, Error> {
    let response_timeout = call.context.relay.chat_timeout;
    let (call, body) = call.split();
    let target = target(&call).await?;
    let question = Question::new(Method::POST, "/chat/stream", By::Body);
    let (response, permit) = send(&call, &target, question, body, response_timeout).await?;
    response::stream(&target, response, permit).map(Events)
}

pub(crate) async fn conversations(mut call: Call) -> Result<Relayed<Page<ConversationSummary>>, Error> {
    let target = target(&call).await?;
    if let Some(reason) = target.no_pods_reason() {
        let query = std::mem::take(&mut call.query);
        return stored_conversations::open(&call, &target, &reason).await?.conversations(query).await.map(Relayed::of);
    }
    let path = with_query(&mut call, "/conversations", &["limit", "cursor", "search"])?;
    ask(call, target, Question::new(Method::GET, path, By::Shared), BodyForm::AsIs, RESPONSE_TIMEOUT).await
}

pub(crate) async fn conversation(call: Call) -> Result<Relayed<Data<Conversation>>, Error> {
    let id = id(&call, "cid", "conversation")?;
    let target = target(&call).await?;
    if let Some(reason) = target.no_pods_reason() {
        return stored_conversations::open(&call, &target, &reason).await?.conversation(&id).await.map(Relayed::of);
    }
    let question = Question::new(Method::GET, format!("/conversations/{id}"), By::Conversation(id));
    ask(call, target, question, BodyForm::InData, RESPONSE_TIMEOUT).await
}

pub(crate) async fn delete_conversation(call: Call) -> Result<Relayed<Data<Forgotten>>, Error> {
    let id = id(&call, "cid", "conversation")?;
    let question = Question::new(Method::DELETE, format!("/conversations/{id}"), By::Conversation(id));
    json(call, question, BodyForm::InData, RESPONSE_TIMEOUT).await
}

pub(crate) async fn conversation_status(call: Call) -> Result<Relayed<Data<ConversationStatus>>, Error> {
    let id = id(&call, "cid", "conversation")?;
    let question = Question::new(Method::GET, format!("/conversations/{id}/status"), By::Conversation(id));
    json(call, question, BodyForm::InData, RESPONSE_TIMEOUT).await
}

pub(crate) async fn suggestions(mut call: Call) -> Result<Relayed<Data<Suggestions>>, Error> {
    let mut query = std::mem::take(&mut call.query);
    let conversation = query.text("conversation_id");
    query.end()?;
    let question = match conversation {
        Some(id) => {
            let path = format!("/suggestions?conversation_id={}", utf8_percent_encode(&id, NON_ALPHANUMERIC));
            Question::new(Method::GET, path, By::Conversation(id))
        }
        None => Question::new(Method::GET, "/suggestions", By::Shared),
    };
    json(call, question, BodyForm::InData, RESPONSE_TIMEOUT).await
}

pub(crate) async fn memories(mut call: Call) -> Result<Relayed<Page<Memory>>, Error> {
    let target = target(&call).await?;
    if let Some(reason) = target.no_pods_reason() {
        let query = std::mem::take(&mut call.query);
        return stored_conversations::open(&call, &target, &reason).await?.memories(query).await.map(Relayed::of);
    }
    let path = with_query(&mut call, "/memory", &["limit", "cursor"])?;
    ask(call, target, Question::new(Method::GET, path, By::Shared), BodyForm::AsIs, RESPONSE_TIMEOUT).await
}

pub(crate) async fn remember(call: Call<Passed<NewMemory>>) -> Result<Relayed<Created<Memory>>, Error> {
    json(call, Question::new(Method::POST, "/memory", By::Shared), BodyForm::InData, RESPONSE_TIMEOUT).await
}

pub(crate) async fn memory_status(call: Call) -> Result<Relayed<Data<MemoryStatus>>, Error> {
    json(call, Question::new(Method::GET, "/memory/status", By::Shared), BodyForm::InData, RESPONSE_TIMEOUT).await
}

pub(crate) async fn search_memory(call: Call<Passed<MemorySearch>>) -> Result<Relayed<Data<MemoryResults>>, Error> {
    json(call, Question::new(Method::POST, "/memory/search", By::Shared), BodyForm::InData, RESPONSE_TIMEOUT).await
}

pub(crate) async fn forget(call: Call) -> Result<Relayed<Data<Forgotten>>, Error> {
    let path = format!("/memory/{}", id(&call, "mid", "memory")?);
    json(call, Question::new(Method::DELETE, path, By::Shared), BodyForm::InData, RESPONSE_TIMEOUT).await
}

/// What is asked of an agent, besides the body.
struct Question {
    method: Method,
    /// Path and query, as the agent knows them.
    path: String,
    /// What tells the track, while the agent has a canary.
    by: By,
}

impl Question {
    fn new(method: Method, path: impl Into<String>, by: By) -> Self {
        Self { method, path: path.into(), by }
    }
}

/// The body that a call sends to the agent.
trait Brought {
    async fn bytes(self) -> Result<Bytes, Error>;
    /// Refuses the request whose body is not read.
    async fn refuse(self, error: Error) -> Error;
}

impl Brought for () {
    async fn bytes(self) -> Result<Bytes, Error> {
        Ok(Bytes::new())
    }

    async fn refuse(self, error: Error) -> Error {
        error
    }
}

impl<T> Brought for Passed<T> {
    async fn bytes(self) -> Result<Bytes, Error> {
        self.0.json_bytes().await
    }

    async fn refuse(self, error: Error) -> Error {
        self.0.refuse(error).await
    }
}

async fn json<B: Brought, A>(call: Call<B>, question: Question, form: BodyForm, response_timeout: Duration) -> Result<Relayed<A>, Error> {
    let target = target(&call).await?;
    ask(call, target, question, form, response_timeout).await
}

async fn ask<B: Brought, A>(
    call: Call<B>,
    target: Target,
    question: Question,
    form: BodyForm,
    response_timeout: Duration,
) -> Result<Relayed<A>, Error> {
    let (call, body) = call.split();
    let begun = Instant::now();
    let (response, permit) = send(&call, &target, question, body, response_timeout).await?;
    let left = response_timeout.saturating_sub(begun.elapsed());
    match timeout(left, response::json(&target, response, form, permit, &call.slot)).await {
        Ok(reply) => reply.map(Relayed::of),
        Err(_) => Err(response::timed_out(&target)),
    }
}

/// The Service that a request goes to, and its endpoint.
struct Upstream {
    destination: Destination,
    endpoint: Arc<Endpoint>,
}

/// A request as the agent gets it, but for its headers.
#[derive(Clone)]
struct Message {
    method: Method,
    path: String,
    body: Bytes,
}

/// Sends the request, and waits for the head of a successful response.
async fn send(
    call: &Call,
    target: &Target,
    question: Question,
    body: impl Brought,
    response_timeout: Duration,
) -> Result<(http::Response<AgentBody>, Permit), Error> {
    let context = &call.context;
    if let Some(reason) = target.no_pods_reason() {
        return Err(Error::unavailable(reason));
    }
    let team = call.team.as_ref().map(TeamSlug::as_str).unwrap_or_default();
    let begun = Instant::now();
    // Limits apply before the body is read.
    let permit = context.rate_limiter.admit_call(team, &target.key.name, &target.item.id, begun);
    let permit = match permit.and_then(|permit| call.slot.charge(CONNECTION_BYTES).map(|()| permit)) {
        Ok(permit) => permit,
        Err(error) => return Err(body.refuse(error).await),
    };
    let Relay { transport, endpoints, .. } = &context.relay;
    let Question { method, path, by } = question;
    let (mut upstream, body) = match target.item.data.canary_share() {
        None => match endpoints.find(target, Destination::Agent).await {
            Ok(endpoint) => (Upstream { destination: Destination::Agent, endpoint }, body.bytes().await?),
            Err(error) => return Err(body.refuse(error).await),
        },
        // Boxed: it is rare, and would make the future of every call large. The choice takes the body.
        Some(weight) => {
            let body = body.bytes().await?;
            Box::pin(choose(call, target, weight, &by, body)).await?
        }
    };
    let message = Message { method, path, body };
    let again = (upstream.destination != Destination::Agent).then(|| message.clone());
    let mut sent = timeout(response_timeout, deliver(call, target, &upstream, message)).await;
    let unreachable = match &sent {
        Ok(Err(TransportError::Unreachable(cause))) => Some(cause.to_string()),
        _ => None,
    };
    if let (Some(why), Some(message)) = (unreachable, again) {
        // No byte was sent.
        endpoints.avoid(&upstream.destination.key(&target.key), &why);
        upstream = Box::pin(fall_back(call, target, upstream.destination)).await?;
        let left = response_timeout.saturating_sub(begun.elapsed());
        sent = timeout(left, Box::pin(deliver(call, target, &upstream, message))).await;
    }
    let response = match sent {
        Ok(Ok(response)) => response,
        Ok(Err(TransportError::Unreachable(cause))) => {
            endpoints.forget(&target.key);
            return Err(response::unreachable(target, cause));
        }
        Ok(Err(TransportError::Closed(cause))) => return Err(response::closed_early(target, cause)),
        Ok(Err(TransportError::ApiServer(error))) => return Err(cluster_error::from_kube(error, &target.to_string())),
        Ok(Err(TransportError::Internal(cause))) => return Err(Error::internal(cause)),
        Err(_) => return Err(response::timed_out(target)),
    };
    if response.status().is_success() {
        return Ok((response, permit));
    }
    if matches!(response.status(), StatusCode::UNAUTHORIZED | StatusCode::MISDIRECTED_REQUEST) {
        endpoints.forget(&upstream.destination.key(&target.key));
    }
    Err(Box::pin(response::refusal(target, response, matches!(transport, AgentTransport::ApiServer(_)))).await)
}

/// The upstream of a call to an agent with a canary, and the body that the call has then.
async fn choose(call: &Call, target: &Target, weight: u8, by: &By, body: Bytes) -> Result<(Upstream, Bytes), Error> {
    let shares = Shares { uid: &target.item.data.uid, weight };
    let (destination, body) = shares.choose(by, body, |bytes| call.slot.charge(bytes))?;
    let upstream = match call.context.relay.endpoints.find_track(target, destination).await {
        Some(endpoint) => Upstream { destination, endpoint },
        None => fall_back(call, target, destination).await?,
    };
    Ok((upstream, body))
}

/// The agent's own Service, in the place of that of a track.
async fn fall_back(call: &Call, target: &Target, from: Destination) -> Result<Upstream, Error> {
    if let Destination::Of(track) = from {
        call.context.metrics.fallback(track.as_str());
    }
    let destination = Destination::Agent;
    Ok(Upstream { destination, endpoint: call.context.relay.endpoints.find(target, destination).await? })
}

async fn deliver(call: &Call, target: &Target, upstream: &Upstream, message: Message) -> Result<http::Response<AgentBody>, TransportError> {
    let Message { method, path, body } = message;
    let headers = headers(&call.headers, &call.id, upstream.endpoint.token.as_ref(), &body);
    let request = AgentRequest { method, path, headers, content: Content::Whole(body) };
    let service = upstream.destination.key(&target.key);
    call.context.relay.transport.send(&service, upstream.endpoint.address, request).await
}

/// Without a body there is no media type.
fn headers(given: &HeaderMap, id: &RequestId, token: Option<&HeaderValue>, body: &Bytes) -> HeaderMap {
    let mut headers = headers::to_agent(given, id, token);
    if body.is_empty() {
        headers.remove(slipway_http::header::CONTENT_TYPE);
    }
    headers
}

/// The id at the end of the path, if it has the form of one.
fn id<B>(call: &Call<B>, part: &str, what: &str) -> Result<String, Error> {
    let id = call.path.part(part);
    let fits = (1..=ID_LEN_MAX).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    if fits { Ok(id.to_owned()) } else { Err(Error::not_found(format!("there is no such {what}; ids are letters, digits, `-` and `_`"))) }
}

/// `path` with those of `names` that the caller gave; others are refused.
fn with_query(call: &mut Call, path: &str, names: &[&str]) -> Result<String, Error> {
    let mut query = std::mem::take(&mut call.query);
    let mut path = path.to_owned();
    for name in names {
        let Some(value) = query.text(name) else { continue };
        let before = if path.contains('?') { '&' } else { '?' };
        // Writing to a String does not fail.
        let _ = write!(path, "{before}{name}={}", utf8_percent_encode(&value, NON_ALPHANUMERIC));
    }
    query.end()?;
    Ok(path)
}
