//! What is asked of an agent itself (chat, conversations, memories, suggestions) goes to its pods, and what it answers
//! comes back. A call ends on both sides when it ends on one.
//!
//! `agent` finds the agent and knows when it rests, `service` knows its own Service, `way` leads there, `head` says which headers go along, `answer`
//! gives back what came. `kept` has what an agent that rests said and knows.

mod agent;
mod answer;
mod forms;
mod head;
mod kept;
mod service;
mod way;

use std::fmt::Write;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

use bytes::Bytes;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use slipway_api::names::TeamSlug;
use slipway_http::{Error, HeaderMap, HeaderValue, Method, Reply, Request, RequestId, StatusCode};
use tokio::time::timeout;

use crate::answer::{Answer, Created, Data, Events};
use crate::call::{Body, Call};
use crate::context::Settings;
use crate::fault;
use crate::limits::Pass;
use crate::page::Page;
use crate::route::Parameter;
pub(crate) use agent::{Standing, Target, target};
use answer::Form;
use forms::{Chat, Conversation, Entry, Found, Gone, Memories, NewEntry, Said, Status, Suggestions, Summary, Wanted};
use service::Services;
use way::{Failure, Order, Way};

/// How long anything but a chat may take until its answer begins.
const SOON: Duration = Duration::from_secs(30);
const LONGEST_ID: usize = 64;
/// What a call under way takes besides its body and its answer: a connection to the agent.
const LINE_BYTES: u64 = 32 * 1024;

pub(crate) const SUGGESTED: &[Parameter] =
    &[Parameter { name: "conversation_id", about: "The conversation to go on with.", kind: "string" }];

pub(crate) const LISTED: &[Parameter] = &[
    Parameter { name: "limit", about: "How many at most.", kind: "integer" },
    Parameter { name: "cursor", about: "Where to go on: next_cursor of the page before.", kind: "string" },
];

pub(crate) struct Relay {
    way: Way,
    services: Services,
    /// How long an answer to a chat may take to begin.
    chat: Duration,
}

impl Relay {
    /// By way of `patient` agents are reached, which may take as long as they want; `client` is for everything else.
    pub(crate) fn new(patient: kube::Client, client: kube::Client, settings: &Settings) -> Self {
        let way = match &settings.agent_address {
            Some(address) => Way::address(address),
            None if settings.in_cluster => Way::service(&settings.cluster_domain),
            None => Way::ApiServer(patient),
        };
        Self { way, services: Services::new(client, settings.sign.clone()), chat: settings.chat_time }
    }
}

/// JSON that is passed on as it came, and read once the call may go on. `T` is what it should be, for the document: the
/// agent checks it.
pub(crate) struct Passed<T>(Request, PhantomData<fn() -> T>);

impl<T: JsonSchema + 'static> Body for Passed<T> {
    fn form(generator: &mut SchemaGenerator) -> Option<(&'static str, Schema)> {
        Some(("application/json", generator.subschema_for::<T>()))
    }

    async fn read(request: Request) -> Result<Self, Error> {
        Ok(Self(request, PhantomData))
    }
}

/// What an agent answered, in the form that `A` has.
pub(crate) struct Relayed<A>(Reply, PhantomData<fn() -> A>);

impl<A> Relayed<A> {
    fn of(reply: Reply) -> Self {
        Self(reply, PhantomData)
    }
}

impl<A: Answer> Answer for Relayed<A> {
    const STATUS: StatusCode = A::STATUS;
    const MEDIA: &'static str = A::MEDIA;
    const LIGHT: bool = true;

    fn form(generator: &mut SchemaGenerator) -> Schema {
        A::form(generator)
    }

    fn reply(self) -> Result<Reply, Error> {
        // Agents answer 200 to whatever went well.
        Ok(if A::STATUS == StatusCode::OK { self.0 } else { self.0.with_status(A::STATUS) })
    }
}

