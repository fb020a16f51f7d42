//! `Dataset`: questions with what is expected of the answers, by which agents are evaluated.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::schema;

/// How many cases a dataset may have, and how many bytes of JSON they may have together.
pub const CASES_MAX: usize = 2000;
pub const CASES_BYTES_MAX: usize = 512 * 1024;

/// Cases by which agents of the same namespace are evaluated.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[kube(
    group = "agents.slipway.dev",
    version = "v1",
    kind = "Dataset",
    doc = "Cases by which agents of the same namespace are evaluated.",
    plural = "datasets",
    shortname = "ds",
    category = "slipway",
    namespaced,
    derive = "PartialEq",
    status = "DatasetStatus",
    selectable = ".spec.agent",
    printcolumn(name = "Agent", type_ = "string", json_path = ".spec.agent"),
    printcolumn(name = "Cases", type_ = "integer", json_path = ".status.cases"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = kube::core::Rule::new("self.metadata.name.size() <= 63 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')")
        .message("metadata.name: must begin with a lower-case letter and have at most 63 lower-case letters, digits and hyphens"),
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = kube::core::Rule::new("(has(self.cases) && self.cases.size() > 0) != has(self.casesFrom)")
    .message("cases: either cases or casesFrom is required, and not both"))]
pub struct DatasetSpec {
    /// The one Agent of the same namespace that the dataset is for, by its metadata.name. Left out: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 52), regex(pattern = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"))]
    pub agent: Option<String>,

    /// What the cases are about, in a sentence or two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub description: Option<String>,

    /// Rules that every answer has to keep, for the scorers guidelines and expectations_guidelines. A case's own stand in its metadata.guidelines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 1024)))]
    pub guidelines: Vec<String>,

    /// The cases, at most 2,000 and 512 KiB together. More go into a ConfigMap named in casesFrom.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2000))]
    pub cases: Vec<Case>,

    /// Where the cases stand instead, as a JSON or YAML list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cases_from: Option<CasesFrom>,

    /// Only those who may update agents/governance may change or delete the dataset, because releases are held to it. Default false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub protected: bool,
}

/// A question, and what is expected of the answer.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Case {
    /// What the agent is asked. At most 32 KiB.
    #[schemars(length(min = 1, max = 32_768))]
    pub input: String,
    /// What the answer should say. Scorers that compare with it apply only to cases that have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32_768))]
    pub expected_output: Option<String>,
    /// What the agent should know to answer, given to it before the input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 65_536))]
    pub context: Option<String>,
    /// More about the case: guidelines (a list of rules), expected_tool_calls (a list of name and arguments), tool_results (an answer by tool name, for tools that change things), and whatever its author wants to keep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "metadata")]
    pub metadata: Option<Map<String, Value>>,
}

/// Where the cases of a dataset stand.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CasesFrom {
    /// A ConfigMap of the same namespace.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub config_map: String,
    /// The key in it. Default cases.yaml.
    #[serde(default = "cases_key")]
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[-._a-zA-Z0-9]+$"))]
    pub key: String,
}

/// Whether the dataset can be used.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DatasetStatus {
    /// Available or Error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<DatasetPhase>,
    /// The dataset's id in the REST API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 70))]
    pub id: Option<String>,
    /// How many cases it has.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub cases: Option<i32>,
    /// SHA-256 over guidelines and cases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub digest: Option<String>,
    /// The generation of the spec that this status speaks of.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready, with a reason that names the field at fault.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// Whether a dataset can be used.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, JsonSchema)]
pub enum DatasetPhase {
    Available,
    Error,
}

fn cases_key() -> String {
    "cases.yaml".to_owned()
}

fn metadata(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}
