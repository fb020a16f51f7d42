//! People with a role each.

use serde_json::{Value, json};
use slipway_e2e::{Team, kubectl};
use slipway_peers::Issuer;

const RBAC: &str = "rbac.authorization.k8s.io";

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

/// `slipway-platform-admin` in the whole cluster, until this is dropped.
pub(super) struct Platform(String);

impl Platform {
    pub(super) fn admin(team: &Team, name: &str) -> Self {
        let subjects = [json!({"kind": "User", "name": name, "apiGroup": RBAC})];
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
