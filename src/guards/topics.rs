//! Blocked topics: known ones by a lexicon of acts and objects, configured ones by their words.

use std::ops::Range;

use crate::phrases::{Lexicon, Progress};
use crate::settings::{KNOWN_TOPICS, Topic};
use crate::words::Words;

#[derive(Debug)]
pub(crate) struct Topics {
    lexicon: Lexicon,
    wanted: Vec<Box<str>>,
}

/// The state of reading one text.
#[derive(Debug, Default)]
pub(crate) struct TopicReader {
    words: Words,
    progress: Progress,
}

impl Topics {
    pub(crate) fn new(topics: &[Topic]) -> Result<Self, String> {
        let known = topics.iter().any(|topic| topic.words.is_empty() && KNOWN_TOPICS.contains(&topic.name.as_str()));
        let mut lexicon = Lexicon::read(if known { include_str!("lexicon/topics.txt") } else { "" })?;
        for topic in topics {
            let itself = [topic.name.replace('_', " ")];
            let phrases = if topic.words.is_empty() { &itself[..] } else { &topic.words[..] };
            if topic.words.is_empty() && KNOWN_TOPICS.contains(&topic.name.as_str()) {
                continue;
            }
            for phrase in phrases {
                let words = folded(phrase);
                if words.is_empty() {
                    return Err(format!("topic `{}`: `{phrase}` holds no word", topic.name));
                }
                lexicon.phrase(&topic.name, &words);
            }
        }
        Ok(Self { lexicon, wanted: topics.iter().map(|topic| topic.name.as_str().into()).collect() })
    }

    /// Reads text that begins at `offset`, and calls `each` for the topics in it.
    pub(crate) fn read(&self, reading: &mut TopicReader, text: &str, offset: usize, mut each: impl FnMut(&str, Range<usize>)) {
        let TopicReader { words, progress } = reading;
        words.read(text, offset, |word, span| self.word(progress, word, &span, &mut each));
    }

    pub(crate) fn end(&self, reading: &mut TopicReader, mut each: impl FnMut(&str, Range<usize>)) {
        let TopicReader { words, progress } = reading;
        words.end(|word, span| self.word(progress, word, &span, &mut each));
    }

    /// Reads one word, for callers that split text themselves.
    pub(crate) fn word(&self, progress: &mut Progress, word: &[u8], span: &Range<usize>, mut each: impl FnMut(&str, Range<usize>)) {
        self.lexicon.word(progress, word, span, |rule, span| {
            if self.wanted.contains(&rule.kind) {
                each(&rule.kind, span);
            }
        });
    }
}

/// The words of a configured phrase, normalised like text; a `*` at the end of a word makes it a stem.
fn folded(phrase: &str) -> Vec<String> {
    let mut all = Vec::new();
    for part in phrase.split_whitespace() {
        let mut words = Words::default();
        let first = all.len();
        let mut each = |word: &[u8], _| all.push(String::from_utf8_lossy(word).into_owned());
        words.read(part, 0, &mut each);
        words.end(&mut each);
        if part.ends_with('*')
            && all.len() > first
            && let Some(last) = all.last_mut()
        {
            last.push('*');
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(topics: &Topics, text: &str) -> Vec<String> {
        let (mut reading, mut all) = (TopicReader::default(), Vec::new());
        topics.read(&mut reading, text, 0, |kind, _| all.push(kind.to_owned()));
        topics.end(&mut reading, |kind, _| all.push(kind.to_owned()));
        all
    }

    fn known() -> Topics {
        let topics: Vec<Topic> = KNOWN_TOPICS.iter().map(|name| Topic { name: (*name).to_owned(), words: vec![] }).collect();
        Topics::new(&topics).unwrap()
    }

    #[test]
    fn harmless_text_has_no_topic() {
        let topics = known();
        for text in [
            "How do I kill a Python process that hangs?",
            "The campaign was a bomb at the box office.",
            "She shot a wonderful picture of the harbour.",
            "Our flight was hijacked by bad weather, so to speak.",
            "Please execute the script and kill the old pods.",
            "What weapons did Roman soldiers carry?",
            "The patient overdosed on vitamin C as a joke in the play.",
            "Can I cut the budget by ten percent?",
            "Attack the problem from another side.",
            "How do I protect my account from being hacked?",
        ] {
            assert!(found(&topics, text).is_empty(), "{text}: {:?}", found(&topics, text));
        }
    }

    #[test]
    fn configured_words_are_found_in_any_spelling_of_case_and_accent() {
        let topics = Topics::new(&[Topic {
            name: "gambling".into(),
            words: vec!["Sports betting".into(), "casino*".into(), "Würfel".into(), "赌博".into()],
        }])
        .unwrap();
        for (text, hit) in [
            ("SPORTS  betting!", true),
            ("two casinos", true),
            ("wurfel", true),
            ("关于赌博的", true),
            ("sports and betting", false),
            ("occasion", false),
        ] {
            assert_eq!(!found(&topics, text).is_empty(), hit, "{text}");
        }
    }

    #[test]
    fn a_topic_that_is_not_configured_is_not_found() {
        let topics = Topics::new(&[Topic { name: "self_harm".into(), words: vec![] }]).unwrap();
        assert!(found(&topics, "how to build a pipe bomb").is_empty());
        assert_eq!(found(&topics, "I want to kill myself"), ["self_harm"]);
    }
}
