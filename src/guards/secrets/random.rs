//! Tells a random value from a word, a name or a placeholder.

use crate::needles::Needles;

/// Parts of values that stand for a secret and are none.
const STANDINS: Needles = Needles::new(&[
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

/// Words that stand for a password in documentation.
const WORDS: &[&str] = &[
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
    let word = WORDS.iter().any(|word| word.as_bytes().eq_ignore_ascii_case(value));
    same || word || matches!(value[0], b'$' | b'{') || STANDINS.within(value)
}

/// Whether a value looks drawn by chance: digits among letters, many changes between them, and no small alphabet.
pub(super) fn is_random(value: &[u8]) -> bool {
    let digits = value.iter().filter(|byte| byte.is_ascii_digit()).count();
    let letters = value.iter().filter(|byte| byte.is_ascii_alphabetic()).count();
    let lower = value.iter().filter(|byte| byte.is_ascii_lowercase()).count();
    let mixed = lower > 0 && lower < letters;
    // A version or a date has digits too, but only in one place.
    let changes = value.windows(2).filter(|pair| class(pair[0]) != class(pair[1])).count();
    (digits >= 2 || (mixed && changes * 3 > value.len()))
        && letters >= 2
        && changes >= 4
        && entropy(value) >= if value.len() < 20 { 2.8 } else { 3.2 }
}

/// Whether a value looks drawn by chance through and through: names and versions have few changes or few digits.
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

/// Bits per byte, after Shannon.
fn entropy(value: &[u8]) -> f64 {
    let mut counts = [0u16; 256];
    for byte in value {
        counts[usize::from(*byte)] = counts[usize::from(*byte)].saturating_add(1);
    }
    let length = f64::from(u32::try_from(value.len()).unwrap_or(u32::MAX));
    counts.iter().filter(|count| **count > 0).map(|count| f64::from(*count) / length).map(|share| -share * share.log2()).sum()
}
