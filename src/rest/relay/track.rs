//! The choice between the tracks of an agent whose canary has a share. A conversation has one track, which follows from its id
//! ([`Track::of_conversation`]). A chat that names none is given an id here, so that its first message goes where the next ones
//! will go.

use std::borrow::Cow;
use std::time::SystemTime;

use bytes::Bytes;
use k8s_openapi::api::core::v1::Service;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use slipway_api::{Track, labels};
use slipway_cluster::Key;
use slipway_http::{Error, MAX_JSON_BYTES};

use crate::random;

/// The field of a chat that names its conversation.
const CONVERSATION: &str = "conversation_id";
const NULL: &str = "null";

/// The Service that a call goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Destination {
    /// The one that is always there.
    Agent,
    /// The one of this track alone, which there is beside a canary.
    Of(Track),
}

impl Destination {
    /// The name of the Service.
    pub(super) fn service(self, agent: &str) -> Cow<'_, str> {
        match self {
            Self::Agent => Cow::Borrowed(agent),
            Self::Of(Track::Stable) => Cow::Owned(Track::primary(agent)),
            Self::Of(track) => Cow::Owned(track.workload(agent)),
        }
    }

    pub(super) fn key(self, agent: &Key) -> Cow<'_, Key> {
        match self {
            Self::Agent => Cow::Borrowed(agent),
            Self::Of(_) => Cow::Owned(Key::new(agent.namespace.clone(), self.service(&agent.name))),
        }
    }

    /// Whether the Service selects pods of the track, where it is to be that of one.
    pub(super) fn is_selected_by(self, service: &Service) -> bool {
        let Self::Of(track) = self else { return true };
        let selector = service.spec.as_ref().and_then(|spec| spec.selector.as_ref());
        selector.and_then(|selector| selector.get(labels::TRACK)).is_some_and(|selected| selected == track.as_str())
    }
}

/// What tells the track of a call.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum By {
    /// The conversation that the body names, or a new one.
    Body,
    Conversation(String),
    /// Nothing does: what all tracks have in common is asked of stable.
    Shared,
}

/// How the conversations of an agent are shared out.
pub(super) struct Shares<'a> {
    /// The UID of the agent.
    pub uid: &'a str,
    /// The percentage of its canary.
    pub weight: u8,
}

impl Shares<'_> {
    /// Where a call goes, and the body that it has then. `charge` is asked before memory is taken for another body.
    pub(super) fn choose(&self, by: &By, body: Bytes, charge: impl Fn(u64) -> Result<(), Error>) -> Result<(Destination, Bytes), Error> {
        match by {
            By::Shared => Ok((Destination::Of(Track::Stable), body)),
            By::Conversation(id) => Ok((self.of(id), body)),
            By::Body => self.chat(body, new_id, charge),
        }
    }

    fn of(&self, conversation: &str) -> Destination {
        Destination::Of(Track::of_conversation(self.uid, conversation, self.weight))
    }

    /// What cannot be understood is stable's to refuse.
    fn chat(
        &self,
        body: Bytes,
        new_id: impl FnOnce() -> Result<String, Error>,
        charge: impl Fn(u64) -> Result<(), Error>,
    ) -> Result<(Destination, Bytes), Error> {
        let stable = Destination::Of(Track::Stable);
        // A list would be read as the fields in their order.
        let Some(begin) = body.iter().position(|byte| !is_space(*byte)).filter(|at| body.get(*at) == Some(&b'{')) else {
            return Ok((stable, body));
        };
        let null = match given(&body) {
            None => return Ok((stable, body)),
            Some(Given::Id(id)) => return Ok((self.of(&id), body)),
            Some(Given::Null(at)) => Some(at),
            Some(Given::Nothing) => None,
        };
        charge(body.len() as u64)?;
        let id = new_id()?;
        let whole = match null {
            Some(at) => in_place_of_null(&body, at, &id),
            None => with_id(&body, begin, &id),
        };
        // What the agent would not take with an id it takes without one, and makes its own.
        Ok(if whole.len() > MAX_JSON_BYTES { (stable, body) } else { (self.of(&id), whole) })
    }
}

/// The object that begins at `begin`, with a conversation as its first field.
fn with_id(body: &Bytes, begin: usize, id: &str) -> Bytes {
    let (before, after) = body.split_at(begin + 1);
    let is_empty = after.iter().find(|byte| !is_space(**byte)) == Some(&b'}');
    let field = format!("\"{CONVERSATION}\":\"{id}\"{}", if is_empty { "" } else { "," });
    [before, field.as_bytes(), after].concat().into()
}

/// The object with a conversation in the place of the null at `at`. All else stays as it was written.
fn in_place_of_null(body: &Bytes, at: usize, id: &str) -> Bytes {
    let (before, from) = body.split_at(at);
    let after = from.get(NULL.len()..).unwrap_or_default();
    [before, format!("\"{id}\"").as_bytes(), after].concat().into()
}

/// White space of JSON.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// What is read of a chat. Its other fields are passed over.
#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow, default, deserialize_with = "even_null")]
    conversation_id: Option<&'a RawValue>,
}

/// A field that is there, and be it null.
fn even_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&'de RawValue>::deserialize(deserializer).map(Some)
}

/// What a chat says of its conversation.
enum Given {
    Nothing,
    /// The null that begins here.
    Null(usize),
    Id(String),
}

/// None of what cannot be understood.
fn given(body: &[u8]) -> Option<Given> {
    let Head { conversation_id } = serde_json::from_slice(body).ok()?;
    let Some(said) = conversation_id.map(RawValue::get) else { return Some(Given::Nothing) };
    if said == NULL {
        return said.as_ptr().addr().checked_sub(body.as_ptr().addr()).map(Given::Null);
    }
    serde_json::from_str(said).ok().map(Given::Id)
}

