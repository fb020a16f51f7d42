//! Secrets: keys with a form defined by their issuer, private keys, tokens, URLs with a password, and random values beside a
//! name such as `api_key`. Placeholders are no secrets.

mod assigned;
mod issuers;
mod random;
mod shaped;
mod table;

use std::ops::Range;

use crate::hidden::{decoded, is_encoded};
use crate::normalised::Normalised;
use crate::pii::{self, Match};
use crate::runs::signs;
use random::{is_placeholder, is_random};
use table::{KeyCharset, TOKENS, Token, may_begin};

pub(crate) const PRIVATE_KEY: &str = "private-key";
/// The shortest run that can contain a secret.
const MIN_RUN_BYTES: usize = 12;

/// The shortest key with a known prefix.
const MIN_KEY_BYTES: usize = 16;
/// The shortest key with a known middle part.
const MIN_SHAPED_BYTES: usize = 36;
/// The shortest encoded key.
const MIN_ENCODED_BYTES: usize = 24;

/// Finds the secrets in `text[run]`; the text before the run may contain the name of a value.
pub(crate) fn find(text: &str, run: Range<usize>, found: &mut Vec<Match>) {
    if run.len() < MIN_RUN_BYTES {
        return;
    }
    let first = found.len();
    if signs::of(&text.as_bytes()[run.clone()]) & signs::FOREIGN != 0
        && let Some(normalised) = Normalised::new(text, &run)
    {
        plain(&normalised.text, &normalised.run, found);
        encoded(normalised.text.as_bytes(), &normalised.run, found);
        normalised.whole(&mut found[first..]);
    } else {
        plain(text, &run, found);
        encoded(text.as_bytes(), &run, found);
    }
    pii::remove_overlaps(found, first);
}

/// Secrets in plain text.
fn plain(text: &str, run: &Range<usize>, found: &mut Vec<Match>) {
    let bytes = text.as_bytes();
    let signs = signs::of(&bytes[run.clone()]);
    if signs & signs::DASH != 0 {
        private_keys(text, run, found);
    }
    tokens(bytes, run, signs & signs::DIGIT != 0 && run.len() >= MIN_SHAPED_BYTES, found);
    if signs & signs::SLASH != 0 && signs & signs::COLON != 0 {
        addresses(text, run, found);
    }
    if signs & (signs::DIGIT | signs::EQUALS) != 0 {
        assigned::find(text, run, found);
    }
}

/// Secrets in base64, as in a Kubernetes Secret, or in hexadecimal digits.
fn encoded(bytes: &[u8], run: &Range<usize>, found: &mut Vec<Match>) {
    let mut at = run.start;
    while at + MIN_ENCODED_BYTES <= run.end {
        let end = at + bytes[at..run.end].iter().take_while(|byte| is_encoded(**byte)).count();
        // In `name=value` only the value is encoded.
        let text = end - bytes[at..end].iter().rev().take_while(|byte| **byte == b'=').count();
        let start = bytes[at..text].iter().rposition(|byte| *byte == b'=').map_or(at, |sign| at + sign + 1);
        if end - start >= MIN_ENCODED_BYTES
            && let Some(decoded) = decoded(&bytes[start..end])
        {
            let mut within = Vec::new();
            plain(&decoded, &(0..decoded.len()), &mut within);
            found.extend(within.first().map(|(kind, _)| (*kind, start..end)));
        }
        at = end.max(at + 1);
    }
}

/// Finds keys by prefix; with `shaped` also by their middle part.
fn tokens(bytes: &[u8], run: &Range<usize>, shaped: bool, found: &mut Vec<Match>) {
    let mut at = run.start;
    let mut fresh = true;
    // The end of the characters of a web token.
    let mut web = run.start;
    while at + MIN_KEY_BYTES <= run.end {
        let part = bytes[at].is_ascii_alphanumeric();
        let end = if part && fresh {
            token(bytes, at, run.end)
                .or_else(|| web_token(bytes, at, run.end, &mut web))
                .or_else(|| shaped.then(|| shaped::find(bytes, at, run.end)).flatten())
        } else {
            None
        };
        if let Some((kind, end)) = end {
            found.push((kind, at..end));
            at = end;
            // The text right after a key is read like the start of a word, as it is once the key is masked.
            fresh = true;
        } else {
            fresh = !part;
            at += 1;
        }
    }
}

