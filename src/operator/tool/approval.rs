//! Which list of tools is the approved one of a Tool that speaks mcp, and whether its server offers another (threat 14).
//!
//! `poll` learns from agents' pods what they see, `tool` writes down what is judged of it here, and `agent::resolve`
//! tells pods which list to insist on.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Deserialize;
use slipway_api::condition::READY;
use slipway_api::{ToolSpec, ToolStatus};
use slipway_cluster::Key;

/// The reason of a Tool that is not ready because of its list.
pub(crate) const CHANGED: &str = "ToolsChanged";
/// The reason of a Tool that is ready because its server has answered.
pub(crate) const ANSWERED: &str = "Answered";
/// The reason of a Tool of which nobody can say whether it is of use: no pod has had an answer from its server.
pub(crate) const NOT_ANSWERED: &str = "NotAnswered";
/// How many names of each kind of change a message has, how many are kept, and how long each is at most.
const MAX_NAMES_TOLD: usize = 8;
const MAX_NAMES_KEPT: usize = 256;
const MAX_NAME_CHARS: usize = 64;

/// How a list differs from the approved one, as far as a pod can say.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ToolChanges {
    pub added: Vec<String>,
    pub altered: Vec<String>,
    pub removed: Vec<String>,
    /// All that the list has now. A pod that never saw the approved one can say nothing else.
    pub offered: Vec<String>,
}

impl ToolChanges {
    /// Whether they say how the list differs.
    fn tell(&self) -> bool {
        [&self.added, &self.altered, &self.removed].iter().any(|names| !names.is_empty())
    }

    /// No more of it than is worth keeping: a pod may say anything.
    #[must_use]
    pub(crate) fn bounded(mut self) -> Self {
        for names in [&mut self.added, &mut self.altered, &mut self.removed, &mut self.offered] {
            names.truncate(MAX_NAMES_KEPT);
            for name in names {
                *name = printable(name);
            }
        }
        self
    }
}

/// What a pod saw a server offer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OfferedTools {
    pub server: String,
    pub digest: String,
    pub changes: ToolChanges,
}

/// A pod, by its agent and its own name.
pub(crate) type Pod = (Key, String);

/// The last report of each pod on each Tool. Only the leader has any.
#[derive(Default)]
pub(crate) struct Reports(Mutex<HashMap<Key, BTreeMap<Pod, OfferedTools>>>);

impl Reports {
    /// Takes note; says whether it is news.
    pub(crate) fn note(&self, tool: &Key, pod: Pod, report: OfferedTools) -> bool {
        self.lock().entry(tool.clone()).or_default().insert(pod, report.clone()) != Some(report)
    }

    pub(crate) fn of(&self, tool: &Key) -> Vec<(String, OfferedTools)> {
        let reports = self.lock();
        reports.get(tool).into_iter().flatten().map(|((agent, _), report)| (agent.name.clone(), report.clone())).collect()
    }