fn new_id() -> Result<String, Error> {
    Ok(format!("conv_{}", slipway_http::ulid(SystemTime::now(), random::bits()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: &str = "conv_new";

    fn chat(weight: u8, body: impl Into<Bytes>) -> (Destination, Bytes) {
        let shares = Shares { uid: "uid-1", weight };
        shares.chat(body.into(), || Ok(NEW.to_owned()), |_| Ok(())).unwrap()
    }

    #[test]
    fn the_id_of_a_chat_decides_and_a_new_one_is_made_where_none_is() {
        let new = |rest: &str| format!("{{\"conversation_id\":\"{NEW}\"{rest}");
        for (body, id, sent) in [
            (r#"{"conversation_id":"conv_1","message":"Hi"}"#, "conv_1", None),
            (r#"{"message":"Hi","conversation_id":"conv\u005f1"}"#, "conv_1", None),
            (r#"{"conversation_id":"no id at all"}"#, "no id at all", None),
            (r#"{"message":"Hi"}"#, NEW, Some(new(r#","message":"Hi"}"#))),
            (r#"{"input":{"conversation_id":"conv_1"}}"#, NEW, Some(new(r#","input":{"conversation_id":"conv_1"}}"#))),
            ("{}", NEW, Some(new("}"))),
            ("\r\n\t { \n}", NEW, Some(format!("\r\n\t {}", new(" \n}")))),
            (r#" {"message":"Hi"} "#, NEW, Some(format!(" {}", new(r#","message":"Hi"} "#)))),
        ] {
            let chosen = [0, 1, 20, 50, 80, 100].map(|weight| {
                let (destination, bytes) = chat(weight, body);
                assert_eq!(String::from_utf8_lossy(&bytes), sent.as_deref().unwrap_or(body));
                assert_eq!(destination, Destination::Of(Track::of_conversation("uid-1", id, weight)), "{body} at {weight} %");
                destination
            });
            assert_eq!((chosen[0], chosen[5]), (Destination::Of(Track::Stable), Destination::Of(Track::Canary)), "{body}");
        }
    }

    #[test]
    fn an_id_that_is_null_is_none_and_all_else_stays() {
        for (before, after) in [
            ("{\"message\":\"Hi\",\"conversation_id\": ", ",\"cancel_on_disconnect\":true}"),
            ("{\"conversation_id\"\n:", "}"),
            (" { \"x\": 1e400, \"y\": 18446744073709551616, \"message\": \"\\u0041\", \"message\": null, \"conversation_id\" :\t", " } "),
        ] {
            let (destination, bytes) = chat(100, format!("{before}null{after}"));
            assert_eq!(String::from_utf8_lossy(&bytes), format!("{before}\"{NEW}\"{after}"));
            assert_eq!(destination, Destination::Of(Track::Canary));
        }
    }

    #[test]
    fn a_chat_without_room_for_an_id_goes_as_it_is_to_stable() {
        for rest in ["\"}", "\",\"conversation_id\":null}"] {
            let body = |bytes: usize| {
                let start = "{\"message\":\"";
                Bytes::from(format!("{start}{}{rest}", "x".repeat(bytes - start.len() - rest.len())))
            };
            let longer = chat(100, body(100)).1.len() - 100;
            let (destination, bytes) = chat(100, body(MAX_JSON_BYTES - longer));
            assert_eq!((destination, bytes.len()), (Destination::Of(Track::Canary), MAX_JSON_BYTES), "{rest}");
            for bytes in [MAX_JSON_BYTES - longer + 1, MAX_JSON_BYTES] {
                let as_it_is = chat(100, body(bytes)) == (Destination::Of(Track::Stable), body(bytes));
                assert!(as_it_is, "{bytes} bytes with {rest}");
            }
        }
    }

    #[test]
    fn what_is_no_chat_is_passed_to_stable_as_it_is() {
        for body in [
            "",
            "  ",
            "null",
            "\"conv_1\"",
            "[]",
            "[\"conv_1\"]",
            "{",
            "{\"message\":",
            "{\"message\":\"Hi\"} x",
            "{\"conversation_id\":5}",
            "{\"conversation_id\":[\"conv_1\"]}",
            "{\"conversation_id\":\"conv_1\",\"conversation_id\":\"conv_2\"}",
            "{\"conversation_id\":null,\"conversation_id\":\"conv_2\"}",
        ] {
            assert_eq!(chat(100, body), (Destination::Of(Track::Stable), Bytes::from(body)), "{body}");
        }
    }

    #[test]
    fn memory_is_asked_for_before_a_body_is_made() {
        let shares = Shares { uid: "uid-1", weight: 50 };
        let none = |_: u64| Err(Error::unavailable("no memory"));
        for (body, made) in [("{\"conversation_id\":\"conv_1\"}", false), ("{}", true), ("{\"conversation_id\":null}", true)] {
            assert_eq!(shares.choose(&By::Body, Bytes::from(body), none).is_err(), made, "{body}");
        }
    }

    #[test]
    fn a_new_id_has_the_form_of_an_agents_own() {
        let (one, other) = (new_id().unwrap(), new_id().unwrap());
        assert_ne!(one, other);
        assert!(one.len() == 31 && one.starts_with("conv_") && one[5..].bytes().all(|byte| byte.is_ascii_alphanumeric()), "{one}");
    }

    #[test]
    fn a_track_has_a_service_of_its_own() {
        let agent = Key::new("team-a", "helper");
        for (destination, name) in [
            (Destination::Agent, "helper"),
            (Destination::Of(Track::Stable), "helper-primary"),
            (Destination::Of(Track::Canary), "helper-canary"),
        ] {
            assert_eq!(*destination.key(&agent), Key::new("team-a", name));
        }
    }
}
