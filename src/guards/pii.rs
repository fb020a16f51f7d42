//! Personal data: what has a form that can be told from other text, and a checksum where there is one. What only
//! its meaning makes personal (names, addresses, birthdays) is not looked for.

mod account;
mod address;
mod number;

use std::collections::BTreeMap;
use std::ops::Range;

use crate::bare::Bare;
use crate::runs::signs;

pub(crate) use number::CONTEXT;

/// The kinds that can be named in `kinds`.
pub(crate) const KINDS: [&str; 7] = ["email", "phone", "iban", "credit-card", "us-ssn", "ipv4", "ipv6"];

/// Something found in a run, in bytes of the text that the run lies in.
pub(crate) type Found = (&'static str, Range<usize>);

/// Finds what of the kinds there is in `text[run]`; the text before the run serves as context.
pub(crate) fn find(text: &str, run: Range<usize>, found: &mut Vec<Found>) {
    let signs = signs::of(&text.as_bytes()[run.clone()]);
    let first = found.len();
    if signs & signs::FOREIGN != 0
        && let Some(bare) = Bare::new(text, &run)
    {
        kinds(&bare.text, &bare.run, signs::of(&bare.text.as_bytes()[bare.run.clone()]), found);
        bare.whole(&mut found[first..]);
    } else {
        kinds(text, &run, signs, found);
    }
    part(found, first);
}

fn kinds(text: &str, run: &Range<usize>, signs: u8, found: &mut Vec<Found>) {
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

/// Of findings that overlap, the later one keeps what the earlier ones do not have: it is no less private.
pub(crate) fn part(found: &mut Vec<Found>, first: usize) {
    if found.len() < first + 2 {
        return;
    }
    // In the order of their places, parted by their ends: many findings in one run cost no more than sorting them.
    let mut apart: BTreeMap<usize, (&'static str, usize)> = BTreeMap::new();
    for (kind, span) in found.drain(first..) {
        let mut at = span.start;
        if let Some((_, (_, end))) = apart.range(..=at).next_back() {
            at = at.max(*end);
        }
        while at < span.end {
            let next = apart.range(at..span.end).next().map(|(start, (_, end))| (*start, *end));
            let (stop, after) = next.unwrap_or((span.end, span.end));
            if at < stop {
                apart.insert(at, (kind, stop));
            }
            at = after;
        }
    }
    found.extend(apart.into_iter().map(|(start, (kind, end))| (kind, start..end)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_numbers_are_found_however_they_are_written() {
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
    fn overlapping_findings_are_parted() {
        let mut found = vec![("a", 5..10), ("b", 0..7), ("c", 8..12), ("d", 6..9), ("e", 0..14)];
        part(&mut found, 0);
        assert_eq!(found, [("b", 0..5), ("a", 5..10), ("c", 10..12), ("e", 12..14)]);
    }
}
