//! Lists: a page of a list cache, once the cache is as new as the caller requires.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use slipway_api::names::TeamSlug;
use slipway_http::{Error, HeaderValue, Reply, Request, header};
use tokio::time::{sleep, timeout};

use crate::answer::{Answer, VERSION, versioned};
use crate::call::Call;
use crate::cluster_error;
use crate::list_cache::{Cursor, ListCache, ListEntry, SearchTerms};
use crate::route::Parameter;

/// The parameters that every list takes.
pub(crate) const PAGED: &[Parameter; 3] = &[
    Parameter { name: "limit", about: "How many at most, 1 to 500. Default 100.", kind: "integer" },
    Parameter { name: "cursor", about: "Where to go on: next_cursor of the page before.", kind: "string" },
    Parameter { name: "search", about: "Words that must all occur, in any case.", kind: "string" },
];

/// The same of lists that may be of all teams.
pub(crate) const SCOPED: &[Parameter; 4] = &[
    PAGED[0],
    PAGED[1],
    PAGED[2],
    Parameter { name: SCOPE, about: "`all` for the agents of all teams, not only of one.", kind: "string" },
];

const SCOPE: &str = "scope";
const DEFAULT_LIMIT: usize = 100;
const LIMIT_MAX: usize = 500;
/// The timeout of a list that waits for the caller's last write.
const WAIT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a list waits for its watch before it asks the API server, because the watch may never report that version.
const WATCH_TIMEOUT: Duration = Duration::from_millis(250);
/// How often the cache is compared with the snapshot of the API server.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A page of views of type `T`.
pub(crate) struct Page<T> {
    body: String,
    version: u64,
    of: PhantomData<fn() -> T>,
}

impl<T: JsonSchema + 'static> Answer for Page<T> {
    const IS_CHARGED_ELSEWHERE: bool = true;

    fn form(generator: &mut SchemaGenerator) -> Schema {
        form::<T>(generator)
    }

    fn reply(self) -> Result<Reply, Error> {
        versioned(Reply::bytes(Self::MEDIA, self.body), Some(self.version.to_string()))
    }
}

/// The schema of a page of `T`.
pub(crate) fn form<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    let item = generator.subschema_for::<T>();
    json_schema!({
        "type": "object",
        "properties": {"data": {"type": "array", "items": item}, "next_cursor": {"type": "string"}},
        "required": ["data"],
    })
}

/// The page that the call asks for, of one namespace or of all.
pub(crate) async fn page<V, T>(call: Call, cache: &ListCache<T>, namespace: Option<&str>) -> Result<Page<V>, Error> {
    page_of(call, cache, namespace, |_, _| true, |item| Ok(Cow::Borrowed(&*item.json))).await
}

/// The same for the entries that `belongs` selects, each serialized by `shown`.
pub(crate) async fn page_of<V, T>(
    mut call: Call,
    cache: &ListCache<T>,
    namespace: Option<&str>,
    belongs: impl Fn(&str, &ListEntry<T>) -> bool,
    shown: impl Fn(&ListEntry<T>) -> Result<Cow<'_, str>, Error>,
) -> Result<Page<V>, Error> {
    let Selected { items, next, version } = select(&mut call, cache, namespace, belongs).await?;
    let mut body = String::with_capacity(items.iter().map(|item| item.json.len() + 1).sum::<usize>() + 128);
    body.push_str("{\"data\":[");
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            body.push(',');
        }
        body.push_str(&shown(item)?);
    }
    body.push(']');
    if let Some(next) = next {
        body.push_str(",\"next_cursor\":\"");
        body.push_str(&next);
        body.push('"');
    }
    body.push('}');
    Ok(Page { body, version, of: PhantomData })
}

/// The entries of one page.
pub(crate) struct Selected<T> {
    pub items: Vec<Arc<ListEntry<T>>>,
    /// The cursor of the following page.
    pub next: Option<String>,
    /// The version that the cache had.
    pub version: u64,
}

/// The entries that the call asks for, once the cache is as new as it requires. Takes the query, in which nothing else may be.
pub(crate) async fn select<T>(
    call: &mut Call,
    cache: &ListCache<T>,
    namespace: Option<&str>,
    belongs: impl Fn(&str, &ListEntry<T>) -> bool,
) -> Result<Selected<T>, Error> {
    let limit = call.query.number("limit", DEFAULT_LIMIT, 1..=LIMIT_MAX)?;
    let after = call.query.text("cursor").map(|text| Cursor::read(&text)).transpose()?;
    let terms = SearchTerms::of(&call.query.text("search").unwrap_or_default());
    std::mem::take(&mut call.query).end()?;
    let version = wait_for_namespace(call, cache, namespace.unwrap_or_default()).await?;
    let (items, next) = cache.page(namespace, after.as_ref(), (&terms, belongs), limit);
    Ok(Selected { items, next: next.map(|next| next.write()), version })
}

/// Whether a request asks for the agents of all teams. What else `scope` says, the handler refuses.
pub(crate) fn asks_for_all(request: &Request) -> bool {
    request.query().is_ok_and(|mut query| query.text(SCOPE).as_deref() == Some("all"))
}

