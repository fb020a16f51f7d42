//! Agents whose rollouts Flagger drives ([`Agent::is_flaggers`]). It copies the agent's Deployment to one of its own, the primary,
//! whose pods serve. The agent's Deployment is what it tests next, has no pods at rest, and its replicas are Flagger's to set.
//!
//! [`is_primary_ready`] and [`replicas_elsewhere`] say what is built then. [`read`] looks at the primary, and [`bring`] gives it what
//! waits for no rollout: Secrets that have changed, how many pods the agent has, and that it is stopped.

use kube::api::Patch;
use kube::{Resource, ResourceExt};
use serde_json::{Map, Value, json};
use slipway_api::{Agent, Track, labels};
use slipway_cluster::{Key, Object, write};

use super::MANAGER;
use super::resolve::Resolved;
use crate::caches::ChildKind;
use crate::caches::child::DeploymentState;
use crate::caches::flagger::Primary;
use crate::children;
use crate::context::Context;

/// Whether the agent's Service is to select the pods of the primary.
pub(super) fn is_primary_ready(agent: &Agent, context: &Context) -> bool {
    let (key, caches) = (Key::of(agent), &context.caches);
    let serves = caches.pods.has_ready_primary(&key);
    let selected = || caches.children(ChildKind::Service).get(&key).is_some_and(|child| child.selects_primary);
    if agent.is_flaggers() {
        // The agent's own pods are what is being tested, or what has failed: they do not take the place of a primary that has
        // served once.
        serves || (selected() && is_there(&key, context))
    } else {
        // Who is taken back from Flagger has pods of its own first, with the present spec.
        let is_seen = agent.status.as_ref().and_then(|status| status.observed_generation) == agent.meta().generation;
        let own = || caches.children(ChildKind::Deployment).get(&key).and_then(|child| child.deployment.clone());
        let has_own = || is_seen && own().is_some_and(|own| own.settled() && own.wanted > 0);
        serves && selected() && agent.stopped_by().is_none() && !has_own()
    }
}

/// Whether Flagger has set the replicas of the agent's Deployment, so that they are its own to set. Without a primary nobody else
/// would.
pub(super) fn replicas_elsewhere(agent: &Agent, context: &Context) -> bool {
    let key = Key::of(agent);
    let is_scaled = || context.caches.children(ChildKind::Deployment).get(&key).is_some_and(|child| child.scaled_by_flagger);
    agent.is_flaggers() && is_scaled() && is_there(&key, context)
}

/// Whether there is a primary, or nobody has looked.
fn is_there(agent: &Key, context: &Context) -> bool {
    context.caches.flagged.get(agent).is_none_or(|primary| primary.deployment.is_some())
}

/// The Deployment whose pods serve in the place of the agent's own.
pub(super) fn serving(agent: &Agent, context: &Context) -> Option<DeploymentState> {
    let primary = context.caches.flagged.get(&Key::of(agent)).filter(|_| is_primary_ready(agent, context))?;
    primary.deployment.clone()
}

/// Whether a primary is on its way, of which no watch tells.
pub(super) fn is_moving(agent: &Key, context: &Context) -> bool {
    let primary = context.caches.flagged.get(agent);
    primary.and_then(|primary| primary.deployment.clone()).is_some_and(|it| !it.settled() && it.stuck.is_none())
}

/// Looks at the primary, which is no child of the agent's.
pub(super) async fn read(agent: &Agent, context: &Context) -> Result<(), write::Error> {
    let key = Key::of(agent);
    if !agent.is_flaggers() {
        context.caches.flagged.remove(&key);
        return Ok(());
    }
    let found = children::api(context, ChildKind::Deployment, &key.namespace).get_opt(&Track::primary(&key.name)).await?;
    context.caches.flagged.insert(key, found.as_ref().and_then(primary).unwrap_or_default());
    Ok(())
}

/// A Deployment that a Canary of Flagger's owns, and that stays.
fn primary(object: &Object) -> Option<Primary> {
    let is_canary = |kind: &str, version: &str| kind == "Canary" && version.starts_with("flagger.app/");
    let owner = object.owner_references().iter().find(|owner| owner.controller == Some(true))?;
    if !is_canary(&owner.kind, &owner.api_version) || object.meta().deletion_timestamp.is_some() {
        return None;
    }
    let scales = |fields: &Value| fields.pointer("/f:spec/f:replicas").is_some();
    let by_scale = object.managed_fields().iter().filter(|entry| entry.subresource.as_deref() == Some("scale"));
    Some(Primary {
        deployment: DeploymentState::of(object),
        secrets_hash: object.data["spec"]["template"]["metadata"]["annotations"][labels::SECRETS_HASH].as_str().map(str::to_owned),
        is_scaled: by_scale.filter_map(|entry| entry.fields_v1.as_ref()).any(|fields| scales(&fields.0)),
    })
}

