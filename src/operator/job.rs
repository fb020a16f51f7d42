//! Jobs of ingestions, evaluations and tests of integrations: how they are built (pure), which of their pods are replaced, and
//! what keeps a pod from running. Pods are read from the API server while a Job is not as far as it should be, and when it has
//! failed. Where they cannot be read, the status is written all the same.

use k8s_openapi::api::batch::v1::{
    Job, JobSpec, PodFailurePolicy, PodFailurePolicyOnExitCodesRequirement, PodFailurePolicyOnPodConditionsPattern, PodFailurePolicyRule,
};
use k8s_openapi::api::core::v1::{Pod, PodSpec, PodTemplateSpec};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, ListParams};
use kube::{Resource, ResourceExt};
use slipway_api::labels;

use crate::caches::pods::{Problem, problem};
use crate::children::reason_of_refusal;
use crate::context::Context;
use crate::settings::Settings;
use crate::worker;

/// By which our programs say that another attempt would end like this one.
const REFUSED: i32 = 2;
/// A Job has one pod for each attempt.
const MAX_PODS: u32 = 16;
const MAX_EVENTS: u32 = 20;

/// Why a Job has no pod that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JobTrouble {
    pub reason: &'static str,
    pub message: String,
}

/// What one Job does not have in common with the others.
pub(crate) struct JobPlan {
    pub name: String,
    /// The name and the component of its pods, as labels.
    pub component: [&'static str; 2],
    /// The label that has its owner's name.
    pub owner_label: &'static str,
    /// How often a pod that failed is replaced.
    pub retries: i32,
    pub failure_policy: Option<PodFailurePolicy>,
    pub deadline_seconds: i64,
    /// How long it stays once it has ended.
    pub ttl_seconds: i32,
    pub pod: PodSpec,
}

/// A Job of this owner. Its pods have the labels and annotations of all of the platform's pods besides.
pub(crate) fn build<K: Resource<DynamicType = ()>>(settings: &Settings, owner: &K, plan: JobPlan) -> Job {
    let template = &settings.agent_defaults.pod_template;
    let [name, component] = plan.component;
    let mut own = worker::component_labels(name, component);
    let owner_name = owner.name_any();
    let fixed = [(labels::PART_OF, labels::PLATFORM), (labels::MANAGED_BY, labels::OPERATOR), (plan.owner_label, owner_name.as_str())];
    own.extend(fixed.map(|(key, value)| (key.to_owned(), value.to_owned())));
    let mut all = template.labels.clone();
    all.extend(own.clone());
    Job {
        metadata: ObjectMeta {
            name: Some(plan.name),
            namespace: owner.namespace(),
            labels: Some(own),
            owner_references: owner.controller_owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: Some(JobSpec {
            backoff_limit: Some(plan.retries),
            active_deadline_seconds: Some(plan.deadline_seconds),
            ttl_seconds_after_finished: Some(plan.ttl_seconds),
            pod_failure_policy: plan.failure_policy,
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some(all),
                    annotations: Some(template.annotations.clone()).filter(|map| !map.is_empty()),
                    ..ObjectMeta::default()
                }),
                spec: Some(PodSpec { restart_policy: Some("Never".to_owned()), ..plan.pod }),
            },
            ..JobSpec::default()
        }),
        status: None,
    }
}

/// A pod whose node is drained has not failed: what it has done is kept, and the next one goes on. One that says that there is
/// no use in another is the last.
pub(crate) fn failure_policy(container: &str) -> PodFailurePolicy {
    let disrupted = PodFailurePolicyOnPodConditionsPattern { type_: "DisruptionTarget".to_owned(), status: Some("True".to_owned()) };
    let refused = PodFailurePolicyOnExitCodesRequirement {
        container_name: Some(container.to_owned()),
        operator: "In".to_owned(),
        values: vec![REFUSED],
    };
    PodFailurePolicy {
        rules: vec![
            PodFailurePolicyRule { action: "Ignore".to_owned(), on_pod_conditions: Some(vec![disrupted]), on_exit_codes: None },
            PodFailurePolicyRule { action: "FailJob".to_owned(), on_pod_conditions: None, on_exit_codes: Some(refused) },
        ],
    }
}

/// The pods of a Job, by the label that they have.
pub(crate) async fn pods(context: &Context, namespace: &str, label: &str) -> Result<Vec<Pod>, kube::Error> {
    let api: Api<Pod> = Api::namespaced(context.client.clone(), namespace);
    Ok(api.list(&ListParams::default().labels(label).limit(MAX_PODS)).await?.items)
}

/// What keeps the newest pod from running; of a Job without a pod, why it has none.
pub(crate) async fn trouble(context: &Context, namespace: &str, label: &str, job: &str) -> Option<JobTrouble> {
    match pods(context, namespace, label).await {
        Ok(pods) if pods.is_empty() => refusal(context, namespace, job).await,
        Ok(pods) => of_pods(&pods),
        Err(error) => {
            tracing::debug!(namespace, job, %error, "the pods of a Job could not be asked for");
            None
        }
    }
}

/// What keeps the newest one from running.
pub(crate) fn of_pods(pods: &[Pod]) -> Option<JobTrouble> {
    let newest = pods.iter().max_by_key(|pod| pod.creation_timestamp().map(|time| time.0));
    newest.and_then(problem).map(|problem| told(&problem))
}

fn told(problem: &Problem) -> JobTrouble {
    let reason = if problem.reason == "Unschedulable" { "Unschedulable" } else { "PodFailed" };
    let message = if problem.message.is_empty() { problem.reason.clone() } else { format!("{}: {}", problem.reason, problem.message) };
    JobTrouble { reason, message: format!("its pod does not run: {message}") }
}

/// What the controller of Jobs was told when it made a pod; it says so in Events alone, and tries again.
pub(crate) async fn refusal(context: &Context, namespace: &str, job: &str) -> Option<JobTrouble> {
    let api: Api<Event> = Api::namespaced(context.client.clone(), namespace);
    let of_it = format!("regarding.kind=Job,regarding.name={job},reason=FailedCreate");
    let events = api.list(&ListParams::default().fields(&of_it).limit(MAX_EVENTS)).await.ok()?;
    let note = events.items.iter().filter_map(|event| event.note.as_deref()).next_back()?;
    Some(JobTrouble { reason: reason_of_refusal(note), message: format!("its pod is not made yet: {note}") })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_newest_pod_says_what_is_wrong() {
        let pod = |created: &str, reason: &str| -> Pod {
            serde_json::from_value(json!({"metadata": {"name": "p", "creationTimestamp": created},
                "status": {"phase": "Failed", "reason": reason, "message": "the node was low on memory"}}))
            .unwrap()
        };
        let pods = [pod("2026-01-01T00:00:09Z", "Evicted"), pod("2026-01-01T00:00:01Z", "Other")];
        let found = of_pods(&pods).unwrap();
        assert_eq!((found.reason, found.message.as_str()), ("PodFailed", "its pod does not run: Evicted: the node was low on memory"));
    }
}
