//! A request as a handler sees it: caller, team, path, query, headers and body.

use std::sync::Arc;

use kube::Client;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;
use slipway_api::names::TeamSlug;
use slipway_http::{Error, HeaderMap, HeaderName, Query, Request, RequestId, RequestSlot, header};

use crate::access::Caller;
use crate::context::Context;
use crate::impersonate;

/// Makes a repeated creation return the first result.
pub(crate) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The variable parts of a path, by name.
#[derive(Debug, Default)]
pub(crate) struct Path(pub Vec<(&'static str, String)>);

impl Path {
    /// The part called `name`; empty if the route has none.
    pub(crate) fn part(&self, name: &str) -> &str {
        self.0.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value)
    }
}

pub(crate) struct Call<B = ()> {
    pub context: Arc<Context>,
    pub caller: Arc<Caller>,
    /// The team of the call; none on routes of the platform.
    pub team: Option<TeamSlug>,
    pub path: Path,
    pub query: Query,
    pub headers: HeaderMap,
    pub id: RequestId,
    /// The account for memory that the call holds.
    pub slot: RequestSlot,
    pub body: B,
}

impl<B> Call<B> {
    /// The namespace of the call's team.
    pub(crate) fn namespace(&self) -> String {
        self.team.as_ref().map(TeamSlug::namespace).unwrap_or_default()
    }

    /// Whether the call's writes are made as its caller.
    pub(crate) fn impersonates(&self) -> bool {
        self.context.settings.impersonate && !self.caller.anyone
    }

    /// The client for the call's reads and writes.
    pub(crate) fn client(&self) -> Client {
        let own = &self.context.client;
        if self.impersonates() { impersonate::client(own, &self.caller) } else { own.clone() }
    }

    /// The value of a header. A value that is no text becomes U+FFFD, which no parser accepts.
    pub(crate) fn header(&self, name: impl slipway_http::AsHeaderName) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap_or("\u{fffd}"))
    }

    /// Separates the body from the call.
    pub(crate) fn split(self) -> (Call, B) {
        let Self { context, caller, team, path, query, headers, id, slot, body } = self;
        (Call { context, caller, team, path, query, headers, id, slot, body: () }, body)
    }
}

/// The body of a request.
pub(crate) trait Body: Sized + Send + 'static {
    /// Whether the body is required.
    const REQUIRED: bool = true;
    /// Media type and schema for the OpenAPI document; `None` if no body is read.
    fn form(generator: &mut SchemaGenerator) -> Option<(&'static str, Schema)>;
    fn read(request: Request) -> impl Future<Output = Result<Self, Error>> + Send;
}

/// No body. One that is sent is ignored.
impl Body for () {
    fn form(_: &mut SchemaGenerator) -> Option<(&'static str, Schema)> {
        None
    }

    async fn read(_: Request) -> Result<Self, Error> {
        Ok(())
    }
}

/// The whole request, for handlers that pass it on.
impl Body for Request {
    fn form(_: &mut SchemaGenerator) -> Option<(&'static str, Schema)> {
        None
    }

    async fn read(request: Request) -> Result<Self, Error> {
        Ok(request)
    }
}

pub(crate) struct Json<T>(pub T);

impl<T: DeserializeOwned + JsonSchema + Send + 'static> Body for Json<T> {
    fn form(generator: &mut SchemaGenerator) -> Option<(&'static str, Schema)> {
        Some(("application/json", generator.subschema_for::<T>()))
    }

    async fn read(request: Request) -> Result<Self, Error> {
        request.json().await.map(Self)
    }
}

/// JSON, or no body, which stands for an empty object. Many a client says that it sends JSON also where it sends none.
pub(crate) struct Maybe<T>(pub T);

impl<T: DeserializeOwned + Default + JsonSchema + Send + 'static> Body for Maybe<T> {
    const REQUIRED: bool = false;

    fn form(generator: &mut SchemaGenerator) -> Option<(&'static str, Schema)> {
        Json::<T>::form(generator)
    }

    async fn read(request: Request) -> Result<Self, Error> {
        let headers = request.headers();
        let says = |name: HeaderName| headers.get(name);
        let empty = says(header::CONTENT_LENGTH).is_none_or(|length| length == "0") && says(header::TRANSFER_ENCODING).is_none();
        if empty { Ok(Self(T::default())) } else { request.json().await.map(Self) }
    }
}
