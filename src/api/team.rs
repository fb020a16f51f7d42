//! `Team`: a tenant. Its name is its slug; it owns the Namespace `team-{slug}` and keeps it in shape.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// A team. It owns the namespace team-NAME, in which its agents live.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[kube(
    group = "agents.slipway.dev",
    version = "v1",
    kind = "Team",
    doc = "A team. It owns the namespace team-NAME, in which its agents live.",
    plural = "teams",
    category = "slipway",
    derive = "PartialEq",
    status = "TeamStatus",
    printcolumn(name = "Name", type_ = "string", json_path = ".spec.name"),
    printcolumn(name = "Namespace", type_ = "string", json_path = ".status.namespace"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Agents", type_ = "integer", json_path = ".status.agents"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = kube::core::Rule::new("self.metadata.name.size() <= 58 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')")
        .message("metadata.name: must begin with a lower-case letter and have at most 58 lower-case letters, digits and hyphens; the namespace is named after it"),
)]
#[serde(rename_all = "camelCase")]
pub struct TeamSpec {
    /// Display name, shown to people. The slug is metadata.name.
    #[schemars(length(min = 1, max = 128))]
    pub name: String,
    /// What the team does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub description: Option<String>,
    /// What the team may use altogether, as in a ResourceQuota: for example limits.memory: 16Gi, pods: 50 or count/agents.agents.slipway.dev: 200. The platform has defaults for counts of objects (docs/limits.md); what stands here counts before them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::quota")]
    pub quota: BTreeMap<String, Quantity>,
    /// Resources for containers that name none, and the most that a container may ask for, as in a LimitRange.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container_limits: Option<ContainerLimits>,
    /// Google Cloud service accounts that agents of this team may act as.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 256)))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub gcp_service_accounts: Vec<String>,
    /// A PersistentVolumeClaim in the team's namespace whose files knowledge bases of the team can read, as sources of type local. It is mounted read-only. Default is none: such sources are refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub knowledge_volume: Option<String>,
    /// Guardrail policies that every agent of the team is held to, whatever the agent names: by name or by id (gp_...), at most 16. The author of an Agent cannot leave them out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 66), regex(pattern = r"^[a-z]([-_a-z0-9]*[a-z0-9])?$")))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub required_policies: Vec<String>,
    /// What agents of this team may ask for in podTemplate, beyond what the chart allows in every team. The author of an Agent cannot allow it to themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_pod_settings: Option<AllowedPodSettings>,
}

/// What agents may ask for in podTemplate. Of keys, example.com/* means all of a domain; * is everything.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AllowedPodSettings {
    /// PriorityClasses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 253), regex(pattern = r"^(\*|[a-z0-9]([-a-z0-9.]*[a-z0-9])?)$")))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub priority_class_names: Vec<String>,
    /// RuntimeClasses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 253), regex(pattern = r"^(\*|[a-z0-9]([-a-z0-9.]*[a-z0-9])?)$")))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub runtime_class_names: Vec<String>,
    /// Keys of annotations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 64),
        inner(length(min = 1, max = 317), regex(pattern = r"^(\*|[A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?(/\*)?)$"))
    )]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub annotations: Vec<String>,
    /// Keys of labels. Labels without a domain need no entry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 64),
        inner(length(min = 1, max = 317), regex(pattern = r"^(\*|[A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?(/\*)?)$"))
    )]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub labels: Vec<String>,
    /// Keys of taints that are tolerated. * stands for all taints, and for a toleration without a key.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 64),
        inner(length(min = 1, max = 317), regex(pattern = r"^(\*|[A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?(/\*)?)$"))
    )]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub tolerations: Vec<String>,
}

impl AllowedPodSettings {
    /// Each list by the name of its field.
    pub fn lists(&self) -> [(&'static str, &[String]); 5] {
        let Self { priority_class_names, runtime_class_names, annotations, labels, tolerations } = self;
        [
            ("priorityClassNames", priority_class_names),
            ("runtimeClassNames", runtime_class_names),
            ("annotations", annotations),
            ("labels", labels),
            ("tolerations", tolerations),
        ]
    }
}

/// Defaults and limits of each container.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerLimits {
    /// Limits of a container that names none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::quantities")]
    pub default: BTreeMap<String, Quantity>,
    /// Requests of a container that names none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::quantities")]
    pub default_request: BTreeMap<String, Quantity>,
    /// The most that a container may ask for.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::quantities")]
    pub max: BTreeMap<String, Quantity>,
}

/// What the operator has made for the team.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TeamStatus {
    /// The namespace that the team owns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,
    /// The team's id in the REST API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub id: Option<String>,
    /// Agents in the namespace.
    #[serde(default, deserialize_with = "schema::readable")]
    #[schemars(range(min = 0))]
    pub agents: i32,
    /// The default guardrail policies that were made in the namespace. One that was deleted since is not made again.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(max = 63)))]
    pub default_policies: Vec<String>,
    /// The generation of the spec that this status speaks of.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready and Stalled; while the team is being deleted, what that waits for. DatabaseIsolated: whether the database keeps the team apart from others. PoliciesInForce: whether agents are held to the policies that the team requires.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}
