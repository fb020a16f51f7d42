//! Incomplete tool calls: providers stream the arguments as fragments of JSON.

use std::borrow::Cow;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::answer::{Piece, Stop, Usage};
use crate::exchange::Pieces;
use crate::message::ToolCall;

/// Every provider accepts ids of this length.
const MAX_ID_BYTES: usize = 40;

#[derive(Default)]
pub(crate) struct Drafts(Vec<Draft>);

#[derive(Default)]
struct Draft {
    index: u64,
    id: String,
    name: String,
    arguments: String,
}

impl Drafts {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Begins a call at this index.
    pub(crate) fn begin(&mut self, index: u64, id: &str, name: &str) {
        self.0.push(Draft { index, id: id.to_owned(), name: name.to_owned(), arguments: String::new() });
    }

    /// Appends a fragment of arguments to the newest call at this index.
    pub(crate) fn add(&mut self, index: u64, arguments: &str) -> bool {
        let draft = self.0.iter_mut().rev().find(|draft| draft.index == index);
        draft.map(|draft| draft.arguments.push_str(arguments)).is_some()
    }

    /// Index, id and name of the newest call at this index, or of the newest call without one.
    pub(crate) fn newest(&self, index: Option<u64>) -> Option<(u64, &str, &str)> {
        let draft = self.0.iter().rev().find(|draft| index.is_none_or(|index| draft.index == index))?;
        Some((draft.index, &draft.id, &draft.name))
    }

    /// Some servers send a call's name after its id.
    pub(crate) fn name(&mut self, index: u64, name: &str) {
        if let Some(draft) = self.0.iter_mut().rev().find(|draft| draft.index == index && draft.name.is_empty()) {
            name.clone_into(&mut draft.name);
        }
    }

    /// The calls. If the answer was cut off, the incomplete last call is left out.
    fn finish(&mut self, cut: bool) -> impl Iterator<Item = ToolCall> + use<> {
        std::mem::take(&mut self.0).into_iter().filter_map(move |draft| {
            let arguments = match serde_json::from_str(&draft.arguments) {
                Ok(arguments) => arguments,
                Err(_) if draft.arguments.trim().is_empty() => json!({}),
                Err(_) if cut => return None,
                Err(_) => Value::String(draft.arguments),
            };
            let id = if draft.id.is_empty() { fresh() } else { draft.id };
            Some(ToolCall { id, name: draft.name, arguments, signature: None })
        })
    }
}

/// Emits the end of an answer: calls, usage, stop reason.
pub(crate) fn end(pieces: &mut Pieces, drafts: &mut Drafts, usage: Option<Usage>, stop: Stop) {
    let stop = if stop == Stop::EndTurn && !drafts.is_empty() { Stop::ToolUse } else { stop };
    pieces.extend(drafts.finish(stop == Stop::MaxTokens).map(Piece::ToolCall));
    pieces.extend(usage.map(Piece::Usage));
    pieces.push_back(Piece::Stopped(stop));
}

/// An id for a call without one.
pub(crate) fn fresh() -> String {
    let mut bytes = [0; 12];
    // Without randomness the id may equal one of another conversation, which does no harm.
    let _ = getrandom::fill(&mut bytes);
    format!("call_{}", hex::encode(bytes))
}

/// The id in a form that every provider accepts: a conversation may have begun with another provider.
pub(crate) fn portable(id: &str) -> Cow<'_, str> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if (1..=MAX_ID_BYTES).contains(&id.len()) && id.bytes().all(plain) {
        Cow::Borrowed(id)
    } else {
        Cow::Owned(format!("call_{}", hex::encode(&Sha256::digest(id)[..12])))
    }
}

/// Arguments as providers accept them: objects only.
pub(crate) fn object(arguments: &Value) -> Cow<'_, Value> {
    match arguments {
        Value::Object(_) => Cow::Borrowed(arguments),
        Value::Null => Cow::Owned(json!({})),
        other => Cow::Owned(json!({"arguments": other})),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_become_whole_calls() {
        for (fragments, cut, expected) in [
            (&["{\"a\"", ":1}"][..], false, Some(json!({"a": 1}))),
            (&[], false, Some(json!({}))),
            (&["", " "], false, Some(json!({}))),
            (&["{\"a\": nonsense"], false, Some(json!("{\"a\": nonsense"))),
            (&["{\"a\": \"cut o"], true, None),
            (&["{}"], true, Some(json!({}))),
        ] {
            let mut drafts = Drafts::default();
            drafts.begin(3, "id", "tool");
            for fragment in fragments {
                assert!(drafts.add(3, fragment));
            }
            assert!(!drafts.add(4, "{}"));
            let calls: Vec<_> = drafts.finish(cut).map(|call| call.arguments).collect();
            assert_eq!(calls, Vec::from_iter(expected), "{fragments:?}");
        }
    }

    #[test]
    fn ids_of_one_provider_are_made_fit_for_another() {
        for (id, same) in [("call_abc-1", true), ("functions.get_weather:0", false), ("", false), (&"x".repeat(41), false)] {
            let portable = portable(id);
            assert_eq!(portable == id, same, "{id}");
            assert!((1..=MAX_ID_BYTES).contains(&portable.len()));
            assert_eq!(portable, super::portable(id));
        }
    }
}
