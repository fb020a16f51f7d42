//! Values assigned to a name: `api_key = "…"`, `password: …`, `<token>…`, `Authorization: Bearer …`. The name must be that of
//! a secret or of an issuer of keys, and the value must look like one.

use std::ops::Range;

use super::issuers::ISSUERS;
use super::random::{is_drawn, is_placeholder, is_random};
use crate::needles::Needles;
use crate::pii::Match;

/// Parts of the names of secrets, without `-`, `_` and `.`.
const SECRET_NAMES: Needles = Needles::new(&[
    "apikey",
    "secret",
    "token",
    "accesskey",
    "privatekey",
    "authkey",
    "credential",
    "encryptionkey",
    "signingkey",
    "accountkey",
    "licensekey",
    "appkey",
    "applicationkey",
    "masterkey",
    "sharedkey",
    "bearer",
    "passphrase",
    "authorization",
    "webhook",
    "dictkey",
    "sessionkey",
    "apppassword",
    "consumerkey",
]);
const PASSWORD_NAMES: Needles = Needles::new(&["password", "passwd", "pwd", "passwort"]);
/// Names that contain one of these parts and are not those of secrets.
const EXCLUDED_NAMES: Needles = Needles::new(&[
    "tokens",
    "tokenizer",
    "tokenid",
    "secretname",
    "secretref",
    "keyname",
    "keyid",
    "publickey",
    "tokencount",
    "tokentype",
    "tokenurl",
    "tokenuri",
]);
/// Names beside an issuer's name whose values are hashes or ids.
const HASH_NAMES: Needles = Needles::new(&[
    "commit", "sha1", "sha2", "sha5", "hash", "digest", "checksum", "revision", "etag", "public", "publish", "uuid", "trace",
]);

/// The bytes before a separator in which a name is searched for.
const MAX_NAME_BYTES: usize = 48;
/// The most separators, quotes and spaces between a name and its value.
const MAX_SEPARATOR_BYTES: usize = 16;
/// The most that is examined of a value.
const MAX_VALUE_BYTES: usize = 256;

pub(super) fn find(text: &str, run: &Range<usize>, found: &mut Vec<Match>) {
    let bytes = text.as_bytes();
    let mut values = Values { text: bytes, reach: run.end, end: run.start };
    let mut at = run.start;
    if let Some(sign) = sign_before(bytes, run.start) {
        at = values.read(sign, run.start, found);
    }
    while at < run.end {
        at = if is_sign(bytes[at]) || is_bearer(bytes, at) { values.read(at, at + 1, found) } else { at + 1 };
    }
}

fn is_sign(byte: u8) -> bool {
    matches!(byte, b'=' | b':' | b'>' | b',' | b'|')
}

/// The separator before a run: one at the end of the previous line, or a comma.
fn sign_before(text: &[u8], start: usize) -> Option<usize> {
    let between = |byte: &&u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | b'"' | b'\'' | b'`' | b'=');
    let from = start.saturating_sub(MAX_SEPARATOR_BYTES);
    let end = start - text[from..start].iter().rev().take_while(between).count();
    let last = end.checked_sub(1)?;
    if text[last] == b',' {
        return Some(last);
    }
    // An equals sign may be a part of `:=`.
    let sign = (last..start).find(|at| matches!(text[*at], b'=' | b':' | b'>'));
    sign.filter(|_| text[end..start].contains(&b'\n'))
}

/// The space after `Bearer`.
fn is_bearer(text: &[u8], at: usize) -> bool {
    text[at] == b' ' && at >= 6 && text[at - 6..at].eq_ignore_ascii_case(b"bearer")
}

struct Values<'a> {
    text: &'a [u8],
    reach: usize,
    /// The end of the last value: separators within it have the same end, which saves a scan.
    end: usize,
}