pub(crate) async fn chat(call: Call<Passed<Chat>>) -> Result<Relayed<Data<Said>>, Error> {
    let patience = call.context.relay.chat;
    json(call, Method::POST, "/chat".to_owned(), Form::Wrapped, patience).await
}

pub(crate) async fn stream(call: Call<Passed<Chat>>) -> Result<Events, Error> {
    let patience = call.context.relay.chat;
    let (call, body) = call.split();
    let target = target(&call).await?;
    let (response, pass) = send(&call, &target, Method::POST, "/chat/stream".to_owned(), body, patience).await?;
    answer::stream(&target, response, pass).map(Events)
}

pub(crate) async fn conversations(mut call: Call) -> Result<Relayed<Page<Summary>>, Error> {
    let target = target(&call).await?;
    if let Some(reason) = target.rests() {
        let query = std::mem::take(&mut call.query);
        return kept::of(&call, &target, &reason).await?.conversations(query).await.map(Relayed::of);
    }
    let path = with_query(&mut call, "/conversations", &["limit", "cursor", "search"])?;
    ask(call, target, Method::GET, path, Form::AsIs, SOON).await
}

pub(crate) async fn conversation(call: Call) -> Result<Relayed<Data<Conversation>>, Error> {
    let id = id(&call, "cid", "conversation")?;
    let target = target(&call).await?;
    if let Some(reason) = target.rests() {
        return kept::of(&call, &target, &reason).await?.conversation(&id).await.map(Relayed::of);
    }
    ask(call, target, Method::GET, format!("/conversations/{id}"), Form::Wrapped, SOON).await
}

pub(crate) async fn delete_conversation(call: Call) -> Result<Relayed<Data<Gone>>, Error> {
    let path = format!("/conversations/{}", id(&call, "cid", "conversation")?);
    json(call, Method::DELETE, path, Form::Wrapped, SOON).await
}

pub(crate) async fn conversation_status(call: Call) -> Result<Relayed<Data<Status>>, Error> {
    let path = format!("/conversations/{}/status", id(&call, "cid", "conversation")?);
    json(call, Method::GET, path, Form::Wrapped, SOON).await
}

pub(crate) async fn suggestions(mut call: Call) -> Result<Relayed<Data<Suggestions>>, Error> {
    let path = with_query(&mut call, "/suggestions", &["conversation_id"])?;
    json(call, Method::GET, path, Form::Wrapped, SOON).await
}

pub(crate) async fn memories(mut call: Call) -> Result<Relayed<Page<Entry>>, Error> {
    let target = target(&call).await?;
    if let Some(reason) = target.rests() {
        let query = std::mem::take(&mut call.query);
        return kept::of(&call, &target, &reason).await?.memories(query).await.map(Relayed::of);
    }
    let path = with_query(&mut call, "/memory", &["limit", "cursor"])?;
    ask(call, target, Method::GET, path, Form::AsIs, SOON).await
}

pub(crate) async fn remember(call: Call<Passed<NewEntry>>) -> Result<Relayed<Created<Entry>>, Error> {
    json(call, Method::POST, "/memory".to_owned(), Form::Wrapped, SOON).await
}

pub(crate) async fn memory_status(call: Call) -> Result<Relayed<Data<Memories>>, Error> {
    json(call, Method::GET, "/memory/status".to_owned(), Form::Wrapped, SOON).await
}

pub(crate) async fn search_memory(call: Call<Passed<Wanted>>) -> Result<Relayed<Data<Found>>, Error> {
    json(call, Method::POST, "/memory/search".to_owned(), Form::Wrapped, SOON).await
}

pub(crate) async fn forget(call: Call) -> Result<Relayed<Data<Gone>>, Error> {
    let path = format!("/memory/{}", id(&call, "mid", "memory")?);
    json(call, Method::DELETE, path, Form::Wrapped, SOON).await
}

