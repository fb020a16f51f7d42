//! `AgentRelease`: one version of what an agent runs, asked for by a person or made at a change.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::evaluation_run::{EvaluationProvider, WorstCase};
use crate::schema;
use crate::words::words;

/// How many of the worst cases a release's status shows.
pub const RELEASE_CASES_MAX: usize = 5;

/// One version of what an agent runs. To make one is to ask for a release of the agent as it stands; any change to a deployed agent makes one by itself.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[kube(
    group = "agents.slipway.dev",
    version = "v1",
    kind = "AgentRelease",
    doc = "One version of what an agent runs. To make one is to ask for a release of the agent as it stands; any change to a deployed agent makes one by itself.",
    plural = "agentreleases",
    shortname = "ar",
    category = "slipway",
    namespaced,
    derive = "PartialEq",
    status = "AgentReleaseStatus",
    selectable = ".spec.agent",
    printcolumn(name = "Agent", type_ = "string", json_path = ".spec.agent"),
    printcolumn(name = "Version", type_ = "integer", json_path = ".status.version"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Score", type_ = "number", json_path = ".status.evaluation.score"),
    printcolumn(name = "Changelog", type_ = "string", json_path = ".spec.changelog", priority = 1),
    printcolumn(name = "Author", type_ = "string", json_path = ".spec.author", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = kube::core::Rule::new("self.metadata.name.size() <= 63 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')")
        .message("metadata.name: must begin with a lower-case letter and have at most 63 lower-case letters, digits and hyphens"),
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = kube::core::Rule::new("self == oldSelf")
    .message("a release does not change; make another one"))]
pub struct AgentReleaseSpec {
    /// The Agent of the same namespace, by its metadata.name.
    #[schemars(length(min = 1, max = 52), regex(pattern = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"))]
    pub agent: String,

    /// What changed and why, in the author's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub changelog: Option<String>,

    /// Who the release is from. Without it, the user who made this resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub author: Option<String>,
}

/// What became of the release.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentReleaseStatus {
    /// The release's number, counted up for each agent from 1.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub version: Option<i64>,
    /// The version before it; 0 for the first.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub previous: Option<i64>,
    /// pending_eval waits for its evaluation, active is what runs, rejected failed its evaluation, archived ran once, deleted went with its agent. Skipped: nothing had changed since the version that is named, so that none was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<ReleasePhase>,
    /// SHA-256 of the artifact, as its metadata.checksum has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub checksum: Option<String>,
    /// What pods of this release run, as a hash: their annotation agents.slipway.dev/run-hash, and slipway.run.hash in their traces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub run_hash: Option<String>,
    /// When the release was made.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<Time>,
    /// The commit that brought the artifact into the team's repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub commit: Option<String>,
    /// The artifact itself, as YAML, while the release is active or pending. The repository keeps all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1_048_576))]
    pub artifact: Option<String>,
    /// The evaluation that decides, or has decided, on the release. Only of releases that had a gate to pass.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Option::is_none")]
    pub evaluation: Option<ReleaseEvaluation>,
    /// Ready, with a reason; while it is False, what the release waits for or why it was rejected.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// What an evaluation said of a release.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReleaseEvaluation {
    /// The EvaluationRun, by name.
    #[schemars(length(max = 63))]
    pub run: String,
    /// How often the release was put to an evaluation, counted from 1. A run that ends without scores is repeated, up to 3 in all.
    #[schemars(range(min = 1, max = 16))]
    pub attempt: i32,
    /// The score, 0 to 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
    /// The score that was to be reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<f64>,
    /// Whether the release passed. Left out until that is decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passed: Option<bool>,
    /// The verdict in words, for example PASSED (avg=91.2 >= 75), or why there is none yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub verdict: Option<String>,
    /// Who judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<EvaluationProvider>,
    /// The cases that went worst, at most 5 and shortened. The EvaluationRun has up to 20.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 5))]
    pub worst_cases: Vec<WorstCase>,
}

words!(
    /// Where a release stands.
    ReleasePhase {
        PendingEval = "pending_eval",
        Active = "active",
        Rejected = "rejected",
        Archived = "archived",
        Deleted = "deleted",
        Skipped = "Skipped",
    }
);
