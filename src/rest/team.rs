//! Teams as REST shows them, and who is bound in them.

use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::ResourceExt;
use schemars::JsonSchema;
use serde::Serialize;
use slipway_api::{Team, ids};

use crate::access::Caller;
use crate::shelf::Item;

/// A team.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Team")]
pub(crate) struct View {
    pub id: String,
    pub name: String,
    pub slug: String,
    pub description: Option<String>,
    pub namespace: String,
    pub member_count: usize,
    pub agent_count: i32,
    pub created_at: String,
}

pub(crate) fn item(team: &Team) -> Option<Item> {
    let created = team.creation_timestamp().map_or(0, |time| time.0.as_second());
    Some(Item { id: ids::team(&team.name_any()), created, search: String::new(), json: String::new() })
}

/// The slug in `tk_slug`, or the slug itself.
pub(crate) fn slug_of(named: &str) -> &str {
    named.strip_prefix("tk_").unwrap_or(named)
}

/// Whom a RoleBinding names.
#[derive(Debug)]
pub(crate) struct Bound {
    users: Vec<String>,
    groups: Vec<String>,
}

impl Bound {
    pub(crate) fn of(binding: RoleBinding) -> Self {
        let (mut users, mut groups) = (Vec::new(), Vec::new());
        for subject in binding.subjects.unwrap_or_default() {
            match subject.kind.as_str() {
                "User" => users.push(subject.name),
                "Group" => groups.push(subject.name),
                "ServiceAccount" => {
                    let namespace = subject.namespace.unwrap_or_default();
                    users.push(format!("system:serviceaccount:{namespace}:{}", subject.name));
                }
                _ => {}
            }
        }
        Self { users, groups }
    }

    pub(crate) fn names(&self, caller: &Caller) -> bool {
        self.users.contains(&caller.name) || self.groups.iter().any(|group| caller.groups.contains(group))
    }
}
