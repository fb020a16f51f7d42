//! `stub-echo`: answers `Echo: ` and the message, character for character, one word a fragment. It
//! needs no network and no key, so an agent can be tried before a provider is chosen. A token is a
//! word; nothing is remembered, and system prompt, tools and knowledge bases are not used.

use futures::stream;

use super::{Answer, Model, Piece, Prompt, Usage};

const PREFIX: &str = "Echo: ";

pub(crate) struct Echo;

impl Model for Echo {
    fn answer(&self, prompt: Prompt) -> Answer {
        let input_tokens = words(&prompt.message);
        let usage = Usage { input_tokens, output_tokens: input_tokens + words(PREFIX) };
        let text = format!("{PREFIX}{}", prompt.message);
        let mut start = 0;
        let mut done = false;
        Box::pin(stream::iter(std::iter::from_fn(move || {
            if start == text.len() {
                return (!std::mem::replace(&mut done, true)).then_some(Ok(Piece::Usage(usage)));
            }
            let fragment = fragment(&text[start..]);
            start += fragment.len();
            Some(Ok(Piece::Text(fragment.to_owned())))
        })))
    }
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

    #[tokio::test]
    async fn the_fragments_are_the_prefix_and_the_message() {
        for (message, fragments, tokens) in [
            ("hello", &["Echo: ", "hello"][..], 1),
            ("two  words\n", &["Echo: ", "two  ", "words\n"], 2),
            (" é\u{3000}字 ", &["Echo:  ", "é\u{3000}", "字 "], 2),
            (" ", &["Echo:  "], 0),
        ] {
            let pieces: Vec<_> = Echo.answer(Prompt { message: message.into() }).collect().await;
            let mut expected: Vec<_> = fragments.iter().map(|text| Piece::Text((*text).into())).collect();
            expected.push(Piece::Usage(Usage { input_tokens: tokens, output_tokens: tokens + 1 }));
            let pieces: Vec<_> = pieces.into_iter().map(Result::unwrap).collect();
            assert_eq!(pieces, expected, "{message:?}");
        }
    }
}
