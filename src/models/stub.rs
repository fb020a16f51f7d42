//! Models without network and key, for trying an agent. `stub-echo` answers `Echo: ` and the last message, one word per
//! fragment; a token is a word. `stub-script` runs the script in its message (see `script`).

mod script;

use futures::stream;

use crate::answer::{Answer, Model, Piece, Stop, Usage};
use crate::fault::{FaultKind, ModelFault};
use crate::message::{Content, ModelRequest};
use crate::provider::Provider;

const PREFIX: &str = "Echo: ";

pub(crate) fn open(id: &str, window: u32) -> Result<Box<dyn Model>, ModelFault> {
    match id {
        "stub-echo" => Ok(Box::new(Echo { window })),
        script::ID => Ok(Box::new(script::Script { window })),
        _ => Err(ModelFault::new(
            FaultKind::UnknownModel,
            format!("the provider stub has no model `{id}`; it has stub-echo and stub-script"),
        )),
    }
}

struct Echo {
    window: u32,
}

impl Model for Echo {
    fn answer(&self, request: ModelRequest) -> Answer {
        let said = last_text(&request);
        let input_tokens = words(said);
        let usage = Usage { input_tokens, output_tokens: input_tokens + words(PREFIX), cached_input_tokens: 0 };
        let text = format!("{PREFIX}{said}");
        let mut start = 0;
        let mut ends = [Piece::Usage(usage), Piece::Stopped(Stop::EndTurn)].into_iter();
        Box::pin(stream::iter(std::iter::from_fn(move || {
            if start == text.len() {
                return ends.next().map(Ok);
            }
            let fragment = fragment(&text[start..]);
            start += fragment.len();
            Some(Ok(Piece::Text(fragment.to_owned())))
        })))
    }

    fn provider(&self) -> Provider {
        Provider::Stub
    }

    fn id(&self) -> &'static str {
        "stub-echo"
    }

    fn window(&self) -> u32 {
        self.window
    }
}

/// The last text of the user, borrowed: this path runs tens of thousands of times a second in benchmarks.
fn last_text(request: &ModelRequest) -> &str {
    let contents = request.messages.last().map_or(&[][..], |message| &message.content);
    contents
        .iter()
        .rev()
        .find_map(|content| if let Content::Text { text } = content { Some(text.as_str()) } else { None })
        .unwrap_or_default()
}

/// The first word of `text` with the white space before and after it.
fn fragment(text: &str) -> &str {
    let word = text.len() - text.trim_start().len();
    let after = text[word..].find(char::is_whitespace).map_or(text.len(), |end| word + end);
    let rest = text[after..].trim_start();
    &text[..text.len() - rest.len()]
}

fn words(text: &str) -> u64 {
    text.split_whitespace().count() as u64
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;

    use super::*;
    use crate::message::Message;

    #[tokio::test]
    async fn the_fragments_are_the_prefix_and_the_message() {
        for (message, fragments, tokens) in [
            ("hello", &["Echo: ", "hello"][..], 1),
            ("two  words\n", &["Echo: ", "two  ", "words\n"], 2),
            (" é\u{3000}字 ", &["Echo:  ", "é\u{3000}", "字 "], 2),
            (" ", &["Echo:  "], 0),
        ] {
            let request = ModelRequest { messages: vec![Message::user("before"), Message::user(message)], ..ModelRequest::default() };
            let pieces: Vec<_> = open("stub-echo", 1000).unwrap().answer(request).map(Result::unwrap).collect().await;
            let mut expected: Vec<_> = fragments.iter().map(|text| Piece::Text((*text).into())).collect();
            expected.push(Piece::Usage(Usage { input_tokens: tokens, output_tokens: tokens + 1, cached_input_tokens: 0 }));
            expected.push(Piece::Stopped(Stop::EndTurn));
            assert_eq!(pieces, expected, "{message:?}");
        }
    }

    #[test]
    fn other_models_are_unknown() {
        let fault = open("stub-parrot", 1000).err().unwrap();
        assert_eq!(*fault.kind(), FaultKind::UnknownModel);
        assert!(fault.message().contains("stub-parrot") && fault.message().contains("stub-script"), "{fault}");
    }
}
