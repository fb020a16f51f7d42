//! An Event of Kubernetes as REST shows it.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event as KubeEvent;
use kube::ResourceExt;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use slipway_api::{Track, ids, labels};
use slipway_cluster::Key;
use slipway_http::{Error, Event};

/// Larger payloads are omitted.
const PAYLOAD_BYTES_MAX: usize = 16 * 1024;
/// The prefix of our controllers' names.
const CONTROLLER_PREFIX: &str = "slipway-";
const EVALUATION_RUN: &str = "EvaluationRun";

/// Something that happened to an agent.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "AgentEvent")]
pub(crate) struct View {
    /// Normal or Warning.
    #[serde(rename = "type")]
    pub kind: String,
    pub reason: String,
    pub message: String,
    pub object: Object,
    pub agent_id: String,
    pub timestamp: Option<String>,
    pub payload: Option<Value>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "EventObject")]
pub(crate) struct Object {
    pub kind: String,
    pub name: String,
}

/// The agent that an Event is about, if the Event alone says it.
pub(super) fn agent(event: &KubeEvent) -> Option<Key> {
    let about = Regarded::of(event.regarding.as_ref()?)?;
    match (about.kind, about.group) {
        ("Agent", slipway_api::GROUP | "") => about.key(about.name),
        ("Deployment", "apps" | "") => about.key(Track::of_workload(about.name).0),
        (EVALUATION_RUN, slipway_api::GROUP) => {
            let agent = Regarded::of(event.related.as_ref()?)?;
            let same_team = agent.namespace == about.namespace;
            if same_team && (agent.kind, agent.group) == ("Agent", slipway_api::GROUP) { agent.key(agent.name) } else { None }
        }
        _ => None,
    }
}

/// The run that an Event is about.
pub(super) fn evaluation(event: &KubeEvent) -> Option<Key> {
    let about = Regarded::of(event.regarding.as_ref()?)?;
    if (about.kind, about.group) == (EVALUATION_RUN, slipway_api::GROUP) { about.key(about.name) } else { None }
}

/// An object that an Event names.
struct Regarded<'a> {
    kind: &'a str,
    group: &'a str,
    namespace: &'a str,
    name: &'a str,
}

impl<'a> Regarded<'a> {
    fn of(reference: &'a ObjectReference) -> Option<Self> {
        let group = reference.api_version.as_deref().and_then(|version| version.split_once('/')).map_or("", |(group, _)| group);
        let (namespace, name) = (reference.namespace.as_deref()?, reference.name.as_deref()?);
        Some(Self { kind: reference.kind.as_deref()?, group, namespace, name })
    }

    /// Agents live in the namespaces of teams only.
    fn key(&self, name: &str) -> Option<Key> {
        self.namespace.starts_with("team-").then(|| Key::new(self.namespace, name))
    }
}

/// The Event as a server-sent event, with its version as id.
pub(super) fn framed(event: KubeEvent, agent: &Key, version: u64) -> Result<Event, Error> {
    let happened = event.series.as_ref().map(|series| series.last_observed_time.0).or(event.event_time.as_ref().map(|time| time.0));
    let happened =
        happened.or(event.deprecated_last_timestamp.as_ref().map(|time| time.0)).or_else(|| event.creation_timestamp().map(|time| time.0));
    let payload = payload(&event);
    let about = event.regarding.unwrap_or_default();
    let view = View {
        kind: event.type_.filter(|kind| !kind.contains(['\n', '\r', '\0'])).unwrap_or_else(|| "Normal".to_owned()),
        reason: event.reason.unwrap_or_default(),
        message: event.note.unwrap_or_default(),
        object: Object { kind: about.kind.unwrap_or_default(), name: about.name.unwrap_or_default() },
        agent_id: ids::agent(&agent.namespace, &agent.name),
        timestamp: happened.map(|time: Timestamp| time.to_string()),
        payload,
    };
    Event::named(&view.kind, Some(&version.to_string()), &view)
}

fn payload(event: &KubeEvent) -> Option<Value> {
    event.reporting_controller.as_deref().filter(|controller| controller.starts_with(CONTROLLER_PREFIX))?;
    let text = event.annotations().get(labels::PAYLOAD).filter(|text| text.len() <= PAYLOAD_BYTES_MAX)?;
    serde_json::from_str(text).ok()
}

