//! Numbers of groups of digits: payment cards, social security numbers, IPv4 addresses, telephone numbers.

use std::ops::Range;

use super::Match;
use crate::needles::Needles;

/// The most groups of one number.
const MAX_GROUPS: usize = 9;
/// The bytes before a number in which a word such as `phone` counts.
pub(crate) const CONTEXT_BYTES: usize = 48;

const CARD_WORDS: Needles = Needles::new(&["card", "visa", "maestro", "cc ", "karte", "carte", "tarjeta"]);
const PHONE_WORDS: Needles = Needles::new(&[
    "phone",
    "call",
    "tel:",
    "tel.",
    "telefon",
    "mobile",
    "cell",
    "fax",
    "sms",
    "whatsapp",
    "dial",
    "movil",
    "handy",
    "reach me",
    "contact number",
    "answering at",
    "registered",
    "text me",
    "my number",
]);

struct Groups<'a> {
    text: &'a str,
    groups: Vec<Range<usize>>,
}

pub(super) fn numbers(text: &str, run: &Range<usize>, found: &mut Vec<Match>) {
    let groups = Groups { text, groups: groups(text.as_bytes(), run) };
    let mut first = 0;
    while first < groups.groups.len() {
        let last = (first..groups.reach(first, run)).rev().find_map(|last| Some((last, groups.kind(first, last, run)?)));
        match last {
            Some((last, (kind, span))) => {
                found.push((kind, span));
                first = last + 1;
            }
            None => first += 1,
        }
    }
}

fn groups(text: &[u8], run: &Range<usize>) -> Vec<Range<usize>> {
    let mut groups = Vec::new();
    let mut at = run.start;
    while at < run.end {
        let length = text[at..run.end].iter().take_while(|byte| byte.is_ascii_digit()).count();
        if length > 0 {
            groups.push(at..at + length);
        }
        at += length.max(1);
    }
    groups
}

