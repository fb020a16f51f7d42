//! What an ingestion's pods come upon: the pods are asked for while one does not get as far as to write to the database, and
//! when the Job has failed. That they cannot be asked is no reason to say nothing of the ingestion.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use slipway_api::labels;
use slipway_cluster::Key;

use super::plan::Cause;
use crate::caches::pods::{Problem, problem};
use crate::children::reason_of_refusal;
use crate::context::Context;

/// A Job has one pod for each attempt.
const MAX_PODS: u32 = 16;
const MAX_EVENTS: u32 = 20;

/// What keeps the newest pod from running; of a Job without a pod, why it has none.
pub(super) async fn trouble(context: &Context, key: &Key, job: &str) -> Option<Cause> {
    let api: Api<Pod> = Api::namespaced(context.client.clone(), &key.namespace);
    let of_it = format!("{}={}", labels::INGESTION, key.name);
    match api.list(&ListParams::default().labels(&of_it).limit(MAX_PODS)).await {
        Ok(pods) if pods.items.is_empty() => refusal(context, key, job).await,
        Ok(pods) => newest(&pods.items).and_then(problem).map(|problem| cause(&problem)),
        Err(error) => {
            tracing::debug!(ingestion = %key, %error, "the pods of an ingestion could not be asked for");
            None
        }
    }
}

fn newest(pods: &[Pod]) -> Option<&Pod> {
    pods.iter().max_by_key(|pod| pod.creation_timestamp().map(|time| time.0))
}

fn cause(problem: &Problem) -> Cause {
    let reason = if problem.reason == "Unschedulable" { "Unschedulable" } else { "PodFailed" };
    let message = if problem.message.is_empty() { problem.reason.clone() } else { format!("{}: {}", problem.reason, problem.message) };
    Cause::new(reason, format!("its pod does not run: {message}"))
}

/// What the controller of Jobs was told when it made a pod; it says so in Events alone, and tries again.
async fn refusal(context: &Context, key: &Key, job: &str) -> Option<Cause> {
    let api: Api<Event> = Api::namespaced(context.client.clone(), &key.namespace);
    let of_it = format!("regarding.kind=Job,regarding.name={job},reason=FailedCreate");
    let events = api.list(&ListParams::default().fields(&of_it).limit(MAX_EVENTS)).await.ok()?;
    let note = events.items.iter().filter_map(|event| event.note.as_deref()).next_back()?;
    Some(Cause::new(reason_of_refusal(note), format!("its pod is not made yet: {note}")))
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
        let found = newest(&pods).and_then(problem).map(|problem| cause(&problem)).unwrap();
        assert_eq!(found, Cause::new("PodFailed", "its pod does not run: Evicted: the node was low on memory"));
    }
}
