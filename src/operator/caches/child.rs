//! The record of an object that we own: not the object, but whether it is as it should be.
//!
//! Ten thousand agents have thirty thousand children. Keeping them whole would cost hundreds of megabytes; comparing each as it
//! arrives and keeping the verdict costs a few dozen bytes.

use k8s_openapi::api::apps::v1::DeploymentStatus;
use k8s_openapi::api::batch::v1::JobStatus;
use kube::api::ObjectMeta;
use kube::{Resource, ResourceExt};
use serde::Deserialize;
use serde_json::{Value, json};
use slipway_api::{Track, labels};
use slipway_cluster::Object;
use slipway_cluster::json::hash;

use crate::drift;

/// The field manager of Flagger: its program's name.
const FLAGGER: &str = "flagger";

/// An object that the operator owns, as last seen.
#[expect(clippy::struct_excessive_bools, reason = "each is true for reasons of its own")]
#[derive(Debug, Clone)]
pub(crate) struct Child {
    pub uid: String,
    pub resource_version: u64,
    /// The uid of the controlling owner.
    pub owner: Option<String>,
    /// Whether it was made for an owner of the name that it is labelled with: another uid is that of an earlier one.
    pub is_labelled: bool,
    pub labelled_team: Option<String>,
    pub deleting: bool,
    fingerprint: u64,
    /// The hash of the desired object that this one was found to be.
    pub matches_hash: Option<u64>,
    /// Whether it could be said what the object should be when it was looked at.
    pub compared: bool,
    /// Whether this process has seen it as it should be. What differs at first sight, another manager may have wanted so.
    pub ever_matched: bool,
    pub deployment: Option<Box<DeploymentState>>,
    pub job: Option<Box<JobState>>,
    /// Whether Flagger set the replicas of this Deployment last.
    pub scaled_by_flagger: bool,
    /// Whether this Service selects the pods of Flagger's copy of an agent's Deployment.
    pub selects_primary: bool,
    pub route: Option<Box<RouteState>>,
    /// Of a Namespace.
    pub mesh: Mesh,
}

/// What Gateways say of an HTTPRoute in its present form.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RouteState {
    /// None while none of them has said anything.
    pub accepted: Option<bool>,
    /// Why it is not accepted.
    pub message: String,
    /// Whether it was accepted in an earlier form, and they have yet to speak of this one.
    pub was_accepted: bool,
}

/// Whether a mesh of Istio carries what is sent within a namespace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Mesh {
    /// The namespace is in no mesh.
    #[default]
    Absent,
    /// It is in the ambient mesh, which routes by HTTP only where there is a waypoint.
    WithoutWaypoint,
    Enrolled,
}

/// The part of a Job's status that the statuses of ingestions and evaluations are made from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct JobState {
    /// None while it is under way.
    pub outcome: Option<JobOutcome>,
    /// Pods that there are now, and those that have failed.
    pub active: i32,
    pub failed: i32,
}

/// How a Job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum JobOutcome {
    Complete,
    Failed { reason: String, message: String },
}

/// The part of a Deployment's status that agents' statuses are made from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DeploymentState {
    pub wanted: i32,
    pub updated: i32,
    pub ready: i32,
    pub available: i32,
    pub total: i32,
    /// Whether the status speaks of the present spec.
    pub current: bool,
    /// Reason and message of `Progressing=False`.
    pub stuck: Option<(String, String)>,
    /// The message of `ReplicaFailure=True`.
    pub refused: Option<String>,
}

