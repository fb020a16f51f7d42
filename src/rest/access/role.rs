//! Whether a caller may grant a role, by the API server's rule for bindings: the right to `bind` it, or every right of the
//! role. REST creates bindings as itself, so that the API server does not check the caller.

use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use kube::api::Api;
use slipway_http::Error;

use super::review::Attributes;
use super::{Access, Caller};
use crate::cluster_error;
use crate::permission::Right;

const BIND: Right = Right::on("bind", "clusterroles").of_group("rbac.authorization.k8s.io");
/// The number of concurrent reviews.
const CONCURRENT_REVIEWS: usize = 8;

impl Access {
    /// A right that `caller` lacks to bind this ClusterRole in `namespace`, if any.
    pub(crate) async fn lacks(&self, caller: &Arc<Caller>, role: &str, namespace: &str) -> Result<Option<String>, Error> {
        if self.may(caller, Attributes::of(BIND, namespace, Some(role))).await? {
            return Ok(None);
        }
        let api: Api<ClusterRole> = Api::all(self.client.clone());
        let found = api.get_opt(role).await.map_err(|error| cluster_error::from_kube(error, "role"))?;
        let missing = || Error::unavailable(format!("the cluster has no ClusterRole {role}, which the chart makes (roles.create)"));
        let rules = found.ok_or_else(missing)?.rules.unwrap_or_default();
        let rights = rules.iter().flat_map(|rule| rights(rule, namespace));
        let asked = stream::iter(rights).map(|right| async move {
            let has = self.may(caller, right.clone()).await?;
            Ok::<_, Error>((!has).then(|| right.to_string()))
        });
        asked.buffered(CONCURRENT_REVIEWS).try_filter_map(|lacking| async move { Ok(lacking) }).boxed().try_next().await
    }
}

/// Every single right of a rule. `*` is a right of its own.
fn rights(rule: &PolicyRule, namespace: &str) -> Vec<Attributes> {
    let none = Vec::new();
    let names: Vec<Option<&String>> = match rule.resource_names.as_deref() {
        None | Some([]) => vec![None],
        Some(names) => names.iter().map(Some).collect(),
    };
    let mut all = Vec::new();
    for verb in &rule.verbs {
        for group in rule.api_groups.as_ref().unwrap_or(&none) {
            for resource in rule.resources.as_ref().unwrap_or(&none) {
                let (resource, subresource) = match resource.split_once('/') {
                    Some((resource, subresource)) => (resource, Some(subresource)),
                    None => (resource.as_str(), None),
                };
                all.extend(names.iter().map(|name| Attributes::Resource {
                    verb: verb.clone().into(),
                    group: group.clone().into(),
                    resource: resource.to_owned().into(),
                    subresource: subresource.map(|subresource| subresource.to_owned().into()),
                    namespace: namespace.to_owned(),
                    name: name.cloned(),
                }));
            }
        }
        let paths = rule.non_resource_urls.as_ref().unwrap_or(&none);
        all.extend(paths.iter().map(|path| Attributes::Path { verb: verb.clone().into(), path: path.clone() }));
    }
    all
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_rule_is_taken_apart_into_every_right_that_it_gives() {
        let told = |rule: serde_json::Value| {
            let rule: PolicyRule = serde_json::from_value(rule).unwrap();
            rights(&rule, "team-a").iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let rule = json!({"apiGroups": ["", "apps"], "resources": ["pods", "pods/log"], "verbs": ["get", "*"]});
        let expected =
            ["get pods", "get pods/log", "get pods.apps", "get pods.apps/log", "* pods", "* pods/log", "* pods.apps", "* pods.apps/log"];
        assert_eq!(told(rule), expected);
        let rule = json!({"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["a", "b"], "verbs": ["get"]});
        assert_eq!(told(rule), ["get secrets a", "get secrets b"], "who has one by name has not the others");
        assert_eq!(told(json!({"nonResourceURLs": ["/metrics"], "verbs": ["get"]})), ["get /metrics"]);
        assert!(told(json!({"verbs": ["get"]})).is_empty());
    }
}
