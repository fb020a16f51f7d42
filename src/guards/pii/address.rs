//! E-mail and IPv6 addresses.

use std::net::Ipv6Addr;
use std::ops::Range;

use super::Match;

const MAX_LOCAL_BYTES: usize = 64;
const MAX_DOMAIN_BYTES: usize = 253;

pub(super) fn emails(text: &[u8], run: &Range<usize>, found: &mut Vec<Match>) {
    for at in run.clone().filter(|at| text[*at] == b'@') {
        let local = |byte: &u8| byte.is_ascii_alphanumeric() || b"._%+-".contains(byte);
        let domain = |byte: &u8| byte.is_ascii_alphanumeric() || b".-".contains(byte);
        let start = at - text[run.start.max(at.saturating_sub(MAX_LOCAL_BYTES))..at].iter().rev().take_while(|byte| local(byte)).count();
        let start = start + text[start..at].iter().take_while(|byte| **byte == b'.').count();
        let reach = run.end.min(at + 1 + MAX_DOMAIN_BYTES);
        let mut end = at + 1 + text[at + 1..reach].iter().take_while(|byte| domain(byte)).count();
        while end > at + 1 && b".-".contains(&text[end - 1]) {
            end -= 1;
        }
        if start < at && is_domain(&text[at + 1..end]) && !is_remote(&text[start..at], text.get(end)) {
            found.push(("email", start..end));
        }
    }
}

fn is_domain(name: &[u8]) -> bool {
    let labels: Vec<&[u8]> = name.split(|byte| *byte == b'.').collect();
    let whole = labels.iter().all(|label| !label.is_empty() && label.first() != Some(&b'-') && label.last() != Some(&b'-'));
    let top = labels.last().is_some_and(|top| (2..=24).contains(&top.len()) && top.iter().all(u8::is_ascii_alphabetic));
    labels.len() >= 2 && whole && top
}

/// `git@host:path` is a repository, not a person.
fn is_remote(local: &[u8], next: Option<&u8>) -> bool {
    local == b"git" && next == Some(&b':')
}

/// IPv6 addresses with at least eight digits, unlike `::1` and `a::b`.
pub(super) fn version_six(text: &str, run: &Range<usize>, found: &mut Vec<Match>) {
    let bytes = text.as_bytes();
    let part = |byte: u8| byte.is_ascii_hexdigit() || byte == b':';
    let mut at = run.start;
    while at < run.end {
        if !part(bytes[at]) {
            at += 1;
            continue;
        }
        let mut end = at + bytes[at..run.end].iter().take_while(|byte| part(**byte)).count();
        let next = end;
        if bytes[end - 1] == b':' && !bytes[..end].ends_with(b"::") {
            end -= 1;
        }
        let alone = (at == 0 || !bytes[at - 1].is_ascii_alphanumeric()) && !bytes.get(end).is_some_and(u8::is_ascii_alphanumeric);
        let digits = bytes[at..end].iter().filter(|byte| byte.is_ascii_hexdigit()).count();
        if alone && digits >= 8 && end - at <= 39 && text[at..end].parse::<Ipv6Addr>().is_ok() {
            found.push(("ipv6", at..end));
        }
        at = next;
    }
}