    /// Forgets what pods said that are gone; gives the Tools that they spoke of.
    pub(crate) fn retain(&self, is_there: impl Fn(&Pod) -> bool) -> Vec<Key> {
        let mut touched = Vec::new();
        self.lock().retain(|tool, reports| {
            let before = reports.len();
            reports.retain(|pod, _| is_there(pod));
            if reports.len() != before {
                touched.push(tool.clone());
            }
            !reports.is_empty()
        });
        touched
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, BTreeMap<Pod, OfferedTools>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is to be said of a Tool's list. All is empty for a Tool that does not speak mcp.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Judgement {
    pub server: Option<String>,
    pub approved: Option<String>,
    pub observed: Option<String>,
    /// Whether a pod has had an answer from the server, now or before.
    pub answered: bool,
    /// What there is to say while `observed` is there.
    pub message: String,
}

/// Judges by the reports there are. Without any, what was said before stands: nobody has seen that it is otherwise.
pub(crate) fn judge(key: &Key, spec: &ToolSpec, before: &ToolStatus, reports: &[(String, OfferedTools)]) -> Judgement {
    let Some(server) = spec.server() else { return Judgement::default() };
    let reports: Vec<_> = reports.iter().filter(|(_, report)| report.server == server).collect();
    let same = before.tools_server.as_ref() == Some(&server);
    let kept = |digest: &Option<String>| digest.clone().filter(|_| same);
    let first = reports.first().map(|(_, report)| report.digest.clone());
    let approved = spec.tools_digest.clone().or_else(|| kept(&before.tools_digest)).or(first);
    let differs = |digest: &String| approved.as_ref() != Some(digest);
    let known = kept(&before.observed_digest).filter(differs);
    let seen = reports.iter().filter(|(_, report)| differs(&report.digest));
    // Of several lists the one that was told before is told again; of several pods the one that can say most.
    let told = seen
        .copied()
        .max_by_key(|(_, report)| (known.as_ref() == Some(&report.digest), report.changes.tell(), !report.changes.offered.is_empty()));
    let observed = match told {
        Some((_, report)) => Some(report.digest.clone()),
        None if reports.is_empty() => known.clone(),
        None => None,
    };
    let says_more = told.is_some_and(|(_, report)| report.changes.tell());
    let said = |reason: &str| before.conditions.iter().any(|found| found.type_ == READY && found.reason == reason);
    // A digest that nobody wrote down was seen. One that was written down until now is still in the status, seen or not.
    let was_seen = spec.tools_digest.is_none() && before.tools_digest.is_some() && !said(NOT_ANSWERED);
    let answered = !reports.is_empty() || same && (was_seen || said(ANSWERED) || said(CHANGED));
    let earlier = before.conditions.iter().find(|condition| condition.type_ == READY && condition.reason == CHANGED);
    let message = match (&observed, earlier) {
        (None, _) => String::new(),
        (Some(_), Some(earlier)) if observed == known && !says_more => earlier.message.clone(),
        (Some(digest), _) => message(key, digest, told),
    };
    Judgement { server: (approved.is_some() || answered).then_some(server), approved, observed, answered, message }
}

fn message(key: &Key, digest: &str, told: Option<&(String, OfferedTools)>) -> String {
    let agent = told.map(|(agent, _)| format!(" agent {agent}")).unwrap_or_default();
    let ToolChanges { added, altered, removed, offered } = told.map(|(_, report)| report.changes.clone()).unwrap_or_default();
    let tells = [&added, &altered, &removed].iter().any(|names| !names.is_empty());
    let offered = if tells { Vec::new() } else { offered };
    let kinds = [("added", added), ("altered", altered), ("removed", removed), ("it offers now", offered)];
    let kinds = kinds.into_iter().filter(|(_, names)| !names.is_empty());
    let changes: Vec<String> = kinds
        .map(|(what, all)| {
            let more = if all.len() > MAX_NAMES_TOLD { format!(" and {} more", all.len() - MAX_NAMES_TOLD) } else { String::new() };
            format!("{what} {}{more}", all[..all.len().min(MAX_NAMES_TOLD)].join(", "))
        })
        .collect();
    let changes = if changes.is_empty() { String::new() } else { format!(" ({})", changes.join("; ")) };
    let Key { namespace, name } = key;
    format!(
        "the server offers{agent} other tools than were approved{changes}. Agents use none that is new or altered. To approve the list as \
         it is now, which restarts them: kubectl patch tool {name} -n {namespace} --type=merge -p '{{\"spec\":{{\"toolsDigest\":\"{digest}\"}}}}'"
    )
}

/// A stranger's word, in a form that can do no harm in a terminal.
fn printable(name: &str) -> String {
    name.chars().take(MAX_NAME_CHARS).map(|char| if char.is_ascii_graphic() { char } else { '?' }).collect()
}

/// Whether this is a digest; what pods say is not to be trusted.
pub(crate) fn is_digest(text: &str) -> bool {
    text.strip_prefix("sha256:").is_some_and(|hex| hex.len() == 64 && hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: &str = "https://m/mcp";

    fn spec(more: &str) -> ToolSpec {
        serde_yaml::from_str(&format!("{{name: t, type: mcp, mcpEndpoint: '{SERVER}'{more}}}")).unwrap()
    }

    fn status(text: &str) -> ToolStatus {
        serde_yaml::from_str(&format!("{{{text}}}")).unwrap()
    }

    fn report(agent: &str, digest: &str) -> (String, OfferedTools) {
        (agent.to_owned(), OfferedTools { server: SERVER.to_owned(), digest: digest.to_owned(), changes: ToolChanges::default() })
    }

    /// Approved and observed, from what stood in the spec, what stood in the status, and what pods say.
    #[test]
    fn the_first_list_is_approved_and_others_are_not() {
        let approved_a = format!("toolsServer: '{SERVER}', toolsDigest: a");
        let observed_b = format!("{approved_a}, observedDigest: b");
        for (pinned, before, said, expected) in [
            ("", "", &[][..], (None, None)),
            ("", "", &["a"], (Some("a"), None)),
            ("", "", &["a", "b"], (Some("a"), Some("b"))),
            ("", &approved_a, &[], (Some("a"), None)),
            ("", &approved_a, &["a"], (Some("a"), None)),
            ("", &approved_a, &["b"], (Some("a"), Some("b"))),
            ("", &approved_a, &["a", "b"], (Some("a"), Some("b"))),
            // Nobody has seen anything since: it stands.
            ("", &observed_b, &[], (Some("a"), Some("b"))),
            ("", &observed_b, &["c", "b"], (Some("a"), Some("b"))),
            ("", &observed_b, &["c"], (Some("a"), Some("c"))),
            ("", &observed_b, &["a"], (Some("a"), None)),
            // Approved by hand, before and after anybody has seen it.
            (", toolsDigest: b", &observed_b, &[], (Some("b"), None)),
            (", toolsDigest: b", &observed_b, &["b"], (Some("b"), None)),
            (", toolsDigest: b", "", &[], (Some("b"), None)),
            (", toolsDigest: b", &observed_b, &["a"], (Some("b"), Some("a"))),
            // Another server is another matter.
            ("", "toolsServer: 'https://other', toolsDigest: x, observedDigest: y", &[], (None, None)),
            ("", "toolsServer: 'https://other', toolsDigest: x, observedDigest: y", &["a"], (Some("a"), None)),
        ] {
            let reports: Vec<_> = said.iter().map(|digest| report("helper", digest)).collect();
            let judged = judge(&Key::new("team-a", "t"), &spec(pinned), &status(before), &reports);
            assert_eq!((judged.approved.as_deref(), judged.observed.as_deref()), expected, "{pinned} {before} {said:?}");
            assert_eq!(judged.server.is_some(), judged.approved.is_some());
            assert_eq!(judged.observed.is_some(), judged.message.contains("other tools than were approved"), "{judged:?}");
        }
        let stale = OfferedTools { server: "https://before".to_owned(), ..report("helper", "b").1 };
        let judged = judge(&Key::new("team-a", "t"), &spec(""), &ToolStatus::default(), &[("helper".to_owned(), stale)]);
        assert_eq!(judged, Judgement::default(), "what was seen of another server says nothing of this one");
        let http: ToolSpec = serde_yaml::from_str("{name: t, type: builtin}").unwrap();
        assert_eq!(judge(&Key::new("team-a", "t"), &http, &status(&observed_b), &[report("helper", "b")]), Judgement::default());
    }

    /// Whether the server has answered, from what the spec approves, what Ready said, and what pods say.
    #[test]
    fn only_an_answer_counts_as_one() {
        let seen = format!("toolsServer: '{SERVER}', toolsDigest: a");
        let before = |reason: &str| {
            let condition = serde_json::json!([{"type": READY, "status": "Unknown", "reason": reason, "message": "m",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
            ToolStatus { conditions: serde_json::from_value(condition).unwrap(), ..status(&seen) }
        };
        for (pinned, reason, said, expected) in [
            ("", ANSWERED, &[][..], true),
            ("", CHANGED, &[], true),
            // What earlier versions said of a list that was seen.
            ("", "Valid", &[], true),
            (", toolsDigest: a", NOT_ANSWERED, &[], false),
            (", toolsDigest: a", NOT_ANSWERED, &["a"], true),
            (", toolsDigest: a", ANSWERED, &[], true),
            // The list that was approved by hand, and that nobody saw, is approved by hand no more.
            ("", NOT_ANSWERED, &[], false),
            ("", NOT_ANSWERED, &["a"], true),
        ] {
            let reports: Vec<_> = said.iter().map(|digest| report("helper", digest)).collect();
            let judged = judge(&Key::new("team-a", "t"), &spec(pinned), &before(reason), &reports);
            assert_eq!((judged.answered, judged.approved.as_deref()), (expected, Some("a")), "{pinned} {reason} {said:?}");
        }
    }

    #[test]
    fn the_message_says_what_changed_and_how_to_approve_it() {
        let changes = ToolChanges {
            added: vec!["wipe\u{1b}[2J".to_owned()],
            altered: (0..10).map(|at| format!("t{at}")).collect(),
            ..ToolChanges::default()
        }
        .bounded();
        let (agent, plain) = report("helper", "b");
        let telling = (agent.clone(), OfferedTools { changes, ..plain.clone() });
        let before = status(&format!("toolsServer: '{SERVER}', toolsDigest: a"));
        let key = Key::new("team-a", "t");
        let judged = judge(&key, &spec(""), &before, &[(agent.clone(), plain.clone()), telling]);
        for part in [
            "agent helper",
            "(added wipe?[2J; altered t0, t1, t2, t3, t4, t5, t6, t7 and 2 more)",
            r#"kubectl patch tool t -n team-a --type=merge -p '{"spec":{"toolsDigest":"b"}}'"#,
        ] {
            assert!(judged.message.contains(part), "{part} should be in: {}", judged.message);
        }
        // A pod that starts now cannot tell the difference; what was told before is still true.
        let condition = serde_json::json!([{"type": READY, "status": "False", "reason": CHANGED, "message": judged.message,
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        let told = ToolStatus { observed_digest: Some("b".to_owned()), conditions: serde_json::from_value(condition).unwrap(), ..before };
        assert_eq!(judge(&key, &spec(""), &told, &[(agent, plain)]).message, judged.message);
        assert_eq!(judge(&key, &spec(""), &told, &[]).message, judged.message);
        assert!(!judge(&key, &spec(""), &told, &[report("helper", "c")]).message.contains("wipe"));
        // One that never saw the approved list names those that there are now.
        let (agent, mut late) = report("helper", "c");
        late.changes.offered = vec!["read".to_owned(), "wipe".to_owned()];
        let judged = judge(&key, &spec(""), &told, &[(agent, late)]);
        assert!(judged.message.contains("(it offers now read, wipe)"), "{}", judged.message);
    }

    #[test]
    fn only_digests_are_digests() {
        let good = format!("sha256:{}", "0a".repeat(32));
        assert!(is_digest(&good));
        for bad in ["", "sha256:", &good[1..], &good.to_uppercase(), &format!("{good}0"), &good.replace('a', "g")] {
            assert!(!is_digest(bad), "{bad}");
        }
    }

    #[test]
    fn pods_that_are_gone_are_forgotten() {
        let (reports, tool) = (Reports::default(), Key::new("team-a", "t"));
        let pod = |name: &str| (Key::new("team-a", "helper"), name.to_owned());
        assert!(reports.note(&tool, pod("one"), report("", "a").1) && reports.note(&tool, pod("two"), report("", "b").1));
        assert!(!reports.note(&tool, pod("one"), report("", "a").1), "the same again is no news");
        assert_eq!(reports.retain(|pod| pod.1 == "one"), std::slice::from_ref(&tool));
        assert_eq!(reports.of(&tool), [report("helper", "a")]);
        assert!(reports.retain(|_| true).is_empty());
    }
}
