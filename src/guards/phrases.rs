//! Finds phrases in text: classes of words, and rules that name classes in order, with a few words between them. One pass,
//! one look-up per word, and constant state.
//!
//! A lexicon is text. `name: word stem* …` makes a class, `= weight kind gap: @class word …` a rule.

use std::collections::HashMap;
use std::ops::Range;

#[derive(Debug, Default)]
pub(crate) struct Lexicon {
    entries: Vec<WordEntry>,
    /// A hash table of entries by their first bytes: the index of the last entry of a bucket plus one; 0 if it is empty.
    buckets: Vec<usize>,
    names: HashMap<String, usize>,
    classes: Vec<Class>,
    pub(crate) rules: Vec<Rule>,
    /// The number of cells of a progress.
    cells: usize,
}

#[derive(Debug)]
struct WordEntry {
    text: Box<str>,
    /// The first bytes of the text, and the mask for comparing a word with them.
    head: u64,
    mask: u64,
    stem: bool,
    class: usize,
    /// The next entry of the same bucket, as in `buckets`.
    next: usize,
}

#[derive(Debug)]
struct Class {
    /// The cell of the last word of this class.
    cell: usize,
    uses: Vec<Use>,
}

/// A class as a part of a rule.
#[derive(Debug)]
struct Use {
    rule: usize,
    gap: u32,
    /// The cell of the previous part; `None`: this is the first part.
    after: Option<usize>,
    /// The cell of this part; `None`: this is the last part.
    cell: Option<usize>,
}

#[derive(Debug)]
pub(crate) struct Rule {
    /// Its index.
    pub(crate) number: usize,
    pub(crate) kind: Box<str>,
    pub(crate) weight: f32,
}

/// The state of all rules in one text.
#[derive(Debug, Default)]
pub(crate) struct MatchState {
    word: u32,
    cells: Vec<Cell>,
    /// Buffers for the classes of one word, and for the cells that it changes.
    classes: Vec<usize>,
    moves: Vec<(usize, Cell)>,
}

/// The number of a word, from 1, and the start of the first word of its rule.
#[derive(Debug, Clone, Copy, Default)]
struct Cell {
    word: u32,
    start: usize,
}

const BUCKETS: usize = 1 << 11;

