//! Approval of a server's tools (threat 14). If a list differs from the approved one, only its unchanged tools are used:
//! altered and added ones are neither shown to the model nor called.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rmcp::model::Tool;
use serde::Serialize;

use super::digest;
use crate::clip::line;

/// The longest name of a tool in `ToolListChanges`.
const MAX_NAME_BYTES: usize = 128;

/// The approved tool list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ApprovedList {
    /// Any list.
    Any,
    /// The first list that this process receives.
    First,
    /// The list with this digest.
    Digest(String),
}

/// The differences of a list from the approved one. The first three are empty if this process has not received the approved
/// list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ToolListChanges {
    pub added: Vec<String>,
    pub altered: Vec<String>,
    pub removed: Vec<String>,
    /// All tools of the list.
    pub offered: Vec<String>,
}

pub(crate) struct Approval {
    approved: ApprovedList,
    state: Mutex<ApprovalState>,
}

#[derive(Default)]
struct ApprovalState {
    /// The digest of the last list.
    digest: Option<String>,
    /// The approved tools by name and digest, once the approved list was received.
    approved: Option<BTreeSet<(String, String)>>,
    changes: Option<ToolListChanges>,
}

impl Approval {
    pub(super) fn new(approved: ApprovedList) -> Self {
        Self { approved, state: Mutex::default() }
    }

    pub(super) fn digest(&self) -> Option<String> {
        self.state().digest.clone()
    }

    /// The differences of the last list from the approved one, if there are any.
    pub(super) fn changes(&self) -> Option<ToolListChanges> {
        self.state().changes.clone()
    }

    /// Records a server's list, and returns the tools of it that may be used.
    pub(super) fn filter(&self, server: &str, tools: Vec<Tool>) -> Vec<Tool> {
        let mut state = self.state();
        let digest = digest::of(&tools);
        let before = state.digest.replace(digest.clone());
        let is_news = before.as_ref() != Some(&digest);
        let fits = match &self.approved {
            ApprovedList::Any => {
                if before.is_some() && is_news {
                    tracing::warn!(tool = server, digest, "an MCP server has changed its tools");
                }
                return tools;
            }
            ApprovedList::First => state.approved.is_none(),
            ApprovedList::Digest(approved) => *approved == digest,
        };
        let present: BTreeSet<_> = tools.iter().map(|tool| (tool.name.to_string(), digest::of(std::slice::from_ref(tool)))).collect();
        if fits || state.approved.as_ref() == Some(&present) {
            state.approved = Some(present);
            state.changes = None;
            return tools;
        }
        let changes = match &state.approved {
            Some(approved) => changes(approved, &present),
            None => ToolListChanges { offered: shortened(present.iter().map(|(name, _)| name).collect()), ..ToolListChanges::default() },
        };
        if is_news {
            let ToolListChanges { added, altered, removed, .. } = &changes;
            tracing::warn!(
                tool = server,
                digest,
                ?added,
                ?altered,
                ?removed,
                "an MCP server does not offer the approved list of tools; unapproved tools are withheld"
            );
        }
        state.changes = Some(changes);
        let Some(approved) = &state.approved else { return Vec::new() };
        tools.into_iter().filter(|tool| approved.contains(&(tool.name.to_string(), digest::of(std::slice::from_ref(tool))))).collect()
    }

    fn state(&self) -> MutexGuard<'_, ApprovalState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn shortened(names: BTreeSet<&String>) -> Vec<String> {
    names.into_iter().map(|name| line(name, MAX_NAME_BYTES)).collect()
}

fn changes(approved: &BTreeSet<(String, String)>, present: &BTreeSet<(String, String)>) -> ToolListChanges {
    let names = |tools: &BTreeSet<(String, String)>| -> BTreeSet<String> { tools.iter().map(|(name, _)| name.clone()).collect() };
    let (old, new) = (names(approved), names(present));
    ToolListChanges {
        offered: shortened(new.iter().collect()),
        added: shortened(new.difference(&old).collect()),
        altered: shortened(present.difference(approved).map(|(name, _)| name).filter(|name| old.contains(*name)).collect()),
        removed: shortened(old.difference(&new).collect()),
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
    fn unchanged_tools_of_a_changed_list_stay_usable() {
        let approval = Approval::new(ApprovedList::First);
        assert_eq!((passed(&approval, &OLD), approval.changes()), (vec!["read".into(), "write".into(), "list".into()], None));
        let approved = approval.digest().unwrap();
        assert_eq!(passed(&approval, &NEW), ["list"]);
        let expected = ToolListChanges {
            added: vec!["wipe".into()],
            altered: vec!["read".into()],
            removed: vec!["write".into()],
            offered: vec!["list".into(), "read".into(), "wipe".into()],
        };
        assert_eq!(approval.changes(), Some(expected));
        assert_ne!(approval.digest().unwrap(), approved, "the digest is of what the server offers");
        let [one, two, three] = OLD;
        assert_eq!(passed(&approval, &[three, two, one]).len(), 3);
        assert_eq!((approval.changes(), approval.digest()), (None, Some(approved)), "the approved list is back");
    }

    #[test]
    fn without_the_approved_list_no_tool_is_offered() {
        let of = |list: &[(&str, &str)]| digest::of(&tools(list));
        let approval = Approval::new(ApprovedList::Digest(of(&OLD)));
        assert_eq!(
            (passed(&approval, &NEW), approval.changes()),
            (vec![], Some(ToolListChanges { offered: vec!["list".into(), "read".into(), "wipe".into()], ..ToolListChanges::default() }))
        );
        assert_eq!(passed(&approval, &OLD).len(), 3);
        assert_eq!(passed(&approval, &NEW), ["list"], "now it knows which tools were approved");
        assert_eq!(passed(&Approval::new(ApprovedList::Digest(of(&NEW))), &NEW).len(), 3);
    }

    #[test]
    fn without_approval_a_server_may_change_its_tools() {
        let approval = Approval::new(ApprovedList::Any);
        assert_eq!((passed(&approval, &OLD).len(), passed(&approval, &NEW).len(), approval.changes()), (3, 3, None));
    }

    #[test]
    fn a_duplicated_name_counts_as_altered() {
        let approval = Approval::new(ApprovedList::First);
        passed(&approval, &[("read", "Reads.")]);
        assert_eq!(passed(&approval, &[("read", "Reads."), ("read", "Mails.")]), ["read"]);
        assert_eq!(approval.changes().unwrap().altered, ["read"]);
    }
}
