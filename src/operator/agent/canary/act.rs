//! Writes to an Agent, and beside it, that end a canary or have it evaluated. Each patch holds only for the Agent as it was when
//! the decision was made: after a change by others the decision is made anew.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use kube::api::{Api, Patch};
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};
use slipway_api::{Agent, gitops, labels};
use slipway_cluster::{Key, write};
use slipway_release::promotion;

use super::asked_for;
use super::decision::CanaryEnd;
use super::events::EndedBy;
use super::gather::{Book, CanarySeen};
use crate::agent::{MANAGER, run};
use crate::context::Context;

fn api(agent: &Agent, context: &Context) -> Api<Agent> {
    Api::namespaced(context.client.clone(), &Key::of(agent).namespace)
}

/// Who owns the spec and who has written the annotation: the caches do not keep who has written what.
pub(super) async fn read_book(agent: &Agent, context: &Context) -> Result<Book, write::Error> {
    let live = api(agent, context).get_metadata_opt(&agent.name_any()).await?;
    Ok(live.map(|live| book(&live.metadata)).unwrap_or_default())
}

fn book(meta: &ObjectMeta) -> Book {
    let owner = gitops::owner(meta);
    let barrier = owner.map(|owner| format!("spec: it belongs to {owner}, which would undo what is written to it; change it there"));
    let is_asked = meta.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(labels::CANARY_ACTION));
    let entry = writer(meta);
    let by = match entry.and_then(|entry| entry.manager.as_deref()) {
        _ if !is_asked => EndedBy::Spec,
        Some(labels::REST) => EndedBy::Rest,
        Some(MANAGER) => EndedBy::Analysis,
        _ => EndedBy::Annotation,
    };
    let in_manifest = barrier.is_some() && is_asked && entry.is_some_and(is_of_manifest);
    let asked_at = entry.filter(|_| is_asked).and_then(|entry| entry.time.as_ref()).map(|time| time.0.to_string());
    Book { by, asked_at: asked_at.unwrap_or_default(), in_manifest, barrier }
}

/// Whether who wrote the annotation writes the spec as well, and is neither REST nor this manager.
fn is_of_manifest(entry: &ManagedFieldsEntry) -> bool {
    let is_ours = matches!(entry.manager.as_deref(), Some(labels::REST | MANAGER));
    !is_ours && entry.fields_v1.as_ref().is_some_and(|fields| fields.0.get("f:spec").is_some())
}

/// By the API server's book, who wrote the annotation last.
fn writer(meta: &ObjectMeta) -> Option<&ManagedFieldsEntry> {
    let pointer = format!("/f:metadata/f:annotations/f:{}", labels::CANARY_ACTION.replace('/', "~1"));
    let wrote = |entry: &&ManagedFieldsEntry| entry.fields_v1.as_ref().is_some_and(|fields| fields.0.pointer(&pointer).is_some());
    let entries = meta.managed_fields.iter().flatten().filter(wrote);
    entries.max_by_key(|entry| entry.time.as_ref().map(|time| time.0))
}

/// Ends the canary in the spec, as REST does. What the API server says where it refuses that.
pub(super) async fn patch(agent: &Agent, end: CanaryEnd, context: &Context) -> Result<Option<String>, write::Error> {
    let Some(patch) = ending(agent, end) else { return Ok(None) };
    let key = Key::of(agent);
    match api(agent, context).patch(&key.name, &write::by(MANAGER), &Patch::Merge(&patch)).await {
        Ok(_) => {
            tracing::info!(agent = %key, ?end, "a canary ends");
            Ok(None)
        }
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(None),
        Err(kube::Error::Api(status)) if matches!(status.code, 400 | 403 | 422) => {
            Ok(Some(format!("spec: the API server refused the change: {}", status.message)))
        }
        Err(error) => Err(error.into()),
    }
}

fn ending(agent: &Agent, end: CanaryEnd) -> Option<Value> {
    let (mut patch, word) = match end {
        CanaryEnd::Promoted => (promotion(&agent.spec)?, "promote"),
        CanaryEnd::RolledBack => (json!({"spec": {"canary": null}}), "rollback"),
    };
    patch["metadata"] = json!({
        "resourceVersion": agent.resource_version(),
        // What was said of this canary's weight is not to meet the next one.
        "annotations": {labels::CANARY_ACTION: word, labels::CANARY_WEIGHT: null},
    });
    Some(patch)
}

