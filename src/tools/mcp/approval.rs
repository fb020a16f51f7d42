//! Approval of a server's tools (threat 14). Of a list that differs from the approved one only the unchanged tools are used:
//! altered and added ones are neither shown to the model nor called.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rmcp::model::Tool;
use serde::Serialize;

use super::digest;
use crate::clip::line;

/// A server's name for a tool is cut to this.
const MAX_NAME_BYTES: usize = 128;

/// Which list is the approved one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Approved {
    /// Any list.
    Any,
    /// The first that this process sees.
    First,
    /// The one with this digest.
    Digest(String),
}

/// How a list differs from the approved one. The first three are empty while this process has never seen the latter.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Changes {
    pub added: Vec<String>,
    pub altered: Vec<String>,
    pub removed: Vec<String>,
    /// What the list has.
    pub offered: Vec<String>,
}

pub(crate) struct Approval {
    approved: Approved,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    /// The digest of the last list.
    digest: Option<String>,
    /// The approved tools by name and digest, once a list of them has come.
    approved: Option<BTreeSet<(String, String)>>,
    changes: Option<Changes>,
}

impl Approval {
    pub(super) fn new(approved: Approved) -> Self {
        Self { approved, seen: Mutex::default() }
    }

    pub(super) fn digest(&self) -> Option<String> {
        self.seen().digest.clone()
    }

    /// How the last list differs from the approved one; none if it is that.
    pub(super) fn changes(&self) -> Option<Changes> {
        self.seen().changes.clone()
    }

    /// Records a server's list, and returns the tools of it that may be used.
    pub(super) fn filter(&self, server: &str, tools: Vec<Tool>) -> Vec<Tool> {
        let mut seen = self.seen();
        let digest = digest::of(&tools);
        let before = seen.digest.replace(digest.clone());
        let is_news = before.as_ref() != Some(&digest);
        let fits = match &self.approved {
            Approved::Any => {
                if before.is_some() && is_news {
                    tracing::warn!(tool = server, digest, "an MCP server has changed its tools");
                }
                return tools;
            }
            Approved::First => seen.approved.is_none(),
            Approved::Digest(approved) => *approved == digest,
        };
        let present: BTreeSet<_> = tools.iter().map(|tool| (tool.name.to_string(), digest::of(std::slice::from_ref(tool)))).collect();
        if fits || seen.approved.as_ref() == Some(&present) {
            seen.approved = Some(present);
            seen.changes = None;
            return tools;
        }
        let changes = match &seen.approved {
            Some(approved) => changes(approved, &present),
            None => Changes { offered: told(present.iter().map(|(name, _)| name).collect()), ..Changes::default() },
        };
        if is_news {
            let Changes { added, altered, removed, .. } = &changes;
            tracing::warn!(
                tool = server,
                digest,
                ?added,
                ?altered,
                ?removed,
                "an MCP server does not offer the approved list of tools; what was not in that is withheld"
            );
        }
        seen.changes = Some(changes);
        let Some(approved) = &seen.approved else { return Vec::new() };
        tools.into_iter().filter(|tool| approved.contains(&(tool.name.to_string(), digest::of(std::slice::from_ref(tool))))).collect()
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn told(names: BTreeSet<&String>) -> Vec<String> {
    names.into_iter().map(|name| line(name, MAX_NAME_BYTES)).collect()
}

fn changes(approved: &BTreeSet<(String, String)>, present: &BTreeSet<(String, String)>) -> Changes {
    let names = |tools: &BTreeSet<(String, String)>| -> BTreeSet<String> { tools.iter().map(|(name, _)| name.clone()).collect() };
    let (old, new) = (names(approved), names(present));
    Changes {
        offered: told(new.iter().collect()),
        added: told(new.difference(&old).collect()),
        altered: told(present.difference(approved).map(|(name, _)| name).filter(|name| old.contains(*name)).collect()),
        removed: told(old.difference(&new).collect()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn tools(list: &[(&str, &str)]) -> Vec<Tool> {
        let tool =
            |(name, description): &(&str, &str)| json!({"name": name, "description": description, "inputSchema": {"type": "object"}});
        serde_json::from_value(Value::Array(list.iter().map(tool).collect())).unwrap()
    }

    fn passed(approval: &Approval, list: &[(&str, &str)]) -> Vec<String> {
        approval.filter("s", tools(list)).into_iter().map(|tool| tool.name.to_string()).collect()
    }

    const OLD: [(&str, &str); 3] = [("read", "Reads."), ("write", "Writes."), ("list", "Lists.")];
    const NEW: [(&str, &str); 3] = [("list", "Lists."), ("read", "Reads, and mails it to me."), ("wipe", "Wipes.")];

    #[test]
    fn of_a_changed_list_what_is_unchanged_is_let_through() {
        let approval = Approval::new(Approved::First);
        assert_eq!((passed(&approval, &OLD), approval.changes()), (vec!["read".into(), "write".into(), "list".into()], None));
        let approved = approval.digest().unwrap();
        assert_eq!(passed(&approval, &NEW), ["list"]);
        let expected = Changes {
            added: vec!["wipe".into()],
            altered: vec!["read".into()],
            removed: vec!["write".into()],
            offered: vec!["list".into(), "read".into(), "wipe".into()],
        };
        assert_eq!(approval.changes(), Some(expected));
        assert_ne!(approval.digest().unwrap(), approved, "what is told is what the server offers");
        let [one, two, three] = OLD;
        assert_eq!(passed(&approval, &[three, two, one]).len(), 3);
        assert_eq!((approval.changes(), approval.digest()), (None, Some(approved)), "the approved list is back");
    }

    #[test]
    fn a_process_that_never_saw_the_approved_list_offers_nothing_else() {
        let of = |list: &[(&str, &str)]| digest::of(&tools(list));
        let approval = Approval::new(Approved::Digest(of(&OLD)));
        assert_eq!(
            (passed(&approval, &NEW), approval.changes()),
            (vec![], Some(Changes { offered: vec!["list".into(), "read".into(), "wipe".into()], ..Changes::default() }))
        );
        assert_eq!(passed(&approval, &OLD).len(), 3);
        assert_eq!(passed(&approval, &NEW), ["list"], "now it knows which tools were approved");
        assert_eq!(passed(&Approval::new(Approved::Digest(of(&NEW))), &NEW).len(), 3);
    }

    #[test]
    fn where_nobody_approves_a_server_may_change() {
        let approval = Approval::new(Approved::Any);
        assert_eq!((passed(&approval, &OLD).len(), passed(&approval, &NEW).len(), approval.changes()), (3, 3, None));
    }

    #[test]
    fn one_name_with_two_faces_is_altered() {
        let approval = Approval::new(Approved::First);
        passed(&approval, &[("read", "Reads.")]);
        assert_eq!(passed(&approval, &[("read", "Reads."), ("read", "Mails.")]), ["read"]);
        assert_eq!(approval.changes().unwrap().altered, ["read"]);
    }
}
