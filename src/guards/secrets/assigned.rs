//! Values that are given to a name: `api_key = "…"`, `password: …`, `<token>…`, `Authorization: Bearer …`. The name must
//! speak of a secret, and the value must look like one.

use std::ops::Range;

use super::random::{is_placeholder, is_random};
use crate::pii::Found;

/// What a secret's name holds, in lower case and without `-`, `_` and `.`.
const SECRETS: &[&str] = &[
    "apikey",
    "secret",
    "token",
    "accesskey",
    "privatekey",
    "authkey",
    "credential",
    "clientsecret",
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
];
const PASSWORDS: &[&str] = &["password", "passwd", "pwd", "passwort"];
/// Names that speak of a secret and do not hold it.
const NOT: &[&str] = &[
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
];
const NAME: usize = 64;

pub(super) fn find(text: &str, run: &Range<usize>, found: &mut Vec<Found>) {
    let bytes = text.as_bytes();
    let mut at = run.start;
    while at < run.end {
        if !matches!(bytes[at], b'=' | b':' | b'>') && !is_bearer(bytes, at) {
            at += 1;
            continue;
        }
        let name = name(bytes, run.start, at);
        let Some(value) = value(bytes, at, run.end) else {
            at += 1;
            continue;
        };
        if speaks(&name, &bytes[value.clone()], is_quoted(bytes, value.start)) {
            found.push(("assigned-secret", value.clone()));
            at = value.end;
        } else {
            at += 1;
        }
    }
}

/// The space after `Bearer`.
fn is_bearer(text: &[u8], at: usize) -> bool {
    text[at] == b' ' && at >= 6 && text[at - 6..at].eq_ignore_ascii_case(b"bearer")
}

/// The name before the sign, in lower case and without what parts its words.
fn name(text: &[u8], from: usize, at: usize) -> String {
    let from = from.max(at.saturating_sub(NAME));
    let between = |byte: &&u8| matches!(byte, b' ' | b'\t' | b'"' | b'\'' | b'`' | b']' | b'|' | b':' | b'=' | b'\\');
    let end = at - text[from..at].iter().rev().take_while(between).count();
    let part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    let start = end - text[from..end].iter().rev().take_while(|byte| part(byte)).count();
    // `[API_KEY]: …` is what is left of something masked, not a name.
    if start > from && text[start - 1] == b'[' && text[end] == b']' {
        return String::new();
    }
    text[start..end].iter().filter(|byte| byte.is_ascii_alphanumeric()).map(|byte| char::from(byte.to_ascii_lowercase())).collect()
}

/// Where the value after a sign lies: what is within quotes, or up to a space.
fn value(text: &[u8], sign: usize, reach: usize) -> Option<Range<usize>> {
    let lead = |byte: &&u8| matches!(byte, b' ' | b'\t' | b'"' | b'\'' | b'`' | b'=' | b'>' | b'|' | b'\\' | b':');
    let start = sign + 1 + text[sign + 1..reach].iter().take_while(lead).count();
    let start = if reach - start > 7 && text[start..start + 7].eq_ignore_ascii_case(b"bearer ") { start + 7 } else { start };
    let part = |byte: &&u8| {
        byte.is_ascii_graphic()
            && !matches!(byte, b'"' | b'\'' | b'`' | b',' | b';' | b'<' | b'>' | b'\\' | b'(' | b')' | b'[' | b']' | b'{' | b'}' | b'&')
    };
    let length = text[start..reach].iter().take_while(part).count();
    // A call, an index or a template is code, not a value.
    let code = text.get(start + length).is_some_and(|byte| matches!(byte, b'(' | b'[' | b'{'));
    (length >= 6 && !code).then_some(start..start + length)
}

fn is_quoted(text: &[u8], start: usize) -> bool {
    start > 0 && matches!(text[start - 1], b'"' | b'\'' | b'`' | b'>')
}

fn speaks(name: &str, value: &[u8], quoted: bool) -> bool {
    let is = |words: &[&str]| words.iter().any(|word| name.contains(word));
    if is_placeholder(value) || is(NOT) || value.windows(3).any(|part| part == b"://") {
        return false;
    }
    let word = value.iter().all(|byte| byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'.' | b'-'));
    if is(PASSWORDS) {
        let strange = value.iter().any(|byte| !byte.is_ascii_alphanumeric() && !matches!(byte, b'_' | b'.' | b'-'));
        let digit = value.iter().any(u8::is_ascii_digit);
        return !word && (value.len() >= 6 && digit || quoted && strange && value.len() >= 8);
    }
    let key = is(SECRETS) || name.ends_with("key") || name.ends_with("auth");
    key && !word && value.len() >= 16 && is_random(value)
}
