//! Rights that the present images need and the earlier chart does not give, as it is installed with these images.

use serde_json::{Value, json};
use slipway_e2e::{kubectl, platform};

/// No chart has objects of this name.
const NAME: &str = "e2e-present-images";
const GROUP: &str = "rbac.authorization.k8s.io";

/// The accounts of the platform have these rights until this is dropped. Under the present chart they have them by its own
/// roles, which is what is tested there.
pub(crate) struct Rights(());

impl Rights {
    #[track_caller]
    pub(crate) fn of_present_images() -> Self {
        let this = Self(());
        kubectl("apply -f -").input(all()).ok();
        this
    }
}

impl Drop for Rights {
    fn drop(&mut self) {
        kubectl("delete --ignore-not-found -f -").input(all()).run();
    }
}

fn all() -> Value {
    // Without its key for calls of agents a manager does not start.
    let relay = json!({"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["slipway-relay"], "verbs": ["get"]});
    // REST looks whether a Service is the agent's own before it sends anything there.
    let services = json!({"apiGroups": [""], "resources": ["services"], "verbs": ["get"]});
    let (api, here) = (format!("{GROUP}/v1"), json!({"name": NAME, "namespace": platform::NAMESPACE}));
    let reference = |kind: &str| json!({"apiGroup": GROUP, "kind": kind, "name": NAME});
    let account = |name: &str| json!([{"kind": "ServiceAccount", "name": name, "namespace": platform::NAMESPACE}]);
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": api, "kind": "Role", "metadata": here, "rules": [relay]},
        {"apiVersion": api, "kind": "RoleBinding", "metadata": here, "roleRef": reference("Role"), "subjects": account(platform::MANAGER)},
        {"apiVersion": api, "kind": "ClusterRole", "metadata": {"name": NAME}, "rules": [services]},
        {"apiVersion": api, "kind": "ClusterRoleBinding", "metadata": {"name": NAME}, "roleRef": reference("ClusterRole"),
            "subjects": account(platform::REST)},
    ]})
}
