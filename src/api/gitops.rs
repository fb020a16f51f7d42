//! Whether a spec belongs to a GitOps tool, which would undo what is written to it: who does own it is told instead.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};

/// Labels by which Flux knows what it applied, and what they name.
const FLUX: [(&str, &str); 2] = [("kustomize.toolkit.fluxcd.io", "Kustomization"), ("helm.toolkit.fluxcd.io", "HelmRelease")];
/// With these, Flux leaves an object alone.
const FLUX_RECONCILE: &str = "kustomize.toolkit.fluxcd.io/reconcile";
const FLUX_SSA: &str = "kustomize.toolkit.fluxcd.io/ssa";
/// Argo CD's tracking by annotation: `application:group/Kind:namespace/name`.
const ARGO_TRACKING: &str = "argocd.argoproj.io/tracking-id";
/// Argo CD's tracking by label, where it was set to this name. Its older default, `app.kubernetes.io/instance`, is
/// everybody's, and says nothing by itself.
const ARGO_LABELS: [&str; 2] = ["argocd.argoproj.io/instance", "argocd.argoproj.io/app-name"];
/// What Argo CD's engine puts on an object when it runs without Argo CD. It writes under its program's name, whatever that is.
const ENGINE_MARK: &str = "gitops-agent.argoproj.io/gc-mark";
/// The field managers of these tools.
const MANAGERS: [(&str, Tool); 4] = [
    ("kustomize-controller", Tool::Flux),
    ("helm-controller", Tool::Flux),
    ("argocd-controller", Tool::Argo),
    ("argocd-application-controller", Tool::Argo),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tool {
    Flux,
    Argo,
}

/// The owner of an object's spec, by name: `Flux Kustomization flux-system/apps`.
pub fn owner(meta: &ObjectMeta) -> Option<String> {
    let nothing = BTreeMap::new();
    let (labels, annotations) = (meta.labels.as_ref().unwrap_or(&nothing), meta.annotations.as_ref().unwrap_or(&nothing));
    let manager = meta.managed_fields.iter().flatten().find_map(manager);
    // Flux takes these as labels too.
    let says = |name: &str| annotations.get(name).or_else(|| labels.get(name)).map(String::as_str);
    let left_alone = says(FLUX_RECONCILE) == Some("disabled") || matches!(says(FLUX_SSA), Some("Ignore" | "IfNotPresent"));
    if !left_alone {
        let named = FLUX.iter().find_map(|(group, kind)| {
            let name = labels.get(&format!("{group}/name"))?;
            let namespace = labels.get(&format!("{group}/namespace")).map_or_else(String::new, |namespace| format!("{namespace}/"));
            Some(format!("Flux {kind} {namespace}{name}"))
        });
        if let Some(named) = named {
            return Some(named);
        }
        if let Some((name, Tool::Flux)) = manager {
            return Some(format!("Flux ({name})"));
        }
    }
    let tracked = annotations.get(ARGO_TRACKING).map(|tracking| tracking.split(':').next().unwrap_or_default());
    let labelled = || ARGO_LABELS.iter().find_map(|name| labels.get(*name)).map(String::as_str);
    if let Some(application) = tracked.or_else(labelled).filter(|application| !application.is_empty()) {
        return Some(format!("Argo CD application {application}"));
    }
    match manager {
        Some((name, Tool::Argo)) => Some(match labels.get("app.kubernetes.io/instance") {
            Some(application) => format!("Argo CD application {application}"),
            None => format!("Argo CD ({name})"),
        }),
        _ => annotations.contains_key(ENGINE_MARK).then(|| "Argo CD's gitops-agent".to_owned()),
    }
}

/// The tool that manages fields of the spec by this entry.
fn manager(entry: &ManagedFieldsEntry) -> Option<(&'static str, Tool)> {
    if entry.subresource.as_deref().is_some_and(|subresource| !subresource.is_empty()) {
        return None;
    }
    let name = entry.manager.as_deref()?;
    let known = MANAGERS.iter().find(|(known, _)| *known == name)?;
    entry.fields_v1.as_ref()?.0.get("f:spec").map(|_| *known)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(meta: Value) -> Option<String> {
        owner(&serde_json::from_value(meta).unwrap())
    }

    fn managed(manager: &str, operation: &str, fields: &Value, subresource: &str) -> Value {
        let entry = json!({"manager": manager, "operation": operation, "apiVersion": "agents.slipway.dev/v1",
            "fieldsType": "FieldsV1", "fieldsV1": fields, "subresource": subresource});
        json!({"managedFields": [entry]})
    }

    #[test]
    fn owners_are_known_by_labels_annotations_and_the_fields_they_manage() {
        let spec = json!({"f:spec": {"f:name": {}}});
        let flux = json!({"kustomize.toolkit.fluxcd.io/name": "apps", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"});
        for (meta, expected) in [
            (json!({}), None),
            (json!({"labels": {"app.kubernetes.io/instance": "release"}}), None),
            (managed("kubectl", "Apply", &spec, ""), None),
            (managed("slipway-rest", "Update", &spec, ""), None),
            (managed("argocd-controller", "Apply", &json!({"f:metadata": {"f:labels": {}}}), ""), None),
            (managed("kustomize-controller", "Update", &spec, "scale"), None),
            (json!({"labels": flux}), Some("Flux Kustomization flux-system/apps")),
            (json!({"labels": {"helm.toolkit.fluxcd.io/name": "apps"}}), Some("Flux HelmRelease apps")),
            (json!({"labels": flux, "annotations": {"kustomize.toolkit.fluxcd.io/reconcile": "disabled"}}), None),
            (json!({"labels": flux, "annotations": {"kustomize.toolkit.fluxcd.io/ssa": "IfNotPresent"}}), None),
            (
                json!({"labels": flux, "annotations": {"kustomize.toolkit.fluxcd.io/ssa": "Merge"}}),
                Some("Flux Kustomization flux-system/apps"),
            ),
            (managed("kustomize-controller", "Apply", &spec, ""), Some("Flux (kustomize-controller)")),
            (managed("helm-controller", "Update", &spec, ""), Some("Flux (helm-controller)")),
            (managed("argocd-controller", "Apply", &spec, ""), Some("Argo CD (argocd-controller)")),
            (managed("argocd-application-controller", "Update", &spec, ""), Some("Argo CD (argocd-application-controller)")),
            (
                json!({"annotations": {"argocd.argoproj.io/tracking-id": "bots:agents.slipway.dev/Agent:team-a/helper"}}),
                Some("Argo CD application bots"),
            ),
            (json!({"labels": {"argocd.argoproj.io/instance": "bots"}}), Some("Argo CD application bots")),
            (json!({"annotations": {"gitops-agent.argoproj.io/gc-mark": "sha256.x"}}), Some("Argo CD's gitops-agent")),
        ] {
            assert_eq!(of(meta.clone()).as_deref(), expected, "{meta}");
        }
    }

    #[test]
    fn the_common_instance_label_names_the_application_once_argo_is_known_to_manage_the_spec() {
        let mut meta = managed("argocd-controller", "Apply", &json!({"f:spec": {}}), "");
        meta["labels"] = json!({"app.kubernetes.io/instance": "bots"});
        assert_eq!(of(meta).as_deref(), Some("Argo CD application bots"));
    }
}
