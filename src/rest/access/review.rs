//! SubjectAccessReviews: whether the cluster's roles allow an action.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::authorization::v1::{NonResourceAttributes, ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::{Api, PostParams};
use slipway_http::Error;

use super::{Access, Caller};
use crate::cluster_error;
use crate::permission::Right;

type Text = Cow<'static, str>;

/// The attributes of an action.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Attributes {
    Resource { verb: Text, group: Text, resource: Text, subresource: Option<Text>, namespace: String, name: Option<String> },
    Path { verb: Text, path: String },
}

impl Attributes {
    pub(crate) fn of(right: Right, namespace: &str, name: Option<&str>) -> Self {
        Self::Resource {
            verb: right.verb.into(),
            group: right.group.into(),
            resource: right.resource.into(),
            subresource: right.subresource.map(Cow::Borrowed),
            namespace: namespace.to_owned(),
            name: name.map(str::to_owned),
        }
    }
}

/// As in messages: `create agents.agents.slipway.dev/chat hello`.
impl fmt::Display for Attributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (verb, group, resource, subresource, name) = match self {
            Self::Resource { verb, group, resource, subresource, name, .. } => (verb, group, resource, subresource, name),
            Self::Path { verb, path } => return write!(f, "{verb} {path}"),
        };
        write!(f, "{verb} {resource}")?;
        if !group.is_empty() {
            write!(f, ".{group}")?;
        }
        subresource.as_ref().map_or(Ok(()), |subresource| write!(f, "/{subresource}"))?;
        name.as_ref().map_or(Ok(()), |name| write!(f, " {name}"))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct AccessQuestion {
    caller: Arc<Caller>,
    attributes: Attributes,
}

impl AccessQuestion {
    pub(super) fn new(caller: Arc<Caller>, attributes: Attributes) -> Self {
        Self { caller, attributes }
    }

    fn spec(&self) -> SubjectAccessReviewSpec {
        let Caller { name, groups, uid, extra, .. } = &*self.caller;
        let mut spec = SubjectAccessReviewSpec {
            user: Some(name.clone()),
            groups: Some(groups.clone()),
            uid: uid.clone(),
            extra: (!extra.is_empty()).then(|| extra.clone()),
            ..SubjectAccessReviewSpec::default()
        };
        let owned = |text: &Text| Some(text.clone().into_owned());
        match &self.attributes {
            Attributes::Resource { verb, group, resource, subresource, namespace, name } => {
                spec.resource_attributes = Some(ResourceAttributes {
                    verb: owned(verb),
                    group: owned(group),
                    resource: owned(resource),
                    subresource: subresource.as_ref().and_then(owned),
                    namespace: Some(namespace.clone()).filter(|namespace| !namespace.is_empty()),
                    name: name.clone(),
                    ..ResourceAttributes::default()
                });
            }
            Attributes::Path { verb, path } => {
                spec.non_resource_attributes = Some(NonResourceAttributes { verb: owned(verb), path: Some(path.clone()) });
            }
        }
        spec
    }
}

impl Access {
    /// Asks the API server, and caches the answer.
    pub(super) async fn review(&self, question: AccessQuestion) -> Result<bool, Error> {
        let asked = Instant::now();
        let review = SubjectAccessReview { spec: question.spec(), ..SubjectAccessReview::default() };
        let api: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let answer = api.create(&PostParams::default(), &review).await.map_err(|error| cluster_error::from_kube(error, "review"))?;
        let allowed = answer.status.is_some_and(|status| status.allowed);
        self.reviews.put(question, allowed, asked);
        Ok(allowed)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_review_carries_all_that_is_known_of_the_caller() {
        let caller = Caller {
            name: "u".to_owned(),
            groups: vec!["g".to_owned()],
            uid: Some("7".to_owned()),
            extra: [("example.com/scopes".to_owned(), vec!["a".to_owned()])].into(),
            ..Caller::default()
        };
        let attributes = Attributes::of(Right::on("create", "agents").sub("chat"), "team-a", Some("hello"));
        let question = AccessQuestion::new(Arc::new(caller), attributes);
        let expected = json!({
            "user": "u", "groups": ["g"], "uid": "7", "extra": {"example.com/scopes": ["a"]},
            "resourceAttributes": {
                "verb": "create", "group": slipway_api::GROUP, "resource": "agents", "subresource": "chat", "namespace": "team-a", "name": "hello",
            },
        });
        assert_eq!(serde_json::to_value(question.spec()).unwrap(), expected);
    }
}
