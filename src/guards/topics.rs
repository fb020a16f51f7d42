//! Blocked topics: known ones by a lexicon of acts and objects, configured ones by their words.

use std::collections::HashMap;
use std::ops::Range;

use crate::phrases::{Lexicon, MatchState};
use crate::policy::Demand;
use crate::settings::{self, KNOWN_TOPICS, Topic};
use crate::words::Words;

/// All topics of an agent, no matter who asked for them: text is read once.
#[derive(Debug)]
pub(crate) struct Topics {
    lexicon: Lexicon,
    demands: Vec<Demand>,
    /// The indices of demands, by the number of the lexicon's rule.
    wanted: Vec<Vec<u16>>,
}

/// Of all phrases together: more than a team's file of policies can hold, so that what is in it can be kept to.
const MAX_WORDS: usize = 512 * 1024;

/// Of one phrase of a policy: each word of a text is compared with every place that it has in phrases. An agent's own are bounded by the Agent.
const MAX_PHRASE_WORDS: usize = 32;

/// The state of reading one text.
#[derive(Debug, Default)]
pub(crate) struct TopicReader {
    words: Words,
    progress: MatchState,
}

impl Topics {
    pub(crate) fn new(asked: &[settings::Topics]) -> Result<Self, Vec<String>> {
        let is_known = |topic: &Topic| topic.words.is_empty() && KNOWN_TOPICS.contains(&topic.name.as_str());
        let known = asked.iter().flat_map(|asked| &asked.topics).any(is_known);
        let mut lexicon = Lexicon::read(if known { include_str!("lexicon/topics.txt") } else { "" }).map_err(|fault| vec![fault])?;
        let mut wanted = vec![Vec::new(); lexicon.rules.len()];
        // Who asks for the same words shares their rule.
        let mut phrases: HashMap<(&str, Vec<String>), usize> = HashMap::new();
        let mut room = MAX_WORDS;
        let mut faults = Vec::new();
        for (number, topics) in (0_u16..).zip(asked) {
            for topic in &topics.topics {
                if is_known(topic) {
                    let rules = lexicon.rules.iter().filter(|rule| *rule.kind == *topic.name);
                    rules.for_each(|rule| wanted[rule.number].push(number));
                    continue;
                }
                let itself = [topic.name.replace('_', " ")];
                for phrase in if topic.words.is_empty() { &itself[..] } else { &topic.words[..] } {
                    let words = folded(phrase);
                    let policy = topics.demand.policy.as_ref();
                    let whose = || policy.map_or(String::new(), |rule| format!("policy `{}`: ", rule.policy));
                    if words.is_empty() {
                        faults.push(format!("{}topic `{}`: `{phrase}` holds no word", whose(), topic.name));
                        continue;
                    }
                    if policy.is_some() && words.len() > MAX_PHRASE_WORDS {
                        let (name, count) = (&topic.name[..topic.name.floor_char_boundary(64)], words.len());
                        faults.push(format!("{}topic `{name}` has {count} words; it may have {MAX_PHRASE_WORDS}", whose()));
                        continue;
                    }
                    let Some(left) = room.checked_sub(words.len()) else {
                        return Err(vec![format!("blocked topics have more than {MAX_WORDS} words together")]);
                    };
                    room = left;
                    let rule = *phrases.entry((&topic.name, words)).or_insert_with_key(|(name, words)| {
                        lexicon.phrase(name, words);
                        wanted.push(Vec::new());
                        wanted.len() - 1
                    });
                    if !wanted[rule].contains(&number) {
                        wanted[rule].push(number);
                    }
                }
            }
        }
        let demands = asked.iter().map(|asked| asked.demand.clone()).collect();
        if faults.is_empty() { Ok(Self { lexicon, demands, wanted }) } else { Err(faults) }
    }

    /// Whether who asks for a topic wants answers held back until they were judged.
    pub(crate) fn hold_answers(&self) -> bool {
        self.demands.iter().any(|demand| demand.holds)
    }

