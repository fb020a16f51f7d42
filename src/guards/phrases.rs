//! Phrases in running text: classes of words, and rules that name classes in an order with a few words between
//! them. One pass, a lookup per word, and a state that does not grow with the text.
//!
//! A lexicon is text. `name: word stem* …` makes a class, `= weight kind gap: @class word …` a rule.

use std::collections::HashMap;
use std::ops::Range;

#[derive(Debug, Default)]
pub(crate) struct Lexicon {
    /// Words and stems by their first bytes: most words of a text find an empty place.
    entries: Vec<Vec<Entry>>,
    names: HashMap<String, u16>,
    /// By class: the rules it is part of, and where.
    uses: Vec<Vec<(u16, u8)>>,
    pub(crate) rules: Vec<Rule>,
}

#[derive(Debug)]
struct Entry {
    text: Box<str>,
    stem: bool,
    class: u16,
}

#[derive(Debug)]
pub(crate) struct Rule {
    /// Its place among the rules.
    pub(crate) number: usize,
    pub(crate) kind: Box<str>,
    pub(crate) weight: f32,
    /// How many other words may stand between two of its own.
    gap: u32,
    length: u8,
    /// Where its steps begin in a progress.
    at: usize,
}

/// How far the rules have come in one text.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    word: u32,
    /// By rule and place: the word at which the rule came so far, and where its first word began.
    steps: Vec<Option<(u32, usize)>>,
    /// Room for the rules and places of one word.
    places: Vec<(u16, u8)>,
}

const PLACES: usize = 1 << 10;

impl Lexicon {
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let mut lexicon = Self { entries: std::iter::repeat_with(Vec::new).take(PLACES).collect(), ..Self::default() };
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            lexicon.line(line).map_err(|fault| format!("line {}: {fault}", number + 1))?;
        }
        Ok(lexicon)
    }

    fn line(&mut self, line: &str) -> Result<(), String> {
        let (head, words) = line.split_once(':').ok_or("there is no `:`")?;
        let Some(rule) = head.strip_prefix('=') else {
            // With its sign, so that a class and a word may have one name.
            let class = self.class(&format!("@{}", head.trim()));
            words.split_whitespace().for_each(|word| self.add(word, class));
            return Ok(());
        };
        let mut parts = rule.split_whitespace();
        let weight = parts.next().and_then(|weight| weight.parse().ok()).ok_or("a rule begins with its weight")?;
        let kind = parts.next().ok_or("a rule has a kind")?;
        let gap = parts.next().and_then(|gap| gap.parse().ok()).ok_or("a rule has a gap")?;
        let classes: Vec<u16> = words.split_whitespace().map(|word| self.part(word)).collect::<Result<_, _>>()?;
        self.rule(kind, weight, gap, &classes);
        Ok(())
    }

    fn part(&mut self, word: &str) -> Result<u16, String> {
        if word.starts_with('@') {
            return self.names.get(word).copied().ok_or_else(|| format!("there is no class `{word}` yet"));
        }
        let known = self.names.contains_key(word);
        let class = self.class(word);
        if !known {
            self.add(word, class);
        }
        Ok(class)
    }

    pub(crate) fn rule(&mut self, kind: &str, weight: f32, gap: u32, classes: &[u16]) {
        let at = self.rules.last().map_or(0, |rule| rule.at + usize::from(rule.length));
        let number = u16::try_from(self.rules.len()).unwrap_or(u16::MAX);
        for (place, class) in classes.iter().enumerate() {
            self.uses[usize::from(*class)].push((number, u8::try_from(place).unwrap_or(u8::MAX)));
        }
        let length = u8::try_from(classes.len()).unwrap_or(u8::MAX);
        self.rules.push(Rule { number: self.rules.len(), kind: kind.into(), weight, gap, length, at });
    }

    /// A phrase as it stands, word after word.
    pub(crate) fn phrase(&mut self, kind: &str, words: &[String]) {
        let classes: Vec<u16> = words.iter().filter_map(|word| self.part(word).ok()).collect();
        self.rule(kind, 1.0, 0, &classes);
    }

    fn class(&mut self, name: &str) -> u16 {
        let next = u16::try_from(self.names.len()).unwrap_or(u16::MAX);
        let class = *self.names.entry(name.to_owned()).or_insert(next);
        if usize::from(class) >= self.uses.len() {
            self.uses.resize(usize::from(class) + 1, Vec::new());
        }
        class
    }

    fn add(&mut self, word: &str, class: u16) {
        let stem = word.strip_suffix('*').filter(|stem| stem.len() >= 3);
        let text = stem.unwrap_or(word);
        self.entries[place(text.as_bytes())].push(Entry { text: text.into(), stem: stem.is_some(), class });
    }

    /// Tells which rules a word completes, and where the words of each lie.
    pub(crate) fn word(&self, progress: &mut Progress, word: &str, span: &Range<usize>, mut each: impl FnMut(&Rule, Range<usize>)) {
        progress.word += 1;
        let mut places = std::mem::take(&mut progress.places);
        places.clear();
        for entry in &self.entries[place(word.as_bytes())] {
            if word == &*entry.text || (entry.stem && word.starts_with(&*entry.text)) {
                places.extend_from_slice(&self.uses[usize::from(entry.class)]);
            }
        }
        // The later places first: a word is not two parts of one rule at once.
        places.sort_unstable_by(|a, b| b.cmp(a));
        places.dedup();
        if progress.steps.is_empty() && !places.is_empty() {
            let length = self.rules.last().map_or(0, |rule| rule.at + usize::from(rule.length));
            progress.steps = vec![None; length];
        }
        for (rule, place) in places.iter().copied() {
            let rule = &self.rules[usize::from(rule)];
            let at = rule.at + usize::from(place);
            let start = if place == 0 {
                Some(span.start)
            } else {
                progress.steps[at - 1].filter(|(word, _)| progress.word - word <= rule.gap + 1).map(|(_, start)| start)
            };
            let Some(start) = start else { continue };
            progress.steps[at] = Some((progress.word, start));
            if place + 1 == rule.length {
                each(rule, start..span.end);
            }
        }
        progress.places = places;
    }
}

