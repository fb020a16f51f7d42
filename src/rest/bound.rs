//! Who is bound in a team.

use k8s_openapi::api::rbac::v1::RoleBinding;

use crate::access::Caller;
use crate::members;

/// Whom a RoleBinding names.
#[derive(Debug)]
pub(crate) struct Bound {
    users: Vec<String>,
    groups: Vec<String>,
    /// Whose membership it is, if it is one.
    pub member: Option<String>,
}

impl Bound {
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
