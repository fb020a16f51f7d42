//! Lists: a page of a shelf, once the shelf is as new as the caller has seen the cluster to be.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use slipway_http::{Error, HeaderValue, Reply, header};
use tokio::time::{sleep, timeout};

use crate::answer::{Answer, VERSION, versioned};
use crate::call::Call;
use crate::fault;
use crate::route::Parameter;
use crate::shelf::{Cursor, Item, Shelf, Words};

/// The parameters that every list takes.
pub(crate) const PAGED: &[Parameter] = &[
    Parameter { name: "limit", about: "How many at most, 1 to 500. Default 100.", kind: "integer" },
    Parameter { name: "cursor", about: "Where to go on: next_cursor of the page before.", kind: "string" },
    Parameter { name: "search", about: "Words that must all occur, in any case.", kind: "string" },
];

const LIMIT: usize = 100;
const LONGEST: usize = 500;
/// How long a list waits to be as new as the caller's last write.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long until the cluster is asked what a list should hold: it may be that nothing more will be heard.
const GLANCE: Duration = Duration::from_millis(250);
/// How often a list is compared with what the cluster said.
const PAUSE: Duration = Duration::from_millis(20);

/// A page of views of type `T`.
pub(crate) struct Page<T> {
    body: String,
    version: u64,
    of: PhantomData<fn() -> T>,
}

impl<T: JsonSchema + 'static> Answer for Page<T> {
    const LIGHT: bool = true;

    fn form(generator: &mut SchemaGenerator) -> Schema {
        form::<T>(generator)
    }

    fn reply(self) -> Result<Reply, Error> {
        versioned(Reply::bytes(Self::MEDIA, self.body), Some(self.version.to_string()))
    }
}

/// What a page of `T` looks like.
pub(crate) fn form<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    let item = generator.subschema_for::<T>();
    json_schema!({
        "type": "object",
        "properties": {"data": {"type": "array", "items": item}, "next_cursor": {"type": "string"}},
        "required": ["data"],
    })
}

/// The page of `shelf` that the call asks for, in one namespace or in all.
pub(crate) async fn page<T>(call: Call, shelf: &Shelf, namespace: Option<&str>) -> Result<Page<T>, Error> {
    page_of(call, shelf, namespace, |_| true, |item| Cow::Borrowed(&item.json)).await
}

/// The same of those items alone that `belongs` names, each as `shown`.
pub(crate) async fn page_of<T>(
    mut call: Call,
    shelf: &Shelf,
    namespace: Option<&str>,
    belongs: impl Fn(&str) -> bool,
    shown: impl Fn(&Item) -> Cow<'_, str>,
) -> Result<Page<T>, Error> {
    let limit = call.query.number("limit", LIMIT, 1..=LONGEST)?;
    let after = call.query.text("cursor").map(|text| Cursor::read(&text)).transpose()?;
    let words = Words::of(&call.query.text("search").unwrap_or_default());
    std::mem::take(&mut call.query).end()?;
    let version = reach_within(&call, shelf, namespace.unwrap_or_default()).await?;
    let (items, next) = shelf.walk(namespace, after.as_ref(), (&words, belongs), limit);
    let mut body = String::with_capacity(items.iter().map(|item| item.json.len() + 1).sum::<usize>() + 128);
    body.push_str("{\"data\":[");
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            body.push(',');
        }
        body.push_str(&shown(item));
    }
    body.push(']');
    if let Some(next) = next {
        body.push_str(",\"next_cursor\":\"");
        body.push_str(&next.write());
        body.push('"');
    }
    body.push('}');
    Ok(Page { body, version, of: PhantomData })
}

/// The version of the cluster that the answer must be at least, if the call says so.
fn wanted<B>(call: &Call<B>) -> Result<Option<u64>, Error> {
    let read = |value: &HeaderValue| value.to_str().ok()?.parse::<u64>().ok();
    call.headers.get(VERSION).map(|value| read(value).ok_or_else(wrong)).transpose()
}

fn wrong() -> Error {
    Error::bad_request("the header X-Resource-Version must be one that an earlier answer had")
}

/// Whether the call says how new its answer must be, and the shelf is as new. Nobody waits for that here.
pub(crate) fn suffices<B>(call: &Call<B>, shelf: &Shelf) -> Result<bool, Error> {
    Ok(wanted(call)?.is_some_and(|wanted| shelf.has_reached(&call.namespace(), wanted)))
}

/// Waits until the shelf holds what the caller knows of its team: the version that an earlier answer to it named.
pub(crate) async fn reach<B>(call: &Call<B>, shelf: &Shelf) -> Result<u64, Error> {
    reach_within(call, shelf, &call.namespace()).await
}

async fn reach_within<B>(call: &Call<B>, shelf: &Shelf, namespace: &str) -> Result<u64, Error> {
    let mut reached = shelf.reached();
    let Some(wanted) = wanted(call)? else { return Ok(reached.borrow().of(namespace)) };
    if let Ok(Ok(reached)) = timeout(GLANCE, reached.wait_for(|reached| reached.of(namespace) >= wanted)).await {
        return Ok(reached.of(namespace));
    }
    // The write may have been to another kind, or have been forgotten before this process began: then no watch of
    // this kind will ever tell of that version. What the cluster holds now decides.
    let found = async {
        let _one = shelf.asking().acquire().await;
        if let Some(proven) = shelf.proven(namespace, wanted) {
            return Ok(proven);
        }
        let present = shelf.ask(&call.context.client, namespace).await.map_err(|error| fault::of_cluster(error, "list"))?;
        if present.version < wanted {
            return Err(wrong());
        }
        loop {
            let newest = reached.borrow().of(namespace);
            if newest >= wanted {
                return Ok(newest);
            }
            if shelf.is_as_new_as(&present, namespace) {
                shelf.prove(namespace, present.version);
                return Ok(present.version);
            }
            sleep(PAUSE).await;
        }
    };
    // Boxed, as what is seldom needed would make the future of each call large, which is moved about.
    timeout(PATIENCE, Box::pin(found)).await.unwrap_or_else(|_| {
        let late = Error::unavailable("the list has not yet heard of your last write");
        Err(late.with_header(header::RETRY_AFTER, HeaderValue::from_static("1")))
    })
}

impl Cursor {
    /// A cursor means nothing to those who send it back, and needs no encoding in a URL.
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