impl Values<'_> {
    /// Reads the value after a separator, from `from` on; returns the position to continue at.
    fn read(&mut self, sign: usize, from: usize, found: &mut Vec<Match>) -> usize {
        let start = self.start(self.text[sign], from);
        if self.end <= start {
            self.end = start + self.text[start..self.reach].iter().take_while(|byte| is_part(**byte)).count();
        }
        // Calls, indexes and templates are code, not values.
        let code = self.text.get(self.end).is_some_and(|byte| matches!(byte, b'(' | b'[' | b'{'));
        let value = &self.text[start..self.end];
        if value.len() < 6 || code || !is_secret_pair(self.text, sign, value, is_quoted(self.text, start)) {
            return start.max(from);
        }
        found.push(("assigned-secret", start..self.end));
        self.end
    }

    fn start(&self, sign: u8, from: usize) -> usize {
        let lead = |byte: &&u8| {
            matches!(byte, b' ' | b'\t' | b'"' | b'\'' | b'`' | b'=' | b'\\') || (sign != b',' && matches!(byte, b'>' | b'|' | b':'))
        };
        let from = from.min(self.reach);
        let start = from + self.text[from..self.reach].iter().take_while(lead).count();
        let bearer = self.text[start..self.reach].get(..7).is_some_and(|word| word.eq_ignore_ascii_case(b"bearer "));
        if bearer { start + 7 } else { start }
    }
}

fn is_part(byte: u8) -> bool {
    byte.is_ascii_graphic()
        && !matches!(byte, b'"' | b'\'' | b'`' | b',' | b';' | b'<' | b'>' | b'\\' | b'(' | b')' | b'[' | b']' | b'{' | b'}' | b'&')
}

fn is_quoted(text: &[u8], start: usize) -> bool {
    start > 0 && matches!(text[start - 1], b'"' | b'\'' | b'`' | b'>')
}

/// The word before a separator, and all words before it that may belong to the name, both without delimiters.
fn names(text: &[u8], at: usize) -> (Vec<u8>, Vec<u8>) {
    let from = at.saturating_sub(MAX_NAME_BYTES);
    let between = |byte: &&u8| {
        matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | b'"' | b'\'' | b'`' | b']' | b'|' | b':' | b'=' | b'\\' | b'?' | b',' | b'>')
    };
    let end = at - text[from..at].iter().rev().take_while(between).count();
    let part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    let start = end - text[from..end].iter().rev().take_while(|byte| part(byte)).count();
    // `[API_KEY]: …` is masked text, not a name.
    if start > 0 && text[start - 1] == b'[' && text[end] == b']' {
        return (Vec::new(), Vec::new());
    }
    let far = start - text[from..start].iter().rev().take_while(|byte| part(byte) || matches!(byte, b' ' | b'\t')).count();
    let letters = |part: &[u8]| part.iter().filter(|byte| byte.is_ascii_alphanumeric()).map(u8::to_ascii_lowercase).collect::<Vec<u8>>();
    let near = letters(&text[start..end]);
    if near == b"value" {
        // `name: API_KEY` followed by `value: …`, or both as attributes.
        let mut before = start;
        while before > from && !part(&text[before - 1]) {
            before -= 1;
        }
        let start = before - text[from..before].iter().rev().take_while(|byte| part(byte)).count();
        return (letters(&text[start..before]), Vec::new());
    }
    (near, letters(&text[far..end]))
}

/// Whether the name before the separator and the value after it are those of a secret.
fn is_secret_pair(text: &[u8], sign: usize, value: &[u8], quoted: bool) -> bool {
    let value = &value[..value.len().min(MAX_VALUE_BYTES)];
    let word = value.iter().all(|byte| byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'.' | b'-'));
    let digit = value.iter().any(u8::is_ascii_digit);
    if word || (value.len() < 16 && !digit && !quoted) {
        return false;
    }
    let (near, far) = names(text, sign);
    if EXCLUDED_NAMES.within(&near) || value.windows(3).any(|part| part == b"://") {
        return false;
    }
    let comma = text[sign] == b',';
    if !comma && PASSWORD_NAMES.within(&near) {
        let strange = value.iter().any(|byte| !byte.is_ascii_alphanumeric() && !matches!(byte, b'_' | b'.' | b'-'));
        return (digit || quoted && strange && value.len() >= 8) && !is_placeholder(value);
    }
    if value.len() < 16 {
        return false;
    }
    if !comma && (SECRET_NAMES.within(&near) || near.ends_with(b"key") || near.ends_with(b"auth")) {
        return is_random(value) && !is_placeholder(value);
    }
    let named = ISSUERS.within(&far) || SECRET_NAMES.within(&far);
    named && !near.ends_with(b"id") && !HASH_NAMES.within(&far) && is_drawn(value) && !is_placeholder(value)
}