/// Takes the annotation away once it is told what came of it.
pub(super) async fn drop_annotation(agent: &Agent, context: &Context) -> Result<(), write::Error> {
    match api(agent, context).patch(&agent.name_any(), &write::by(MANAGER), &Patch::Merge(dropping(agent))).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn dropping(agent: &Agent) -> Value {
    let is_left = agent.canary_action().is_some() && asked_for(agent).is_none();
    let mut annotations = if is_left { json!({}) } else { json!({labels::CANARY_ACTION: null}) };
    if agent.canary_status().is_some_and(|canary| !canary.phase.is_active()) {
        // What was said of the weight of one that ends is not to meet the next one.
        annotations[labels::CANARY_WEIGHT] = Value::Null;
    }
    json!({"metadata": {"resourceVersion": agent.resource_version(), "annotations": annotations}})
}

/// Makes the run that the canary's gates ask for. The Agent owns it.
pub(super) async fn make_run(agent: &Agent, seen: &CanarySeen, context: &Context) -> Result<(), write::Error> {
    let evaluated = seen.evaluation.as_ref().and_then(|evaluation| evaluation.run.as_ref());
    let (Some(evaluated), Some(owner)) = (evaluated, agent.controller_owner_ref(&())) else { return Ok(()) };
    let owner = serde_json::to_value(owner)?;
    if run::make(agent, &evaluated.name, &owner, &evaluated.wanted, context).await? {
        tracing::info!(agent = %Key::of(agent), run = evaluated.name, "the evaluation of a canary begins");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use slipway_api::canary::CanaryPhase;
    use slipway_api::{AgentStatus, CanaryStatus};

    use super::*;
    use crate::agent::pin::tests::agent_of;

    #[test]
    fn who_ends_a_canary_is_known_by_the_book_of_writers() {
        let action = json!({"f:metadata": {"f:annotations": {"f:agents.slipway.dev/canary-action": {}}}});
        let of = |manager: &str, is_asked: bool, labels: Value| {
            let annotations = if is_asked { json!({labels::CANARY_ACTION: "promote"}) } else { json!({}) };
            let entry = json!({"manager": manager, "operation": "Update", "time": "2026-01-01T00:00:07Z", "fieldsV1": action});
            let earlier = json!({"manager": "kubectl-annotate", "operation": "Update", "time": "2026-01-01T00:00:05Z", "fieldsV1": action});
            let meta = json!({"annotations": annotations, "labels": labels, "managedFields": [entry, earlier]});
            book(&serde_json::from_value(meta).unwrap())
        };
        let by = |manager: &str| of(manager, true, json!({})).by;
        assert_eq!([by("slipway-rest"), by("slipway/agent"), by("kubectl")], [EndedBy::Rest, EndedBy::Analysis, EndedBy::Annotation]);
        let spec = of("slipway-rest", false, json!({}));
        assert_eq!((spec.by, &*spec.asked_at, spec.barrier), (EndedBy::Spec, "", None));
        assert_eq!(of("kubectl", true, json!({})).asked_at, "2026-01-01T00:00:07Z");
        assert!(!of("kubectl", true, json!({})).in_manifest);
        let flux = json!({"kustomize.toolkit.fluxcd.io/name": "apps"});
        let flux = of("kubectl", true, flux);
        assert!(flux.barrier.unwrap().contains("Flux Kustomization apps") && !flux.in_manifest);
    }

    #[test]
    fn an_annotation_of_a_manifest_is_known_by_who_writes_the_spec() {
        let of = |manager: &str, label: &str| {
            let fields = json!({"f:metadata": {"f:annotations": {"f:agents.slipway.dev/canary-action": {}}}, "f:spec": {"f:name": {}}});
            let meta = json!({"annotations": {labels::CANARY_ACTION: "rollback"}, "labels": {label: "bots"},
                "managedFields": [{"manager": manager, "operation": "Update", "time": "2026-01-01T00:00:07Z", "fieldsV1": fields}]});
            book(&serde_json::from_value(meta).unwrap()).in_manifest
        };
        assert!(of("an-engine", "argocd.argoproj.io/instance"));
        assert!(!of("kubectl", "app"), "nobody puts it back");
        assert!(!of("slipway-rest", "argocd.argoproj.io/instance"));
    }

    #[test]
    fn a_canary_ends_in_the_spec_with_the_annotation_that_says_how() {
        let mut agent = agent_of("systemPrompt: old, version: '1', canary: {enabled: true, weight: 5, systemPrompt: new, version: canary}");
        agent.metadata.resource_version = Some("7".to_owned());
        let annotations = |word: &str| json!({labels::CANARY_ACTION: word, labels::CANARY_WEIGHT: null});
        let metadata = |word: &str| json!({"resourceVersion": "7", "annotations": annotations(word)});
        let rolled_back = ending(&agent, CanaryEnd::RolledBack).unwrap();
        assert_eq!(rolled_back, json!({"spec": {"canary": null}, "metadata": metadata("rollback")}));
        let promoted = ending(&agent, CanaryEnd::Promoted).unwrap();
        assert_eq!(promoted["metadata"], metadata("promote"));
        assert_eq!(promoted["spec"], json!({"canary": null, "systemPrompt": "new"}));
    }

    #[test]
    fn what_was_said_of_a_weight_goes_with_its_canary() {
        for (phase, goes) in [(CanaryPhase::Serving, false), (CanaryPhase::Draining, true), (CanaryPhase::RolledBack, true)] {
            let mut agent = agent_of("systemPrompt: old");
            let canary = Some(CanaryStatus { phase, ..CanaryStatus::default() });
            agent.status = Some(AgentStatus { canary, ..AgentStatus::default() });
            let annotations = dropping(&agent)["metadata"]["annotations"].clone();
            assert!(annotations.get(labels::CANARY_ACTION).is_some_and(Value::is_null));
            assert_eq!(annotations.get(labels::CANARY_WEIGHT).is_some(), goes, "{phase:?}");
        }
        let mut agent = agent_of("systemPrompt: old");
        agent.metadata.annotations = Some([(labels::CANARY_ACTION.to_owned(), "rollback".to_owned())].into());
        let counted_action = Some("rollback".to_owned());
        let canary = Some(CanaryStatus { phase: CanaryPhase::Draining, counted_action, ..CanaryStatus::default() });
        agent.status = Some(AgentStatus { canary, ..AgentStatus::default() });
        assert_eq!(dropping(&agent)["metadata"]["annotations"], json!({labels::CANARY_WEIGHT: null}), "what stands in a manifest stays");
    }
}
