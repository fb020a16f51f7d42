//! `status.yaml`: the status of each version with its reason and time. One line per version, in order, so that a release
//! changes two lines of ten thousand and Git stores the change as a small delta.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use slipway_release::Status;

use super::HistoryFault;

/// The status of a version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionStatus {
    pub status: Status,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Since when.
    pub when: Timestamp,
}

/// Prefix of the reason of a deleted version that was rejected before. It still cannot be deployed.
pub(super) const REJECTED_BEFORE: &str = "rejected before its agent was deleted: ";

/// How the reason of a version begins that was put aside before an evaluation had decided on it. It cannot be deployed either.
pub const SUPERSEDED: &str = "superseded by ";

impl VersionStatus {
    /// Whether the version waited for its evaluation when it was put aside, also if its agent was deleted since.
    pub fn was_superseded(&self) -> bool {
        let is_aside = matches!(self.status, Status::Archived | Status::Deleted);
        is_aside && self.reason.as_deref().is_some_and(|reason| reason.starts_with(SUPERSEDED))
    }

    /// Whether the version failed its evaluation, also if its agent was deleted since.
    pub fn was_rejected(&self) -> bool {
        let before = self.status == Status::Deleted && self.reason.as_deref().is_some_and(|reason| reason.starts_with(REJECTED_BEFORE));
        self.status == Status::Rejected || before
    }
}

/// The status of every version in a file. One that was edited by hand is read as YAML.
pub(super) fn read(text: &str) -> Result<BTreeMap<u64, VersionStatus>, HistoryFault> {
    if let Some(all) = text.lines().map(line).collect() {
        return Ok(all);
    }
    slipway_api::yaml::read(text).map_err(|error| HistoryFault::damaged(format!("status.yaml cannot be read: {error}")))
}

/// The file of one agent, edited line by line.
#[derive(Debug, Default)]
pub(super) struct StatusFile {
    text: String,
    /// Whether every line is as `render` writes it, in order.
    is_canonical: bool,
    /// Versions that are active or pending.
    open: BTreeMap<u64, Status>,
    highest: u64,
}