/// The namespace of a call that may be for all teams, which is none then.
pub(crate) fn scope(call: &mut Call) -> Result<Option<String>, Error> {
    match call.query.text(SCOPE).as_deref() {
        None | Some("team" | "all") => Ok(call.team.as_ref().map(TeamSlug::namespace)),
        Some(_) => Err(Error::bad_request("`scope` must be `team` or `all`")),
    }
}

/// The minimum resource version that the call requires, if it names one.
fn minimum_version<B>(call: &Call<B>) -> Result<Option<u64>, Error> {
    let read = |value: &HeaderValue| value.to_str().ok()?.parse::<u64>().ok();
    call.headers.get(VERSION).map(|value| read(value).ok_or_else(wrong)).transpose()
}

fn wrong() -> Error {
    Error::bad_request("the header X-Resource-Version must be one that an earlier answer had")
}

/// Whether the call names a minimum version and the cache has it. Does not wait.
pub(crate) fn is_cached_as_new<B, T>(call: &Call<B>, cache: &ListCache<T>) -> Result<bool, Error> {
    Ok(minimum_version(call)?.is_some_and(|minimum| cache.has_observed(&call.namespace(), minimum)))
}

/// Waits until the cache has the minimum version for the call's team.
pub(crate) async fn wait_for_caller_version<B, T>(call: &Call<B>, cache: &ListCache<T>) -> Result<u64, Error> {
    wait_for_namespace(call, cache, &call.namespace()).await
}

async fn wait_for_namespace<B, T>(call: &Call<B>, cache: &ListCache<T>, namespace: &str) -> Result<u64, Error> {
    let mut observed = cache.observed();
    let Some(minimum) = minimum_version(call)? else { return Ok(observed.borrow().of(namespace)) };
    if let Ok(Ok(observed)) = timeout(WATCH_TIMEOUT, observed.wait_for(|observed| observed.of(namespace) >= minimum)).await {
        return Ok(observed.of(namespace));
    }
    // The version may belong to a write to another kind, or precede the start of this process. Then no watch of this kind
    // reports it, and a snapshot of the API server decides.
    let found = async {
        let _one = cache.fetch_turn().acquire().await;
        if let Some(proven) = cache.confirmed(namespace, minimum) {
            return Ok(proven);
        }
        let snapshot = cache.snapshot(&call.context.client, namespace).await.map_err(|error| cluster_error::from_kube(error, "list"))?;
        if snapshot.version < minimum {
            return Err(wrong());
        }
        loop {
            let newest = observed.borrow().of(namespace);
            if newest >= minimum {
                return Ok(newest);
            }
            if cache.covers(&snapshot, namespace) {
                cache.confirm(namespace, snapshot.version);
                return Ok(snapshot.version);
            }
            sleep(POLL_INTERVAL).await;
        }
    };
    // Boxed: this path is rare, and would make the future of every call large.
    timeout(WAIT_TIMEOUT, Box::pin(found)).await.unwrap_or_else(|_| {
        let late = Error::unavailable("the list has not yet heard of your last write");
        Err(late.with_header(header::RETRY_AFTER, HeaderValue::from_static("1")))
    })
}

impl Cursor {
    /// Cursors are opaque, and need no encoding in a URL.
    fn write(&self) -> String {
        let text = format!("{}/{}/{}", self.created, self.namespace, self.name);
        utf8_percent_encode(&text, NON_ALPHANUMERIC).to_string().replace('%', "_")
    }

    fn read(text: &str) -> Result<Self, Error> {
        let wrong = || Error::bad_request("`cursor` must be the `next_cursor` of an earlier page");
        let decoded = text.replace('_', "%");
        let decoded = percent_encoding::percent_decode_str(&decoded).decode_utf8().map_err(|_| wrong())?;
        let mut parts = decoded.splitn(3, '/');
        let (Some(created), Some(namespace), Some(name)) = (parts.next(), parts.next(), parts.next()) else { return Err(wrong()) };
        Ok(Self { created: created.parse().map_err(|_| wrong())?, namespace: namespace.to_owned(), name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_cursor_is_read_back_and_nothing_else_is() {
        let cursor = Cursor { namespace: "team-a".to_owned(), created: 1_700_000_000, name: "one-two".to_owned() };
        let written = cursor.write();
        assert!(written.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'), "{written}");
        assert_eq!(Cursor::read(&written).unwrap(), cursor);
        for wrong in ["", "x", "1_2Fa", "a_2Fb_2Fc", "_ff_2F_2F"] {
            assert!(Cursor::read(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn a_cursor_survives_a_url_and_others_do_no_harm(namespace in "[a-z-]{0,8}", created: i64, name in "\\PC{0,8}", text in "[0-9a-zA-Z_%/-]{0,20}|\\PC{0,12}") {
            let cursor = Cursor { namespace, created, name };
            let written = cursor.write();
            prop_assert!(written.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'));
            prop_assert_eq!(Cursor::read(&written).unwrap(), cursor);
            if let Ok(read) = Cursor::read(&text) {
                prop_assert_eq!(Cursor::read(&read.write()).unwrap(), read);
            }
        }
    }
}
