//! International bank account numbers: length by country, and the checksum of ISO 7064.

use std::ops::Range;

use super::Match;

/// Countries by the length of their IBANs, from the SWIFT registry.
const IBAN_LENGTHS: &[(usize, &str)] = &[
    (15, "NO"),
    (16, "BE"),
    (18, "DK FI FO GL NL SD FK"),
    (19, "MK SI"),
    (20, "AT BA EE KZ LT LU XK MN"),
    (21, "CH HR LI LV"),
    (22, "BG BH CR DE GB GE IE ME RS VA"),
    (23, "AE GI IL IQ TL OM SO"),
    (24, "AD CZ ES MD PK RO SA SE SK TN VG"),
    (25, "LY PT ST"),
    (26, "IS TR"),
    (27, "BI DJ FR GR IT MC MR SM"),
    (28, "AL AZ BY CY DO GT HU LB NI PL SV"),
    (29, "BR EG PS QA UA"),
    (30, "JO KW MU YE"),
    (31, "MT SC"),
    (32, "LC"),
    (33, "RU"),
];

pub(super) fn ibans(text: &[u8], run: &Range<usize>, found: &mut Vec<Match>) {
    let mut at = run.start;
    while at + 15 <= run.end {
        match iban(text, at, run.end) {
            Some(end) => {
                found.push(("iban", at..end));
                at = end;
            }
            None => at += 1,
        }
    }
}

/// The end of an account number that begins at `at`.
fn iban(text: &[u8], at: usize, reach: usize) -> Option<usize> {
    let head = &text[at..at + 4];
    let country = head[..2].iter().all(u8::is_ascii_uppercase) && head[2..].iter().all(u8::is_ascii_digit);
    if !country || (at > 0 && text[at - 1].is_ascii_alphanumeric()) {
        return None;
    }
    let name = std::str::from_utf8(&head[..2]).ok()?;
    let length = IBAN_LENGTHS.iter().find(|(_, names)| names.split(' ').any(|one| one == name))?.0;
    let mut all = Vec::with_capacity(length);
    let mut end = at;
    while all.len() < length && end < reach {
        match text[end] {
            byte if byte.is_ascii_uppercase() || byte.is_ascii_digit() => all.push(byte),
            b' ' | b'-' if all.len() % 4 == 0 && text[end - 1].is_ascii_alphanumeric() => {}
            _ => return None,
        }
        end += 1;
    }
    let alone = !text.get(end).is_some_and(u8::is_ascii_alphanumeric);
    (all.len() == length && alone && remainder(&all) == 1).then_some(end)
}

/// The number with its first four characters at the end and letters as two digits, modulo 97.
fn remainder(iban: &[u8]) -> u32 {
    iban[4..].iter().chain(&iban[..4]).fold(0, |rest, byte| match byte {
        b'0'..=b'9' => (rest * 10 + u32::from(byte - b'0')) % 97,
        _ => (rest * 100 + u32::from(byte - b'A') + 10) % 97,
    })
}