/// What a call brings along for the agent.
trait Brought {
    async fn bytes(self) -> Result<Bytes, Error>;
    /// When the call is not made after all.
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

async fn json<B: Brought, A>(call: Call<B>, method: Method, path: String, form: Form, patience: Duration) -> Result<Relayed<A>, Error> {
    let target = target(&call).await?;
    ask(call, target, method, path, form, patience).await
}

async fn ask<B: Brought, A>(
    call: Call<B>,
    target: Target,
    method: Method,
    path: String,
    form: Form,
    patience: Duration,
) -> Result<Relayed<A>, Error> {
    let (call, body) = call.split();
    let begun = Instant::now();
    let (response, pass) = send(&call, &target, method, path, body, patience).await?;
    let left = patience.saturating_sub(begun.elapsed());
    match timeout(left, answer::json(&target, response, form, pass, &call.place)).await {
        Ok(reply) => reply.map(Relayed::of),
        Err(_) => Err(answer::late(&target)),
    }
}

/// Asks the agent, and waits until it begins to answer well.
async fn send(
    call: &Call,
    target: &Target,
    method: Method,
    path: String,
    body: impl Brought,
    patience: Duration,
) -> Result<(http::Response<way::Body>, Pass), Error> {
    let context = &call.context;
    if let Some(reason) = target.rests() {
        return Err(Error::unavailable(reason));
    }
    let team = call.team.as_ref().map(TeamSlug::as_str).unwrap_or_default();
    // Whoever may not go on is told before the body is read.
    let pass = context.gate.call(team, &target.key.name, &target.item.id, Instant::now());
    let pass = match pass.and_then(|pass| call.place.charge(LINE_BYTES).map(|()| pass)) {
        Ok(pass) => pass,
        Err(error) => return Err(body.refuse(error).await),
    };
    let Relay { way, services, .. } = &context.relay;
    let place = match services.find(target).await {
        Ok(place) => place,
        Err(error) => return Err(body.refuse(error).await),
    };
    let body = body.bytes().await?;
    let order = Order { method, path, headers: headers(&call.headers, &call.id, place.token.as_ref(), &body), body };
    let sent = timeout(patience, way.send(&target.key, place.address, order)).await;
    let response = match sent {
        Ok(Ok(response)) => response,
        Ok(Err(Failure::Unreachable(cause))) => {
            services.forget(&target.key);
            return Err(answer::unreachable(target, cause));
        }
        Ok(Err(Failure::Left(cause))) => return Err(answer::cut_off(target, cause)),
        Ok(Err(Failure::NoWay(error))) => return Err(fault::of_cluster(error, &target.to_string())),
        Ok(Err(Failure::Ours(cause))) => return Err(Error::internal(cause)),
        Err(_) => return Err(answer::late(target)),
    };
    if response.status().is_success() {
        return Ok((response, pass));
    }
    if matches!(response.status(), StatusCode::UNAUTHORIZED | StatusCode::MISDIRECTED_REQUEST) {
        services.forget(&target.key);
    }
    Err(Box::pin(answer::refusal(target, response, matches!(way, Way::ApiServer(_)))).await)
}

/// Of a request without a body, its media type says nothing.
fn headers(given: &HeaderMap, id: &RequestId, token: Option<&HeaderValue>, body: &Bytes) -> HeaderMap {
    let mut headers = head::to_agent(given, id, token);
    if body.is_empty() {
        headers.remove(slipway_http::header::CONTENT_TYPE);
    }
    headers
}

/// The id at the end of the path. What cannot be one never becomes part of a path again.
fn id<B>(call: &Call<B>, part: &str, what: &str) -> Result<String, Error> {
    let id = call.path.part(part);
    let fits = (1..=LONGEST_ID).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    if fits { Ok(id.to_owned()) } else { Err(Error::not_found(format!("there is no such {what}; ids are letters, digits, `-` and `_`"))) }
}

/// `path` with those of `names` that the caller gave. Others are refused.
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
