//! Conditions: one way to make them, and to keep the time at which they last changed.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

pub const READY: &str = "Ready";
pub const RECONCILING: &str = "Reconciling";
pub const STALLED: &str = "Stalled";
pub const AVAILABLE: &str = "Available";
/// Of an EvaluationRun: whether MLflow has its results. Only where there is an MLflow server.
pub const DELIVERED: &str = "Delivered";
/// Of an Integration: whether alerts reach it. Only where some are asked for.
pub const DELIVERING: &str = "Delivering";
/// Of a Team: whether the database itself keeps it apart from others.
pub const DATABASE_ISOLATED: &str = "DatabaseIsolated";
/// Of a Team: whether its agents are held to all policies that it requires, and to all that there are. Only where it requires some,
/// or one is left out.
pub const POLICIES_IN_FORCE: &str = "PoliciesInForce";
/// Of an Agent: whether the release history has what runs.
pub const RELEASED: &str = "Released";
/// Of an Agent: that a release runs in the place of its spec.
pub const PINNED: &str = "Pinned";
/// Of an Agent with an evaluation gate, while its spec is not what was approved: unknown while a release waits for its
/// evaluation, false after it was rejected.
pub const APPROVED: &str = "Approved";
/// The conditions of an Agent that the release controller writes.
pub const OF_RELEASES: [&str; 3] = [RELEASED, PINNED, APPROVED];
/// Why a change does not run: its release waits for its evaluation.
pub const PENDING_EVALUATION: &str = "PendingEvaluation";
/// Why a change does not run: its release was rejected by its evaluation.
pub const RELEASE_REJECTED: &str = "ReleaseRejected";
/// Of an Agent: whether its canary's weight is in force. Only while there is a canary.
pub const CANARY_READY: &str = "CanaryReady";
/// Its reason while an evaluation decides whether the canary may serve anybody.
pub const AWAITING_EVALUATION: &str = "AwaitingEvaluation";
/// Of an Agent: whether the chart's Gateway leads to it. Only where the spec asks for that.
pub const EXPOSED: &str = "Exposed";
/// Of an Agent: that alerts about it are open. Only while there are some.
pub const ALERTING: &str = "Alerting";
/// Its reason, if one of them is critical.
pub const CRITICAL_ALERTS: &str = "CriticalAlerts";
// Warnings: the workload runs, but not as its author may believe. Each is there only while there is something to say.
/// Replicas share what the agent remembers. False: each keeps its own.
pub const STORAGE_SHARED: &str = "StorageShared";
/// The agent names tools that it never calls.
pub const TOOLS_UNUSED: &str = "ToolsUnused";
/// The agent's models have the key or the address that they need.
pub const MODEL_CONFIGURED: &str = "ModelConfigured";
/// What the agent's models cost is known, so that the guard spend-limit can count it.
pub const SPENDING_COUNTED: &str = "SpendingCounted";
/// The agent's answers are sampled and scored, as it asks.
pub const ANSWERS_SAMPLED: &str = "AnswersSampled";
/// Of an Agent with an evaluation gate, once Tools, Skills or KnowledgeBases that its active release names, or the server of its
/// models, are something else: whether its pods go on with what they were.
pub const TOOLS_AS_RELEASED: &str = "ToolsAsReleased";

/// How many characters a condition's message has at most. The kinds' schemas allow eight times that, but what the API server
/// says of a refused object may be longer still, and a status with it would be refused too and say nothing.
const MESSAGE_MAX: usize = 4096;

/// What a controller has found, before it becomes a condition with a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub kind: &'static str,
    /// None while it is not known.
    pub holds: Option<bool>,
    pub reason: String,
    pub message: String,
}

impl Finding {
    pub fn new(kind: &'static str, holds: bool, reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { kind, holds: Some(holds), reason: reason.into(), message: message.into() }
    }

    /// Something of which nobody can say yet whether it is so.
    pub fn unknown(kind: &'static str, reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { kind, holds: None, reason: reason.into(), message: message.into() }
    }
}

/// Whether a condition of this type is another controller's: those bear its domain, as in `example.com/Audited`.
pub fn is_others(kind: &str) -> bool {
    kind.contains('/')
}

/// The conditions that are Slipway's.
pub fn ours(conditions: Vec<Condition>) -> Vec<Condition> {
    conditions.into_iter().filter(|condition| !is_others(&condition.type_)).collect()
}

/// Turns findings into conditions. The time of a condition whose status stays is the one in `before`.
pub fn conditions(findings: Vec<Finding>, before: &[Condition], generation: Option<i64>, now: Timestamp) -> Vec<Condition> {
    findings
        .into_iter()
        .map(|finding| {
            let status = match finding.holds {
                Some(true) => "True",
                Some(false) => "False",
                None => "Unknown",
            };
            let since = before
                .iter()
                .find(|old| old.type_ == finding.kind && old.status == status)
                .map_or_else(|| Time(whole_seconds(now)), |old| old.last_transition_time.clone());
            Condition {
                type_: finding.kind.to_owned(),
                status: status.to_owned(),
                reason: finding.reason,
                message: cut(finding.message),
                last_transition_time: since,
                observed_generation: generation,
            }
        })
        .collect()
}

fn cut(message: String) -> String {
    match message.char_indices().nth(MESSAGE_MAX) {
        Some(_) => message.chars().take(MESSAGE_MAX - 2).chain(" …".chars()).collect(),
        None => message,
    }
}

/// Kubernetes keeps no fractions of seconds, and neither do we, lest every status look changed.
pub fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_its_length() {
        for (length, kept) in [(MESSAGE_MAX, MESSAGE_MAX), (MESSAGE_MAX + 1, MESSAGE_MAX - 2)] {
            let told = conditions(vec![Finding::new(READY, false, "Refused", "ä".repeat(length))], &[], None, Timestamp::UNIX_EPOCH);
            assert_eq!(told[0].message.chars().filter(|c| *c == 'ä').count(), kept);
            assert!(told[0].message.chars().count() <= MESSAGE_MAX);
        }
    }

    #[test]
    fn the_time_moves_only_with_the_status() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let finding = |holds, reason: &str| vec![Finding::new(READY, holds, reason, "")];
        let first = conditions(finding(false, "Progressing"), &[], Some(1), at(10));
        let same = conditions(finding(false, "ImagePullBackOff"), &first, Some(2), at(20));
        assert_eq!(same[0].last_transition_time, Time(at(10)));
        assert_eq!(same[0].reason, "ImagePullBackOff");
        let turned = conditions(finding(true, "DeploymentReady"), &same, Some(2), at(30));
        assert_eq!(turned[0].last_transition_time, Time(at(30)));
    }
}