/// Gives the primary what waits for no rollout of Flagger's.
pub(super) async fn bring(agent: &Agent, resolved: &Resolved, context: &Context) -> Result<(), write::Error> {
    let key = Key::of(agent);
    let Some(primary) = context.caches.flagged.get(&key) else { return Ok(()) };
    let secrets_hash = match resolved {
        Resolved::Plan(plan) => plan.secrets_hash.as_deref(),
        Resolved::Fault(_) | Resolved::Unknown(_) => None,
    };
    let Some(change) = change(agent, &primary, secrets_hash) else { return Ok(()) };
    let api = children::api(context, ChildKind::Deployment, &key.namespace);
    match api.patch(&Track::primary(&key.name), &write::by(MANAGER), &Patch::Merge(change)).await {
        // The status is not to speak of the primary as it was.
        Ok(changed) => drop(context.caches.flagged.insert(key, self::primary(&changed).unwrap_or_default())),
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// A merge patch of the primary. Flagger copies the template and the replicas of the agent's Deployment over it at the next promotion,
/// where they are the same.
fn change(agent: &Agent, primary: &Primary, secrets_hash: Option<&str>) -> Option<Value> {
    let deployment = primary.deployment.as_ref()?;
    let mut spec = Map::new();
    let replicas = if agent.stopped_by().is_some() { 0 } else { agent.spec.replicas };
    // An autoscaler's number is not touched, but for a stop.
    if replicas != deployment.wanted && (replicas == 0 || !primary.is_scaled) {
        spec.insert("replicas".to_owned(), json!(replicas));
    }
    if let Some(hash) = secrets_hash.filter(|hash| primary.secrets_hash.as_deref() != Some(*hash)) {
        spec.insert("template".to_owned(), json!({"metadata": {"annotations": {labels::SECRETS_HASH: hash}}}));
    }
    (!spec.is_empty()).then(|| json!({"spec": spec}))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caches::child::Child;
    use crate::testing::context;

    fn agent(annotation: &str, spec: &str) -> Agent {
        serde_yaml::from_str(&format!(
            "{{metadata: {{name: helper, namespace: team-a, uid: u, annotations: {{{annotation}}}}}, spec: {{name: H, framework: custom, {spec}}}}}"
        ))
        .unwrap()
    }

    const ON: &str = "agents.slipway.dev/flagger: 'true'";

    fn key() -> Key {
        Key::new("team-a", "helper")
    }

    fn there(context: &Context, kind: ChildKind, object: Value) {
        let object: Object = serde_json::from_value(object).unwrap();
        context.caches.children(kind).insert(key(), Child::look(&object, None, || None, ""));
    }

    /// The agent's Deployment, whose replicas this manager has set.
    fn own(context: &Context, manager: &str, available: i32) {
        let entry =
            json!({"manager": manager, "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:replicas": {}}}});
        let metadata = json!({"name": "helper", "namespace": "team-a", "managedFields": [entry]});
        let status = json!({"replicas": available, "updatedReplicas": available, "availableReplicas": available});
        let body =
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {"replicas": available}, "status": status});
        there(context, ChildKind::Deployment, body);
    }

    /// The agent's Service, which selects pods of this name.
    fn service(context: &Context, name: &str) {
        let selector = json!({labels::AGENT: "helper", labels::NAME: name});
        let metadata = json!({"name": "helper", "namespace": "team-a"});
        there(
            context,
            ChildKind::Service,
            json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"selector": selector}}),
        );
    }

    /// A pod of the primary.
    fn pod(context: &Context, ready: &str) {
        let labels = json!({labels::AGENT: "helper", labels::NAME: "helper-primary", labels::TRACK: "stable"});
        let status = json!({"podIP": "10.0.0.7", "conditions": [{"type": "Ready", "status": ready}]});
        let metadata = json!({"name": "p", "namespace": "team-a", "labels": labels});
        context.caches.pods.seen(&serde_json::from_value(json!({"metadata": metadata, "status": status})).unwrap());
    }

    fn looked(context: &Context, deployment: Option<DeploymentState>) {
        context.caches.flagged.insert(key(), Primary { deployment, ..Primary::default() });
    }

    #[tokio::test]
    async fn the_service_follows_the_primary_once_it_is_ready() {
        let (context, agent) = (context(), agent(ON, "replicas: 1"));
        let selects_primary = || is_primary_ready(&agent, &context);
        service(&context, "helper");
        pod(&context, "False");
        looked(&context, Some(DeploymentState::default()));
        assert!(!selects_primary(), "it has yet to start");
        pod(&context, "True");
        assert!(selects_primary());
        assert!(serving(&agent, &context).is_some());
        service(&context, "helper-primary");
        pod(&context, "False");
        assert!(selects_primary(), "what is tested does not take its place");
        looked(&context, None);
        assert!(!selects_primary() && serving(&agent, &context).is_none(), "there is none any more");
    }

    #[tokio::test]
    async fn who_is_taken_back_from_flagger_has_its_own_pods_first() {
        let (context, mut agent) = (context(), agent("a: b", "replicas: 1"));
        service(&context, "helper-primary");
        pod(&context, "True");
        own(&context, "slipway/agent", 0);
        assert!(is_primary_ready(&agent, &context));
        own(&context, "slipway/agent", 1);
        assert!(!is_primary_ready(&agent, &context));
        agent.meta_mut().generation = Some(2);
        assert!(is_primary_ready(&agent, &context), "they are what was tested");
        agent.spec.suspend = true;
        assert!(!is_primary_ready(&agent, &context), "nobody serves");
        (agent.meta_mut().generation, agent.spec.suspend) = (None, false);
        own(&context, "slipway/agent", 0);
        service(&context, "helper");
        assert!(!is_primary_ready(&agent, &context), "nobody is handed to pods of that name");
    }

    #[tokio::test]
    async fn replicas_are_flaggers_where_it_has_set_them() {
        let context = context();
        let elsewhere = |annotation: &str| replicas_elsewhere(&agent(annotation, "replicas: 1"), &context);
        assert!(!elsewhere(ON), "there is no Deployment");
        own(&context, "slipway/agent", 1);
        assert!(!elsewhere(ON), "they are the operator's until then");
        own(&context, "flagger", 0);
        assert!(elsewhere(ON) && !elsewhere("a: b"));
        looked(&context, None);
        assert!(!elsewhere(ON), "without a primary nobody would serve");
    }

    fn flaggers(owner: &str, subresource: Option<&str>) -> Option<Primary> {
        let entry = json!({"manager": "m", "operation": "Update", "subresource": subresource, "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": {"f:replicas": {}}}});
        let owner = json!({"apiVersion": owner, "kind": "Canary", "name": "c", "uid": "c", "controller": true});
        let metadata = json!({"name": "helper-primary", "ownerReferences": [owner], "managedFields": [entry]});
        let template = json!({"metadata": {"annotations": {labels::SECRETS_HASH: "old"}}});
        let body =
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {"replicas": 2, "template": template}});
        primary(&serde_json::from_value(body).unwrap())
    }

    #[test]
    fn a_primary_is_what_flagger_owns() {
        assert_eq!(flaggers("example.com/v1", None), None);
        let found = flaggers("flagger.app/v1beta1", None).unwrap();
        assert_eq!((found.deployment.unwrap().wanted, found.secrets_hash.as_deref(), found.is_scaled), (2, Some("old"), false));
        assert!(flaggers("flagger.app/v1beta1", Some("scale")).unwrap().is_scaled);
    }

    #[test]
    fn a_primary_gets_what_waits_for_no_rollout() {
        let (free, scaled) = (flaggers("flagger.app/v1beta1", None).unwrap(), flaggers("flagger.app/v1beta1", Some("scale")).unwrap());
        let hash = json!({"metadata": {"annotations": {labels::SECRETS_HASH: "new"}}});
        for (spec, primary, secrets_hash, expected) in [
            ("replicas: 2", &free, Some("old"), None),
            ("replicas: 2", &free, None, None),
            ("replicas: 2", &free, Some("new"), Some(json!({"spec": {"template": hash}}))),
            ("replicas: 3", &free, Some("old"), Some(json!({"spec": {"replicas": 3}}))),
            ("replicas: 3", &scaled, Some("old"), None),
            ("replicas: 0", &scaled, Some("old"), Some(json!({"spec": {"replicas": 0}}))),
            ("replicas: 2, suspend: true", &scaled, Some("new"), Some(json!({"spec": {"replicas": 0, "template": hash}}))),
            ("replicas: 3", &Primary::default(), Some("new"), None),
        ] {
            assert_eq!(change(&agent(ON, spec), primary, secrets_hash), expected, "{spec} {secrets_hash:?}");
        }
    }
}