impl Child {
    /// Looks at `object`. What was `before` spares the comparison when nothing changed.
    pub(crate) fn look(object: &Object, before: Option<&Self>, desired: impl FnOnce() -> Option<Value>, manager: &str) -> Self {
        let meta = object.meta();
        let uid = meta.uid.clone().unwrap_or_default();
        let owners: Vec<_> = meta.owner_references.iter().flatten().map(|owner| (&owner.uid, &owner.controller)).collect();
        let fingerprint = drift::fingerprint(&meta.labels, &meta.annotations, &owners, &object.data);
        let scaled_by_flagger = scales(object, FLAGGER);
        // What it should be follows from this as well, and is not asked before the cache has it.
        let is_handed_over = before.is_some_and(|before| before.scaled_by_flagger != scaled_by_flagger);
        let (matches_hash, compared) = match before {
            _ if is_handed_over => (None, false),
            Some(before) if before.compared && before.fingerprint == fingerprint && before.uid == uid => (before.matches_hash, true),
            _ => match desired() {
                Some(desired) => (matches(&desired, object, manager).then(|| hash(&desired)), true),
                None => (None, false),
            },
        };
        let ever_matched = matches_hash.is_some() || before.is_some_and(|before| before.ever_matched && before.uid == uid);
        Self {
            uid,
            resource_version: version(object),
            owner: meta.owner_references.iter().flatten().find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.clone()),
            is_labelled: is_labelled(object),
            labelled_team: object.labels().get(labels::TEAM).cloned(),
            deleting: meta.deletion_timestamp.is_some(),
            fingerprint,
            matches_hash,
            compared,
            ever_matched,
            deployment: DeploymentState::of(object).map(Box::new),
            job: JobState::of(object).map(Box::new),
            scaled_by_flagger,
            selects_primary: selects_primary(object),
            route: RouteState::of(object).map(Box::new),
            mesh: Mesh::of(object),
        }
    }

    /// The API server's answer to a write, after which the object is as the desired one of this hash.
    pub(crate) fn written(object: &Object, desired: u64) -> Self {
        Self { matches_hash: Some(desired), compared: true, ever_matched: true, ..Self::look(object, None, || None, "") }
    }
}

/// Whether the label that we put on what we make names the object's controlling owner, which is of one of our kinds.
pub(crate) fn is_labelled(object: &impl ResourceExt) -> bool {
    let owner = object.owner_references().iter().find(|owner| owner.controller == Some(true));
    owner.filter(|owner| owner.api_version.starts_with(slipway_api::GROUP)).is_some_and(|owner| {
        let names = [labels::AGENT, labels::SKILL, labels::TEAM, labels::INGESTION, labels::INTEGRATION, labels::EVALUATION];
        names.iter().any(|label| object.labels().get(*label) == Some(&owner.name))
    })
}

/// Whether the book of field managers says that the replicas are this one's.
fn scales(object: &Object, manager: &str) -> bool {
    let entries = object.managed_fields().iter().filter(|entry| entry.manager.as_deref() == Some(manager));
    entries.filter_map(|entry| entry.fields_v1.as_ref()).any(|fields| fields.0.pointer("/f:spec/f:replicas").is_some())
}

fn selects_primary(object: &Object) -> bool {
    let Some(selector) = object.data.get("spec").and_then(|spec| spec.get("selector")) else { return false };
    let of = |label: &str| selector.get(label).and_then(Value::as_str);
    of(labels::AGENT).is_some_and(|agent| of(labels::NAME) == Some(Track::primary(agent).as_str()))
}

/// Whether `object` has all of `desired`, nothing that we desired once, and nothing that others put where only we may.
fn matches(desired: &Value, object: &Object, manager: &str) -> bool {
    let fields = object.managed_fields();
    has_all_of(desired, object)
        && !drift::leftovers(fields, manager, desired)
        && drift::additions(fields, manager, &object.data, drift::of_others(desired)).is_empty()
}

/// Whether `object` holds all of `desired`. Compared in parts, as a copy of the whole, with the book of field managers, takes longer.
fn has_all_of(desired: &Value, object: &Object) -> bool {
    let ObjectMeta { name, namespace, uid, generation, resource_version, labels, annotations, finalizers, owner_references, .. } =
        &object.metadata;
    let mut metadata = json!({
        "name": name, "namespace": namespace, "uid": uid, "generation": generation, "resourceVersion": resource_version,
        "labels": labels, "annotations": annotations, "finalizers": finalizers, "ownerReferences": owner_references,
    });
    if let Some(fields) = metadata.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    let types = object.types.as_ref();
    desired.as_object().into_iter().flatten().all(|(key, desired)| match (key.as_str(), types) {
        ("apiVersion", Some(types)) => *desired == types.api_version,
        ("kind", Some(types)) => *desired == types.kind,
        ("metadata", _) => drift::covers(desired, &metadata),
        (key, _) => drift::covers_at(desired, object.data.get(key)),
    })
}