/// Of a word and of its stems the same: they share three bytes, or are shorter.
fn place(word: &[u8]) -> usize {
    let byte = |at: usize| word.get(at).copied().map_or(0, usize::from);
    (byte(0) * 961 + byte(1) * 31 + byte(2)) % PLACES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::Words;

    fn hits(lexicon: &str, text: &str) -> Vec<(String, String)> {
        let lexicon = Lexicon::read(lexicon).unwrap();
        let (mut words, mut progress, mut hits) = (Words::default(), Progress::default(), Vec::new());
        let mut each = |word: &str, span| {
            lexicon.word(&mut progress, word, &span, |rule, span| hits.push((rule.kind.to_string(), text[span].to_owned())));
        };
        words.read(text, 0, &mut each);
        words.end(&mut each);
        hits
    }

    #[test]
    fn a_rule_asks_for_its_classes_in_order_and_near_each_other() {
        let lexicon = "do: make build*\nthing: bomb\n= 1 weapon 2: @do @thing";
        for (text, found) in [
            ("make a bomb", Some("make a bomb")),
            ("Building the best BOMB!", Some("Building the best BOMB")),
            ("make a very very big bomb", None),
            ("bomb make", None),
            ("make bombs", None),
            ("do a bomb", None),
        ] {
            assert_eq!(hits(lexicon, text).first().map(|(_, text)| text.as_str()), found, "{text}");
        }
    }

    #[test]
    fn one_word_is_not_two_parts_of_a_rule() {
        let lexicon = "bad: evil amoral\n= 1 twice 3: @bad @bad";
        assert_eq!(hits(lexicon, "evil").len(), 0);
        assert_eq!(hits(lexicon, "evil and amoral").len(), 1);
    }

    #[test]
    fn a_broken_lexicon_says_where() {
        assert_eq!(Lexicon::read("\n= 1 x 0: @nothing").unwrap_err(), "line 2: there is no class `@nothing` yet");
    }
}
