//! `status.yaml`: where each version stands, why, and since when. One line a version, in order, so that a release
//! changes two lines of ten thousand, and a person reads it at a glance.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use slipway_release::Status;

use super::Fault;

/// Where a version stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    pub status: Status,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Since when.
    pub when: Timestamp,
}

/// All versions of a file. People may have edited it; then it is read as any YAML.
pub(super) fn read(text: &str) -> Result<BTreeMap<u64, Standing>, Fault> {
    if let Some(all) = text.lines().map(line).collect() {
        return Ok(all);
    }
    serde_yaml::from_str(text).map_err(|error| Fault::damaged(format!("status.yaml cannot be read: {error}")))
}

/// One version of a file that we wrote.
pub(super) fn one(text: &str, version: u64) -> Result<Option<Standing>, Fault> {
    match place(text, version) {
        Some((start, end)) if start < end => match line(text[start..end].trim_end()) {
            Some((_, standing)) => Ok(Some(standing)),
            None => Ok(read(text)?.remove(&version)),
        },
        Some(_) if !has_elsewhere(text, version) => Ok(None),
        _ => Ok(read(text)?.remove(&version)),
    }
}

/// Whether a line of another hand, which need not stand in order, begins with the version.
fn has_elsewhere(text: &str, version: u64) -> bool {
    text.starts_with(&format!("{version}:")) || text.contains(&format!("\n{version}:"))
}

/// The versions that are active. Never more than one, unless somebody wrote so by hand.
pub(super) fn active(text: &str) -> Result<Vec<u64>, Fault> {
    const ACTIVE: &str = ": {status: active";
    let mut found = Vec::new();
    for (at, _) in text.match_indices(ACTIVE) {
        let start = text[..at].rfind('\n').map_or(0, |before| before + 1);
        let end = text[at..].find('\n').map_or(text.len(), |after| at + after);
        match line(&text[start..end]) {
            Some((version, standing)) => found.extend((standing.status == Status::Active).then_some(version)),
            None => break,
        }
    }
    if found.len() == 1 && place(text, found[0]).is_some() {
        return Ok(found);
    }
    // None, several, or lines of another hand.
    Ok(read(text)?.into_iter().filter(|(_, standing)| standing.status == Status::Active).map(|(version, _)| version).collect())
}

/// Sets the line of a version.
pub(super) fn set(text: &mut String, version: u64, standing: &Standing) -> Result<(), Fault> {
    let line = render(version, standing)?;
    if let Some((start, end)) = place(text, version)
        && (start < end || !has_elsewhere(text, version))
    {
        text.replace_range(start..end, &line);
        return Ok(());
    }
    let mut all = read(text)?;
    all.insert(version, standing.clone());
    text.clear();
    for (version, standing) in &all {
        text.push_str(&render(*version, standing)?);
    }
    Ok(())
}

/// The line of a version, or where it belongs. None when the lines are not ours.
fn place(text: &str, version: u64) -> Option<(usize, usize)> {
    if !text.is_empty() && !text.ends_with('\n') {
        return None;
    }
    // Nearly always it is one of the last.
    let mut end = text.len();
    while end > 0 {
        let start = text[..end - 1].rfind('\n').map_or(0, |at| at + 1);
        let found: u64 = text[start..end].split_once(": {")?.0.parse().ok()?;
        if found == version {
            return Some((start, end));
        }
        if found < version {
            return Some((end, end));
        }
        end = start;
    }
    Some((0, 0))
}

fn render(version: u64, standing: &Standing) -> Result<String, Fault> {
    let reason = standing.reason.as_deref().map(quoted).transpose()?.map(|reason| format!(", reason: {reason}")).unwrap_or_default();
    Ok(format!("{version}: {{status: {}{reason}, when: \"{}\"}}\n", standing.status.as_str(), standing.when))
}

/// A text as JSON and YAML both have it, on one line.
fn quoted(text: &str) -> Result<String, Fault> {
    let json = serde_json::to_string(text).map_err(|error| Fault::Refused(error.to_string()))?;
    let odd = |letter: char| matches!(letter, '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}');
    let mut out = String::with_capacity(json.len());
    for letter in json.chars() {
        if odd(letter) {
            // Writing to a String cannot fail.
            let _ = write!(out, "\\u{:04x}", u32::from(letter));
        } else {
            out.push(letter);
        }
    }
    Ok(out)
}

fn line(text: &str) -> Option<(u64, Standing)> {
    let (version, rest) = text.split_once(": {status: ")?;
    let (word, rest) = rest.strip_suffix('}')?.split_once(", ")?;
    let status = serde_json::from_value(serde_json::Value::String(word.to_owned())).ok()?;
    let (reason, rest) = match rest.strip_prefix("reason: ") {
        Some(rest) => {
            let (reason, when) = rest.rsplit_once(", when: ")?;
            (Some(serde_json::from_str(reason).ok()?), when)
        }
        None => (None, rest.strip_prefix("when: ")?),
    };
    let when = rest.strip_prefix('"')?.strip_suffix('"')?.parse().ok()?;
    Some((version.parse().ok()?, Standing { status, reason, when }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn standing() -> impl Strategy<Value = Standing> {
        let status = prop::sample::select(vec![Status::PendingEval, Status::Active, Status::Rejected, Status::Archived, Status::Deleted]);
        (status, prop::option::of("(?s).{0,40}|.*, when: .*|\\PC*"), 0..4_000_000_000i64).prop_map(|(status, reason, when)| Standing {
            status,
            reason,
            when: Timestamp::from_second(when).unwrap(),
        })
    }

    proptest! {
        #[test]
        fn what_is_set_is_read_whatever_the_order(edits in prop::collection::vec((1..40u64, standing()), 1..40)) {
            let mut text = String::new();
            let mut expected = BTreeMap::new();
            for (version, standing) in edits {
                set(&mut text, version, &standing).unwrap();
                prop_assert_eq!(one(&text, version).unwrap(), Some(standing.clone()));
                expected.insert(version, standing);
            }
            prop_assert_eq!(&read(&text).unwrap(), &expected);
            // Every YAML reader reads the same.
            let yaml: BTreeMap<u64, Standing> = serde_yaml::from_str(&text).unwrap();
            prop_assert_eq!(yaml, expected);
        }
    }

    #[test]
    fn a_file_edited_by_hand_is_read_and_kept() {
        let by_hand = "# mine\n3:\n  status: archived\n  when: 2026-01-01T00:00:00Z\n1: {status: rejected, when: \"2025-01-01T00:00:00Z\", reason: no}\n";
        let now = Standing { status: Status::Active, reason: None, when: "2026-02-01T00:00:00Z".parse().unwrap() };
        let mut text = by_hand.to_owned();
        set(&mut text, 4, &now).unwrap();
        let read = read(&text).unwrap();
        assert_eq!(read.keys().copied().collect::<Vec<_>>(), [1, 3, 4]);
        assert_eq!(read[&1].reason.as_deref(), Some("no"));
        assert_eq!(one(&text, 3).unwrap().unwrap().status, Status::Archived);
        set(&mut text, 3, &now).unwrap();
        assert_eq!((one(&text, 3).unwrap(), super::read(&text).unwrap().len()), (Some(now), 3));
        assert!(super::read("not: [a status").is_err());
    }
}
