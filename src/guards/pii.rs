//! Personal data with a recognisable form, and a checksum where there is one. Data without a form (names, postal addresses,
//! birthdays) is not searched for.

mod account;
mod address;
mod number;

use std::collections::BTreeMap;
use std::ops::Range;

use crate::normalised::Normalised;
use crate::runs::signs;

pub(crate) use number::CONTEXT_BYTES;

/// The kinds that can be named in `kinds`.
pub(crate) const KINDS: [&str; 7] = ["email", "phone", "iban", "credit-card", "us-ssn", "ipv4", "ipv6"];

/// A kind and its span in the text of the run.
pub(crate) type Match = (&'static str, Range<usize>);

/// Finds all kinds in `text[run]`; the text before the run is context.
pub(crate) fn find(text: &str, run: Range<usize>, found: &mut Vec<Match>) {
    let signs = signs::of(&text.as_bytes()[run.clone()]);
    let first = found.len();
    if signs & signs::FOREIGN != 0
        && let Some(normalised) = Normalised::new(text, &run)
    {
        kinds(&normalised.text, &normalised.run, signs::of(&normalised.text.as_bytes()[normalised.run.clone()]), found);
        normalised.whole(&mut found[first..]);
    } else {
        kinds(text, &run, signs, found);
    }
    remove_overlaps(found, first);
}

fn kinds(text: &str, run: &Range<usize>, signs: u8, found: &mut Vec<Match>) {
    let bytes = text.as_bytes();
    let count = |sign: fn(&u8) -> bool| bytes[run.clone()].iter().filter(|byte| sign(byte)).count();
    if signs & signs::AT != 0 {
        address::emails(bytes, run, found);
    }
    if signs & signs::COLON != 0 && count(|byte| *byte == b':') >= 2 {
        address::version_six(text, run, found);
    }
    if signs & signs::DIGIT != 0 && count(u8::is_ascii_digit) >= 4 {
        account::ibans(bytes, run, found);
        number::numbers(text, run, found);
    }
}

/// Removes overlaps: a later finding keeps the parts outside of the earlier ones.
pub(crate) fn remove_overlaps(found: &mut Vec<Match>, first: usize) {
    if found.len() < first + 2 {
        return;
    }
    // Disjoint spans by start, so that many findings in one run cost no more than sorting them.
    let mut disjoint: BTreeMap<usize, (&'static str, usize)> = BTreeMap::new();
    for (kind, span) in found.drain(first..) {
        let mut at = span.start;
        if let Some((_, (_, end))) = disjoint.range(..=at).next_back() {
            at = at.max(*end);
        }
        while at < span.end {
            let next = disjoint.range(at..span.end).next().map(|(start, (_, end))| (*start, *end));
            let (stop, after) = next.unwrap_or((span.end, span.end));
            if at < stop {
                disjoint.insert(at, (kind, stop));
            }
            at = after;
        }
    }
    found.extend(disjoint.into_iter().map(|(start, (kind, end))| (kind, start..end)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_numbers_are_found_in_all_notations() {
        for (text, kind) in [
            ("anna.berg＠mail.example.org", "email"),
            ("an\u{200b}na@mail.exam\u{ad}ple.org", "email"),
            ("４１１１ １１１１ １１１１ １１１１", "credit-card"),
            ("078\u{2011}05\u{2011}1120", "us-ssn"),
        ] {
            let mut found = Vec::new();
            find(text, 0..text.len(), &mut found);
            assert_eq!(found, [(kind, 0..text.len())], "{text}");
        }
    }

    #[test]
    fn overlapping_findings_are_split() {
        let mut found = vec![("a", 5..10), ("b", 0..7), ("c", 8..12), ("d", 6..9), ("e", 0..14)];
        remove_overlaps(&mut found, 0);
        assert_eq!(found, [("b", 0..5), ("a", 5..10), ("c", 10..12), ("e", 12..14)]);
    }
}