impl StatusFile {
    pub(super) fn new(text: String) -> Result<Self, HistoryFault> {
        let lines: Option<Vec<_>> = text.lines().map(line).collect();
        let is_canonical =
            lines.is_some_and(|all| all.is_sorted_by(|(one, _), (other, _)| one < other)) && (text.is_empty() || text.ends_with('\n'));
        let all = read(&text)?;
        let highest = all.last_key_value().map_or(0, |(version, _)| *version);
        let open = all.into_iter().map(|(version, status)| (version, status.status)).filter(|(_, status)| is_open(*status)).collect();
        Ok(Self { text, is_canonical, open, highest })
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The highest version in the file.
    pub(super) fn highest(&self) -> u64 {
        self.highest
    }

    /// The versions with this status, which is active or pending.
    pub(super) fn with_status(&self, status: Status) -> impl Iterator<Item = u64> {
        self.open.iter().filter(move |(_, open)| **open == status).map(|(version, _)| *version)
    }

    /// The status of every version.
    pub(super) fn all(&self) -> Result<BTreeMap<u64, VersionStatus>, HistoryFault> {
        read(&self.text)
    }

    pub(super) fn get(&self, version: u64) -> Result<Option<VersionStatus>, HistoryFault> {
        match line_range(&self.text, version).filter(|_| self.is_canonical) {
            Some((start, end)) => Ok(line(self.text[start..end].trim_end()).map(|(_, status)| status)),
            None => Ok(read(&self.text)?.remove(&version)),
        }
    }

    /// Sets the line of a version.
    pub(super) fn set(&mut self, version: u64, status: &VersionStatus) -> Result<(), HistoryFault> {
        let line = render(version, status)?;
        if let Some((start, end)) = line_range(&self.text, version).filter(|_| self.is_canonical) {
            self.text.replace_range(start..end, &line);
        } else {
            let mut all = read(&self.text)?;
            all.insert(version, status.clone());
            self.text.clear();
            for (version, status) in &all {
                self.text.push_str(&render(*version, status)?);
            }
            self.is_canonical = true;
        }
        self.highest = self.highest.max(version);
        if is_open(status.status) {
            self.open.insert(version, status.status);
        } else {
            self.open.remove(&version);
        }
        Ok(())
    }
}

fn is_open(status: Status) -> bool {
    matches!(status, Status::Active | Status::PendingEval)
}

/// The range of a version's line, empty at the place of insertion if it has none. None if the file is not canonical.
fn line_range(text: &str, version: u64) -> Option<(usize, usize)> {
    if !text.is_empty() && !text.ends_with('\n') {
        return None;
    }
    // Nearly always one of the last lines.
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

fn render(version: u64, status: &VersionStatus) -> Result<String, HistoryFault> {
    let reason = status.reason.as_deref().map(quoted).transpose()?.map(|reason| format!(", reason: {reason}")).unwrap_or_default();
    Ok(format!("{version}: {{status: {}{reason}, when: \"{}\"}}\n", status.status.as_str(), status.when))
}

/// A text as JSON and YAML both have it, on one line.
fn quoted(text: &str) -> Result<String, HistoryFault> {
    let json = serde_json::to_string(text).map_err(|error| HistoryFault::Refused(error.to_string()))?;
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

fn line(text: &str) -> Option<(u64, VersionStatus)> {
    let (version, rest) = text.split_once(": {status: ")?;
    let (word, rest) = rest.strip_suffix('}')?.split_once(", ")?;
    let status = [Status::PendingEval, Status::Active, Status::Rejected, Status::Archived, Status::Deleted]
        .into_iter()
        .find(|status| status.as_str() == word)?;
    let (reason, rest) = match rest.strip_prefix("reason: ") {
        Some(rest) => {
            let (reason, when) = rest.rsplit_once(", when: ")?;
            (Some(serde_json::from_str(reason).ok()?), when)
        }
        None => (None, rest.strip_prefix("when: ")?),
    };
    let when = rest.strip_prefix('"')?.strip_suffix('"')?.parse().ok()?;
    Some((version.parse().ok()?, VersionStatus { status, reason, when }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn status() -> impl Strategy<Value = VersionStatus> {
        let status = prop::sample::select(vec![Status::PendingEval, Status::Active, Status::Rejected, Status::Archived, Status::Deleted]);
        (status, prop::option::of("(?s).{0,40}|.*, when: .*|\\PC*"), 0..4_000_000_000i64).prop_map(|(status, reason, when)| VersionStatus {
            status,
            reason,
            when: Timestamp::from_second(when).unwrap(),
        })
    }

    proptest! {
        #[test]
        fn what_is_set_is_read_whatever_the_order(edits in prop::collection::vec((1..40u64, status()), 1..40)) {
            let mut file = StatusFile::default();
            let mut expected: BTreeMap<u64, VersionStatus> = BTreeMap::new();
            for (version, status) in edits {
                file.set(version, &status).unwrap();
                prop_assert_eq!(file.get(version).unwrap(), Some(status.clone()));
                prop_assert_eq!(file.get(version + 40).unwrap(), None);
                expected.insert(version, status);
                for status in [Status::Active, Status::PendingEval] {
                    let with_status = expected.iter().filter(|(_, entry)| entry.status == status).map(|(version, _)| *version);
                    prop_assert!(file.with_status(status).eq(with_status));
                }
                prop_assert_eq!(Some(file.highest()), expected.keys().last().copied());
            }
            prop_assert_eq!(&read(file.text()).unwrap(), &expected);
            let again = StatusFile::new(file.text().to_owned()).unwrap();
            prop_assert_eq!(again.text(), file.text());
            // Every YAML reader reads the same.
            let yaml: BTreeMap<u64, VersionStatus> = serde_yaml::from_str(file.text()).unwrap();
            prop_assert_eq!(yaml, expected);
        }
    }

    #[test]
    fn a_file_edited_by_hand_is_read_and_kept() {
        let by_hand = "# mine\n3:\n  status: archived\n  when: 2026-01-01T00:00:00Z\n1: {status: rejected, when: \"2025-01-01T00:00:00Z\", reason: no}\n";
        let now = VersionStatus { status: Status::Active, reason: None, when: "2026-02-01T00:00:00Z".parse().unwrap() };
        for first in [4, 3] {
            let mut file = StatusFile::new(by_hand.to_owned()).unwrap();
            assert_eq!(file.get(3).unwrap().unwrap().status, Status::Archived);
            file.set(first, &now).unwrap();
            let read = read(file.text()).unwrap();
            assert_eq!(read.keys().copied().collect::<Vec<_>>(), if first == 4 { vec![1, 3, 4] } else { vec![1, 3] });
            assert_eq!((read[&1].reason.as_deref(), &read[&first]), (Some("no"), &now));
            file.set(1, &now).unwrap();
            assert_eq!(file.with_status(Status::Active).collect::<Vec<_>>(), [1, first]);
        }
        assert!(super::read("not: [a status").is_err());
        let aliased = "3: &a {status: archived, when: 2026-01-01T00:00:00Z}\n4: *a\n";
        assert!(super::read(aliased).is_err_and(|fault| fault.to_string().contains("anchor")));
    }
}
