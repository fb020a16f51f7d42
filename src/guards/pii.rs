//! Personal data: what has a form that can be told from other text, and a checksum where there is one. What only
//! its meaning makes personal (names, addresses, birthdays) is not looked for.

mod account;
mod address;
mod number;

use std::ops::Range;

pub(crate) use number::CONTEXT;

/// The kinds that can be named in `kinds`.
pub(crate) const KINDS: [&str; 7] = ["email", "phone", "iban", "credit-card", "us-ssn", "ipv4", "ipv6"];

/// Something found in a run, in bytes of the text that the run lies in.
pub(crate) type Found = (&'static str, Range<usize>);

/// Finds what of the kinds there is in `text[run]`; the text before the run serves as context.
pub(crate) fn find(text: &str, run: Range<usize>, found: &mut Vec<Found>) {
    let bytes = text.as_bytes();
    let (mut digits, mut colons, mut at) = (0, 0, false);
    for byte in &bytes[run.clone()] {
        digits += usize::from(byte.is_ascii_digit());
        colons += usize::from(*byte == b':');
        at |= *byte == b'@';
    }
    let first = found.len();
    if at {
        address::emails(bytes, &run, found);
    }
    if colons >= 2 {
        address::version_six(text, &run, found);
    }
    if digits >= 4 {
        account::ibans(bytes, &run, found);
        number::numbers(text, &run, found);
    }
    part(found, first);
}

/// Of findings that overlap, the later one keeps what the earlier ones do not have: it is no less private.
pub(crate) fn part(found: &mut Vec<Found>, first: usize) {
    let mut apart: Vec<Found> = Vec::new();
    for (kind, span) in found.drain(first..) {
        let mut parts = vec![span];
        for (_, other) in &apart {
            let split = |part: Range<usize>| [part.start..part.end.min(other.start), part.start.max(other.end)..part.end];
            parts = parts.into_iter().flat_map(split).filter(|part| part.start < part.end).collect();
        }
        apart.extend(parts.into_iter().map(|part| (kind, part)));
    }
    found.extend(apart);
}