impl Groups<'_> {
    /// The end of the groups that may form one number with the first.
    fn reach(&self, first: usize, run: &Range<usize>) -> usize {
        let bytes = self.text.as_bytes();
        let start = self.groups[first].start;
        if start > run.start && is_name(bytes[start - 1]) {
            return first;
        }
        let near = self.groups[first..].windows(2).take(MAX_GROUPS - 1).take_while(|pair| {
            let gap = &bytes[pair[0].end..pair[1].start];
            gap.len() <= 9 && gap.iter().all(|byte| matches!(byte, b' ' | b'.' | b'-' | b'/' | b'(' | b')' | 0x80..))
        });
        first + 1 + near.count()
    }

    /// The kind and span of the number in the groups from `first` to `last`.
    fn kind(&self, first: usize, last: usize, run: &Range<usize>) -> Option<Match> {
        let bytes = self.text.as_bytes();
        let groups = &self.groups[first..=last];
        let (start, end) = (groups[0].start, groups[groups.len() - 1].end);
        let digits: usize = groups.iter().map(Range::len).sum();
        if !(7..=19).contains(&digits) && groups.len() != 4 {
            return None;
        }
        let before = (start > run.start).then(|| bytes[start - 1]);
        let after = bytes.get(end).copied();
        if before.is_some_and(is_name) || (after.is_some_and(is_name) && after != Some(b'x')) {
            return None;
        }
        let gaps: Vec<&str> = groups.windows(2).map(|pair| &self.text[pair[0].end..pair[1].start]).collect();
        if self.is_ipv4(groups, &gaps) {
            let open = before != Some(b'.') && !(after == Some(b'.') && bytes.get(end + 1).is_some_and(u8::is_ascii_digit));
            return (open && last == first + 3).then_some(("ipv4", start..end));
        }
        // Excludes decimal numbers, paths and parts of longer numbers.
        if matches!(before, Some(b'.' | b'/' | b'$' | b'=' | b'#')) && gaps.is_empty() && digits < 13 {
            return None;
        }
        let all = || groups.iter().flat_map(|group| bytes[group.clone()].iter().map(|digit| digit - b'0'));
        let uniform = gaps.iter().all(|gap| *gap == gaps[0] && matches!(*gap, " " | "-"));
        if uniform && (12..=19).contains(&digits) {
            let digits: Vec<u8> = all().collect();
            if is_luhn(&digits) && (is_issued(&digits) || (is_maestro(&digits) && self.is_called(start, &CARD_WORDS))) {
                return Some(("credit-card", start..end));
            }
        }
        let lengths: Vec<usize> = groups.iter().map(Range::len).collect();
        if lengths == [3, 2, 4] && gaps.iter().all(|gap| *gap == "-") && self.is_social(groups) {
            return Some(("us-ssn", start..end));
        }
        self.phone(&lengths, &gaps, start..end, run)
    }

    fn is_ipv4(&self, groups: &[Range<usize>], gaps: &[&str]) -> bool {
        if groups.len() != 4 || gaps.iter().any(|gap| *gap != ".") {
            return false;
        }
        let parts: Vec<u16> =
            groups.iter().filter(|group| group.len() <= 3).filter_map(|group| self.text[group.clone()].parse().ok()).collect();
        // Private, local and reserved addresses are not personal data.
        let public = |parts: &[u16]| match parts {
            [0 | 10 | 127 | 224..=255, ..] | [192, 168, ..] | [169, 254, ..] => false,
            [172, second, ..] => !(16..=31).contains(second),
            _ => true,
        };
        parts.len() == 4 && parts.iter().all(|part| *part <= 255) && public(&parts)
    }

    fn is_social(&self, groups: &[Range<usize>]) -> bool {
        let [area, group, serial] = groups else { return false };
        let area = &self.text[area.clone()];
        area != "000"
            && area != "666"
            && !area.starts_with('9')
            && &self.text[group.clone()] != "00"
            && &self.text[serial.clone()] != "0000"
    }

    fn phone(&self, lengths: &[usize], gaps: &[&str], span: Range<usize>, run: &Range<usize>) -> Option<Match> {
        let bytes = self.text.as_bytes();
        let digits: usize = lengths.iter().sum();
        let open = |gap: &&str| {
            (1..=3).contains(&gap.chars().count())
                && gap.chars().all(|c| matches!(c, ' ' | '.' | '-' | '/' | '(' | ')' | '\u{a0}' | '\u{202f}'))
        };
        if !(7..=15).contains(&digits) || !gaps.iter().all(open) {
            return None;
        }
        let mut start = span.start;
        let lead = |at: usize| (at > run.start).then(|| bytes[at - 1]);
        if lead(start) == Some(b'(') {
            start -= 1;
        }
        let international = lead(start) == Some(b'+');
        if international {
            start -= 1;
        }
        let end = self.extension(span.end, run.end);
        let first = bytes[span.start];
        let date = matches!(lengths, [4, 2, 2, ..] | [1 | 2, 2, 4] | [2, 1, 4]);
        let american = match lengths {
            [3, 3, 4] => (b'2'..=b'9').contains(&first) || start < span.start,
            [1, 3, 3, 4] => first == b'1',
            _ => false,
        };
        let national = first == b'0' && lengths.len() >= 2 && (9..=14).contains(&digits) && lengths.iter().all(|length| *length >= 2);
        let sure = (international && digits >= 8) || american || national || (!date && self.is_called(start, &PHONE_WORDS));
        sure.then_some(("phone", start..end))
    }

    /// `x123` after a number.
    fn extension(&self, end: usize, reach: usize) -> usize {
        let bytes = self.text.as_bytes();
        if end < reach && bytes[end] == b'x' {
            let digits = bytes[end + 1..reach].iter().take_while(|byte| byte.is_ascii_digit()).count();
            if (1..=6).contains(&digits) {
                return end + 1 + digits;
            }
        }
        end
    }

    /// Whether one of the words precedes the number.
    fn is_called(&self, start: usize, words: &Needles) -> bool {
        let before = &self.text.as_bytes()[start.saturating_sub(CONTEXT_BYTES)..start];
        // The name of a masked kind does not count; otherwise a masked text would be masked further.
        let near = before.rsplit(|byte| *byte == b']').next().unwrap_or_default();
        words.within(near)
    }
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Whether the first digits belong to a card issuer with numbers of this length.
fn is_issued(digits: &[u8]) -> bool {
    match head(digits) {
        3000..=3059 | 3600..=3699 | 3800..=3999 => (14..=19).contains(&digits.len()),
        3400..=3499 | 3700..=3799 | 1800 | 2131 => digits.len() == 15,
        4000..=4999 => matches!(digits.len(), 13 | 16 | 19),
        2221..=2720 | 5100..=5599 => digits.len() == 16,
        3500..=3599 | 6000..=6999 | 8100..=8199 => (16..=19).contains(&digits.len()),
        _ => false,
    }
}

/// Maestro numbers have any length and common first digits.
fn is_maestro(digits: &[u8]) -> bool {
    matches!(head(digits), 5000..=5099 | 5600..=5899 | 6000..=6999)
}

fn head(digits: &[u8]) -> u16 {
    digits.iter().take(4).fold(0, |head, digit| head * 10 + u16::from(*digit))
}

fn is_luhn(digits: &[u8]) -> bool {
    let sum = digits.iter().rev().enumerate().fold(0u32, |sum, (place, digit)| {
        let digit = u32::from(*digit) * if place % 2 == 1 { 2 } else { 1 };
        sum + if digit > 9 { digit - 9 } else { digit }
    });
    sum.is_multiple_of(10)
}
