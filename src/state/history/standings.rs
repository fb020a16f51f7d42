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

/// What the reason of a version begins with that was rejected before its agent was deleted: it is deployed no more than it
/// was then.
pub(super) const REJECTED_BEFORE: &str = "rejected before its agent was deleted: ";

impl Standing {
    /// Whether its evaluation kept it from running, whatever became of its agent since.
    pub fn was_rejected(&self) -> bool {
        let before = self.status == Status::Deleted && self.reason.as_deref().is_some_and(|reason| reason.starts_with(REJECTED_BEFORE));
        self.status == Status::Rejected || before
    }
}

/// All versions of a file. People may have edited it; then it is read as any YAML.
pub(super) fn read(text: &str) -> Result<BTreeMap<u64, Standing>, Fault> {
    if let Some(all) = text.lines().map(line).collect() {
        return Ok(all);
    }
    slipway_api::yaml::read(text).map_err(|error| Fault::damaged(format!("status.yaml cannot be read: {error}")))
}

/// The file of one agent, as it is changed from one release to the next.
#[derive(Debug, Default)]
pub(super) struct Sheet {
    text: String,
    /// Whether its lines are ours: each as we write it, in order.
    is_ours: bool,
    /// The versions of which something is still to come: those that are active or wait for their evaluation.
    open: BTreeMap<u64, Status>,
    highest: u64,
}

impl Sheet {
    pub(super) fn new(text: String) -> Result<Self, Fault> {
        let ours: Option<Vec<_>> = text.lines().map(line).collect();
        let is_ours =
            ours.is_some_and(|all| all.is_sorted_by(|(one, _), (other, _)| one < other)) && (text.is_empty() || text.ends_with('\n'));
        let all = read(&text)?;
        let highest = all.last_key_value().map_or(0, |(version, _)| *version);
        let open = all.into_iter().map(|(version, standing)| (version, standing.status)).filter(|(_, status)| is_open(*status)).collect();
        Ok(Self { text, is_ours, open, highest })
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The highest version that it tells of.
    pub(super) fn highest(&self) -> u64 {
        self.highest
    }

    /// The versions that stand there.
    pub(super) fn all(&self, status: Status) -> impl Iterator<Item = u64> {
        self.open.iter().filter(move |(_, stands)| **stands == status).map(|(version, _)| *version)
    }

    /// Every version, whatever became of it.
    pub(super) fn standings(&self) -> Result<BTreeMap<u64, Standing>, Fault> {
        read(&self.text)
    }

    pub(super) fn one(&self, version: u64) -> Result<Option<Standing>, Fault> {
        match place(&self.text, version).filter(|_| self.is_ours) {
            Some((start, end)) => Ok(line(self.text[start..end].trim_end()).map(|(_, standing)| standing)),
            None => Ok(read(&self.text)?.remove(&version)),
        }
    }

    /// Sets the line of a version.
    pub(super) fn set(&mut self, version: u64, standing: &Standing) -> Result<(), Fault> {
        let line = render(version, standing)?;
        if let Some((start, end)) = place(&self.text, version).filter(|_| self.is_ours) {
            self.text.replace_range(start..end, &line);
        } else {
            let mut all = read(&self.text)?;
            all.insert(version, standing.clone());
            self.text.clear();
            for (version, standing) in &all {
                self.text.push_str(&render(*version, standing)?);
            }
            self.is_ours = true;
        }
        self.highest = self.highest.max(version);
        if is_open(standing.status) {
            self.open.insert(version, standing.status);
        } else {
            self.open.remove(&version);
        }
        Ok(())
    }
}

fn is_open(status: Status) -> bool {
    matches!(status, Status::Active | Status::PendingEval)
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
            let mut sheet = Sheet::default();
            let mut expected: BTreeMap<u64, Standing> = BTreeMap::new();
            for (version, standing) in edits {
                sheet.set(version, &standing).unwrap();
                prop_assert_eq!(sheet.one(version).unwrap(), Some(standing.clone()));
                prop_assert_eq!(sheet.one(version + 40).unwrap(), None);
                expected.insert(version, standing);
                for status in [Status::Active, Status::PendingEval] {
                    let stand = expected.iter().filter(|(_, standing)| standing.status == status).map(|(version, _)| *version);
                    prop_assert!(sheet.all(status).eq(stand));
                }
                prop_assert_eq!(Some(sheet.highest()), expected.keys().last().copied());
            }
            prop_assert_eq!(&read(sheet.text()).unwrap(), &expected);
            let again = Sheet::new(sheet.text().to_owned()).unwrap();
            prop_assert_eq!(again.text(), sheet.text());
            // Every YAML reader reads the same.
            let yaml: BTreeMap<u64, Standing> = serde_yaml::from_str(sheet.text()).unwrap();
            prop_assert_eq!(yaml, expected);
        }
    }

    #[test]
    fn a_file_edited_by_hand_is_read_and_kept() {
        let by_hand = "# mine\n3:\n  status: archived\n  when: 2026-01-01T00:00:00Z\n1: {status: rejected, when: \"2025-01-01T00:00:00Z\", reason: no}\n";
        let now = Standing { status: Status::Active, reason: None, when: "2026-02-01T00:00:00Z".parse().unwrap() };
        for first in [4, 3] {
            let mut sheet = Sheet::new(by_hand.to_owned()).unwrap();
            assert_eq!(sheet.one(3).unwrap().unwrap().status, Status::Archived);
            sheet.set(first, &now).unwrap();
            let read = read(sheet.text()).unwrap();
            assert_eq!(read.keys().copied().collect::<Vec<_>>(), if first == 4 { vec![1, 3, 4] } else { vec![1, 3] });
            assert_eq!((read[&1].reason.as_deref(), &read[&first]), (Some("no"), &now));
            sheet.set(1, &now).unwrap();
            assert_eq!(sheet.all(Status::Active).collect::<Vec<_>>(), [1, first]);
        }
        assert!(super::read("not: [a status").is_err());
        let aliased = "3: &a {status: archived, when: 2026-01-01T00:00:00Z}\n4: *a\n";
        assert!(super::read(aliased).is_err_and(|fault| fault.to_string().contains("anchor")));
    }
}
