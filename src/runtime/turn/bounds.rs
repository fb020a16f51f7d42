//! Bounds for what a conversation keeps of a turn. The answer has priority over the steps that led to it, and of these the
//! longest tool results are cut first.

use slipway_database::{LONGEST_MESSAGE, NewMessage};
use slipway_models::{Content, Message};

use super::parts::Parts;

/// The stored steps of an answer, as JSON. More would hardly fit a later prompt.
const MAX_PARTS_BYTES: usize = 1 << 20;
/// A shorter result of a tool is never cut.
const MIN_CUT_BYTES: usize = 1024;

/// The message as it can be kept, with marks where something is missing.
pub(super) fn fitted(mut message: NewMessage) -> NewMessage {
    if message.content.len() > LONGEST_MESSAGE {
        // Room for the mark.
        message.content = shortened(&message.content, LONGEST_MESSAGE - 100);
    }
    let size = |messages: &[Message]| serde_json::to_string(messages).map_or(usize::MAX, |json| json.len());
    message.parts = message.parts.and_then(|parts| {
        if parts.to_string().len() <= MAX_PARTS_BYTES {
            return Some(parts);
        }
        let Parts { steps: whole, sources } = Parts::read(parts)?;
        let longest = whole.iter().flat_map(|message| &message.content).map(result).max().unwrap_or_default();
        // Half as long, and half again, until all of it fits; without results that help, the answer stands alone.
        let lengths = std::iter::successors(Some(longest / 2), |length| Some(length / 2)).take_while(|length| *length >= MIN_CUT_BYTES);
        let mut shorter = lengths.map(|most| cut(&whole, most));
        // Sources are few and short.
        let steps = shorter.find(|messages| size(messages) <= MAX_PARTS_BYTES).unwrap_or_default();
        Parts { steps, sources }.write()
    });
    message
}

/// The length of a tool's result.
fn result(content: &Content) -> usize {
    if let Content::ToolResult(result) = content { result.content.len() } else { 0 }
}

/// The messages with no tool result longer than `most`.
fn cut(messages: &[Message], most: usize) -> Vec<Message> {
    let mut messages = messages.to_vec();
    for content in messages.iter_mut().flat_map(|message| &mut message.content) {
        if let Content::ToolResult(result) = content
            && result.content.len() > most
        {
            result.content = shortened(&result.content, most);
        }
    }
    messages
}

fn shortened(text: &str, most: usize) -> String {
    let start = &text[..text.floor_char_boundary(most)];
    format!("{start}\n[kept here: the first {} of {} bytes]", start.len(), text.len())
}

#[cfg(test)]
mod tests {
    use slipway_database::Role;
    use slipway_models::{Role as Speaker, ToolCall, ToolResult};

    use super::*;

    /// What calls and their results look like where they are kept.
    fn round(results: &[(&str, String)]) -> Vec<Message> {
        let call = |(id, _): &(&str, String)| {
            let signature = Some("s".repeat(3000));
            Content::ToolCall(ToolCall { id: (*id).into(), name: "look".into(), arguments: "{}".into(), signature })
        };
        let result = |(id, content): &(&str, String)| {
            Content::ToolResult(ToolResult { id: (*id).into(), name: "look".into(), content: content.clone(), is_error: false })
        };
        vec![
            Message { role: Speaker::Assistant, content: results.iter().map(call).collect() },
            Message { role: Speaker::User, content: results.iter().map(result).collect() },
        ]
    }

    fn kept(messages: &[Message]) -> Option<Vec<Message>> {
        let message = NewMessage::new(Role::Assistant, "The answer.").with_parts(serde_json::to_value(messages).unwrap());
        let message = fitted(message);
        assert_eq!(message.content, "The answer.");
        let parts = message.parts?;
        assert!(parts.to_string().len() <= MAX_PARTS_BYTES, "{}", parts.to_string().len());
        Some(serde_json::from_value(parts).unwrap())
    }

    #[test]
    fn the_longest_results_give_way_and_say_so() {
        let small = round(&[("call_1", "x".repeat(900_000))]);
        assert_eq!(kept(&small), Some(small));
        // Escapes make the JSON up to six times as long.
        for letter in ["x", "é", "\u{1}"] {
            let large = round(&[("call_1", "short".into()), ("call_2", letter.repeat(6 << 20)), ("call_3", "y".repeat(2000))]);
            let kept = kept(&large).unwrap();
            assert_eq!(kept[0], large[0], "calls stay whole, signatures too");
            let texts: Vec<_> = kept[1].content.iter().map(|part| serde_json::to_value(part).unwrap()["content"].clone()).collect();
            assert_eq!(texts[0], "short");
            let long = texts[1].as_str().unwrap();
            assert!(long.starts_with(letter) && long.ends_with(&format!("of {} bytes]", letter.len() * (6 << 20))), "{}", &long[..50]);
            assert_eq!(texts[2].as_str().map(str::len), Some(2000));
        }
    }

    #[test]
    fn what_cannot_be_made_to_fit_goes_and_the_answer_stays() {
        let mut calls = round(&[("call_1", "x".into())]);
        calls[0].content.push(Content::Text { text: "x".repeat(2 << 20) });
        assert_eq!(kept(&calls), None);
        let long = fitted(NewMessage::new(Role::Assistant, "é".repeat(LONGEST_MESSAGE)));
        assert!(long.content.len() <= LONGEST_MESSAGE && long.content.ends_with(" bytes]"), "{}", long.content.len());
    }
}