impl Lexicon {
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let mut lexicon = Self { buckets: vec![0; BUCKETS], ..Self::default() };
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
            // With its sign, so that a class and a word may have the same name.
            let class = self.class(&format!("@{}", head.trim()));
            words.split_whitespace().for_each(|word| self.add(word, class));
            return Ok(());
        };
        let mut parts = rule.split_whitespace();
        let weight = parts.next().and_then(|weight| weight.parse().ok()).ok_or("a rule begins with its weight")?;
        let kind = parts.next().ok_or("a rule has a kind")?;
        let gap = parts.next().and_then(|gap| gap.parse().ok()).ok_or("a rule has a gap")?;
        let classes: Vec<usize> = words.split_whitespace().map(|word| self.part(word)).collect::<Result<_, _>>()?;
        self.rule(kind, weight, gap, &classes);
        Ok(())
    }

    fn part(&mut self, word: &str) -> Result<usize, String> {
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

    pub(crate) fn rule(&mut self, kind: &str, weight: f32, gap: u32, classes: &[usize]) {
        let number = self.rules.len();
        let mut after = None;
        for (place, class) in classes.iter().enumerate() {
            // All rules that begin with the same class share one cell.
            let cell = match place {
                _ if place + 1 == classes.len() => None,
                0 => Some(self.classes[*class].cell),
                _ => Some(self.cell()),
            };
            if place > 0 || cell.is_none() {
                self.classes[*class].uses.push(Use { rule: number, gap, after, cell });
            }
            after = cell;
        }
        self.rules.push(Rule { number, kind: kind.into(), weight });
    }

    fn cell(&mut self) -> usize {
        self.cells += 1;
        self.cells - 1
    }

    /// Adds a literal phrase, word after word.
    pub(crate) fn phrase(&mut self, kind: &str, words: &[String]) {
        let classes: Vec<usize> = words.iter().filter_map(|word| self.part(word).ok()).collect();
        self.rule(kind, 1.0, 0, &classes);
    }

    fn class(&mut self, name: &str) -> usize {
        if let Some(class) = self.names.get(name) {
            return *class;
        }
        let class = self.classes.len();
        let cell = self.cell();
        self.classes.push(Class { cell, uses: Vec::new() });
        self.names.insert(name.to_owned(), class);
        class
    }

    fn add(&mut self, word: &str, class: usize) {
        let stem = word.strip_suffix('*').filter(|stem| stem.len() >= 3);
        let text = stem.unwrap_or(word);
        let mask = if stem.is_some() && text.len() < 8 { (1 << (8 * text.len())) - 1 } else { u64::MAX };
        let head = head(text.as_bytes());
        let next = self.buckets[bucket(head)];
        self.entries.push(WordEntry { text: text.into(), head, mask, stem: stem.is_some(), class, next });
        self.buckets[bucket(head)] = self.entries.len();
    }

    /// Calls `each` for the rules that a word completes, with their spans.
    pub(crate) fn word(&self, progress: &mut MatchState, word: &[u8], span: &Range<usize>, mut each: impl FnMut(&Rule, Range<usize>)) {
        progress.word += 1;
        let head = head(word);
        let mut next = self.buckets[bucket(head)];
        while next > 0 {
            let entry = &self.entries[next - 1];
            next = entry.next;
            let alike = head & entry.mask == entry.head
                && (word == entry.text.as_bytes() || (entry.stem && word.starts_with(entry.text.as_bytes())));
            if alike && !progress.classes.contains(&entry.class) {
                progress.classes.push(entry.class);
            }
        }
        if progress.classes.is_empty() {
            return;
        }
        progress.cells.resize(self.cells, Cell::default());
        let here = Cell { word: progress.word, start: span.start };
        for class in progress.classes.drain(..) {
            let class = &self.classes[class];
            progress.moves.push((class.cell, here));
            for part in &class.uses {
                let before = part.after.map_or(here, |cell| progress.cells[cell]);
                if before.word == 0 || here.word - before.word > part.gap + 1 {
                    continue;
                }
                match part.cell {
                    Some(cell) => progress.moves.push((cell, Cell { start: before.start, ..here })),
                    None => each(&self.rules[part.rule], before.start..span.end),
                }
            }
        }
        // Applied last, so that one word is not two parts of a rule.
        for (cell, here) in progress.moves.drain(..) {
            progress.cells[cell] = here;
        }
    }
}

/// The first eight bytes.
fn head(word: &[u8]) -> u64 {
    match word.first_chunk() {
        Some(first) => u64::from_le_bytes(*first),
        None => word.iter().rev().fold(0, |head, byte| head << 8 | u64::from(*byte)),
    }
}

/// The bucket, the same for a word and its stems: they share three bytes.
fn bucket(head: u64) -> usize {
    let [first, second, third, ..] = head.to_le_bytes().map(usize::from);
    (first * 961 + second * 31 + third) % BUCKETS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::Words;

    fn hits(lexicon: &str, text: &str) -> Vec<(String, String)> {
        let lexicon = Lexicon::read(lexicon).unwrap();
        let (mut words, mut progress, mut hits) = (Words::default(), MatchState::default(), Vec::new());
        let mut each = |word: &[u8], span| {
            lexicon.word(&mut progress, word, &span, |rule, span| hits.push((rule.kind.to_string(), text[span].to_owned())));
        };
        words.read(text, 0, &mut each);
        words.end(&mut each);
        hits
    }

    #[test]
    fn a_rule_matches_its_classes_in_order_and_within_the_gap() {
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
    fn an_error_in_a_lexicon_has_its_line() {
        assert_eq!(Lexicon::read("\n= 1 x 0: @nothing").unwrap_err(), "line 2: there is no class `@nothing` yet");
    }
}
