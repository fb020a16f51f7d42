//! Whether the cluster's own roles allow it.

use std::time::Instant;

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::{Api, PostParams};
use slipway_http::Error;

use super::{Access, Caller};
use crate::fault;
use crate::right::Right;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Question {
    user: String,
    groups: Vec<String>,
    right: Right,
    namespace: String,
    name: Option<String>,
}

impl Access {
    pub(super) async fn review(&self, caller: &Caller, right: Right, namespace: &str, name: Option<&str>) -> Result<bool, Error> {
        let question = Question {
            user: caller.name.clone(),
            groups: caller.groups.clone(),
            right,
            namespace: namespace.to_owned(),
            name: name.map(str::to_owned),
        };
        let asked = Instant::now();
        if let Some(verdict) = self.verdicts.get(&question, asked) {
            return Ok(verdict);
        }
        let attributes = ResourceAttributes {
            verb: Some(right.verb.to_owned()),
            group: Some(right.group.to_owned()),
            resource: Some(right.resource.to_owned()),
            subresource: right.subresource.map(str::to_owned),
            namespace: Some(namespace.to_owned()).filter(|namespace| !namespace.is_empty()),
            name: name.map(str::to_owned),
            ..ResourceAttributes::default()
        };
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(caller.name.clone()),
                groups: Some(caller.groups.clone()),
                resource_attributes: Some(attributes),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let api: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let answer = api.create(&PostParams::default(), &review).await.map_err(|error| fault::of_cluster(error, "review"))?;
        let verdict = answer.status.is_some_and(|status| status.allowed);
        self.verdicts.put(question, verdict, asked);
        Ok(verdict)
    }
}
