//! The subjects of RoleBindings in the namespaces of teams.

use k8s_openapi::api::rbac::v1::RoleBinding;

use crate::access::Caller;
use crate::members;

/// The subjects of one RoleBinding.
#[derive(Debug)]
pub(crate) struct TeamBinding {
    users: Vec<String>,
    groups: Vec<String>,
    /// The id of the member whose membership this is.
    pub member: Option<String>,
}

impl TeamBinding {
    pub(crate) fn of(binding: RoleBinding) -> Self {
        let member = members::member(&binding).map(str::to_owned);
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
        Self { users, groups, member }
    }

    pub(crate) fn names(&self, caller: &Caller) -> bool {
        self.users.contains(&caller.name) || self.groups.iter().any(|group| caller.groups.contains(group))
    }
}