/// The last event of a stream that the server ends. It has no id, so that Last-Event-ID stays valid.
pub(super) fn last(agent: &Key, kind: &str, reason: &str, message: String, now: Timestamp) -> Result<Event, Error> {
    let view = View {
        kind: kind.to_owned(),
        reason: reason.to_owned(),
        message,
        object: Object { kind: "Agent".to_owned(), name: agent.name.clone() },
        agent_id: ids::agent(&agent.namespace, &agent.name),
        timestamp: Some(now.to_string()),
        payload: None,
    };
    Event::named(kind, None, &view)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(kind: &str, version: &str, name: &str, more: &Value) -> KubeEvent {
        let mut whole = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event",
            "metadata": {"name": "e.1", "namespace": "team-a", "annotations": {"agents.slipway.dev/payload": "{\"version\":3}"}},
            "eventTime": "2026-11-21T10:00:00.000000Z", "type": "Normal", "reason": "ReleaseDeployed", "note": "v3\nis active",
            "reportingController": "slipway-manager",
            "regarding": {"kind": kind, "apiVersion": version, "name": name, "namespace": "team-a"},
        });
        crate::write::merge(&mut whole, more.clone());
        serde_json::from_value(whole).unwrap()
    }

    #[test]
    fn events_of_an_agent_and_of_its_deployments_are_the_agents() {
        for (kind, version, name, is) in [
            ("Agent", "agents.slipway.dev/v1", "helper", Some("helper")),
            ("Agent", "other.example.com/v1", "helper", None),
            ("Deployment", "apps/v1", "helper", Some("helper")),
            ("Deployment", "apps/v1", "helper-canary", Some("helper")),
            ("Pod", "v1", "helper", None),
        ] {
            let found = agent(&event(kind, version, name, &json!({})));
            assert_eq!(found, is.map(|name| Key::new("team-a", name)), "{kind} {version} {name}");
        }
        assert!(agent(&event("Agent", "agents.slipway.dev/v1", "x", &json!({"regarding": {"namespace": "default"}}))).is_none());
    }

    #[test]
    fn an_event_of_an_evaluation_is_of_the_agent_that_it_names() {
        let of = |related: Value| event("EvaluationRun", "agents.slipway.dev/v1", "ev-1", &json!({ "related": related }));
        let named =
            |version: &str, namespace: &str| json!({"kind": "Agent", "apiVersion": version, "name": "helper", "namespace": namespace});
        let whole = of(named("agents.slipway.dev/v1", "team-a"));
        assert_eq!(agent(&whole), Some(Key::new("team-a", "helper")));
        for related in [Value::Null, named("agents.slipway.dev/v1", "team-b"), named("other.example.com/v1", "team-a")] {
            let event = of(related);
            assert_eq!((agent(&event), evaluation(&event)), (None, Some(Key::new("team-a", "ev-1"))));
        }
        assert_eq!(evaluation(&event("EvaluationRun", "other.example.com/v1", "ev-1", &json!({}))), None);
    }

    #[test]
    fn an_event_is_sent_with_its_version_as_id() {
        let key = Key::new("team-a", "helper");
        let sent = framed(event("Agent", "agents.slipway.dev/v1", "helper", &json!({})), &key, 17).unwrap();
        let expected = json!({
            "type": "Normal", "reason": "ReleaseDeployed", "message": "v3\nis active", "object": {"kind": "Agent", "name": "helper"},
            "agent_id": ids::agent("team-a", "helper"), "timestamp": "2026-11-21T10:00:00Z", "payload": {"version": 3},
        });
        let text = sent.to_string();
        let data = text.strip_prefix("event: Normal\nid: 17\ndata: ").unwrap().strip_suffix("\n\n").unwrap();
        assert_eq!(serde_json::from_str::<Value>(data).unwrap(), expected);
    }

    #[test]
    fn only_our_own_payloads_are_passed_on() {
        let read = |more: &Value| payload(&event("Agent", "agents.slipway.dev/v1", "x", more));
        assert!(read(&json!({})).is_some());
        assert!(read(&json!({"reportingController": "somebody"})).is_none());
        assert!(read(&json!({"metadata": {"annotations": {"agents.slipway.dev/payload": "no JSON"}}})).is_none());
    }

    #[test]
    fn the_time_of_a_repetition_counts() {
        let repeated = json!({"series": {"count": 3, "lastObservedTime": "2026-11-21T11:30:00.000000Z"}});
        let key = Key::new("team-a", "x");
        let sent = framed(event("Agent", "agents.slipway.dev/v1", "x", &repeated), &key, 1).unwrap();
        assert!(sent.to_string().contains("2026-11-21T11:30:00Z"), "{sent}");
    }
}
