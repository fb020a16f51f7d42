//! Distinguishes random values from words, names and placeholders.

use crate::needles::Needles;

/// Parts of placeholders.
const PLACEHOLDERS: Needles = Needles::new(&[
    "example",
    "placeholder",
    "your",
    "changeme",
    "change_me",
    "change-me",
    "replace",
    "redacted",
    "masked",
    "dummy",
    "sample",
    "xxxx",
    "****",
    "....",
    "${",
    "{{",
    "$(",
    "#{",
    "%(",
    "<",
    "1234567890",
    "abcdefgh",
    "test_key",
    "testkey",
    "fake",
    "none",
    "null",
    "undefined",
    "secretkey",
    "env:",
    "insert_",
]);

/// Placeholders of passwords in documentation.
const PLACEHOLDER_PASSWORDS: &[&str] = &[
    "password",
    "passwd",
    "pass",
    "pwd",
    "secret",
    "token",
    "user",
    "username",
    "root",
    "admin",
    "guest",
    "test",
    "key",
    "postgres",
    "mysecret",
    "mypassword",
];

pub(super) fn is_placeholder(value: &[u8]) -> bool {
    let same = value.first().is_none_or(|first| value.iter().all(|byte| byte == first));
    let word = PLACEHOLDER_PASSWORDS.iter().any(|word| word.as_bytes().eq_ignore_ascii_case(value));
    same || word || matches!(value[0], b'$' | b'{') || PLACEHOLDERS.within(value)
}

/// Whether a value looks random: digits among letters, many changes between them, and high entropy.
pub(super) fn is_random(value: &[u8]) -> bool {
    let digits = value.iter().filter(|byte| byte.is_ascii_digit()).count();
    let letters = value.iter().filter(|byte| byte.is_ascii_alphabetic()).count();
    let lower = value.iter().filter(|byte| byte.is_ascii_lowercase()).count();
    let mixed = lower > 0 && lower < letters;
    // Versions and dates have their digits together.
    let changes = value.windows(2).filter(|pair| class(pair[0]) != class(pair[1])).count();
    (digits >= 2 || (mixed && changes * 3 > value.len()))
        && letters >= 2
        && changes >= 4
        && entropy(value) >= if value.len() < 20 { 2.8 } else { 3.2 }
}

/// Whether a value looks random throughout: names and versions have few changes or few digits.
pub(super) fn is_drawn(value: &[u8]) -> bool {
    let plain: Vec<u8> = value.iter().copied().filter(u8::is_ascii_alphanumeric).collect();
    let digits = plain.iter().filter(|byte| byte.is_ascii_digit()).count();
    let changes = plain.windows(2).filter(|pair| class(pair[0]) != class(pair[1])).count();
    is_random(value) && plain.len() >= 15 && digits >= 3 && changes * 4 > plain.len()
}

fn class(byte: u8) -> u8 {
    match byte {
        b'0'..=b'9' => 0,
        b'a'..=b'z' => 1,
        b'A'..=b'Z' => 2,
        _ => 3,
    }
}

/// The Shannon entropy, in bits per byte.
fn entropy(value: &[u8]) -> f64 {
    let mut counts = [0u16; 256];
    for byte in value {
        counts[usize::from(*byte)] = counts[usize::from(*byte)].saturating_add(1);
    }
    let length = f64::from(u32::try_from(value.len()).unwrap_or(u32::MAX));
    counts.iter().filter(|count| **count > 0).map(|count| f64::from(*count) / length).map(|share| -share * share.log2()).sum()
}