/// Resource versions are numbers that grow; kubernetes promises so since 1.35.
pub(crate) fn version(object: &Object) -> u64 {
    object.meta().resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn is_a(object: &Object, kind: &str) -> bool {
    object.types.as_ref().is_some_and(|types| types.kind == kind)
}

impl JobState {
    fn of(object: &Object) -> Option<Self> {
        if !is_a(object, "Job") {
            return None;
        }
        let status = object.data.get("status").and_then(|status| JobStatus::deserialize(status).ok()).unwrap_or_default();
        let outcome = status.conditions.iter().flatten().filter(|condition| condition.status == "True").find_map(|condition| {
            let words = |text: &Option<String>| text.clone().unwrap_or_default();
            match condition.type_.as_str() {
                "Complete" => Some(JobOutcome::Complete),
                "Failed" => Some(JobOutcome::Failed { reason: words(&condition.reason), message: words(&condition.message) }),
                _ => None,
            }
        });
        Some(Self { outcome, active: status.active.unwrap_or(0), failed: status.failed.unwrap_or(0) })
    }
}

impl DeploymentState {
    pub(crate) fn of(object: &Object) -> Option<Self> {
        if !is_a(object, "Deployment") {
            return None;
        }
        let wanted = object.data.get("spec").and_then(|spec| spec.get("replicas")).and_then(Value::as_i64).unwrap_or(1);
        let status = object.data.get("status").and_then(|status| DeploymentStatus::deserialize(status).ok()).unwrap_or_default();
        let condition =
            |kind: &str, holds: &str| status.conditions.iter().flatten().find(|c| c.type_ == kind && c.status == holds).cloned();
        Some(Self {
            wanted: i32::try_from(wanted).unwrap_or(0),
            updated: status.updated_replicas.unwrap_or(0),
            ready: status.ready_replicas.unwrap_or(0),
            available: status.available_replicas.unwrap_or(0),
            total: status.replicas.unwrap_or(0),
            current: status.observed_generation >= object.meta().generation,
            stuck: condition("Progressing", "False").map(|c| (c.reason.unwrap_or_default(), c.message.unwrap_or_default())),
            refused: condition("ReplicaFailure", "True").map(|c| c.message.unwrap_or_default()),
        })
    }

    /// Whether pods of an earlier template are still there beside those of the present one.
    pub(crate) fn is_replacing(&self) -> bool {
        self.stuck.is_none() && (!self.current || self.total > self.updated)
    }

    /// Whether every wanted pod is of the present template and available, and no other is left.
    pub(crate) fn settled(&self) -> bool {
        self.current && self.updated == self.wanted && self.available == self.wanted && self.total == self.wanted
    }
}

/// The most characters that are kept of what others say.
const MAX_WORDS: usize = 512;

impl RouteState {
    fn of(object: &Object) -> Option<Self> {
        if !is_a(object, "HTTPRoute") {
            return None;
        }
        let parents = object.data.pointer("/status/parents").and_then(Value::as_array);
        let all = parents.into_iter().flatten().filter_map(|parent| parent.get("conditions")?.as_array()).flatten();
        let is_present = |condition: &&Value| {
            let seen = condition.get("observedGeneration").and_then(Value::as_i64);
            seen.is_none_or(|seen| Some(seen) == object.meta().generation)
        };
        let (present, earlier): (Vec<&Value>, Vec<&Value>) = all.partition(is_present);
        let word = |condition: &Value, field: &str| condition.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let is = |condition: &Value, kind: &str, status: &str| word(condition, "type") == kind && word(condition, "status") == status;
        let find = |kind: &str, status: &str| present.iter().copied().find(|condition| is(condition, kind, status));
        Some(match find("Accepted", "False").or_else(|| find("ResolvedRefs", "False")) {
            Some(refusal) => {
                let words = format!("{}: {}", word(refusal, "reason"), word(refusal, "message"));
                Self { accepted: Some(false), message: words.chars().take(MAX_WORDS).collect(), was_accepted: false }
            }
            None => Self {
                accepted: find("Accepted", "True").map(|_| true),
                message: String::new(),
                was_accepted: earlier.iter().any(|condition| is(condition, "Accepted", "True")),
            },
        })
    }
}

impl Mesh {
    fn of(object: &Object) -> Self {
        if !is_a(object, "Namespace") {
            return Self::Absent;
        }
        let label = |name: &str| object.labels().get(name).map(String::as_str).filter(|value| !value.is_empty());
        let injection = label("istio-injection");
        if injection == Some("enabled") || (injection.is_none() && label("istio.io/rev").is_some()) {
            return Self::Enrolled;
        }
        match (label("istio.io/dataplane-mode"), label("istio.io/use-waypoint")) {
            (Some("ambient"), Some(waypoint)) if waypoint != "none" => Self::Enrolled,
            (Some("ambient"), _) => Self::WithoutWaypoint,
            _ => Self::Absent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_tells_what_gateways_say_of_its_present_form() {
        let state = |conditions: Value| {
            let body = json!({
                "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"name": "r", "generation": 3}, "spec": {},
                "status": {"parents": [{"controllerName": "example.com/gateway", "conditions": conditions}]},
            });
            *Child::look(&serde_json::from_value(body).unwrap(), None, || None, "us").route.unwrap()
        };
        let condition = |kind: &str, status: &str, generation: i64| json!({"type": kind, "status": status, "reason": "R", "message": "m".repeat(MAX_WORDS), "observedGeneration": generation});
        let accepted = condition("Accepted", "True", 3);
        assert_eq!(state(json!([])), RouteState::default(), "nobody has said anything");
        let earlier = RouteState { was_accepted: true, ..RouteState::default() };
        assert_eq!(state(json!([condition("Accepted", "True", 2)])), earlier, "what was said was of an earlier form");
        assert_eq!(state(json!([accepted, condition("ResolvedRefs", "True", 3)])).accepted, Some(true));
        for refusal in [condition("Accepted", "False", 3), condition("ResolvedRefs", "False", 3)] {
            let refused = state(json!([accepted, refusal]));
            assert_eq!((refused.accepted, refused.message.len()), (Some(false), MAX_WORDS));
            assert!(refused.message.starts_with("R: mmm"), "{refused:?}");
        }
    }

    #[test]
    fn a_namespace_tells_whether_a_mesh_routes_in_it() {
        let mesh = |kind: &str, labels: Value| {
            let body = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "team-a", "labels": labels}});
            Child::look(&serde_json::from_value(body).unwrap(), None, || None, "us").mesh
        };
        for (labels, expected) in [
            (json!({}), Mesh::Absent),
            (json!({"istio-injection": "enabled"}), Mesh::Enrolled),
            (json!({"istio.io/rev": "canary"}), Mesh::Enrolled),
            (json!({"istio.io/rev": ""}), Mesh::Absent),
            (json!({"istio-injection": "disabled", "istio.io/rev": "canary"}), Mesh::Absent),
            (json!({"istio.io/dataplane-mode": "ambient"}), Mesh::WithoutWaypoint),
            (json!({"istio.io/dataplane-mode": "ambient", "istio.io/use-waypoint": "none"}), Mesh::WithoutWaypoint),
            (json!({"istio.io/dataplane-mode": "ambient", "istio.io/use-waypoint": "waypoint"}), Mesh::Enrolled),
            (json!({"istio.io/dataplane-mode": "none", "istio.io/use-waypoint": "waypoint"}), Mesh::Absent),
        ] {
            assert_eq!(mesh("Namespace", labels.clone()), expected, "{labels}");
            assert_eq!(mesh("ConfigMap", labels), Mesh::Absent);
        }
    }

    #[test]
    fn a_job_tells_how_it_ended() {
        let state = |status: Value| {
            let body = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {}, "status": status});
            Child::look(&serde_json::from_value(body).unwrap(), None, || None, "us").job.unwrap()
        };
        assert_eq!(*state(json!({"active": 1, "failed": 2})), JobState { outcome: None, active: 1, failed: 2 });
        let ends = |kind: &str, status: &str| json!({"conditions": [{"type": kind, "status": status, "reason": "R", "message": "m"}]});
        assert_eq!(state(ends("Complete", "True")).outcome, Some(JobOutcome::Complete));
        let failed = JobOutcome::Failed { reason: "R".to_owned(), message: "m".to_owned() };
        assert_eq!(state(ends("Failed", "True")).outcome, Some(failed));
        assert_eq!(state(ends("Failed", "False")).outcome, None);
        // Its pods have yet to go.
        assert_eq!(state(ends("FailureTarget", "True")).outcome, None);
    }

    #[test]
    fn who_scales_a_deployment_is_in_the_book() {
        let scaled = |manager: &str, fields: Value| {
            let entry =
                json!({"manager": manager, "operation": "Update", "apiVersion": "apps/v1", "fieldsType": "FieldsV1", "fieldsV1": fields});
            let body =
                json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "managedFields": [entry]}, "spec": {}});
            Child::look(&serde_json::from_value(body).unwrap(), None, || None, "us").scaled_by_flagger
        };
        assert!(scaled("flagger", json!({"f:spec": {"f:replicas": {}}})));
        assert!(!scaled("flagger", json!({"f:spec": {"f:template": {"f:spec": {"f:replicas": {}}}}})));
        assert!(!scaled("kube-controller-manager", json!({"f:spec": {"f:replicas": {}}})));
    }

    #[test]
    fn replicas_that_are_handed_over_are_compared_once_that_is_known() {
        let entry = |manager: &str, field: &str| json!({"manager": manager, "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {field: {}}}});
        let deployment = |manager: &str, replicas: i32| -> Object {
            let fields = [entry("us", "f:strategy"), entry(manager, "f:replicas")];
            let metadata = json!({"name": "d", "uid": "u", "managedFields": fields});
            let body = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {"replicas": replicas}});
            serde_json::from_value(body).unwrap()
        };
        let desired = |spec: Value| Some(json!({"kind": "Deployment", "spec": spec}));
        let ours = Child::look(&deployment("us", 1), None, || desired(json!({"replicas": 1})), "us");
        assert!(ours.matches_hash.is_some());
        let taken = Child::look(&deployment(FLAGGER, 0), Some(&ours), || panic!("the cache has yet to say whose they are"), "us");
        assert!(taken.ever_matched && !taken.compared && taken.matches_hash.is_none(), "nobody has changed what is ours");
        let known = Child::look(&deployment(FLAGGER, 0), Some(&taken), || desired(json!({})), "us");
        assert!(known.compared && known.matches_hash.is_some());
    }

    #[test]
    fn a_service_of_flaggers_pods_is_told_from_others() {
        let selects = |selector: Value| {
            let body = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "helper"}, "spec": {"selector": selector}});
            Child::look(&serde_json::from_value(body).unwrap(), None, || None, "us").selects_primary
        };
        let (agent, name) = (labels::AGENT, labels::NAME);
        assert!(selects(json!({agent: "helper", name: "helper-primary"})));
        assert!(!selects(json!({agent: "helper", name: "helper"})));
        assert!(!selects(json!({name: "helper-primary"})));
    }

    #[test]
    fn what_could_not_be_compared_is_compared_when_it_can_be() {
        let body = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "uid": "u", "resourceVersion": "7"}, "data": {"a": "eA=="}});
        let object: Object = serde_json::from_value(body.clone()).unwrap();
        let unknown = Child::look(&object, None, || None, "us");
        assert!(!unknown.compared && unknown.matches_hash.is_none());
        let known = Child::look(&object, Some(&unknown), || Some(body.clone()), "us");
        assert_eq!((known.compared, known.matches_hash), (true, Some(hash(&body))));
        let spared = Child::look(&object, Some(&known), || panic!("nothing changed, so that nothing is built to compare with"), "us");
        assert_eq!(spared.matches_hash, known.matches_hash);
    }
}