/// Finds keys by their header; `guards::masked` masks the lines after it. Keys without a header are found by `shaped`.
fn private_keys(text: &str, run: &Range<usize>, found: &mut Vec<Match>) {
    const BEGIN: &[u8] = b"-----BEGIN ";
    const NAME: &[u8] = b"PRIVATE KEY";
    let all = &text.as_bytes()[run.clone()];
    let mut at = 0;
    while at + BEGIN.len() < all.len() {
        if all[at] != b'-' || !all[at..].starts_with(BEGIN) {
            at += 1;
            continue;
        }
        let rest = &all[at + BEGIN.len()..];
        let label = rest.iter().take(48).take_while(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || **byte == b' ').count();
        let key = rest[..label].windows(NAME.len()).position(|part| part == NAME);
        let Some(end) = key.map(|key| at + BEGIN.len() + key + NAME.len()) else {
            at += BEGIN.len();
            continue;
        };
        let end = end + all[end..].iter().take_while(|byte| **byte == b'-').count();
        // Words instead of a key, as in documentation.
        let start = &all[end..all.len().min(end + 12)];
        let told = start.contains(&b' ') && start.iter().all(|byte| byte.is_ascii_lowercase() || *byte == b' ');
        if !told {
            found.push((PRIVATE_KEY, run.start + at..run.start + end));
        }
        at = end;
    }
}

fn token(text: &[u8], at: usize, reach: usize) -> Option<(&'static str, usize)> {
    let rest = &text[at..reach];
    if !may_begin(rest) {
        return None;
    }
    let begins = |token: &&Token| token.prefix.as_bytes()[0] == rest[0] && rest.starts_with(token.prefix.as_bytes());
    TOKENS.iter().filter(begins).find_map(|token| {
        let body = &rest[token.prefix.len()..];
        let length = body.iter().take(token.most + 1).take_while(|byte| token.body.has(**byte)).count();
        let whole = (token.least..=token.most).contains(&length) && !is_placeholder(&body[..length]);
        (whole && distinct(&body[..length]) >= 5).then_some((token.kind, at + token.prefix.len() + length))
    })
}

fn distinct(body: &[u8]) -> u32 {
    body.iter().fold(0u128, |seen, byte| seen | 1 << (byte & 127)).count_ones()
}

/// A JSON web token: two JSON objects and a signature in base64, separated by dots.
fn web_token(text: &[u8], at: usize, reach: usize, end: &mut usize) -> Option<(&'static str, usize)> {
    if !text[at..reach].starts_with(b"eyJ") {
        return None;
    }
    let part = |from: usize| from + text[from..reach].iter().take_while(|byte| KeyCharset::Url.has(**byte)).count();
    if *end <= at {
        *end = part(at);
    }
    let head = *end;
    if head - at < 12 || head == reach || text[head] != b'.' || !text[head + 1..reach].starts_with(b"eyJ") {
        return None;
    }
    let claims = part(head + 1);
    if claims < head + 9 {
        return None;
    }
    // The claims are readable even without a signature.
    Some(("jwt", if claims < reach && text[claims] == b'.' { part(claims + 1) } else { claims }))
}

