//! People and programs with a role each.

use serde_json::{Value, json};
use slipway_e2e::{Team, kubectl};
use slipway_peers::Issuer;

const RBAC: &str = "rbac.authorization.k8s.io";

/// Somebody with a role in a team, or in the cluster, or with none.
pub(super) struct Caller {
    pub role: &'static str,
    /// What Kubernetes calls them.
    pub name: String,
    pub groups: Vec<String>,
    pub token: String,
}

/// A token that says this of its owner and holds for an hour.
pub(super) fn token(issuer: &Issuer, email: &str, more: &Value) -> String {
    let mut claims = json!({"aud": "slipway", "email": email, "email_verified": true});
    claims.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    issuer.token(&claims.to_string())
}

/// Gives the role `slipway-ROLE` in a team.
pub(super) fn bind(team: &Team, name: &str, role: &str, subject: &Value) {
    let role = json!({"apiGroup": RBAC, "kind": "ClusterRole", "name": format!("slipway-{role}")});
    team.apply(&json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": "RoleBinding", "metadata": {"name": name}, "roleRef": role, "subjects": [subject],
    }));
}

/// People of the issuer: one for each role, one who has it by a group, and one who has none.
pub(super) fn people(issuer: &Issuer, team: &Team) -> Vec<Caller> {
    let mut people = Vec::new();
    for role in ["platform_admin", "admin", "developer", "viewer", "chat", "nobody"] {
        let name = format!("{}-{role}@example.com", team.slug);
        if role != "nobody" && role != "platform_admin" {
            bind(team, &format!("person-{role}"), role, &json!({"kind": "User", "name": name}));
        }
        people.push(Caller { role, token: token(issuer, &name, &json!({})), groups: Vec::new(), name });
    }
    let (group, name) = (format!("{}-developers", team.slug), format!("{}-by-group@example.com", team.slug));
    bind(team, "group-developer", "developer", &json!({"kind": "Group", "name": format!("oidc:{group}")}));
    let token = token(issuer, &name, &json!({"groups": [group]}));
    people.push(Caller { role: "developer", name, groups: vec![format!("oidc:{group}")], token });
    people
}

/// The same as ServiceAccounts of the team's namespace.
pub(super) fn accounts(team: &Team) -> Vec<Caller> {
    let namespace = &team.namespace;
    let account = |role: &'static str| {
        // The roles of these two are no team's: there is no such ClusterRole, so the binding gives nothing.
        let token = team.token(&role.replace('_', "-of-"));
        let name = format!("system:serviceaccount:{namespace}:e2e-{}", role.replace('_', "-of-"));
        let groups = vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
        Caller { role, name, groups, token }
    };
    ["platform_admin", "admin", "developer", "viewer", "chat", "nobody"].map(account).into()
}

/// `slipway-platform-admin` in the whole cluster, until this is dropped.
pub(super) struct Platform(String);

impl Platform {
    pub(super) fn admins(team: &Team, callers: &[Caller]) -> Self {
        let admins = callers.iter().filter(|caller| caller.role == "platform_admin");
        let subjects: Vec<Value> = admins.map(|caller| json!({"kind": "User", "name": caller.name, "apiGroup": RBAC})).collect();
        let role = json!({"apiGroup": RBAC, "kind": "ClusterRole", "name": "slipway-platform-admin"});
        let binding = json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRoleBinding",
            "metadata": {"name": team.slug}, "roleRef": role, "subjects": subjects,
        });
        kubectl("apply -f -").input(binding).ok();
        Self(team.slug.clone())
    }
}

impl Drop for Platform {
    fn drop(&mut self) {
        kubectl(format!("delete clusterrolebinding {} --ignore-not-found", self.0)).run();
    }
}
