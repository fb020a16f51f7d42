//! Messages of kubelet about a pod that does not get as far as a container: a sandbox that cannot be made, a volume that cannot
//! be mounted. They are in Events of the pod, and in no pod's status.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ListParams};
use slipway_cluster::Key;

use crate::caches::pods::{Problem, Starting};
use crate::context::Context;

/// How soon an agent is looked at again while a pod of it starts.
pub(super) const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// Seconds that a pod may take to start before kubelet is listened to.
const MIN_POD_AGE_SECONDS: i64 = 8;
/// Seconds after which a sandbox that could not be made is not taken for a node's passing trouble any more.
const SANDBOX_TIMEOUT_SECONDS: i64 = 30;
/// A pod has few Events, each counted up.
const MAX_EVENTS: u32 = 50;
const SANDBOX: &str = "FailedCreatePodSandBox";

/// What keeps a pod from starting, if kubelet has said so. That it cannot be asked is no reason to say nothing of the agent.
pub(super) async fn problem(context: &Context, agent: &Key, pod: &Starting) -> Option<Problem> {
    let age = Timestamp::now().as_second() - pod.created;
    if age < MIN_POD_AGE_SECONDS {
        return None;
    }
    let api: Api<Event> = Api::namespaced(context.client.clone(), &agent.namespace);
    let of_pod = format!("regarding.kind=Pod,regarding.name={},type=Warning", pod.name);
    match api.list(&ListParams::default().fields(&of_pod).limit(MAX_EVENTS)).await {
        Ok(events) => judge(&events.items, &pod.uid, age),
        Err(error) => {
            tracing::debug!(%agent, pod = pod.name, %error, "why a pod does not start could not be asked");
            None
        }
    }
}

/// The last of kubelet's complaints. A volume may wait for what somebody is about to make.
fn judge(events: &[Event], uid: &str, age: i64) -> Option<Problem> {
    let of_pod = |event: &&Event| event.regarding.as_ref().is_some_and(|about| about.uid.as_deref() == Some(uid));
    let told = |event: &&Event| matches!(event.reason.as_deref(), Some(SANDBOX | "FailedMount" | "FailedAttachVolume"));
    let last = events.iter().filter(of_pod).filter(told).max_by_key(|event| last_told(event))?;
    let reason = last.reason.clone().unwrap_or_default();
    let fatal = reason == SANDBOX && age >= SANDBOX_TIMEOUT_SECONDS;
    Some(Problem { reason, message: last.note.clone().unwrap_or_default(), fatal })
}

fn last_told(event: &Event) -> Option<Timestamp> {
    let series = event.series.as_ref().map(|series| series.last_observed_time.0);
    let legacy = event.deprecated_last_timestamp.as_ref().map(|time| time.0);
    series.or(legacy).or(event.event_time.as_ref().map(|time| time.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(reason: &str, uid: &str, minute: u32, note: &str) -> Event {
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": format!("p.{minute}")}, "reason": reason, "note": note, "type": "Warning",
            "regarding": {"kind": "Pod", "name": "p", "uid": uid},
            "deprecatedLastTimestamp": format!("2026-01-01T00:{minute:02}:00Z"), "eventTime": null,
        }))
        .unwrap()
    }

    #[test]
    fn the_last_complaint_about_this_very_pod_counts() {
        let words = "Failed to create pod sandbox: container init was OOM-killed (memory limit too low?)";
        let sandbox = event(SANDBOX, "u", 1, words);
        let mount = |minute| event("FailedMount", "u", minute, "configmap \"a\" not found");
        let other = [event("FailedScheduling", "u", 9, "0/1 nodes"), event(SANDBOX, "earlier", 9, "another pod")];
        let said = |events: &[Event], age| judge(events, "u", age).map(|problem| (problem.reason, problem.message, problem.fatal));
        let expected = |reason: &str, message: &str, fatal| Some((reason.to_owned(), message.to_owned(), fatal));
        assert_eq!(said(&other, 100), None);
        assert_eq!(said(std::slice::from_ref(&sandbox), 10), expected(SANDBOX, words, false));
        assert_eq!(said(&[mount(0), sandbox.clone(), other[0].clone(), other[1].clone()], 30), expected(SANDBOX, words, true));
        assert_eq!(said(&[sandbox, mount(2)], 300), expected("FailedMount", "configmap \"a\" not found", false));
    }
}