/// `scheme://user:password@host`.
fn addresses(text: &str, run: &Range<usize>, found: &mut Vec<Match>) {
    let all = &text[run.clone()];
    for (at, _) in all.match_indices("://") {
        let scheme = all[..at].bytes().rev().take_while(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte)).count();
        let rest = &all[at + 3..];
        let length = rest.bytes().take_while(|byte| byte.is_ascii_graphic() && !b"/\"'`<>\\?".contains(byte)).count();
        let Some(host) = rest[..length].rfind('@') else { continue };
        let Some(colon) = rest[..host].find(':') else { continue };
        let password = &rest.as_bytes()[colon + 1..host];
        let example = matches!(rest[host + 1..length].split(':').next(), Some("example.com" | "example.org" | "host" | "hostname"));
        let telling = !is_placeholder(password) && password.len() >= 3 && (!example || is_random(password));
        if scheme > 0 && host + 1 < length && telling {
            found.push(("url-password", run.start + at - scheme..run.start + at + 3 + length));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<&'static str> {
        let mut found = Vec::new();
        find(text, 0..text.len(), &mut found);
        found.into_iter().map(|(kind, _)| kind).collect()
    }

    /// Generated, so that scanners find no key in the source.
    fn body(length: usize) -> String {
        "q7Zk2Vd9XwLp4RtYb8NcAs6Mf1Hj3Gu5Ee0To".chars().cycle().take(length).collect()
    }

    #[test]
    fn keys_are_found_by_their_prefix() {
        for (text, kind) in [
            (format!("AKIA{}", "Q7ZK2VD9XWLP4RTY"), "aws-access-key"),
            (format!("use ghp_{} please", body(36)), "github-token"),
            (format!("\"sk-ant-api03-{}\"", body(93)), "anthropic-key"),
            (format!("xoxb-259349226247-403849123456-{}", body(24)), "slack-token"),
            (format!("-----BEGIN {}PRIVATE KEY-----", "RSA "), "private-key"),
            (format!("postgres://app:{}@db:5432/x", body(12)), "url-password"),
            (format!("eyJ{}.eyJ{}.{}", body(20), body(20), body(30)), "jwt"),
            (format!("api_key = \"{}\"", body(24)), "assigned-secret"),
            (format!("Authorization: Bearer {}", body(30)), "assigned-secret"),
        ] {
            assert_eq!(kinds(&text), [kind], "{text}");
        }
    }

    #[test]
    fn a_value_is_found_by_an_issuers_name_or_the_line_before() {
        for text in [
            format!("DATADOG = {}", body(32)),
            format!("cloudflare zone access => '{}'", body(37)),
            format!("curl(discord, \"{}\")", body(32)),
            format!("- name: API_KEY\n  value: {}", body(32)),
            format!("<add key=\"Password\" value=\"{}\"/>", body(20)),
            format!("Here is your token:\n{}", body(32)),
            format!("twilio\t: {}", body(32)),
        ] {
            assert_eq!(find_by_runs(&text), ["assigned-secret"], "{text}");
        }
    }

    /// As `Guards::check` does: run after run.
    fn find_by_runs(text: &str) -> Vec<&'static str> {
        let (mut splitter, mut at, mut found) = (crate::runs::RunSplitter::default(), 0, Vec::new());
        while at < text.len() {
            let end = splitter.end(&text[at..]).map_or(text.len(), |end| at + end);
            find(text, at..end, &mut found);
            at = end;
        }
        found.into_iter().map(|(kind, _)| kind).collect()
    }

    #[test]
    fn keys_without_a_prefix_are_found_by_their_middle_or_end() {
        for (text, kind) in [
            (format!("9580715123:AA{}", body(33)), "telegram-token"),
            (format!("q7Zk2Vd9XwLp4R.atlasv1.{}", body(64)), "hashicorp-token"),
            (format!("q7~8Q~{}", body(34)), "azure-secret"),
            (format!("{}-us12", "0f3c9a5e71b2d846".repeat(2)), "mailchimp-key"),
            (format!("MIIEowIBAAKCAQEA{}", body(48)), "private-key"),
        ] {
            assert_eq!(find_by_runs(&text), [kind], "{text}");
        }
    }

    #[test]
    fn encoded_and_disguised_keys_are_found() {
        use base64::Engine;
        let key = format!("ghp_{}", body(36));
        let wide: String = key.chars().filter_map(|c| char::from_u32(u32::from(c) + 0xfee0)).collect();
        let apart: String = key.chars().flat_map(|c| [c, '\u{200b}']).collect();
        for text in [
            wide,
            apart,
            key.replace('p', "р").replace('c', "с"),
            key.replacen('_', "\u{2060}_\u{ad}", 1),
            format!("see {}", base64::engine::general_purpose::STANDARD.encode(&key)),
            format!("x={}", base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(&key)),
            key.bytes().flat_map(|byte| [byte >> 4, byte & 15]).filter_map(|digit| char::from_digit(digit.into(), 16)).collect(),
        ] {
            assert_eq!(find_by_runs(&text), ["github-token"], "{text}");
        }
    }

    #[test]
    fn hashes_and_names_beside_an_issuer_are_no_secrets() {
        for text in [
            "discord: my-server-name-2024-v3",
            "Join Discord, it is free: https://discord.gg/abcdef123456789012",
            "firebase commit: 3f786850e387550fdab836ed7e6dc881de23001b",
            "Datadog image digest = 3f786850e387550fdab836ed7e6dc881de23001b",
            "twitter_user_id = a8f3c9e1b2d4f6a7c8e9",
            "The secret of a good soup: kitchen-tested-recipes-2024",
            "Here is the commit:\n3f786850e387550fdab836ed7e6dc881de23001b",
            "Your password:\nmust have twelve signs",
            "token:\n  name: x",
            "dGhpcyBpcyBqdXN0IGEgaGFybWxlc3Mgc2VudGVuY2Ugd2l0aG91dCBhIGtleQ==",
        ] {
            assert!(find_by_runs(text).is_empty(), "{text}: {:?}", find_by_runs(text));
        }
    }

    #[test]
    fn placeholders_names_and_hashes_are_no_secrets() {
        for text in [
            "api_key = \"YOUR_API_KEY_GOES_HERE_PLEASE\"",
            "api_key = os.environ[\"OPENAI_API_KEY\"]",
            "ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
            "commit 3f786850e387550fdab836ed7e6dc881de23001b",
            "token: Optional[str] = None",
            "postgres://user:password@localhost/db",
            "postgres://app:${PASSWORD}@db/x",
            "key=lambda row: row.created_at_timestamp",
            "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
            "id 123e4567-e89b-12d3-a456-426614174000",
        ] {
            assert!(kinds(text).is_empty(), "{text}: {:?}", kinds(text));
        }
    }
}