    /// Reads text that begins at `offset`, and calls `each` for the topics in it, once for each who asked for one.
    pub(crate) fn read(&self, reading: &mut TopicReader, text: &str, offset: usize, mut each: impl FnMut(&str, Range<usize>, &Demand)) {
        let TopicReader { words, progress } = reading;
        words.read(text, offset, |word, span| self.word(progress, word, &span, &mut each));
    }

    pub(crate) fn end(&self, reading: &mut TopicReader, mut each: impl FnMut(&str, Range<usize>, &Demand)) {
        let TopicReader { words, progress } = reading;
        words.end(|word, span| self.word(progress, word, &span, &mut each));
    }

    /// Reads one word, for callers that split text themselves.
    pub(crate) fn word(
        &self,
        progress: &mut MatchState,
        word: &[u8],
        span: &Range<usize>,
        mut each: impl FnMut(&str, Range<usize>, &Demand),
    ) {
        self.lexicon.word(progress, word, span, |rule, span| {
            let asking = self.wanted.get(rule.number).into_iter().flatten();
            for demand in asking.filter_map(|number| self.demands.get(usize::from(*number))) {
                each(&rule.kind, span.clone(), demand);
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
    use crate::finding::Action;

    fn found(topics: &Topics, text: &str) -> Vec<String> {
        let (mut reading, mut all) = (TopicReader::default(), Vec::new());
        topics.read(&mut reading, text, 0, |kind, _, _| all.push(kind.to_owned()));
        topics.end(&mut reading, |kind, _, _| all.push(kind.to_owned()));
        all
    }

    fn asked(topics: Vec<Topic>) -> settings::Topics {
        settings::Topics { topics, demand: Demand::own(Action::Block) }
    }

    fn known() -> Topics {
        let topics = KNOWN_TOPICS.iter().map(|name| Topic { name: (*name).to_owned(), words: vec![] }).collect();
        Topics::new(&[asked(topics)]).unwrap()
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
        let topics = Topics::new(&[asked(vec![Topic {
            name: "gambling".into(),
            words: vec!["Sports betting".into(), "casino*".into(), "Würfel".into(), "赌博".into()],
        }])])
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
        let topics = Topics::new(&[asked(vec![Topic { name: "self_harm".into(), words: vec![] }])]).unwrap();
        assert!(found(&topics, "how to build a pipe bomb").is_empty());
        assert_eq!(found(&topics, "I want to kill myself"), ["self_harm"]);
    }
    #[test]
    fn each_who_asks_for_a_topic_hears_of_it_and_nobody_else() {
        let named = |names: &[&str]| names.iter().map(|name| Topic { name: (*name).to_owned(), words: vec![] }).collect::<Vec<_>>();
        let own = Topic { name: "cats".into(), words: vec!["catnip".into()] };
        let warning = settings::Topics { topics: named(&["cats", "self_harm"]), demand: Demand::own(Action::Warn) };
        let topics = Topics::new(&[asked(vec![own]), warning, asked(named(&["self_harm", "cats", "cats"]))]).unwrap();
        let heard = |text: &str| {
            let (mut reading, mut all) = (TopicReader::default(), Vec::new());
            topics.read(&mut reading, text, 0, |kind, _, demand| all.push((kind.to_owned(), demand.action)));
            topics.end(&mut reading, |kind, _, demand| all.push((kind.to_owned(), demand.action)));
            all
        };
        assert_eq!(heard("some catnip"), [("cats".to_owned(), Action::Block)], "the words of one are not the other's");
        assert_eq!(heard("some cats"), [("cats".to_owned(), Action::Warn), ("cats".to_owned(), Action::Block)]);
        assert_eq!(heard("I want to kill myself"), [("self_harm".to_owned(), Action::Warn), ("self_harm".to_owned(), Action::Block)]);
    }
}
